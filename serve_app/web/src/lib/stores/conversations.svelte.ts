// A stand-in until chats are kept: it lives as long as the page.
import { SvelteMap } from 'svelte/reactivity';
import { newId } from '#lib/pure/ids';
import { leafAfterDelete, newestLeafBelow, pathTo, withAllBelow } from '#lib/pure/tree';
import type { Chat, Draft, Message } from '#lib/types';

class ConversationsStore {
	ready = $state(true);
	#chats = $state.raw<Chat[]>([]);
	#id = $state<string | null>(null);
	messages = new SvelteMap<string, Message>();
	#all = new Map<string, Message>();
	#files = new Map<string, Blob>();
	#drafts = new Map<string, Draft>();
	readonly chats = $derived(this.#chats.toSorted((a, b) => b.updated_at - a.updated_at));
	readonly current = $derived(this.#chats.find((chat) => chat.id === this.#id) ?? null);
	readonly path = $derived(pathTo(this.messages, this.current?.leaf ?? null));
	sync = $state({ state: 'local' as const, pending: 0, text: 'Only in this browser' });

	async open(id: string | null): Promise<void> {
		this.#id = id;
		this.messages.clear();
		for (const message of this.#all.values())
			if (message.chat === id) this.messages.set(message.id, message);
	}
	async create(fields: Partial<Chat>): Promise<Chat> {
		const now = Date.now();
		const chat: Chat = {
			id: newId(),
			title: 'New chat',
			title_by: 'first_line',
			leaf: null,
			pinned: false,
			model: null,
			system: '',
			settings: { sampling: {}, thinking: {} },
			created_at: now,
			updated_at: now,
			revision: null,
			dirty: [],
			...fields
		};
		this.#chats = [...this.#chats, chat];
		await this.open(chat.id);
		return chat;
	}
	async update(id: string, fields: Partial<Chat>): Promise<void> {
		this.#chats = this.#chats.map((chat) =>
			chat.id === id ? { ...chat, ...fields, updated_at: Date.now() } : chat
		);
	}
	#put(message: Message): void {
		this.#all.set(message.id, message);
		if (message.chat === this.#id) this.messages.set(message.id, message);
	}
	async addMessage(message: Message, options: { select?: boolean } = {}): Promise<void> {
		this.#put(message);
		const chat = this.#chats.find((one) => one.id === message.chat);
		if (options.select || chat?.leaf === message.parent)
			await this.update(message.chat, { leaf: message.id });
	}
	changeRunning(id: string, fields: Partial<Message>): void {
		const message = this.#all.get(id);
		if (message) this.#put({ ...message, ...fields });
	}
	async finish(id: string, fields: Partial<Message>): Promise<void> {
		this.changeRunning(id, { ...fields, state: 'done' });
	}
	async selectSibling(id: string): Promise<void> {
		if (this.#id) await this.update(this.#id, { leaf: newestLeafBelow(this.messages, id) });
	}
	async removeMessage(id: string): Promise<void> {
		const gone = withAllBelow(this.messages, id);
		const leaf = leafAfterDelete(this.messages, this.current?.leaf ?? null, gone);
		if (this.#id) await this.update(this.#id, { leaf });
		for (const one of gone) {
			this.messages.delete(one);
			this.#all.delete(one);
		}
	}
	async removeChat(id: string): Promise<void> {
		this.#chats = this.#chats.filter((chat) => chat.id !== id);
		if (this.#id === id) await this.open(null);
	}
	async fork(chatId: string, messageId: string): Promise<Chat> {
		const path = pathTo(this.messages, messageId);
		const from = this.#chats.find((chat) => chat.id === chatId)!;
		const chat = await this.create({ ...from, id: newId(), forked_from: chatId, leaf: null });
		let parent: string | null = null;
		for (const message of path) {
			const copy: Message = { ...message, id: newId(), chat: chat.id, parent };
			await this.addMessage(copy);
			parent = copy.id;
		}
		return chat;
	}
	async search(): Promise<Chat[]> {
		return this.chats;
	}
	async runningOnStart(): Promise<Message[]> {
		return [];
	}
	async draft(chat: string): Promise<Draft | undefined> {
		return this.#drafts.get(chat);
	}
	async saveDraft(draft: Draft): Promise<void> {
		this.#drafts.set(draft.chat, draft);
	}
	async putFile(blob: Blob): Promise<{ sha256: string; type: string; size: number }> {
		const sha256 = newId();
		this.#files.set(sha256, blob);
		return { sha256, type: blob.type, size: blob.size };
	}
	async file(sha256: string): Promise<Blob | undefined> {
		return this.#files.get(sha256);
	}
}

export const conversationsStore = new ConversationsStore();
