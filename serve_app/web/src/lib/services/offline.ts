/**
 * Has static/service_worker.js keep the files of the page, so that it opens without a server and can be
 * installed. Browsers allow it on HTTPS and on this machine alone; elsewhere nothing happens.
 */
export async function keepPage(): Promise<void> {
	if (!('serviceWorker' in navigator) || !isSecureContext) return;
	try {
		await navigator.serviceWorker.register('./service_worker.js');
		const { active } = await navigator.serviceWorker.ready;
		const files = performance.getEntriesByType('resource').map(({ name }) => name);
		active?.postMessage({ files });
	} catch {
		// A browser that forbids it, such as in a private window.
	}
}
