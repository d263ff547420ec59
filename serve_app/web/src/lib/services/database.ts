import { digestOfBytes } from '#lib/pure/digest';
import { DELETED, withDirt } from '#lib/pure/sync_merge';
import { MantaDatabase, databaseName } from '#lib/storage/db';
import type {
	Attachment,
	Draft,
	Message,
	Milliseconds,
	QueuedQuestion,
	StoredChat,
	StoredFile,
	StoredMessage
} from '#lib/types';

/** Messages that are read at once when all are looked through. */
const CHUNK = 500;

const SWEEP = 'sweep';
const DAY_MS = 24 * 3600 * 1000;

interface Sweep {
	at: Milliseconds;
	/** Files that nothing had then. */
	unused: string[];
}

/** What is written of a chat at once. */
export interface Written {
	message: StoredMessage;
	chat: StoredChat | undefined;
}

/** The chats that this browser keeps, as the person changes them. */
export class DatabaseService {
	constructor(readonly db: MantaDatabase) {}

	/** Rejects where the browser lets the page store nothing. */
	static async open(owner: string, server: string): Promise<DatabaseService> {
		const db = new MantaDatabase(databaseName(owner, server));
		await db.open();
		return new DatabaseService(db);
	}

	get name(): string {
		return this.db.name;
	}

	close(): void {
		this.db.close();
	}

	/** By us, or as another tab deleted it. */
	get isClosed(): boolean {
		return this.db.hasBeenClosed();
	}

	async deleteAll(): Promise<void> {
		await this.db.delete();
	}

	async chats(): Promise<StoredChat[]> {
		return (await this.db.chats.toArray()).filter((chat) => chat.deleted_at === undefined);
	}

	/** Of those, the ones that are there and not deleted. */
	async chatsById(ids: string[]): Promise<StoredChat[]> {
		const found = await this.db.chats.bulkGet(ids);
		return found.filter(
			(chat) => chat !== undefined && chat.deleted_at === undefined
		) as StoredChat[];
	}

	async messages(chat: string): Promise<StoredMessage[]> {
		const found = await this.db.messages.where('chat').equals(chat).toArray();
		return found.filter((message) => message.deleted_at === undefined);
	}

	async message(id: string): Promise<StoredMessage | undefined> {
		const found = await this.db.messages.get(id);
		return found?.deleted_at === undefined ? found : undefined;
	}

	/** Chats with their messages, all of them new. */
	async add(chats: StoredChat[], messages: StoredMessage[] = []): Promise<void> {
		await this.db.transaction('rw', this.db.chats, this.db.messages, async () => {
			await this.db.chats.bulkPut(chats);
			await this.db.messages.bulkPut(messages);
		});
	}

	/** Undefined if the chat is gone. */
	async changeChat(
		id: string,
		change: (chat: StoredChat) => StoredChat
	): Promise<StoredChat | undefined> {
		return this.db.transaction('rw', this.db.chats, async () => {
			const chat = await this.db.chats.get(id);
			if (!chat || chat.deleted_at !== undefined) return undefined;
			const changed = change(chat);
			if (changed !== chat) await this.db.chats.put(changed);
			return changed;
		});
	}

	/** `change` gets the message's chat, and its result is kept with the message. */
	async addMessage(
		message: Message,
		change: (chat: StoredChat) => StoredChat
	): Promise<Written | undefined> {
		const { db } = this;
		return db.transaction('rw', db.chats, db.messages, async () => {
			const before = await db.chats.get(message.chat);
			if (!before || before.deleted_at !== undefined) return undefined;
			const active_at = Math.max(before.active_at, message.created_at);
			const chat = change({ ...before, active_at });
			const stored = withOutbox(message);
			await db.chats.put(chat);
			await db.messages.put(stored);
			return { message: stored, chat };
		});
	}

	/** False if it is gone: nobody may bring a deleted message back. */
	async replaceMessage(message: Message): Promise<boolean> {
		const { db } = this;
		return db.transaction('rw', db.messages, async () => {
			const before = await db.messages.get(message.id);
			if (!before || before.deleted_at !== undefined) return false;
			await db.messages.put(withOutbox(message));
			return true;
		});
	}

	/** `top` and `below` it; the server is told of `top` alone. */
	async removeMessages(top: StoredMessage, below: ReadonlySet<string>, now: Milliseconds) {
		const { db } = this;
		await db.transaction('rw', db.messages, db.queue, async () => {
			await db.messages.bulkDelete([...below].filter((id) => id !== top.id));
			await db.messages.put(tombstone(top, now));
			await db.queue.bulkDelete([...below]);
		});
	}

