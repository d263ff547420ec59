interface Composer {
	focus: () => void;
}

/** What is open on the page, for the keys that open it. */
class PageStore {
	/** A message that is to be shown once its chat is open. */
	jump = $state.raw<{ chat: string; message: string } | null>(null);

	pickerOpen = $state(false);
	keysOpen = $state(false);
	#composer: Composer | null = null;

	/** Answers what gives it back. */
	takeComposer(composer: Composer): () => void {
		this.#composer = composer;
		return () => {
			if (this.#composer === composer) this.#composer = null;
		};
	}

	focusComposer(): void {
		this.#composer?.focus();
	}
}

export const pageStore = new PageStore();
