import Dexie, { type EntityTable, type Table } from 'dexie';
import { digestOf } from '#lib/pure/digest';
import type { Draft, QueuedQuestion, StoredChat, StoredFile, StoredMessage } from '#lib/types';

export interface Meta {
	key: string;
	value: unknown;
}

const PREFIX = 'manta-';

/** One owner's chats on one server. What the server is still to be told of has an `outbox`. */
export class MantaDatabase extends Dexie {
	declare chats: EntityTable<StoredChat, 'id'>;
	declare messages: EntityTable<StoredMessage, 'id'>;
	declare files: EntityTable<StoredFile, 'sha256'>;
	declare meta: Table<Meta, string>;
	declare drafts: EntityTable<Draft, 'chat'>;
	declare queue: EntityTable<QueuedQuestion, 'message'>;

	constructor(name: string) {
		super(name);
		this.version(1).stores({
			chats: 'id, outbox',
			messages: 'id, chat, state, outbox',
			files: 'sha256',
			meta: 'key',
			drafts: 'chat',
			queue: 'message'
		});
		// Another tab deletes it, as signing out does: Dexie would open it again, empty, at the next use.
		this.on('versionchange', ({ newVersion }) => {
			if (newVersion !== null) return true;
			this.close();
			return false;
		});
	}
}

/** Of an owner at a server; a name that tells neither. */
export function databaseName(owner: string, server: string): string {
	return PREFIX + digestOf(JSON.stringify([server, owner])).slice(0, 32);
}
