const NEAR_PX = 64;

/** Keeps a scrolled box at its end while the reader is there; new text moves nobody who reads above. */
export class AutoScroll {
	atEnd = $state(true);
	#box: HTMLElement | null = null;

	constructor(private readonly follows: () => boolean) {}

	/** For the box; what grows in it is its first child. */
	attach = (box: HTMLElement): (() => void) => {
		this.#box = box;
		const watch = new ResizeObserver(() => {
			if (this.atEnd && this.follows()) this.toEnd('instant');
			else this.#look();
		});
		if (box.firstElementChild) watch.observe(box.firstElementChild);
		watch.observe(box);
		const look = () => this.#look();
		box.addEventListener('scroll', look, { passive: true });
		return () => {
			watch.disconnect();
			box.removeEventListener('scroll', look);
			this.#box = null;
		};
	};

	toEnd(behavior: ScrollBehavior = 'smooth'): void {
		const still = matchMedia('(prefers-reduced-motion: reduce)').matches;
		this.#box?.scrollTo({
			top: this.#box.scrollHeight,
			behavior: still ? 'instant' : behavior
		});
		this.atEnd = true;
	}

	#look(): void {
		const box = this.#box;
		if (box) this.atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
	}
}
