/**
 * How changes of several devices become one. The server puts writes in line; a chat keeps what the
 * server had when it was last heard of (`base`), and the difference to it is what changed here.
 * Messages never change, so both sides' are kept and stand beside each other as branches.
 */
import type {
	Chat,
	ChatFields,
	Message,
	Milliseconds,
	StoredChat,
	StoredMessage
} from '#lib/types';

/** Fields whose change is told to the server. `updated_at` goes with them. */
export const FIELDS = [
	'title',
	'title_by',
	'leaf',
	'pinned',
	'model',
	'system',
	'settings',
	'forked_from',
	'created_at'
] as const satisfies (keyof ChatFields)[];

/** The mark of a chat that is deleted here and not yet there. */
export const DELETED = 'deleted_at';

export function fieldsOf(chat: ChatFields): ChatFields {
	const { title, title_by, leaf, pinned, model, system, settings } = chat;
	const { forked_from, created_at, updated_at } = chat;
	return {
		...{ title, title_by, leaf, pinned, model, system, settings, created_at, updated_at },
		...(forked_from !== undefined && { forked_from })
	};
}

/** Fields of a message that leave this browser; the server refuses others. */
const SENT = [
	'id',
	'parent',
	'role',
	'text',
	'reasoning',
	'tool_calls',
	'tool_call_id',
	'attachments',
	'model',
	'params',
	'usage',
	'timings',
	'finish',
	'error',
	'completion_id',
	'created_at'
] as const satisfies (keyof Message)[];

export type SentMessage = Pick<Message, (typeof SENT)[number]>;

export function sentMessage(message: Message): SentMessage {
	const there = SENT.filter((name) => message[name] !== undefined);
	return Object.fromEntries(there.map((name) => [name, message[name]])) as unknown as SentMessage;
}

/** `chat` with other fields, as of `now`; the same object if nothing differs. */
export function change(chat: StoredChat, fields: Partial<Chat>, now: Milliseconds): StoredChat {
	const changed = FIELDS.some((name) => name in fields && !equal(fields[name], chat[name]));
	if (!changed) return chat;
	// A clock that was set back must not make this change older than the one before.
	return withDirt({ ...chat, ...fields, updated_at: Math.max(now, chat.updated_at + 1) });
}

/** The server has stored `sent` as `revision`; what changed here since stays to be sent. */
export function acknowledge(chat: StoredChat, sent: ChatFields, revision: number): StoredChat {
	// A pull may have brought something newer before the answer to the push came.
	if (chat.revision !== null && chat.revision >= revision) return chat;
	return withDirt({ ...chat, base: fieldsOf(sent), revision });
}

/** The server has `theirs` as `revision`. */
export function merge(chat: StoredChat, theirs: ChatFields, revision: number): StoredChat {
	if (chat.revision !== null && chat.revision >= revision) return chat;
	if (chat.deleted_at !== undefined) return { ...chat, base: fieldsOf(theirs), revision };
	const mineIsLater = chat.updated_at > theirs.updated_at;
	const merged = mergeFields(chat.base, chat, theirs, mineIsLater);
	const updated_at = Math.max(chat.updated_at, theirs.updated_at);
	return withDirt({ ...chat, ...merged, updated_at, base: fieldsOf(theirs), revision });
}

/**
 * The server has an older revision than it had: its database was put back. What this browser has is
 * newer, so the difference is to be sent.
 */
export function rebase(chat: StoredChat, theirs: ChatFields, revision: number): StoredChat {
	return withDirt({ ...chat, base: fieldsOf(theirs), revision });
}

/** A chat that the server has and this browser has not. */
export function adopt(id: string, theirs: ChatFields, revision: number): StoredChat {
	const fields = fieldsOf(theirs);
	return { ...fields, id, revision, base: fields, dirty: [], active_at: theirs.created_at };
}

/** Marks as dirty what differs from the server's. */
export function withDirt(chat: StoredChat): StoredChat {
	const { outbox: _before, ...rest } = chat;
	const { base } = chat;
	if (chat.deleted_at !== undefined) return { ...rest, dirty: [DELETED], outbox: 'send' };
	const dirty = FIELDS.filter((name) => base === null || !equal(base[name], chat[name]));
	if (dirty.length > 0) return { ...rest, dirty, outbox: 'send' };
	// What was changed and changed back is as old as the server's.
	return { ...rest, dirty, updated_at: base?.updated_at ?? chat.updated_at };
}

function mergeFields(
	base: ChatFields | null,
	mine: ChatFields,
	theirs: ChatFields,
	mineIsLater: boolean
): ChatFields {
	const from = (base ?? {}) as Record<string, unknown>;
	const here = fieldsOf(mine) as unknown as Record<string, unknown>;
	const there = fieldsOf(theirs) as unknown as Record<string, unknown>;
	const merged = mergeObjects(from, here, there, mineIsLater) as unknown as ChatFields;
	const { title, title_by } = mergeTitle(base, mine, theirs, mineIsLater);
	return { ...merged, title, title_by };
}

