/** Calls `step` again and again when the browser has nothing to do, until it answers false. */
export function whenIdle(step: () => boolean): () => void {
	let ended = false;
	const next = () => {
		if (!ended && step()) schedule();
	};
	const schedule = () => {
		if ('requestIdleCallback' in window) requestIdleCallback(next, { timeout: 500 });
		else setTimeout(next, 30);
	};
	schedule();
	return () => (ended = true);
}
