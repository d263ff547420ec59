// The message box of app.html, until the page runs and goes on from it: lib/hooks/first_box.ts. Its
// data says what the page has to know: the question that was asked, and whether a word is composed.
(() => {
	const first = document.getElementById('first');
	const box = first.querySelector('textarea');

	/** Answers what the person chose; what the operator did is not known here. */
	function sendsByEnter() {
		try {
			return JSON.parse(localStorage.getItem('manta-settings')).values.sendWith !== 'mod-enter';
		} catch {
			return true;
		}
	}

	function ask() {
		box.focus();
		if (box.value.trim() === '' || box.dataset.asked) return;
		box.dataset.asked = box.value;
		first.querySelector('[role="status"]').textContent = `Sent when ready: ${box.value}`;
		box.value = '';
	}

	// `?q=` is written and not sent: anybody's page may lead here.
	const question = new URLSearchParams(location.search).get('q');
	if (question) box.value = question;
	box.addEventListener('keydown', (event) => {
		// Safari ends a composition before the Enter that ended it; its code says so.
		if (event.key !== 'Enter' || event.isComposing || event.keyCode === 229) return;
		if (!(sendsByEnter() ? !event.shiftKey : event.ctrlKey || event.metaKey)) return;
		event.preventDefault();
		ask();
	});
	box.addEventListener('compositionstart', () => (box.dataset.composes = 'yes'));
	box.addEventListener('compositionend', () => delete box.dataset.composes);
	first.querySelector('button').addEventListener('click', ask);
	// `autofocus` would do it on a phone too, where the page takes no focus by itself.
	if (matchMedia('(pointer: fine)').matches) {
		box.focus();
		box.setSelectionRange(box.value.length, box.value.length);
	}
})();
