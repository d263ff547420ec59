import { conversationsStore } from '#lib/stores/conversations.svelte';
import type { Attachment } from '#lib/types';

/** The address of a picture or a sound that is attached; undefined for all others, and for what is not here. */
export function usePreview(attachment: () => Attachment | undefined) {
	let url = $state<string>();
	$effect(() => {
		const of = attachment();
		if (!of || !/^(?:image|audio)\//.test(of.type)) return;
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
