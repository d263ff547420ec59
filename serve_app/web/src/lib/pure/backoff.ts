import type { Milliseconds } from '#lib/types';

const FIRST_MS = 1000;
const LAST_MS = 60_000;

/**
 * How long to wait after a failure that followed so many others: twice as long each time, and up to
 * half of it less by chance, so that many clients do not come back at once. Never less than the server
 * asked for.
 */
export function pauseAfter(
	failures: number,
	chance: number,
	asked: Milliseconds = 0
): Milliseconds {
	const longest = Math.min(LAST_MS, FIRST_MS * 2 ** failures);
	return Math.max(asked, longest * (1 - chance / 2));
}
