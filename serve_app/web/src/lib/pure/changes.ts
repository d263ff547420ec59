/** A page of `/ui/api/changes`. */
import { isId } from './ids';
import { isRaw, isTime, readFields, readMessage } from './records';
import type { ChatFields, Message } from '#lib/types';

export interface ChangedChat {
	id: string;
	revision: number;
	/** null: it was deleted. */
	fields: ChatFields | null;
}

export interface ChangedMessage {
	id: string;
	revision: number;
	/** null: it was deleted, with all below it. */
	message: Message | null;
}

export interface Changes {
	/** All of the server's is read up to here once there is no `more`. */
	revision: number;
	/** Where to read on; the server's own words. */
	next: string;
	more: boolean;
	chats: ChangedChat[];
	messages: ChangedMessage[];
}

/** What has not the shape of a chat or a message is passed over. Throws if it is no such page. */
export function readChanges(raw: unknown): Changes {
	if (!isRaw(raw) || !isTime(raw.revision) || typeof raw.next !== 'string')
		throw new Error('This is no page of changes.');
	return {
		revision: raw.revision,
		next: raw.next,
		more: raw.more === true,
		chats: list(raw.chats).map(readChat).filter(isThere),
		messages: list(raw.messages).map(readOne).filter(isThere)
	};
}

/** The chat that a refusal of a write brought. */
export function readChat(raw: unknown): ChangedChat | null {
	if (!isRaw(raw) || !isId(raw.id) || !isTime(raw.revision)) return null;
	const { id, revision } = raw;
	if (isTime(raw.deleted_at)) return { id, revision, fields: null };
	const fields = readFields(raw);
	return fields && { id, revision, fields };
}

function readOne(raw: unknown): ChangedMessage | null {
	if (!isRaw(raw) || !isId(raw.id) || !isTime(raw.revision)) return null;
	const { id, revision } = raw;
	if (isTime(raw.deleted_at)) return { id, revision, message: null };
	const message = readMessage(raw);
	return message && { id, revision, message: { ...message, revision } };
}

function list(raw: unknown): unknown[] {
	return Array.isArray(raw) ? raw : [];
}

function isThere<T>(value: T | null): value is T & {} {
	return value !== null;
}
