import { conversationsStore } from '#lib/stores/conversations.svelte';
import type { Attachment } from '#lib/types';

/** The address of a picture that is attached; undefined for what is none, or is not here. */
export function usePreview(attachment: () => Attachment | undefined) {
	let url = $state<string>();
	$effect(() => {
		const of = attachment();
		if (!of?.type.startsWith('image/')) return;
		let made: string | undefined;
		let isGone = false;
		void conversationsStore.file(of.sha256).then((blob) => {
			if (!blob || isGone) return;
			// In an <img> an SVG file runs no script and fetches nothing.
			made = URL.createObjectURL(blob);
			url = made;
		});
		return () => {
			isGone = true;
			url = undefined;
			if (made) URL.revokeObjectURL(made);
		};
	});
	return {
		get url() {
			return url;
		}
	};
}
