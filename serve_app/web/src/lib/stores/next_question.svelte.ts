import { SvelteMap, SvelteSet } from 'svelte/reactivity';
import type { Attachment, Draft } from '#lib/types';
import { conversationsStore } from './conversations.svelte';

/** Where it is kept, among drafts: it was written and is not sent. */
function placeOf(chat: string): string {
	return `next:${chat}`;
}

/** What was asked while an answer ran, by chat: it is sent after that, and outlives the page. */
class NextQuestionStore {
	readonly #kept = new SvelteMap<string, Draft>();
	/** Chats whose answer is stopped for it. */
	readonly #wanted = new SvelteSet<string>();
	readonly #read = new Set<string>();

	of(chat: string | null | undefined): Draft | undefined {
		return chat ? this.#kept.get(chat) : undefined;
	}

	/** Finds what an earlier page has left. */
	async read(chat: string): Promise<void> {
		if (this.#read.has(chat)) return;
		this.#read.add(chat);
		const draft = await conversationsStore.draft(placeOf(chat));
		if (draft && !this.#kept.has(chat)) this.#kept.set(chat, draft);
	}

	/** Behind what already waits. */
	async add(chat: string, text: string, attachments: Attachment[]): Promise<void> {
		const before = this.#kept.get(chat);
		const draft = {
			chat: placeOf(chat),
			text: [before?.text, text].filter(Boolean).join('\n\n'),
			attachments: [...(before?.attachments ?? []), ...attachments]
		};
		this.#read.add(chat);
		this.#kept.set(chat, draft);
		await conversationsStore.saveDraft(draft);
	}

	/** It waits no longer. */
	take(chat: string): Draft | undefined {
		const draft = this.#kept.get(chat);
		this.#kept.delete(chat);
		this.#wanted.delete(chat);
		if (draft) void conversationsStore.saveDraft({ ...draft, text: '', attachments: [] });
		return draft;
	}

	/** The running answer is stopped so that it is sent. */
	wantNow(chat: string): void {
		this.#wanted.add(chat);
	}

	isWanted(chat: string): boolean {
		return this.#wanted.has(chat);
	}

	/** The chats are closed. */
	forget(): void {
		this.#kept.clear();
		this.#wanted.clear();
		this.#read.clear();
	}
}

export const nextQuestionStore = new NextQuestionStore();
