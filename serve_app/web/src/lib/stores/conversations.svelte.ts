import { SvelteMap, SvelteSet } from 'svelte/reactivity';
import { newId } from '#lib/pure/ids';
import { Finder, snippetOf, wordsOf, type Snippet } from '#lib/pure/search';
import { change, withDirt } from '#lib/pure/sync_merge';
import { describeSync, type SyncStatus } from '#lib/pure/sync_words';
import { byAge, leafAfterDelete, newestLeafBelow, pathTo, withAllBelow } from '#lib/pure/tree';
import { wellFormed } from '#lib/pure/well_formed';
import { DatabaseService, withOutbox } from '#lib/services/database';
import { Tabs, type TabMessage } from '#lib/services/tabs';
import { readLocal, removeLocal, writeLocal } from '#lib/storage/local';
import type { Attachment, Chat, Draft, Message, StoredChat, StoredMessage } from '#lib/types';

/** A running answer is written to the database so often. */
const WRITE_EVERY_MS = 1000;
/** How long other tabs have to say which answers they are writing. */
const ASK_TABS_MS = 250;
const LEFT_DRAFT = 'manta-draft';
/** What the title of a fork begins with. */
const COPY = 'Copy of ';
/** A tab that signs out says so too, so that this is seen where somebody else deleted them. */
const DELETED =
	'The chats were deleted from this browser while the page was open. Reload the page: until then it keeps nothing.';

interface LeftDraft {
	database: string | undefined;
	draft: Draft;
}

/** A chat that a search found. */
export interface FoundChat {
	chat: StoredChat;
	/** The message that has a word of the query, and that place in it. */
	message?: string;
	snippet?: Snippet | null;
}

export interface NewChat {
	fields: Partial<Chat>;
	messages: readonly Message[];
}

const UNKNOWN = {
	...{ isKept: true, isForgotten: false, isReachable: true, isRead: false, isShared: false },
	...{ refusal: null, pending: 0 }
};

function found(chat: StoredChat, finder: Finder): FoundChat {
	const hit = finder.hits.get(chat.id);
	return hit
		? { chat, message: hit.message, snippet: snippetOf(hit.text, finder.words) }
		: { chat };
}

/**
 * The chats: what the screen shows is here, and each change is in the database before it is shown,
 * but for the words of a running answer. Another tab's changes, and those of the sync, come in through
 * `heard`.
 */
class ConversationsStore {
	/** The database is open and the chats are read. */
	ready = $state(false);
	/** Why nothing can be kept; shown as a banner. */
	failure = $state<string | null>(null);
	/** Set by the sync. */
	sync = $state.raw<SyncStatus>(describeSync(UNKNOWN));
	/** The messages of the open chat that are not deleted. */
	readonly messages = new SvelteMap<string, StoredMessage>();
	/** Questions that wait for the server to come back. */
	readonly queuedIds = new SvelteSet<string>();

	readonly #byId = new Map<string, StoredChat>();
	#chats = $state.raw<StoredChat[]>([]);
	#open = $state.raw<StoredChat | null>(null);
	/** The chat that was asked for last: it may come later, from the server. */
	#wanted: string | null = null;
	#opened = 0;
	/** Goes up whenever anything is written, here or in another tab. */
	#version = 0;
	readonly #untilReady = new Set<() => void>();
	#database: DatabaseService | null = null;
	/** All messages and drafts, where the browser keeps none. */
	readonly #kept = new Map<string, StoredMessage>();
	readonly #drafts = new Map<string, Draft>();
	#tabs: Tabs | null = null;
	/** Answers that this tab is writing, by id, and when each is written next. */
	readonly #running = new Map<string, StoredMessage>();
	/** Answers that this tab is about to go on with: see `runningOnStart`. */
	#claim: { turn: string; ids: string[] } | null = null;
	readonly #writes = new Map<string, ReturnType<typeof setTimeout>>();

	/** Pinned first, then those with the newest messages. */
	get chats(): StoredChat[] {
		return this.#chats;
	}

	/** The open chat. Its leaf is always one of its messages, or null where there are none. */
	readonly current: StoredChat | null = $derived.by(() => {
		const chat = this.#open;
		if (!chat) return null;
		const leaf = this.#leafOf(chat);
		return leaf === chat.leaf ? chat : { ...chat, leaf };
	});
	readonly path: StoredMessage[] = $derived(pathTo(this.messages, this.current?.leaf ?? null));

