/** What the message box tells the rest of the page. */
class ComposerStore {
	/** Tokens of the branch with what is being written; null: nothing is, or nobody counted. */
	counted = $state<{ chat: string | null; tokens: number } | null>(null);
}

export const composerStore = new ComposerStore();
