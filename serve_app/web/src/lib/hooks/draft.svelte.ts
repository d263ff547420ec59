import { untrack } from 'svelte';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import type { Attachment, Draft } from '#lib/types';

const SAVE_AFTER_MS = 400;

export interface UsedDraft {
	text: string;
	attachments: Attachment[];
	/** Keeps it soon; to be called when a person changed it. */
	changed: () => void;
	/** Empties it, here and where it is kept. */
	clear: () => void;
}

/** What is written in the box of a chat (`new` for none) and not sent: it outlives the page. */
export function useDraft(place: () => string): UsedDraft {
	let text = $state('');
	let attachments = $state.raw<Attachment[]>([]);
	let timer: ReturnType<typeof setTimeout> | undefined;
	/** Of the box's present content. */
	let of = '';
	let isDirty = false;
	/** On its way to where it is kept: the page may end before it is there. */
	let saving: Draft | null = null;

	function save() {
		clearTimeout(timer);
		if (!isDirty) return;
		isDirty = false;
		const draft = { chat: of, text, attachments };
		saving = draft;
		void conversationsStore.saveDraft(draft).then(() => {
			if (saving === draft) saving = null;
		});
	}

	// A chat's record changes more often than which chat it is.
	const where = $derived(place());
	$effect(() => {
		const wanted = where;
		if (!conversationsStore.ready) return;
		untrack(() => {
			save();
			of = wanted;
			text = '';
			attachments = [];
			void conversationsStore.draft(wanted).then((draft) => {
				// Somebody typed, or went to another chat, before it was read.
				if (of !== wanted || isDirty || text !== '') return;
				text = draft?.text ?? '';
				attachments = draft?.attachments ?? [];
			});
		});
	});
	function leave() {
		const last = isDirty ? { chat: of, text, attachments } : saving;
		if (last) conversationsStore.leaveDraft(last);
		save();
	}

	$effect(() => {
		addEventListener('pagehide', leave);
		return () => {
			removeEventListener('pagehide', leave);
			save();
		};
	});

	return {
		get text() {
			return text;
		},
		set text(now) {
			text = now;
		},
		get attachments() {
			return attachments;
		},
		set attachments(now) {
			attachments = now;
		},
		changed() {
			isDirty = true;
			clearTimeout(timer);
			timer = setTimeout(save, SAVE_AFTER_MS);
		},
		clear() {
			text = '';
			attachments = [];
			isDirty = true;
			save();
		}
	};
}
