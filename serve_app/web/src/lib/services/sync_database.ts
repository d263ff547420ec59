import type { ChangedChat, ChangedMessage, Changes } from '#lib/pure/changes';
import { newId } from '#lib/pure/ids';
import { acknowledge, adopt, merge, rebase, rescued, withDirt } from '#lib/pure/sync_merge';
import { byAge, withAllBelow } from '#lib/pure/tree';
import type { MantaDatabase } from '#lib/storage/db';
import type { ChatFields, Draft, StoredChat, StoredFile, StoredMessage } from '#lib/types';

const CURSOR = 'cursor';
const FIRST = '0';
/** The draft of no chat. */
const NEW = 'new';

/** Which chats, and the messages of which chats, are not as they were. */
export interface Touched {
	chats: Set<string>;
	messages: Set<string>;
}

/** The chats that this browser keeps, as the sync with the server changes them. */
export class SyncDatabase {
	constructor(private readonly db: MantaDatabase) {}

	async cursor(): Promise<string> {
		const found = await this.db.meta.get(CURSOR);
		return typeof found?.value === 'string' ? found.value : FIRST;
	}

	/**
	 * Nothing was read yet, and something was sent: a first reading has no tombstones, and what was
	 * sent may be deleted by now.
	 */
	async isSentUnread(): Promise<boolean> {
		if ((await this.cursor()) !== FIRST) return false;
		return (await this.db.chats.filter((chat) => chat.revision !== null).count()) > 0;
	}

