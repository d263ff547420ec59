import { untrack } from 'svelte';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import type { Attachment, Draft } from '#lib/types';

const SAVE_AFTER_MS = 400;

export interface UsedDraft {
	text: string;
	attachments: Attachment[];
	/** Whose it is: the id of a chat, or `new`. */
	readonly place: string;
	/** Keeps it soon; to be called when a person changed it. */
	changed: () => void;
	/** Empties it, here and where it is kept. What is written from now on is of `next`. */
	clear: (next: string) => void;
	/** Puts back what could not be sent, before what was written since. */
	restore: (text: string, attachments: Attachment[]) => void;
}

/**
 * What is written in the box of a chat (`new` for none) and not sent: it outlives the page. It can be
 * written before the chats are read: it then stands behind what was kept.
 */
export function useDraft(place: () => string): UsedDraft {
	let text = $state('');
	let attachments = $state.raw<Attachment[]>([]);
	let timer: ReturnType<typeof setTimeout> | undefined;
	/** Of the box's present content; empty while no chat can be read. */
	let of = $state('');
	let isDirty = false;
	/** Goes up with what makes a draft that is being read worth nothing. */
	let turn = 0;
	let isRead = false;
	/** On its way to where it is kept: the page may end before it is there. */
	let saving: Draft | null = null;

	function save() {
		clearTimeout(timer);
		if (!isDirty || of === '') return;
		isDirty = false;
		const draft = { chat: of, text, attachments };
		saving = draft;
		void conversationsStore.saveDraft(draft).then(() => {
			if (saving === draft) saving = null;
		});
	}

	function saveSoon() {
		isDirty = true;
		clearTimeout(timer);
		// What was kept is not overwritten before it is read.
		timer = setTimeout(() => (isRead ? save() : saveSoon()), SAVE_AFTER_MS);
	}

	function putBefore(earlier: Pick<Draft, 'text' | 'attachments'>) {
		text = [earlier.text, text].filter(Boolean).join('\n');
		attachments = [...earlier.attachments, ...attachments];
	}

	async function enter(wanted: string) {
		if (of === wanted) return;
		const isEarly = of === '' && isDirty;
		save();
		of = wanted;
		isRead = false;
		if (!isEarly) {
			text = '';
			attachments = [];
		}
		const own = ++turn;
		const draft = await conversationsStore.draft(wanted);
		if (own !== turn) return;
		isRead = true;
		if (draft) putBefore(draft);
	}

	// A chat's record changes more often than which chat it is.
	const where = $derived(place());
	$effect(() => {
		const wanted = where;
		const isReady = conversationsStore.ready;
		untrack(() => {
			if (isReady) void enter(wanted);
			else of = '';
		});
	});
	function leave() {
		const last = isDirty ? { chat: of || where, text, attachments } : saving;
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
		get place() {
			return of || where;
		},
		changed: saveSoon,
		clear(next) {
			text = '';
			attachments = [];
			isDirty = true;
			save();
			turn++;
			isRead = true;
			of = next;
		},
		restore(unsent, files) {
			of = where;
			putBefore({ text: unsent, attachments: files });
			saveSoon();
		}
	};
}
