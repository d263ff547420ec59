/**
 * The message box of app.html stands in the first paint, before the page runs: static/first_box.js keeps
 * what is done in it. A composer goes on from there.
 */
export interface Written {
	text: string;
	/** The selection is from here to `end`. */
	start: number;
	end: number;
	isFocused: boolean;
}

const first = globalThis.document?.getElementById('first');
let isAwaited = false;

/**
 * Puts the composer in the place of the first box. `ask` gets the question that was asked in it, `goOn` what
 * is being written: at once, so that no key comes between, or when the word that is composed is whole.
 * Answers what ends it.
 */
export function takeFirstBox(
	ask: (question: string) => void,
	goOn: (written: Written) => void
): () => void {
	const box = first?.querySelector('textarea');
	if (!first?.isConnected || !box) return () => {};
	const { asked, composes } = box.dataset;
	if (asked) ask(asked);
	const end = () => {
		const isFocused = document.activeElement === box;
		const written = { text: box.value, start: box.selectionStart, end: box.selectionEnd };
		first.remove();
		goOn({ ...written, isFocused });
	};
	if (composes) {
		isAwaited = true;
		first.classList.add('invisible'); // all but the box, as the page is there
		box.addEventListener('compositionend', end);
	} else end();
	return () => first.remove();
}

/** Ends it on a screen without a composer; to be called once the first screen is there. */
export function dropFirstBox(): void {
	if (!isAwaited) first?.remove();
}
