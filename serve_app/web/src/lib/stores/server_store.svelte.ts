import { ApiError, listeners } from '#lib/services/api';
import { ServerService, type Owner } from '#lib/services/server_service';
import { forgetKey, keepKey, readKey } from '#lib/storage/secret';

const FIRST_RETRY_MS = 1000;
const LAST_RETRY_MS = 30_000;

class ServerStore {
	/** False once a request found nobody; it then asks again by itself. */
	reachable = $state(true);
	needsKey = $state(false);
	owner = $state<Owner>();
	hasKey = $state(readKey() !== null);
	/** The first answer, of whatever kind, has come. */
	known = $state(false);
	#retry: ReturnType<typeof setTimeout> | undefined;
	#wait = FIRST_RETRY_MS;
	/** Nobody looks at the page: it does not ask by itself. */
	#rests = false;

	constructor() {
		listeners.signedOut = () => this.signedOut();
		listeners.reached = () => this.reached();
		listeners.lost = () => this.lost();
	}

	/** Asks who we are; safe to call again, as "Try again" does. */
	async start(): Promise<void> {
		this.#rests = false;
		this.#endRetry();
		const key = readKey();
		try {
			await ServerService.check();
			const owner = await ServerService.me();
			// Who signed in or out meanwhile knows better.
			if (readKey() === key) {
				this.owner = owner;
				this.needsKey = false;
			}
			this.reached();
		} catch (error) {
			if (!(error instanceof ApiError)) throw error;
			// A 401 has signed out whose key it was.
			if (error.status === 0) this.lost();
			else this.reached();
		}
		this.known = true;
	}

	/** False: the server does not accept the key, and nothing is kept of it. Else an `ApiError`. */
	async signIn(key: string, remember: boolean): Promise<boolean> {
		keepKey(key.trim(), remember);
		try {
			await ServerService.check();
			this.owner = await ServerService.me();
		} catch (error) {
			forgetKey();
			if (error instanceof ApiError && error.status === 401) return false;
			throw error;
		}
		this.needsKey = false;
		this.hasKey = true;
		this.leftBehind = undefined;
		this.reached();
		return true;
	}

	/** Why chats are still on this device though their owner signed out. */
	leftBehind = $state<string>();

	/** What is done before the key goes; set by who keeps chats. */
	onsignout: (() => Promise<void>) | null = null;

	/** By the person. */
	async signOut(): Promise<void> {
		try {
			await this.onsignout?.();
		} catch (error) {
			const why = error instanceof Error ? error.message : String(error);
			this.leftBehind = `The chats could not be deleted from this device: ${why}`;
		}
		this.signedOut();
	}

	/** A 401 came: the key is worth nothing any more. */
	signedOut(): void {
		forgetKey();
		this.hasKey = false;
		this.owner = undefined;
		this.needsKey = true;
	}

	key(): string | null {
		return readKey();
	}

	reached(): void {
		this.reachable = true;
		this.#wait = FIRST_RETRY_MS;
		this.#endRetry();
	}

	/** Nothing is asked by itself until `start`. */
	rest(): void {
		this.#rests = true;
		this.#endRetry();
	}

	/** Several requests may fail at once: it is asked again as soon as after the first. */
	lost(): void {
		this.reachable = false;
		if (this.#retry !== undefined || this.#rests) return;
		this.#retry = setTimeout(() => void this.start(), this.#wait);
		this.#wait = Math.min(this.#wait * 2, LAST_RETRY_MS);
	}

	#endRetry(): void {
		clearTimeout(this.#retry);
		this.#retry = undefined;
	}
}

export const serverStore = new ServerStore();
