// Before the first paint, so that a dark page is never white for a moment. mode-watcher goes on
// from here; its own script would be an inline one, which the page's CSP forbids.
(() => {
	let mode = null;
	try {
		mode = localStorage.getItem('mode-watcher-mode');
	} catch {
		// A browser that forbids storage: as the system says.
	}
	const dark = matchMedia('(prefers-color-scheme: dark)').matches;
	document.documentElement.classList.toggle('dark', mode === 'dark' || (mode !== 'light' && dark));
})();
