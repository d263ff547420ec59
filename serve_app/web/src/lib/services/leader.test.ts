import 'fake-indexeddb/auto';
import { afterEach, expect, it, vi } from 'vitest';
import { MantaDatabase } from '#lib/storage/db';
import { asLeader, endLease, LEASE_MS, takeLease } from './leader';

let names = 0;

async function opened(): Promise<MantaDatabase> {
	const db = new MantaDatabase(`leader ${names++}`);
	await db.open();
	return db;
}

afterEach(() => vi.unstubAllGlobals());

it('lends to one tab, until its lease is over or given back', async () => {
	const db = await opened();
	expect(await takeLease(db, 'a', 1000)).toBe(true);
	expect(await takeLease(db, 'b', 1001)).toBe(false);
	expect(await takeLease(db, 'a', 2000)).toBe(true);
	expect(await takeLease(db, 'b', 1000 + LEASE_MS)).toBe(false);
	expect(await takeLease(db, 'b', 2000 + LEASE_MS)).toBe(true);
	await endLease(db, 'a');
	expect(await takeLease(db, 'a', 2001 + LEASE_MS)).toBe(false);
	await endLease(db, 'b');
	expect(await takeLease(db, 'a', 2001 + LEASE_MS)).toBe(true);
});

it('heeds no lease of a clock that was ahead', async () => {
	const db = await opened();
	await takeLease(db, 'a', 1_000_000);
	expect(await takeLease(db, 'b', 1000)).toBe(true);
});

it.each([
	['a lease', {}],
	['locks', { locks: lockManager() }]
])('has one tab work at a time by %s, and another once it ends', async (_name, navigator) => {
	vi.stubGlobal('navigator', navigator);
	const db = await opened();
	const [first, second] = [new AbortController(), new AbortController()];
	const log: string[] = [];
	const working = (name: string, started: () => void) => (signal: AbortSignal) =>
		new Promise<void>((done) => {
			log.push(`${name} starts`);
			signal.addEventListener('abort', () => {
				log.push(`${name} ends`);
				done();
			});
			started();
		});
	let ended: Promise<void>;
	await new Promise<void>((started) => {
		ended = asLeader(db, 'a', first.signal, working('a', started));
	});
	vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
	const other = new Promise<void>((started) => {
		void asLeader(db, 'b', second.signal, working('b', started));
	});
	first.abort();
	await ended!;
	await vi.waitFor(
		async () => {
			vi.advanceTimersByTime(LEASE_MS);
			expect(log.at(-1)).toBe('b starts');
		},
		{ timeout: 20_000 }
	);
	vi.useRealTimers();
	await other;
	expect(log).toEqual(['a starts', 'a ends', 'b starts']);
	second.abort();
});

/** As the browser has them in a secure context: one after the other. */
function lockManager() {
	let turn: Promise<unknown> = Promise.resolve();
	return {
		request(_name: string, _options: unknown, work: () => Promise<void>) {
			const mine = turn.then(work);
			turn = mine.catch(() => undefined);
			return mine;
		}
	};
}
