import { readChanges, readChat } from '#lib/pure/changes';
import { fieldsOf, inOrder, sentMessage } from '#lib/pure/sync_merge';
import type { ChatFields, StoredChat, StoredMessage } from '#lib/types';
import { api, ApiError, uiUrl } from './api';
import type { SyncDatabase, Touched } from './sync_database';

/** Rows of a page. */
const PAGE = 200;
/** Messages and, roughly, characters of a request. */
const MAX_MESSAGES = 100;
const MAX_CHARACTERS = 1 << 20;
/** How often a chat is merged in one round with what another device writes at the same time. */
const MAX_MERGES = 5;
/** The server takes 20 of all of this client's tabs. */
const WRITES_PER_SECOND = 15;

/** What the server will not store, by the id of the chat, message or file: its words. */
export type Refusals = Map<string, string>;

/**
 * Brings this browser's chats and the server's together: `pull` takes what others wrote, `push` sends
 * what was written here. Each step may be cut off anywhere and done again. Both throw `ApiError`.
 */
export class SyncService {
	/** They are not sent again until the page is opened anew, the thing is changed, or room is made. */
	readonly refused: Refusals = new Map();
	/** As of which `updated_at` a chat was refused. */
	readonly #refusedAt = new Map<string, number>();
	/** Chats that were sent again as the server had lost a part. */
	readonly #resent = new Set<string>();
	/** When the last writes were sent. */
	readonly #writes: number[] = [];

	/** `tell` is called when chats became others, which may leave something to send. */
	constructor(
		private readonly database: SyncDatabase,
		private readonly tell: (touched: Touched) => void,
		private readonly writesPerSecond = WRITES_PER_SECOND
	) {}

	/** Reads all that changed; where nothing did it waits for so many seconds. */
	async pull(wait_s: number, signal: AbortSignal): Promise<void> {
		if (await this.database.isSentUnread()) await this.#pullAnew(signal);
		for (let wait = wait_s; ; wait = 0) {
			let page;
			try {
				page = await this.#page(await this.database.cursor(), wait, signal);
			} catch (error) {
				if (!(error instanceof ApiError) || error.status !== 410) throw error;
				await this.#pullAnew(signal);
				continue;
			}
			this.tell(await this.database.apply(page));
			if (!page.more) return;
		}
	}

	/** Sends all that the server does not know. */
	async push(signal: AbortSignal): Promise<void> {
		for (const chat of await this.database.dirtyChats())
			if (!this.#isRefused(chat)) await this.#pushChat(chat, signal);
		const waiting = await this.database.outbox();
		for (const message of waiting)
			if (message.outbox === 'delete') await this.#deleteMessage(message, signal);
		const toSend = waiting.filter((message) => message.outbox === 'send');
		for (const chat of new Set(toSend.map((message) => message.chat))) {
			const ofChat = toSend.filter((message) => message.chat === chat);
			await this.#pushMessages(chat, ofChat, signal);
		}
	}

	/** Undefined: the server has no such file. */
	async fetchFile(sha256: string): Promise<Blob | undefined> {
		try {
			const response = await api.stream(uiUrl(`api/files/${sha256}`));
			return await response.blob();
		} catch (error) {
			if (error instanceof ApiError && error.status === 404) return undefined;
			throw error;
		}
	}

	async #page(since: string, wait: number, signal: AbortSignal) {
		const query = new URLSearchParams({ since, limit: `${PAGE}`, wait: `${wait}` });
		return readChanges(await api.json(uiUrl(`api/changes?${query}`), { signal }));
	}

