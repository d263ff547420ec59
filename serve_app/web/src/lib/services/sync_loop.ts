import { pauseAfter } from '#lib/pure/backoff';
import { ApiError } from './api';
import type { SyncService } from './sync';

/** Seconds that the server waits for a change. */
const WAIT_S = 25;
/** What is written within so long goes together. */
const GATHER_MS = 200;

/**
 * One tab's talk with the server: it reads whenever the server has news and sends whenever something
 * was written here. After a failure it waits, longer each time, or until it is woken.
 */
export class SyncLoop {
	/** All that the server had when we last asked is here. */
	isRead = false;
	/** Why the last step failed, where the server answered. */
	failure: string | null = null;
	readonly #paused = new Set<() => void>();
	#poll = new AbortController();
	#toPush = true;

	/** `onstep` is called after each step: the state may be another. */
	constructor(
		private readonly service: Pick<SyncService, 'pull' | 'push'>,
		private readonly onstep: () => void
	) {}

	/** There is something to send. */
	push(): void {
		this.#toPush = true;
		this.wake();
	}

	/** What waits goes on. */
	wake(): void {
		for (const goOn of [...this.#paused]) goOn();
	}

	/** Asks anew: the connection may have gone without a word, or have come back. */
	refresh(): void {
		this.#poll.abort();
		this.wake();
	}

	/** Until `signal`. */
	async run(signal: AbortSignal): Promise<void> {
		await Promise.all([
			this.#again(signal, () => this.#pull(signal)),
			this.#again(signal, () => this.#push(signal))
		]);
	}

	async #pull(signal: AbortSignal): Promise<void> {
		const poll = new AbortController();
		this.#poll = poll;
		try {
			await this.service.pull(this.isRead ? WAIT_S : 0, AbortSignal.any([signal, poll.signal]));
			if (this.isRead) return;
			this.isRead = true;
			this.wake();
		} catch (error) {
			this.isRead = false;
			if (!poll.signal.aborted) throw error;
		}
	}

	async #push(signal: AbortSignal): Promise<void> {
		// What others wrote is taken first: most conflicts are settled here then.
		while (!(this.isRead && this.#toPush)) {
			await this.#pause(null, signal);
			if (signal.aborted) return;
		}
		await this.#pause(GATHER_MS, signal, false);
		if (signal.aborted) return;
		this.#toPush = false;
		try {
			await this.service.push(signal);
		} catch (error) {
			this.#toPush = true;
			throw error;
		}
	}

	async #again(signal: AbortSignal, step: () => Promise<void>): Promise<void> {
		for (let failures = 0; !signal.aborted;) {
			try {
				await step();
				failures = 0;
				this.failure = null;
				this.onstep();
			} catch (error) {
				if (signal.aborted) return;
				const asked = error instanceof ApiError ? error.retry_after_ms : undefined;
				this.failure = error instanceof Error ? error.message : String(error);
				this.onstep();
				await this.#pause(pauseAfter(failures++, Math.random(), asked), signal);
			}
		}
	}

	/** null: until it is woken. */
	#pause(ms: number | null, signal: AbortSignal, mayWake = true): Promise<void> {
		return new Promise((done) => {
			const end = () => {
				clearTimeout(timer);
				this.#paused.delete(end);
				signal.removeEventListener('abort', end);
				done();
			};
			const timer = ms === null ? undefined : setTimeout(end, ms);
			if (mayWake) this.#paused.add(end);
			signal.addEventListener('abort', end);
			if (signal.aborted) end();
		});
	}
}