	async removeChat(id: string, now: Milliseconds): Promise<void> {
		const { db } = this;
		await db.transaction('rw', [db.chats, db.messages, db.drafts, db.queue], async () => {
			const chat = await db.chats.get(id);
			if (chat) {
				const empty = { ...chat, title: '', system: '', leaf: null, [DELETED]: now };
				await db.chats.put(withDirt({ ...empty, base: null }));
			}
			await db.messages.where('chat').equals(id).delete();
			await db.drafts.bulkDelete([id, `next:${id}`]);
			await db.queue.filter((one) => one.chat === id).delete();
		});
	}

	async running(): Promise<StoredMessage[]> {
		return this.db.messages.where('state').equals('running').toArray();
	}

	/** All messages, the newest first, some at a time; `visit` may say that it has enough. */
	async eachMessage(visit: (some: StoredMessage[]) => boolean): Promise<void> {
		let before: string | undefined;
		for (;;) {
			const ordered =
				before === undefined
					? this.db.messages.orderBy('id')
					: this.db.messages.where('id').below(before);
			const some = await ordered.reverse().limit(CHUNK).toArray();
			if (some.length === 0 || !visit(some)) return;
			before = some.at(-1)!.id;
		}
	}

	async draft(chat: string): Promise<Draft | undefined> {
		return this.db.drafts.get(chat);
	}

	/** An empty draft is none. */
	async saveDraft(draft: Draft): Promise<void> {
		if (draft.text === '' && draft.attachments.length === 0)
			await this.db.drafts.delete(draft.chat);
		else await this.db.drafts.put(draft);
	}

	async putFile(blob: Blob): Promise<StoredFile> {
		const bytes = new Uint8Array(await blob.arrayBuffer());
		const sha256 = await digestOfBytes(bytes);
		const { db } = this;
		return db.transaction('rw', db.files, async () => {
			const before = await db.files.get(sha256);
			if (before) return before;
			const { type, size } = blob;
			const file: StoredFile = { sha256, type, size, blob };
			await db.files.put(file);
			return file;
		});
	}

	async file(sha256: string): Promise<StoredFile | undefined> {
		return this.db.files.get(sha256);
	}

	/** A file that came from the server. */
	async keepFile(sha256: string, blob: Blob): Promise<void> {
		const { type, size } = blob;
		await this.db.files.put({ sha256, type, size, blob });
	}

	/**
	 * Once a day: deletes files that no message and no draft has, and that none had the day before, as a
	 * file is there a moment before what it belongs to.
	 */
	async sweepFiles(now: Milliseconds): Promise<void> {
		const last = (await this.db.meta.get(SWEEP))?.value as Sweep | undefined;
		if (last && now - last.at < DAY_MS) return;
		const unused = new Set(await this.db.files.toCollection().primaryKeys());
		const use = (attachments: readonly Attachment[]) => {
			for (const { sha256 } of attachments) unused.delete(sha256);
		};
		await this.eachMessage((some) => {
			for (const { attachments } of some) use(attachments);
			return unused.size > 0;
		});
		for (const draft of await this.db.drafts.toArray()) use(draft.attachments);
		const gone = (last?.unused ?? []).filter((sha256) => unused.has(sha256));
		await this.db.files.bulkDelete(gone);
		await this.db.meta.put({ key: SWEEP, value: { at: now, unused: [...unused] } });
	}

	async enqueue(question: QueuedQuestion): Promise<void> {
		await this.db.queue.put(question);
	}

	async queued(): Promise<QueuedQuestion[]> {
		const queued = await this.db.queue.toArray();
		return queued.sort((a, b) => a.created_at - b.created_at);
	}

	/** Whether it was still there: of several tabs one alone gets it. */
	async dequeue(message: string): Promise<boolean> {
		return this.db.transaction('rw', this.db.queue, async () => {
			const found = await this.db.queue.get(message);
			if (found) await this.db.queue.delete(message);
			return found !== undefined;
		});
	}
}

/** What is done is to be sent; what is running waits until it is. */
export function withOutbox(message: Message): StoredMessage {
	const { outbox: _before, ...rest } = message as StoredMessage;
	if (message.state === 'running' || message.revision !== null) return rest;
	return { ...rest, outbox: 'send' };
}

/** What is left of a deleted message until the server knows. */
function tombstone(message: StoredMessage, now: Milliseconds): StoredMessage {
	const { id, chat, parent, role, created_at, revision } = message;
	return {
		...{ id, chat, parent, role, created_at, revision },
		text: '',
		attachments: [],
		state: 'done',
		deleted_at: now,
		outbox: 'delete'
	};
}