	/**
	 * Stores a page and, with it, how far we have read. `anew`: all is read again, and how far we are
	 * is stored once all was.
	 */
	async apply(page: Changes, anew = false): Promise<Touched> {
		return this.#change(async (touched) => {
			// Messages of a chat may come with its tombstone's page: the chat is the word on them.
			const adopted: string[] = [];
			for (const chat of page.chats)
				if (await this.#applyChat(chat, touched, anew)) adopted.push(chat.id);
			const added = page.messages.filter((one) => one.message !== null);
			await this.#applyMessages(added, touched);
			for (const one of page.messages)
				if (one.message === null) await this.#dropMessage(one.id, touched);
			await this.#setActive(adopted, touched);
			if (!anew) await this.db.meta.put({ key: CURSOR, value: page.next });
		});
	}

	/**
	 * After all was read anew up to `revision`: what the server had and has no more was deleted there.
	 * What it had after `revision` it has lost, as its database was put back: that is sent again.
	 */
	async endAnew(seen: ReadonlySet<string>, revision: number, next: string): Promise<Touched> {
		const { chats, messages } = this.db;
		type Known = { id: string; revision: number | null };
		const isGone = (one: Known) =>
			one.revision !== null && one.revision <= revision && !seen.has(one.id);
		const isLost = (one: Known) =>
			one.revision !== null && one.revision > revision && !seen.has(one.id);
		return this.#change(async (touched) => {
			for (const chat of await chats.filter(isGone).toArray())
				await this.#dropChat(chat.id, touched);
			for (const message of await messages.filter(isGone).toArray())
				await this.#dropMessage(message.id, touched);
			for (const chat of await chats.filter(isLost).toArray())
				await chats.put(withDirt({ ...chat, base: null, revision: null }));
			for (const message of await messages.filter(isLost).toArray())
				await messages.put(unsent(message));
			await this.db.meta.put({ key: CURSOR, value: next });
		});
	}

	async dirtyChats(): Promise<StoredChat[]> {
		return this.db.chats.where('outbox').equals('send').toArray();
	}

	async chat(id: string): Promise<StoredChat | undefined> {
		return this.db.chats.get(id);
	}

	/** What of messages the server does not know, the oldest first. */
	async outbox(): Promise<StoredMessage[]> {
		return this.db.messages.where('outbox').anyOf('send', 'delete').sortBy('created_at');
	}

	async message(id: string): Promise<StoredMessage | undefined> {
		return this.db.messages.get(id);
	}

	async file(sha256: string): Promise<StoredFile | undefined> {
		return this.db.files.get(sha256);
	}

	/** How many changes the server does not know. */
	async pending(): Promise<number> {
		const { chats, messages } = this.db;
		const counts = await Promise.all([
			chats.where('outbox').equals('send').count(),
			messages.where('outbox').anyOf('send', 'delete').count()
		]);
		return counts.reduce((sum, one) => sum + one);
	}

	async acknowledgeChat(id: string, sent: ChatFields, revision: number): Promise<void> {
		await this.#changeChat(id, (chat) => acknowledge(chat, sent, revision));
	}

	/** The server has something else than this browser thought; `anew`: something older, even. */
	async mergeChat(changed: ChangedChat, anew: boolean): Promise<Touched> {
		return this.#change(async (touched) => {
			await this.#applyChat(changed, touched, anew);
		});
	}

	async acknowledgeMessages(ids: string[], revision: number): Promise<void> {
		await this.db.transaction('rw', this.db.messages, async () => {
			for (const message of await this.db.messages.bulkGet(ids))
				if (message) await this.db.messages.put(withRevision(message, revision));
		});
	}

	/** The server knows that it is deleted. */
	async forgetChat(id: string): Promise<void> {
		await this.db.transaction('rw', this.db.chats, this.db.messages, async () => {
			await this.db.chats.delete(id);
			await this.db.messages.where('chat').equals(id).delete();
		});
	}

	async forgetMessage(id: string): Promise<void> {
		await this.db.messages.delete(id);
	}

	/** It was deleted elsewhere. */
	async dropChat(id: string): Promise<Touched> {
		return this.#change((touched) => this.#dropChat(id, touched));
	}

	async dropMessage(id: string): Promise<Touched> {
		return this.#change((touched) => this.#dropMessage(id, touched));
	}

	/** The server has lost a chat that it had: all of it is sent again. */
	async sendAgain(id: string): Promise<void> {
		const { db } = this;
		await db.transaction('rw', db.chats, db.messages, async () => {
			const chat = await db.chats.get(id);
			if (chat) await db.chats.put(withDirt({ ...chat, base: null, revision: null }));
			for (const message of await db.messages.where('chat').equals(id).toArray()) {
				if (message.state === 'running' || message.outbox === 'delete') continue;
				await db.messages.put(unsent(message));
			}
		});
	}

	/** The server has another message of this id: ours gets an id of its own. */
	async rename(id: string): Promise<Touched> {
		return this.#change(async (touched) => {
			const message = await this.db.messages.get(id);
			if (!message) return;
			const other = newId();
			await this.db.messages.put({ ...message, id: other, revision: null, outbox: 'send' });
			await this.db.messages.delete(id);
			const among = await this.db.messages.where('chat').equals(message.chat).toArray();
			for (const child of among)
				if (child.parent === id && child.revision === null)
					await this.db.messages.put({ ...child, parent: other });
			await this.#changeChat(message.chat, (chat) =>
				chat.leaf === id ? withDirt({ ...chat, leaf: other }) : chat
			);
			touched.chats.add(message.chat);
			touched.messages.add(message.chat);
		});
	}

	async #change(change: (touched: Touched) => Promise<void>): Promise<Touched> {
		const { db } = this;
		const touched: Touched = { chats: new Set(), messages: new Set() };
		const tables = [db.chats, db.messages, db.meta, db.drafts, db.queue];
		// Dexie follows awaits of a function that it sees to be async.
		await db.transaction('rw', tables, async () => await change(touched));
		return touched;
	}

	async #changeChat(id: string, change: (chat: StoredChat) => StoredChat): Promise<void> {
		await this.db.transaction('rw', this.db.chats, async () => {
			const chat = await this.db.chats.get(id);
			if (chat) await this.db.chats.put(change(chat));
		});
	}

	/** Whether it is new here. */
	async #applyChat(changed: ChangedChat, touched: Touched, anew: boolean): Promise<boolean> {
		const { id, fields, revision } = changed;
		if (fields === null) {
			await this.#dropChat(id, touched);
			return false;
		}
		const chat = await this.db.chats.get(id);
		const isOlder = chat && chat.revision !== null && chat.revision > revision;
		const next = !chat
			? adopt(id, fields, revision)
			: isOlder && anew
				? rebase(chat, fields, revision)
				: merge(chat, fields, revision);
		if (next === chat) return false;
		await this.db.chats.put(next);
		touched.chats.add(id);
		return chat === undefined;
	}

	async #applyMessages(changed: ChangedMessage[], touched: Touched): Promise<void> {
		if (changed.length === 0) return;
		const { chats, messages } = this.db;
		const rows = await messages.bulkGet(changed.map((one) => one.id));
		const inChats = new Set<string>();
		for (const [index, { message, revision }] of changed.entries()) {
			if (!message) continue;
			const before = rows[index];
			if (before?.state === 'running') continue;
			if (before) {
				// Ours, or read again. Only the revision may be news: messages never change.
				const isSent = before.attachments.length === 0 || before.outbox !== 'send';
				// Its files follow it: until they are there it counts as not sent.
				await messages.put(isSent ? withRevision(before, revision) : { ...before, revision });
				continue;
			}
			const parent = message.parent === null ? undefined : await messages.get(message.parent);
			if (parent?.deleted_at !== undefined) continue;
			if ((await chats.get(message.chat))?.deleted_at !== undefined) continue;
			await messages.put({ ...message, revision });
			inChats.add(message.chat);
		}
		for (const id of inChats) touched.messages.add(id);
		await this.#setActive([...inChats], touched);
	}

	async #setActive(ids: string[], touched: Touched): Promise<void> {
		if (ids.length === 0) return;
		const newest = new Map<string, number>();
		await this.db.messages
			.where('chat')
			.anyOf(ids)
			.each(({ chat, created_at }) => {
				newest.set(chat, Math.max(newest.get(chat) ?? 0, created_at));
			});
		for (const [id, active_at] of newest) {
			const chat = await this.db.chats.get(id);
			if (!chat || chat.active_at >= active_at) continue;
			await this.db.chats.put({ ...chat, active_at });
			touched.chats.add(id);
		}
	}

	async #dropChat(id: string, touched: Touched): Promise<void> {
		const { chats, messages, drafts, queue } = this.db;
		const chat = await chats.get(id);
		const rows = await messages.where('chat').equals(id).toArray();
		const draft = await drafts.get(id);
		if (chat && chat.deleted_at === undefined) {
			const gone = new Set(rows.map((row) => row.id));
			const restored = await this.#rescue(chat, rows, gone, touched);
			if (draft) await this.#keepDraft(draft, restored ?? NEW);
		}
		await messages.bulkDelete(rows.map((row) => row.id));
		await chats.delete(id);
		await drafts.delete(id);
		await queue.filter((one) => one.chat === id).delete();
		touched.chats.add(id);
		touched.messages.add(id);
	}

	async #keepDraft(draft: Draft, chat: string): Promise<void> {
		const other = await this.db.drafts.get(chat);
		await this.db.drafts.put({
			chat,
			text: [other?.text, draft.text].filter(Boolean).join('\n\n'),
			attachments: [...(other?.attachments ?? []), ...draft.attachments]
		});
	}

	async #dropMessage(id: string, touched: Touched): Promise<void> {
		const { chats, messages, queue } = this.db;
		const message = await messages.get(id);
		if (!message) return;
		const rows = await messages.where('chat').equals(message.chat).toArray();
		const gone = withAllBelow(new Map(rows.map((row) => [row.id, row])), id);
		const chat = await chats.get(message.chat);
		if (chat && chat.deleted_at === undefined && message.deleted_at === undefined)
			await this.#rescue(chat, rows, gone, touched);
		await messages.bulkDelete([...gone]);
		await queue.bulkDelete([...gone]);
		touched.messages.add(message.chat);
	}

	/** What of `gone` was never sent lives on in a chat of its own, whose id it answers. */
	async #rescue(
		chat: StoredChat,
		rows: StoredMessage[],
		gone: ReadonlySet<string>,
		touched: Touched
	): Promise<string | null> {
		const id = newId();
		const kept = rescued(new Map(rows.map((row) => [row.id, row])), gone, id, newId);
		const newest = [...kept.values()].sort(byAge).at(-1);
		if (!newest) return null;
		const { forked_from: _from, ...fields } = chat;
		const own = { id, leaf: newest.id, base: null, revision: null, active_at: newest.created_at };
		const title = `${chat.title} (restored)`;
		await this.db.chats.put(withDirt({ ...fields, ...own, title, title_by: 'person' }));
		await this.db.messages.bulkPut([...kept.values()]);
		for (const question of await this.db.queue.bulkGet([...kept.keys()])) {
			if (!question) continue;
			const message = kept.get(question.message)!.id;
			await this.db.queue.put({ ...question, message, chat: id });
		}
		touched.chats.add(id);
		touched.messages.add(id);
		return id;
	}
}

function unsent(message: StoredMessage): StoredMessage {
	return { ...message, revision: null, outbox: 'send' };
}

/** It may have been deleted here while it was sent: that is still to be told. */
function withRevision(message: StoredMessage, revision: number): StoredMessage {
	const { outbox, ...rest } = message;
	return { ...rest, revision, ...(outbox === 'delete' && { outbox }) };
}