	/** The chats of an owner, in place of those that were shown. */
	async use(owner: string, server: string): Promise<DatabaseService | null> {
		await this.close();
		try {
			this.#database = await DatabaseService.open(owner, server);
			this.#tabs = new Tabs(this.#database.name);
			this.#tabs.listen((message) => void this.#heard(message));
			for (const chat of await this.#database.chats()) this.#byId.set(chat.id, chat);
			await this.#readQueue();
			this.failure = null;
		} catch (error) {
			this.#database = null;
			this.failure = `This browser keeps no chats, so they last until the page is closed: ${wordsOfError(error)}`;
		}
		this.#list();
		this.ready = true;
		for (const goOn of this.#untilReady) goOn();
		this.#untilReady.clear();
		if (this.#wanted !== null) await this.open(this.#wanted);
		return this.#database;
	}

	async #whenReady(): Promise<void> {
		if (!this.ready) await new Promise<void>((done) => this.#untilReady.add(done));
	}

	/** What runs is no longer this page's; set by who runs it. */
	onclose: (() => void) | null = null;

	async close(): Promise<void> {
		await this.flush();
		this.ready = false;
		this.failure = null;
		this.#tabs?.close();
		this.#database?.close();
		this.#tabs = this.#database = null;
		this.#byId.clear();
		this.#running.clear();
		this.#kept.clear();
		this.#drafts.clear();
		this.queuedIds.clear();
		this.messages.clear();
		this.#open = null;
		this.#list();
		this.onclose?.();
	}

	/** The open database, for the sync. */
	get database(): DatabaseService | null {
		return this.#database;
	}

	get tabs(): Tabs | null {
		return this.#tabs;
	}

	find(id: string): StoredChat | undefined {
		return this.#byId.get(id);
	}

	/** Null: the empty chat, at once. What is not there leaves `current` null. */
	async open(id: string | null): Promise<void> {
		const turn = ++this.#opened;
		this.#wanted = id;
		if (id === null) {
			this.messages.clear();
			this.#open = null;
			return;
		}
		if (this.#open?.id === id) return;
		await this.#whenReady();
		const messages = await this.#current(async () => (this.#byId.has(id) ? this.#read(id) : []));
		// Another was opened while this one was read.
		if (turn !== this.#opened) return;
		this.messages.clear();
		for (const message of messages) this.messages.set(message.id, message);
		this.#open = this.#byId.get(id) ?? null;
	}

	/** Also opens it. */
	async create(fields: Partial<Chat> = {}, id = newId()): Promise<StoredChat> {
		const chat = newChat($state.snapshot(fields) as Partial<Chat>, id);
		await this.#whenReady();
		await this.#write((database) => database.add([chat]));
		this.#put(chat);
		this.#opened++;
		this.#wanted = chat.id;
		this.messages.clear();
		this.#open = chat;
		this.#tell([chat.id], []);
		return chat;
	}

	async update(id: string, fields: Partial<Chat>): Promise<void> {
		const plain = storable($state.snapshot(fields) as Partial<Chat>);
		await this.#change(id, (chat) => change(chat, plain, Date.now()));
	}

	/** The chat's leaf moves to it with `select`, and when it answers the leaf. False: the chat is gone. */
	async addMessage(added: Message, options: { select?: boolean } = {}): Promise<boolean> {
		const message = wellFormed($state.snapshot(added) as Message);
		const leafOf = (chat: StoredChat) =>
			chat.id === this.#open?.id ? this.#leafOf(chat) : chat.leaf;
		const moved = (chat: StoredChat) =>
			options.select || leafOf(chat) === message.parent
				? change(chat, { leaf: message.id }, Date.now())
				: chat;
		const kept = await this.#write((database) => database.addMessage(message, moved));
		const before = this.#byId.get(message.chat);
		const chat = kept
			? kept.chat
			: before && moved({ ...before, active_at: Math.max(before.active_at, message.created_at) });
		if (!chat || (this.#database && !kept)) return false;
		const stored = kept?.message ?? withOutbox(message);
		if (message.state === 'running') this.#running.set(message.id, stored);
		this.#keep([stored]);
		if (message.chat === this.#open?.id) this.messages.set(message.id, stored);
		this.#put(chat);
		this.#tell([chat.id], [chat.id], message.state === 'done');
		return true;
	}

	changeRunning(id: string, fields: Partial<Message>): void {
		const before = this.#running.get(id);
		if (!before) return;
		const message = { ...before, ...$state.snapshot(fields) } as StoredMessage;
		this.#running.set(id, message);
		if (this.messages.has(id)) this.messages.set(id, message);
		if (this.#writes.has(id)) return;
		const write = () => {
			this.#writes.delete(id);
			void this.#writeRunning(id);
		};
		this.#writes.set(id, setTimeout(write, WRITE_EVERY_MS));
	}

	async finish(id: string, fields: Partial<Message>): Promise<void> {
		const before = this.#running.get(id);
		if (!before) return;
		clearTimeout(this.#writes.get(id));
		this.#writes.delete(id);
		const done = { ...before, ...$state.snapshot(fields), state: 'done' } as Message;
		const message = withOutbox(wellFormed(done));
		this.#running.set(id, message);
		if (this.messages.has(id)) this.messages.set(id, message);
		await this.#writeRunning(id);
	}

	/** Writes at once what is running, as the page may be closed now. */
	async flush(): Promise<void> {
		for (const timer of this.#writes.values()) clearTimeout(timer);
		this.#writes.clear();
		await Promise.all([...this.#running.keys()].map((id) => this.#writeRunning(id)));
	}

	/** The branch of `id` becomes the visible one, to its newest end. */
	async selectSibling(id: string): Promise<void> {
		const message = this.messages.get(id);
		if (message) await this.update(message.chat, { leaf: newestLeafBelow(this.messages, id) });
	}

	/** Shows a branch of the open chat that has the message; false: it has none. */
	async show(id: string): Promise<boolean> {
		if (!this.messages.has(id)) return false;
		if (!this.path.some((message) => message.id === id)) await this.selectSibling(id);
		return true;
	}

	/** With all below it; its chat need not be the open one. */
	async removeMessage(id: string): Promise<void> {
		const kept = await this.#write((database) => database.message(id));
		const top = this.messages.get(id) ?? kept ?? this.#kept.get(id);
		const chat = top && (this.current?.id === top.chat ? this.current : this.#byId.get(top.chat));
		if (!top || !chat) return;
		const isOpen = this.#open?.id === chat.id;
		const all = isOpen ? this.messages : byId(await this.#read(chat.id));
		const gone = withAllBelow(all, id);
		const leaf = leafAfterDelete(all, chat.leaf, gone);
		if (leaf !== chat.leaf) await this.update(chat.id, { leaf });
		for (const one of gone) this.#running.delete(one);
		await this.#write((database) => database.removeMessages(top, gone, Date.now()));
		for (const one of gone) {
			this.#kept.delete(one);
			this.messages.delete(one);
			this.queuedIds.delete(one);
		}
		this.#tell([chat.id], [chat.id]);
	}

	async removeChat(id: string): Promise<void> {
		for (const message of [...this.#running.values()])
			if (message.chat === id) this.#running.delete(message.id);
		await this.#write((database) => database.removeChat(id, Date.now()));
		for (const one of await this.#read(id)) this.#kept.delete(one.id);
		this.#byId.delete(id);
		if (this.#open?.id === id) await this.open(null);
		this.#list();
		this.#tell([id], [id]);
	}

	/** A new chat of the branch that ends with the message. It is not opened. */
	async fork(id: string, message: string): Promise<StoredChat> {
		const from = this.#byId.get(id);
		if (!from) throw new Error('This chat does not exist.');
		const all = byId(await this.#read(id));
		const branch = pathTo(all, message).filter((one) => one.state === 'done');
		const { title_by, model, system, settings } = from;
		const title = from.title.startsWith(COPY) ? from.title : `${COPY}${from.title}`;
		const fields = { title, title_by, model, system, settings, forked_from: id };
		return this.addChat(fields, branch);
	}

	/** A chat with messages from elsewhere, which get new ids. It is not opened. */
	async addChat(fields: Partial<Chat>, messages: readonly Message[]): Promise<StoredChat> {
		const [added] = await this.addChats([{ fields, messages }]);
		return added!;
	}

	/** The same of several. */
	async addChats(given: readonly NewChat[]): Promise<StoredChat[]> {
		const made = given.map(({ fields, messages }) => chatWith(fields, messages));
		const chats = made.map(({ chat }) => chat);
		const messages = made.flatMap((one) => one.messages);
		await this.#whenReady();
		await this.#write((database) => database.add(chats, messages));
		this.#keep(messages);
		for (const chat of chats) this.#byId.set(chat.id, chat);
		this.#list();
		const ids = chats.map((chat) => chat.id);
		this.#tell(ids, ids);
		return chats;
	}

	/** All messages of a chat that are not deleted. */
	async allMessages(id: string): Promise<StoredMessage[]> {
		return this.#read(id);
	}

	/**
	 * Chats with all words of the query in their title or messages, in the order of the list, each with
	 * the message that has one. `tell` gets what is found so far; the search stops once `signal` is
	 * aborted.
	 */
	async search(
		query: string,
		tell?: (found: FoundChat[]) => void,
		signal?: AbortSignal
	): Promise<FoundChat[]> {
		if (wordsOf(query).length === 0) return this.#chats.map((chat) => ({ chat }));
		const finder = new Finder(query);
		const result = () =>
			this.#chats.filter((chat) => finder.found.has(chat.id)).map((chat) => found(chat, finder));
		for (const chat of this.#chats) finder.add(chat.id, chat.title);
		for (const { chat, text, id } of this.#kept.values()) finder.add(chat, text, id);
		tell?.(result());
		let told = finder.found.size;
		await this.#write((database) =>
			database.eachMessage((some) => {
				for (const message of some)
					if (message.deleted_at === undefined) finder.add(message.chat, message.text, message.id);
				if (finder.found.size > told) {
					told = finder.found.size;
					if (!signal?.aborted) tell?.(result());
				}
				return !signal?.aborted;
			})
		);
		return result();
	}

	/**
	 * Answers that were running when the page was last closed, and that no other tab is writing. Of tabs
	 * that ask at the same time, as when a browser opens all it had, the first one gets them.
	 */
	async runningOnStart(): Promise<StoredMessage[]> {
		const read = async () => (await this.#write((database) => database.running())) ?? [];
		const claimed = (await read()).map(({ id }) => id).filter((id) => !this.#running.has(id));
		const tabs = this.#tabs;
		if (claimed.length === 0 || !tabs) return [];
		const elsewhere = await this.#runningElsewhere(tabs, claimed);
		// Another tab may have ended one since.
		const found = await read();
		this.#claim = null;
		if (tabs !== this.#tabs) return [];
		const left = found.filter(({ id }) => claimed.includes(id) && !elsewhere.has(id));
		for (const message of left) this.#running.set(message.id, message);
		return left;
	}

	async draft(chat: string): Promise<Draft | undefined> {
		const left = readLocal(LEFT_DRAFT) as LeftDraft | undefined;
		// One of nobody was written before it was known whose chats are shown.
		const isOurs = left?.database === undefined || left.database === this.#database?.name;
		if (left?.draft.chat !== chat || !isOurs)
			return this.#database
				? this.#write((database) => database.draft(chat))
				: this.#drafts.get(chat);
		removeLocal(LEFT_DRAFT);
		await this.saveDraft(left.draft);
		return left.draft;
	}

	/** As the page ends: what a database is asked for then is not always written. */
	leaveDraft(draft: Draft): void {
		writeLocal(LEFT_DRAFT, { database: this.#database?.name, draft } satisfies LeftDraft);
	}

	async saveDraft(draft: Draft): Promise<void> {
		const plain = $state.snapshot(draft) as Draft;
		if (!this.#database) this.#drafts.set(plain.chat, plain);
		await this.#write((database) => database.saveDraft(plain));
	}

	async putFile(blob: Blob): Promise<Pick<Attachment, 'sha256' | 'type' | 'size'>> {
		await this.#whenReady();
		const file = await this.#write((database) => database.putFile(blob));
		if (!file) throw new Error('This browser keeps no files.');
		const { sha256, type, size } = file;
		return { sha256, type, size };
	}

	/** Undefined: neither this browser nor the server has it, or the server is away. */
	async file(sha256: string): Promise<Blob | undefined> {
		const file = await this.#write((database) => database.file(sha256));
		return file?.blob ?? (await this.fetchFile?.(sha256));
	}

	/** Gets a file from the server and keeps it; set by the sync. */
	fetchFile: ((sha256: string) => Promise<Blob | undefined>) | null = null;

	/** The question is asked once the server is back. */
	async enqueue(message: Message): Promise<void> {
		const question = { message: message.id, chat: message.chat, created_at: message.created_at };
		await this.#write((database) => database.enqueue(question));
		this.queuedIds.add(message.id);
		this.#tabs?.tell({ kind: 'queue' });
	}

	/** Questions that wait, the oldest first. */
	async queued(): Promise<Message[]> {
		if (!this.#database)
			return [...this.#kept.values()].filter((message) => this.queuedIds.has(message.id));
		const waiting = (await this.#write((database) => database.queued())) ?? [];
		const found = await this.#write((database) =>
			Promise.all(waiting.map(({ message }) => database.message(message)))
		);
		return (found ?? []).filter((message) => message !== undefined);
	}

	/** Whether it still waited: of several tabs one alone gets to ask it. */
	async dequeue(message: string): Promise<boolean> {
		const taken = await this.#write((database) => database.dequeue(message));
		const waited = this.queuedIds.delete(message);
		this.#tabs?.tell({ kind: 'queue' });
		return taken ?? waited;
	}

	/** Chats, and the messages of chats, that changed in the database: by another tab or by the sync. */
	async reread(chats: Iterable<string>, messages: Iterable<string>): Promise<void> {
		if (!this.#database) return;
		this.#version++;
		const database = this.#database;
		const ids = [...chats];
		const read = () => this.#write((kept) => kept.chatsById(ids));
		const found = await this.#current(read);
		if (!found || database !== this.#database) return;
		for (const id of ids) this.#byId.delete(id);
		for (const chat of found) this.#byId.set(chat.id, chat);
		if (ids.length > 0) this.#list();
		const open = this.#open;
		const wanted = this.#wanted;
		if (!open && wanted !== null && this.#byId.has(wanted)) await this.open(wanted);
		if (!open) return;
		if ([...messages].includes(open.id)) await this.#rereadMessages(open.id);
		if (this.#open?.id !== open.id) return;
		this.#open = this.#byId.get(open.id) ?? null;
		if (!this.#open) this.messages.clear();
	}

	/** Tells the sync of changes to be sent. */
	onchange: (() => void) | null = null;

	async #rereadMessages(chat: string): Promise<void> {
		const found = await this.#current(() => this.#read(chat));
		if (this.#open?.id !== chat) return;
		const ids = new Set(found.map((message) => message.id));
		for (const id of this.messages.keys()) if (!ids.has(id)) this.messages.delete(id);
		for (const message of found) this.messages.set(message.id, message);
	}

	/** What `read` reads, as it is now: it is read again while anything was written meanwhile. */
	async #current<T>(read: () => Promise<T>): Promise<T> {
		for (;;) {
			const version = this.#version;
			const found = await read();
			if (version === this.#version) return found;
		}
	}

	/** From the database, with what is running here as it is now. */
	async #read(chat: string): Promise<StoredMessage[]> {
		const found =
			(await this.#write((database) => database.messages(chat))) ??
			[...this.#kept.values()].filter((message) => message.chat === chat);
		return found.map((message) => this.#running.get(message.id) ?? message);
	}

	/** Until the page is closed, where there is no database. */
	#keep(messages: StoredMessage[]): void {
		if (!this.#database) for (const message of messages) this.#kept.set(message.id, message);
	}

	async #heard(message: TabMessage): Promise<void> {
		if (message.kind === 'changed') await this.reread(message.chats, message.messages);
		else if (message.kind === 'queue') await this.#readQueue();
		else if (message.kind === 'who-runs') {
			const claim = this.#claim && this.#claim.turn < message.turn ? this.#claim.ids : [];
			const ids = [...this.#running.keys(), ...claim];
			if (ids.length > 0) this.#tabs?.tell({ kind: 'runs', ids });
		}
	}

	async #readQueue(): Promise<void> {
		const waiting = (await this.#write((database) => database.queued())) ?? [];
		this.queuedIds.clear();
		for (const { message } of waiting) this.queuedIds.add(message);
	}

	/** What other tabs write, or asked for before this one. */
	async #runningElsewhere(tabs: Tabs, claimed: string[]): Promise<Set<string>> {
		const ids = new Set<string>();
		const end = tabs.listen((message) => {
			if (message.kind === 'runs') for (const id of message.ids) ids.add(id);
		});
		// Ids rise with time, in all tabs.
		const turn = newId();
		this.#claim = { turn, ids: claimed };
		tabs.tell({ kind: 'who-runs', turn });
		await new Promise((done) => setTimeout(done, ASK_TABS_MS));
		end();
		return ids;
	}

	/** What can't be written stays, and is written with what is next. */
	async #writeRunning(id: string): Promise<void> {
		const message = this.#running.get(id);
		if (!message) return;
		let isThere: boolean | undefined;
		try {
			isThere = await this.#write((database) => database.replaceMessage(message));
		} catch {
			return;
		}
		if (message.state === 'running') {
			if (isThere) this.#tabs?.tell(changed([], [message.chat], false));
			return;
		}
		if (this.#running.get(id) !== message) return;
		this.#running.delete(id);
		this.#keep([message]);
		if (isThere !== false) this.#tell([], [message.chat]);
	}

	async #change(id: string, changeOf: (chat: StoredChat) => StoredChat): Promise<void> {
		const before = this.#byId.get(id);
		if (!before) return;
		const kept = await this.#write((database) => database.changeChat(id, changeOf));
		if (this.#database && !kept) return;
		const chat = kept ?? changeOf(before);
		if (chat === before) return;
		this.#put(chat);
		this.#tell([id], []);
	}

	#put(chat: StoredChat): void {
		this.#byId.set(chat.id, chat);
		if (this.#open?.id === chat.id) this.#open = chat;
		this.#list();
	}

	#list(): void {
		this.#chats = [...this.#byId.values()].sort(
			(a, b) =>
				Number(b.pinned) - Number(a.pinned) || b.active_at - a.active_at || (a.id < b.id ? 1 : -1)
		);
	}

	/** Another device may show a message that is not here yet; then the newest branch is shown. */
	#leafOf(chat: StoredChat): string | null {
		if (chat.leaf !== null && this.messages.has(chat.leaf)) return chat.leaf;
		let newest: StoredMessage | undefined;
		for (const message of this.messages.values())
			if (!newest || byAge(newest, message) < 0) newest = message;
		return newest?.id ?? null;
	}

	#tell(chats: string[], messages: string[], toSend = true): void {
		this.#version++;
		this.#tabs?.tell(changed(chats, messages, toSend));
		if (toSend) this.onchange?.();
	}

	/** Undefined where the browser keeps nothing; a failure is shown, and the page goes on. */
	async #write<T>(action: (database: DatabaseService) => Promise<T>): Promise<T | undefined> {
		const database = this.#database;
		if (!database) return undefined;
		try {
			return await action(database);
		} catch (error) {
			// The owner changed, or signed out, meanwhile.
			if (database !== this.#database) return undefined;
			if (database.isClosed) {
				this.failure = DELETED;
				return undefined;
			}
			this.failure = `This browser could not keep what changed: ${wordsOfError(error)}`;
			throw error;
		}
	}
}

function byId(messages: StoredMessage[]): Map<string, StoredMessage> {
	return new Map(messages.map((message) => [message.id, message]));
}

function changed(chats: string[], messages: string[], toSend: boolean): TabMessage {
	return { kind: 'changed', chats, messages, toSend };
}

function chatWith(fields: Partial<Chat>, messages: readonly Message[]) {
	const ids = new Map(messages.map((message) => [message.id, newId()]));
	const chat = newChat({ ...fields, leaf: null });
	const copies = messages.map((message) =>
		withOutbox({
			...wellFormed(message),
			id: ids.get(message.id)!,
			chat: chat.id,
			parent: message.parent === null ? null : (ids.get(message.parent) ?? null),
			revision: null
		})
	);
	const newest = [...copies].sort(byAge).at(-1);
	const leaf = (fields.leaf && ids.get(fields.leaf)) || newest?.id || null;
	const active_at = newest?.created_at ?? chat.active_at;
	return { chat: { ...chat, leaf, active_at }, messages: copies };
}

/** PostgreSQL keeps no U+0000 in a title. */
function storable(fields: Partial<Chat>): Partial<Chat> {
	const { title, ...rest } = wellFormed(fields);
	return title === undefined ? rest : { ...rest, title: title.replaceAll('\0', '') };
}

function newChat(fields: Partial<Chat>, id = newId()): StoredChat {
	const now = Date.now();
	return withDirt({
		title: 'New chat',
		title_by: 'first_line',
		leaf: null,
		pinned: false,
		model: null,
		system: '',
		settings: { sampling: {}, thinking: {} },
		created_at: now,
		updated_at: now,
		...storable(fields),
		id,
		revision: null,
		dirty: [],
		base: null,
		active_at: fields.created_at ?? now
	});
}

function wordsOfError(error: unknown): string {
	// Of a transaction that had to end for it, the reason is within.
	const { name, inner } = (error ?? {}) as { name?: string; inner?: { name?: string } };
	if ([name, inner?.name].includes('QuotaExceededError')) return 'its storage is full.';
	return error instanceof Error ? error.message : String(error);
}

export const conversationsStore = new ConversationsStore();
