/**
 * The tabs of one database: what one writes the others hear of. Where the browser has no
 * BroadcastChannel a tab is alone.
 */
export type TabMessage =
	| { kind: 'changed'; chats: string[]; messages: string[]; toSend: boolean }
	| { kind: 'queue' }
	| { kind: 'sync'; refusal: string | null; isRead: boolean }
	| { kind: 'who-syncs' }
	/** `turn` rises with time: see `ConversationsStore.runningOnStart`. */
	| { kind: 'who-runs'; turn: string }
	| { kind: 'runs'; ids: string[] }
	| { kind: 'signed-out' };

export class Tabs {
	readonly #channel: BroadcastChannel | null;
	readonly #listeners = new Set<(message: TabMessage) => void>();

	constructor(name: string) {
		this.#channel = typeof BroadcastChannel === 'undefined' ? null : new BroadcastChannel(name);
		if (this.#channel)
			this.#channel.onmessage = (event: MessageEvent<TabMessage>) => {
				for (const listener of this.#listeners) listener(event.data);
			};
	}

	tell(message: TabMessage): void {
		this.#channel?.postMessage(message);
	}

	/** Answers what ends it. */
	listen(listener: (message: TabMessage) => void): () => void {
		this.#listeners.add(listener);
		return () => this.#listeners.delete(listener);
	}

	close(): void {
		this.#listeners.clear();
		this.#channel?.close();
	}
}