/** A title goes with who gave it; a person's stands before one that was made. */
function mergeTitle(
	base: ChatFields | null,
	mine: ChatFields,
	theirs: ChatFields,
	mineIsLater: boolean
): ChatFields {
	const same = (one: ChatFields) =>
		base !== null && one.title === base.title && one.title_by === base.title_by;
	if (same(mine)) return theirs;
	if (same(theirs)) return mine;
	const byPerson = (one: ChatFields) => one.title_by === 'person';
	if (byPerson(mine) !== byPerson(theirs)) return byPerson(mine) ? mine : theirs;
	return mineIsLater ? mine : theirs;
}

/** Three ways, and within objects name by name: of what both changed the later one counts. */
function mergeObjects(
	base: Record<string, unknown>,
	mine: Record<string, unknown>,
	theirs: Record<string, unknown>,
	mineIsLater: boolean
): Record<string, unknown> {
	const merged: Record<string, unknown> = {};
	for (const name of new Set([...Object.keys(mine), ...Object.keys(theirs)])) {
		const [was, here, there] = [base[name], mine[name], theirs[name]];
		let value: unknown;
		if (equal(here, was)) value = there;
		else if (equal(there, was)) value = here;
		else if (isObject(here) && isObject(there))
			value = mergeObjects(isObject(was) ? was : {}, here, there, mineIsLater);
		else value = mineIsLater ? here : there;
		if (value !== undefined) merged[name] = value;
	}
	return merged;
}

function isObject(value: unknown): value is Record<string, unknown> {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Of what JSON can say; the order of names does not count. */
export function equal(a: unknown, b: unknown): boolean {
	if (Object.is(a, b)) return true;
	if (Array.isArray(a) && Array.isArray(b))
		return a.length === b.length && a.every((one, index) => equal(one, b[index]));
	if (!isObject(a) || !isObject(b)) return false;
	const names = Object.keys(a).filter((name) => a[name] !== undefined);
	const others = Object.keys(b).filter((name) => b[name] !== undefined);
	return names.length === others.length && names.every((name) => equal(a[name], b[name]));
}

/**
 * What of one chat's `waiting` messages may go to the server, parents before their children. A child
 * waits as long as its parent is written.
 */
export function inOrder(
	waiting: readonly StoredMessage[],
	isRunning: (id: string) => boolean
): StoredMessage[] {
	const left = new Map(waiting.map((message) => [message.id, message]));
	const order: StoredMessage[] = [];
	const blocked = new Set<string>();
	for (const first of waiting) {
		const line: StoredMessage[] = [];
		const inLine = new Set<string>();
		let message: StoredMessage | undefined = left.get(first.id);
		let root: string | null = first.id;
		while (message && !inLine.has(message.id)) {
			inLine.add(message.id);
			line.push(message);
			root = message.parent;
			message = root === null ? undefined : left.get(root);
		}
		const isBlocked = root !== null && (blocked.has(root) || isRunning(root));
		for (const one of line.reverse()) {
			left.delete(one.id);
			if (isBlocked) blocked.add(one.id);
			else order.push(one);
		}
	}
	return order;
}

/**
 * Messages that were written here and never sent, whose chat (or whose parent) was deleted elsewhere,
 * with those they answer: they become a chat of their own, so that nothing that was written is lost.
 * New ids: the old ones are gone for good. By the old id; empty if nothing was written.
 */
export function rescued(
	messages: ReadonlyMap<string, StoredMessage>,
	gone: ReadonlySet<string>,
	chat: string,
	makeId: () => string
): Map<string, StoredMessage> {
	const kept = new Set<string>();
	for (const message of messages.values()) {
		if (!gone.has(message.id) || message.revision !== null) continue;
		if (message.deleted_at !== undefined) continue;
		for (let one: StoredMessage | undefined = message; one && !kept.has(one.id);) {
			kept.add(one.id);
			one = one.parent === null ? undefined : messages.get(one.parent);
		}
	}
	const ids = new Map([...kept].map((id) => [id, makeId()]));
	const copies = new Map<string, StoredMessage>();
	for (const id of kept) {
		const { deleted_at: _deleted, ...message } = messages.get(id)!;
		const parent = message.parent === null ? null : (ids.get(message.parent) ?? null);
		// Whoever writes the answer knows its old id alone.
		const ended =
			message.state === 'running' ? ({ state: 'done', finish: 'interrupted' } as const) : {};
		const own = { id: ids.get(id)!, chat, parent, revision: null, outbox: 'send' } as const;
		copies.set(id, { ...message, ...ended, ...own });
	}
	return copies;
}
