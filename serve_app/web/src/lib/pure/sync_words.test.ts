import { expect, it } from 'vitest';
import { describeSync, type SyncFacts } from './sync_words';

const facts: SyncFacts = {
	...{ isKept: true, isForgotten: false, isReachable: true, isRead: true, isShared: false },
	...{ refusal: null, pending: 0 }
};

it.each<[Partial<SyncFacts>, string, string, string | null]>([
	[{}, 'synced', 'Synced', null],
	[{ isShared: true }, 'synced', 'Synced', 'Saved on this server for everyone who can open it'],
	[{ pending: 1 }, 'sending', '1 change to send', null],
	[{ pending: 3000 }, 'sending', '3,000 changes to send', null],
	[{ isRead: false }, 'sending', 'Syncing…', null],
	[{ isReachable: false }, 'offline', 'Offline', null],
	[{ isReachable: false, pending: 2 }, 'offline', 'Offline', '2 changes will be sent later'],
	[{ pending: 1, refusal: 'Too much' }, 'sending', '1 change to send', 'Too much'],
	[{ isForgotten: true }, 'local', 'Only in this browser', 'They last until this page is closed.'],
	[
		{ isKept: false, pending: 9 },
		'local',
		'Only in this browser',
		'This server keeps no chats. Export what you need elsewhere.'
	]
])('of %j says %s, %s, %s', (some, state, text, detail) => {
	const status = describeSync({ ...facts, ...some });
	expect(status).toMatchObject({ state, text, detail, isWrong: some.refusal !== undefined });
});
