/** Tells elements whether they are near what is seen of the list that scrolls. */
export class NearObserver {
	readonly #told = new WeakMap<Element, (near: boolean) => void>();
	readonly #observer = new IntersectionObserver(
		(entries) => {
			for (const { target, isIntersecting } of entries) this.#told.get(target)?.(isIntersecting);
		},
		{ rootMargin: '800px 0px' }
	);

	/** For `{@attach}`. */
	watch(tell: (near: boolean) => void) {
		return (element: Element) => {
			this.#told.set(element, tell);
			this.#observer.observe(element);
			return () => this.#observer.unobserve(element);
		};
	}

	disconnect(): void {
		this.#observer.disconnect();
	}
}
