import { preloadCode } from '$app/navigation';

/** With no network a page can't fetch its own code, so it has all that reading and writing needs before. */
const ROUTES = [
	'/(chat)',
	'/(chat)/chat/[id]',
	'/(chat)/settings/[section]',
	'/fleet'
] as const satisfies Parameters<typeof preloadCode>[0][];
const AFTER_MS = 2000;

/** Once the page has begun, `more` too; answers what ends it. */
export function preloadAll(more: () => Promise<unknown>): () => void {
	const timer = setTimeout(() => {
		// What fails is fetched again when it is needed.
		for (const route of ROUTES) preloadCode(route).catch(() => undefined);
		more().catch(() => undefined);
	}, AFTER_MS);
	return () => clearTimeout(timer);
}
