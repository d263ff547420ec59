import { untrack } from 'svelte';
import { conversationsStore } from './conversations.svelte';
import { serverStore } from './server_store.svelte';

/** Keeps what this browser has and what the server has the same. */
class SyncStore {
	#followers = 0;
	#end: (() => void) | null = null;

	/** Whose chats are shown follows who is signed in; answers what ends that. */
	follow(): () => void {
		if (this.#followers++ === 0)
			this.#end = $effect.root(() => {
				$effect(() => {
					const owner = serverStore.owner?.owner;
					if (owner !== undefined) untrack(() => void this.#use(owner));
				});
			});
		return () => {
			if (--this.#followers === 0) this.#end?.();
		};
	}

	async #use(owner: string): Promise<void> {
		await conversationsStore.use(owner, location.origin + location.pathname);
	}
}

export const syncStore = new SyncStore();
