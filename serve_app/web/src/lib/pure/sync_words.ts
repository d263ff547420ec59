/** What the footer says of the sync. */
export interface SyncFacts {
	/** The server keeps chats. */
	isKept: boolean;
	/** Not even this browser keeps them. */
	isForgotten: boolean;
	isReachable: boolean;
	/** What the server had is here. */
	isRead: boolean;
	/** All who can open the page share the chats. */
	isShared: boolean;
	/** What the server said when it would not store something. */
	refusal: string | null;
	/** Changes that the server does not know. */
	pending: number;
}

export type SyncState = 'synced' | 'sending' | 'offline' | 'local';

export interface SyncStatus {
	state: SyncState;
	pending: number;
	text: string;
	/** A second line. */
	detail: string | null;
	/** The second line tells of something that went wrong. */
	isWrong: boolean;
}

export function describeSync(facts: SyncFacts): SyncStatus {
	const { isKept, isForgotten, isReachable, isRead, isShared, refusal, pending } = facts;
	if (isForgotten)
		return status('local', 0, 'Only in this browser', 'They last until this page is closed.');
	if (!isKept)
		return status(
			'local',
			0,
			'Only in this browser',
			'This server keeps no chats. Export what you need elsewhere.'
		);
	if (!isReachable)
		return status(
			'offline',
			pending,
			'Offline',
			pending > 0 ? `${changes(pending)} will be sent later` : null
		);
	if (refusal !== null)
		return { ...status('sending', pending, toSend(pending), refusal), isWrong: true };
	const shared = isShared ? 'Saved on this server for everyone who can open it' : null;
	if (pending > 0) return status('sending', pending, toSend(pending), shared);
	return isRead ? status('synced', 0, 'Synced', shared) : status('sending', 0, 'Syncing…', shared);
}

function toSend(pending: number): string {
	return pending > 0 ? `${changes(pending)} to send` : 'Syncing…';
}

function changes(count: number): string {
	return count === 1 ? '1 change' : `${count.toLocaleString('en')} changes`;
}

function status(
	state: SyncState,
	pending: number,
	text: string,
	detail: string | null
): SyncStatus {
	return { state, pending, text, detail, isWrong: false };
}
