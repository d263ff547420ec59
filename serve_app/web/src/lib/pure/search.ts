/** Search without regard to case, accents and width. */
export function fold(text: string): string {
	return text.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
}

/** The words of a query, folded; of an empty one none. */
export function wordsOf(query: string): string[] {
	return [...new Set(fold(query).split(/\s+/).filter(Boolean))];
}

/**
 * Which chats have all words of a query, each in the title or in some message. Texts are added one by
 * one.
 */
export class Finder {
	readonly #words: string[];
	readonly #missing = new Map<string, Set<string>>();
	readonly found = new Set<string>();

	constructor(query: string) {
		this.#words = wordsOf(query);
	}

	add(chat: string, text: string): void {
		if (this.found.has(chat)) return;
		const folded = fold(text);
		const missing = this.#missing.get(chat) ?? new Set(this.#words);
		for (const word of missing) if (folded.includes(word)) missing.delete(word);
		if (missing.size > 0) this.#missing.set(chat, missing);
		else {
			this.found.add(chat);
			this.#missing.delete(chat);
		}
	}
}
