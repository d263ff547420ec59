import type { Chat, ChatSettings } from '#lib/types';

/** What the next new chat begins with, apart from what all do. */
class NewChatStore {
	/** Undefined: the person's system message. */
	system = $state<string>();
	settings = $state.raw<ChatSettings>({ sampling: {}, thinking: {} });

	/** For the chat that begins; the one after it has none of this. */
	take(): Partial<Chat> {
		const { system, settings } = this;
		this.clear();
		return { ...(system !== undefined && { system }), settings };
	}

	clear(): void {
		this.system = undefined;
		this.settings = { sampling: {}, thinking: {} };
	}
}

export const newChatStore = new NewChatStore();
