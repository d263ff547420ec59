/** So near to the end counts as there, in px. */
const NEAR_PX = 64;

/**
 * Keeps the end of a list in view while the reader is there. Who scrolls up reads on undisturbed until
 * they come back to the end.
 */
export class AutoScroll {
	atEnd = $state(true);
	#list: HTMLElement | null = null;
	#top = 0;

	/** follows: whether new text moves the list. */
	constructor(private readonly follows: () => boolean) {}

	/** For `{@attach}` of the element that scrolls; its only child is watched. */
	readonly attach = (list: HTMLElement) => {
		this.#list = list;
		const grown = new ResizeObserver(() => this.#grew());
		grown.observe(list);
		if (list.firstElementChild) grown.observe(list.firstElementChild);
		list.addEventListener('scroll', this.#scrolled, { passive: true });
		return () => {
			grown.disconnect();
			list.removeEventListener('scroll', this.#scrolled);
			this.#list = null;
		};
	};

	toEnd(behavior: ScrollBehavior = 'smooth'): void {
		const list = this.#list;
		if (!list) return;
		this.atEnd = true;
		const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
		list.scrollTo({ top: list.scrollHeight, behavior: calm ? 'instant' : behavior });
		this.#top = list.scrollTop;
	}

	readonly #scrolled = () => {
		const list = this.#list;
		if (!list) return;
		const left = list.scrollHeight - list.clientHeight - list.scrollTop;
		// Growth moves the end away without a scroll; only a way up leaves it.
		if (left < NEAR_PX) this.atEnd = true;
		else if (list.scrollTop < this.#top - 1) this.atEnd = false;
		this.#top = list.scrollTop;
	};

	#grew(): void {
		const list = this.#list;
		if (!list) return;
		if (this.atEnd && this.follows()) this.toEnd('instant');
		else this.atEnd = list.scrollHeight - list.clientHeight - list.scrollTop < NEAR_PX;
	}
}
