/** Follows something while the page is visible and at least one has asked for it. */
export class Follower {
	#asked = 0;
	#controller: AbortController | undefined;

	/** `follow` goes on until its signal is aborted. */
	constructor(readonly follow: (signal: AbortSignal) => Promise<void>) {}

	/** Answers what ends it. */
	start(): () => void {
		if (++this.#asked === 1) document.addEventListener('visibilitychange', this.#changed);
		this.#changed();
		return () => {
			if (--this.#asked === 0) document.removeEventListener('visibilitychange', this.#changed);
			this.#changed();
		};
	}

	#changed = () => {
		const wanted = this.#asked > 0 && document.visibilityState === 'visible';
		if (!wanted) {
			this.#controller?.abort();
			this.#controller = undefined;
		} else if (!this.#controller) {
			this.#controller = new AbortController();
			void this.follow(this.#controller.signal);
		}
	};
}

export function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((done) => {
		if (signal.aborted) return done();
		const timer = setTimeout(done, ms);
		signal.addEventListener('abort', () => (clearTimeout(timer), done()), { once: true });
	});
}