	/** The server has forgotten what was deleted since we last read. */
	async #pullAnew(signal: AbortSignal): Promise<void> {
		const seen = new Set<string>();
		for (let since = '0'; ;) {
			const page = await this.#page(since, 0, signal);
			for (const { id } of [...page.chats, ...page.messages]) seen.add(id);
			this.tell(await this.database.apply(page, true));
			since = page.next;
			if (page.more) continue;
			this.tell(await this.database.endAnew(seen, page.revision, page.next));
			return;
		}
	}

	async #pushChat(first: StoredChat, signal: AbortSignal): Promise<void> {
		const { id } = first;
		for (let merges = 0; merges < MAX_MERGES; merges++) {
			const chat = await this.database.chat(id);
			if (!chat || chat.dirty.length === 0) return;
			if (chat.deleted_at !== undefined) {
				await this.#delete(`api/chats/${id}`, signal);
				return this.database.forgetChat(id);
			}
			if (await this.#putChat(chat, merges > 1, signal)) return;
		}
	}

	/** False: the server had something else, and the two are merged. */
	async #putChat(chat: StoredChat, anew: boolean, signal: AbortSignal): Promise<boolean> {
		const sent: ChatFields = fieldsOf(chat);
		const condition: [string, string] =
			chat.revision === null ? ['If-None-Match', '*'] : ['If-Match', `"${chat.revision}"`];
		try {
			const headers = new Headers([condition]);
			const path = `api/chats/${chat.id}`;
			const { revision } = await this.#json('PUT', path, sent, headers, signal);
			await this.database.acknowledgeChat(chat.id, sent, revision);
			return true;
		} catch (error) {
			if (!(error instanceof ApiError)) throw error;
			if (error.status === 410) {
				this.tell(await this.database.dropChat(chat.id));
				return true;
			}
			if (error.status !== 412) {
				this.#refuse(error, chat.id, chat.updated_at);
				return true;
			}
			const current = readChat((error.body as { chat?: unknown } | undefined)?.chat);
			if (current) this.tell(await this.database.mergeChat(current, anew));
			else await this.#sendAgain(chat);
			return false;
		}
	}

	async #deleteMessage({ id, chat }: StoredMessage, signal: AbortSignal): Promise<void> {
		await this.#delete(`api/chats/${chat}/messages/${id}`, signal);
		await this.database.forgetMessage(id);
	}

	async #pushMessages(chat: string, waiting: StoredMessage[], signal: AbortSignal): Promise<void> {
		const found = await this.database.chat(chat);
		// The chat itself goes first.
		if (!found || found.deleted_at !== undefined || found.revision === null) return;
		const left = waiting.filter(({ id }) => !this.refused.has(id));
		const ids = new Set(left.map((message) => message.id));
		const held = new Set(this.refused.keys());
		for (const { parent } of left) {
			if (parent === null || ids.has(parent)) continue;
			if ((await this.database.message(parent))?.state === 'running') held.add(parent);
		}
		const order = inOrder(left, (id) => held.has(id));
		for (const batch of batches(order))
			if (!(await this.#postMessages(found, batch, signal))) return;
	}

	/** False: something in this chat has to be made right first; it is sent with the next round. */
	async #postMessages(
		chat: StoredChat,
		batch: StoredMessage[],
		signal: AbortSignal
	): Promise<boolean> {
		let answer: { revision: number; missing_files?: string[] };
		try {
			const body = { messages: batch.map(sentMessage) };
			const path = `api/chats/${chat.id}/messages`;
			answer = await this.#json('POST', path, body, new Headers(), signal);
		} catch (error) {
			if (!(error instanceof ApiError)) throw error;
			await this.#mend(error, chat, batch, signal);
			return false;
		}
		for (const sha256 of answer.missing_files ?? []) await this.#putFile(sha256, signal);
		await this.database.acknowledgeMessages(
			batch.map((message) => message.id),
			answer.revision
		);
		return true;
	}

	async #mend(
		error: ApiError,
		chat: StoredChat,
		batch: StoredMessage[],
		signal: AbortSignal
	): Promise<void> {
		const { status } = error;
		const index = /^messages\[(\d+)\]/.exec(error.param ?? '')?.[1];
		const message = batch[Number(index ?? 0)] ?? batch[0]!;
		if (status === 404) {
			// Deleted, or lost: the chat's own PUT tells.
			await this.#putChat(chat, false, signal);
		} else if (status === 409) {
			this.tell(await this.database.rename(message.id));
		} else if (status === 410 || (status === 400 && error.param?.endsWith('.parent'))) {
			const parent = message.parent && (await this.database.message(message.parent));
			if (parent && status === 400) await this.#sendAgainOnce(chat, error);
			else this.tell(await this.database.dropMessage(parent ? parent.id : message.id));
		} else {
			// Such as of a chat that is full: none of them is stored.
			for (const { id } of index === undefined ? batch : [message]) this.#refuse(error, id);
			this.#tellOfMore();
		}
	}

	async #sendAgainOnce(chat: StoredChat, error: ApiError): Promise<void> {
		if (this.#resent.has(chat.id)) return this.#refuse(error, chat.id, chat.updated_at);
		this.#resent.add(chat.id);
		await this.#sendAgain(chat);
	}

	async #sendAgain(chat: StoredChat): Promise<void> {
		await this.database.sendAgain(chat.id);
		this.#tellOfMore();
	}

	/** There is more to send. */
	#tellOfMore(): void {
		this.tell({ chats: new Set(), messages: new Set() });
	}

	/** A file that the server won't have stays here; its message goes on. */
	async #putFile(sha256: string, signal: AbortSignal): Promise<void> {
		if (this.refused.has(sha256)) return;
		const file = await this.database.file(sha256);
		if (!file) return;
		const path = `api/files/${sha256}`;
		try {
			const headers = { 'Content-Type': mediaType(file.type) };
			await this.#write(path, { method: 'PUT', body: file.blob, headers, signal });
		} catch (error) {
			if (!(error instanceof ApiError)) throw error;
			this.#refuse(error, sha256);
		}
	}

	/** Keeps that the server won't have it; what may go better later is thrown. */
	#refuse(error: ApiError, id: string, version = 0): void {
		const { status } = error;
		const isFull = status === 507;
		if (status < 400 || status === 401 || status === 429 || (status >= 500 && !isFull)) throw error;
		this.refused.set(id, error.message);
		this.#refusedAt.set(id, version);
	}

	#isRefused(chat: StoredChat): boolean {
		if (!this.refused.has(chat.id)) return false;
		if (this.#refusedAt.get(chat.id) === chat.updated_at && chat.deleted_at === undefined)
			return true;
		this.refused.delete(chat.id);
		return false;
	}

	async #delete(path: string, signal: AbortSignal): Promise<void> {
		await this.#write(path, { method: 'DELETE', signal });
		// There may be room now for what was refused.
		this.refused.clear();
	}

	async #json(
		method: string,
		path: string,
		body: unknown,
		headers: Headers,
		signal: AbortSignal
	): Promise<{ revision: number; missing_files?: string[] }> {
		headers.set('Content-Type', 'application/json');
		await this.#turn();
		return api.json(uiUrl(path), { method, headers, body: JSON.stringify(body), signal });
	}

	async #write(path: string, init: RequestInit): Promise<void> {
		await this.#turn();
		await api.stream(uiUrl(path), init);
	}

	/** Of a write, so that no more than the server takes are sent. */
	async #turn(): Promise<void> {
		const before = this.#writes.at(-this.writesPerSecond);
		const wait = before === undefined ? 0 : before + 1000 - Date.now();
		if (wait > 0) await new Promise((done) => setTimeout(done, wait));
		if (this.#writes.push(Date.now()) > this.writesPerSecond) this.#writes.shift();
	}
}

function* batches(messages: readonly StoredMessage[]): Generator<StoredMessage[]> {
	let batch: StoredMessage[] = [];
	let characters = 0;
	for (const message of messages) {
		const size = JSON.stringify(sentMessage(message)).length;
		const isFull = batch.length === MAX_MESSAGES || characters + size > MAX_CHARACTERS;
		if (batch.length > 0 && isFull) {
			yield batch;
			batch = [];
			characters = 0;
		}
		batch.push(message);
		characters += size;
	}
	if (batch.length > 0) yield batch;
}

function mediaType(type: string): string {
	const plain = type.split(';')[0]!.trim().toLowerCase();
	return /^[\w.+-]{1,60}\/[\w.+-]{1,60}$/.test(plain) ? plain : 'application/octet-stream';
}
