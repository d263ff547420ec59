/**
 * Of the tabs of one database one alone talks to the server. The browser's locks choose it; they exist
 * in a secure context only, and else a lease in the database does, which its holder renews.
 */
import type { MantaDatabase } from '#lib/storage/db';

const LEASE = 'lease';
/** Browsers wake a hidden tab's timers once a second; a frozen tab's lease ends. */
export const LEASE_MS = 6000;
const RENEW_MS = 2000;

interface Lease {
	tab: string;
	until: number;
}

/** Runs `work` while this tab is the one, again and again; ends, and ends `work`, by `signal`. */
export async function asLeader(
	db: MantaDatabase,
	tab: string,
	signal: AbortSignal,
	work: (signal: AbortSignal) => Promise<void>
): Promise<void> {
	const locks = (globalThis.navigator as Navigator | undefined)?.locks as LockManager | undefined;
	try {
		if (locks) await locks.request(`sync ${db.name}`, { signal }, () => work(signal));
		else await byLease(db, tab, signal, work);
	} catch (error) {
		if (!signal.aborted) throw error;
	}
}

async function byLease(
	db: MantaDatabase,
	tab: string,
	signal: AbortSignal,
	work: (signal: AbortSignal) => Promise<void>
): Promise<void> {
	while (!signal.aborted) {
		if (!(await takeLease(db, tab, Date.now()))) {
			await pause(RENEW_MS, signal);
			continue;
		}
		const lost = new AbortController();
		const renewing = setInterval(() => {
			void takeLease(db, tab, Date.now()).then(
				(held) => held || lost.abort(),
				() => lost.abort()
			);
		}, RENEW_MS);
		try {
			await work(AbortSignal.any([signal, lost.signal]));
		} finally {
			clearInterval(renewing);
			await endLease(db, tab);
		}
	}
}

/** Whether `tab` has it now. */
export async function takeLease(db: MantaDatabase, tab: string, now: number): Promise<boolean> {
	return db.transaction('rw', db.meta, async () => {
		const lease = (await db.meta.get(LEASE))?.value as Lease | undefined;
		if (lease && lease.tab !== tab && lease.until > now && lease.until <= now + LEASE_MS)
			return false;
		await db.meta.put({ key: LEASE, value: { tab, until: now + LEASE_MS } satisfies Lease });
		return true;
	});
}

export async function endLease(db: MantaDatabase, tab: string): Promise<void> {
	// The database may be closed by now; then the lease ends by itself.
	await db
		.transaction('rw', db.meta, async () => {
			const lease = (await db.meta.get(LEASE))?.value as Lease | undefined;
			if (lease?.tab === tab) await db.meta.delete(LEASE);
		})
		.catch(() => undefined);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((done) => {
		const end = () => {
			clearTimeout(timer);
			signal.removeEventListener('abort', end);
			done();
		};
		const timer = setTimeout(end, ms);
		signal.addEventListener('abort', end);
	});
}
