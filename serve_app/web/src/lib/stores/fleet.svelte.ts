import type { Fleet } from '#lib/pure/fleet';
import { addReading } from '#lib/pure/history';
import { ApiError } from '#lib/services/api';
import { FleetService } from '#lib/services/fleet';
import type { Milliseconds } from '#lib/types';
import { Follower, pause } from './while_visible';

const FIRST_WAIT_MS = 1000;
const LAST_WAIT_MS = 30_000;

class FleetStore {
	/** Of the last ten minutes, the newest one last. They outlive the page that shows them. */
	readings = $state.raw<Fleet[]>([]);
	/** Why nothing newer comes; "" while it does. */
	error = $state('');
	/** When the newest one came, by this device's clock. */
	readAt = $state<Milliseconds>(0);
	#follower = new Follower((signal) => this.#followUntil(signal));
	readonly now: Fleet | undefined = $derived(this.readings.at(-1));

	/** Follows the fleet while the page is visible; answers what ends it. */
	follow(): () => void {
		return this.#follower.start();
	}

	async #followUntil(signal: AbortSignal): Promise<void> {
		let wait = FIRST_WAIT_MS;
		while (!signal.aborted) {
			let retry_after_ms: number | undefined;
			try {
				for await (const told of FleetService.events(signal)) {
					wait = FIRST_WAIT_MS;
					if (told instanceof ApiError) this.error = told.message;
					else {
						this.readings = addReading(this.readings, told);
						this.readAt = Date.now();
						this.error = '';
					}
				}
			} catch (error) {
				if (signal.aborted) return;
				this.error = error instanceof ApiError ? error.message : "The server can't be reached.";
				if (error instanceof ApiError) retry_after_ms = error.retry_after_ms;
			}
			await pause(retry_after_ms ?? wait, signal);
			wait = Math.min(wait * 2, LAST_WAIT_MS);
		}
	}
}

export const fleetStore = new FleetStore();
