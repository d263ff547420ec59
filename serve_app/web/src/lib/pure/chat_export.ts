/**
 * Chats as a file: JSON lines, as `GET /ui/api/export` sends them. A line is a chat with its messages,
 * or a file that some message has.
 */
import { isDigest, isRaw, readFields, readMessage } from './records';
import { fieldsOf, sentMessage } from './sync_merge';
import type { Chat, ChatFields, Message } from '#lib/types';

export interface ReadChat {
	fields: ChatFields;
	messages: Message[];
}

export interface ReadFile {
	sha256: string;
	type: string;
	bytes: Uint8Array<ArrayBuffer>;
}

/** Answers that are being written are left out. */
export function chatLine(chat: Chat, messages: readonly Message[]): string {
	const done = messages.filter((message) => message.state === 'done');
	return (
		JSON.stringify({
			chat: { id: chat.id, ...fieldsOf(chat) },
			messages: done.map(sentMessage)
		}) + '\n'
	);
}

export function fileLine(sha256: string, type: string, bytes: Uint8Array): string {
	return JSON.stringify({ file: { sha256, type, base64: toBase64(bytes) } }) + '\n';
}

/** Of one line; null: it is neither a chat nor a file. */
export function readLine(line: string): ReadChat | ReadFile | null {
	let raw: unknown;
	try {
		raw = JSON.parse(line);
	} catch {
		return null;
	}
	return isRaw(raw) ? (readChatLine(raw) ?? readFileLine(raw.file)) : null;
}

function readChatLine(raw: Record<string, unknown>): ReadChat | null {
	const fields = readFields(raw.chat);
	if (!fields || !Array.isArray(raw.messages)) return null;
	const { id } = raw.chat as { id?: unknown };
	const messages = raw.messages
		.map((one: unknown) => (isRaw(one) ? readMessage({ ...one, chat: id }) : null))
		.filter((one) => one !== null);
	return { fields, messages: asTree(messages) };
}

/** Messages of a stranger as a tree: what hangs on nothing, or on itself, becomes a root. */
function asTree(messages: Message[]): Message[] {
	const byId = new Map(messages.map((message) => [message.id, message]));
	const placed = new Set<string>();
	for (const message of byId.values()) {
		const line = new Set<string>();
		let one: Message | undefined = message;
		while (one && !placed.has(one.id)) {
			line.add(one.id);
			if (one.parent !== null && (!byId.has(one.parent) || line.has(one.parent))) one.parent = null;
			one = one.parent === null ? undefined : byId.get(one.parent);
		}
		for (const id of line) placed.add(id);
	}
	return [...byId.values()];
}

function readFileLine(raw: unknown): ReadFile | null {
	if (!isRaw(raw) || !isDigest(raw.sha256) || typeof raw.base64 !== 'string') return null;
	const bytes = fromBase64(raw.base64);
	const type = typeof raw.type === 'string' ? raw.type : '';
	return bytes && { sha256: raw.sha256, type, bytes };
}

/** A name that any file system takes. */
export function fileName(title: string, ending = 'jsonl'): string {
	const plain = title
		.normalize('NFKC')
		.replace(/[^\p{L}\p{N}]+/gu, '-')
		.replace(/^-+|-+$/g, '');
	return `${[...plain].slice(0, 60).join('').replace(/-+$/, '') || 'chat'}.${ending}`;
}

function toBase64(bytes: Uint8Array): string {
	let text = '';
	for (let start = 0; start < bytes.length; start += 0x8000)
		text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
	return btoa(text);
}

export function fromBase64(text: string): Uint8Array<ArrayBuffer> | null {
	try {
		return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
	} catch {
		return null;
	}
}
