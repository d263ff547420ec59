// Before the first paint: so that a dark page is never white for a moment, and the message box of
// app.html stands where the page will have its own. An inline script may not: the page's CSP.
(() => {
	function kept(name) {
		try {
			return localStorage.getItem(name);
		} catch {
			return null; // A browser that forbids storage.
		}
	}

	/** Answers what an address opens that has a message box at once; nothing where it has none. */
	function opens(hash) {
		if (/^(#\/?)?$/.test(hash)) return 'new';
		return /^#\/chat\/[^/]+$/.test(hash) ? 'chat' : '';
	}

	const page = document.documentElement;
	const mode = kept('mode-watcher-mode');
	const dark = matchMedia('(prefers-color-scheme: dark)').matches;
	// mode-watcher goes on from here.
	page.classList.toggle('dark', mode === 'dark' || (mode !== 'light' && dark));
	const opened = opens(location.hash);
	if (opened) page.dataset.first = opened;
	if (kept('manta-sidebar') === '"closed"') page.dataset.column = 'closed';
})();
