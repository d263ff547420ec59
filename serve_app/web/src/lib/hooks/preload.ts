import { preloadCode } from '$app/navigation';

/** With no network a page can't fetch its own code, so it has all that reading and writing needs before. */
const ROUTES = [
	'/(chat)',
	'/(chat)/chat/[id]',
	'/(chat)/settings/[section]',
	'/fleet'
] as const satisfies Parameters<typeof preloadCode>[0][];

/** When the page has nothing else to do, `more` too. */
export function preloadAll(more: () => Promise<unknown>): void {
	// Safari has no idle callbacks.
	const whenIdle = globalThis.requestIdleCallback ?? ((work: () => void) => setTimeout(work, 500));
	whenIdle(() => {
		// What fails is fetched again when it is needed.
		for (const route of ROUTES) preloadCode(route).catch(() => undefined);
		more().catch(() => undefined);
	});
}
