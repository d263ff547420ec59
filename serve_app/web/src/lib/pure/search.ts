/** Search without regard to case, accents and width. */
export function fold(text: string): string {
	return text.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
}

/** The words of a query, folded; of an empty one none. */
export function wordsOf(query: string): string[] {
	return [...new Set(fold(query).split(/\s+/).filter(Boolean))];
}

/** A message that has a word of the query. */
export interface Hit {
	message: string;
	text: string;
}

/**
 * Which chats have all words of a query, each in the title or in some message. Texts are added one by
 * one.
 */
export class Finder {
	readonly words: string[];
	readonly #missing = new Map<string, Set<string>>();
	readonly found = new Set<string>();
	/** The message by which a chat is shown: the first that was added with some of the words. */
	readonly hits = new Map<string, Hit>();

	constructor(query: string) {
		this.words = wordsOf(query);
	}

	add(chat: string, text: string, message?: string): void {
		if (this.found.has(chat)) return;
		const folded = fold(text);
		const missing = this.#missing.get(chat) ?? new Set(this.words);
		for (const word of missing) if (folded.includes(word)) missing.delete(word);
		if (message && !this.hits.has(chat) && this.words.some((word) => folded.includes(word)))
			this.hits.set(chat, { message, text });
		if (missing.size > 0) this.#missing.set(chat, missing);
		else {
			this.found.add(chat);
			this.#missing.delete(chat);
		}
	}
}

export interface Snippet {
	before: string;
	word: string;
	after: string;
}

const BEFORE = 24;
const AFTER = 80;
/** A word further back is not looked for. */
const MOST = 50_000;

/** The first of `words` in a text, with what is around it. */
export function snippetOf(text: string, words: readonly string[]): Snippet | null {
	let folded = '';
	/** Of each letter of `folded`, where it is in `text`. */
	const places: number[] = [];
	let at = 0;
	for (const letter of text.slice(0, MOST)) {
		const plain = fold(letter);
		folded += plain;
		for (let index = 0; index < plain.length; index++) places.push(at);
		at += letter.length;
	}
	places.push(at);
	const starts = words.map((word) => [folded.indexOf(word), word.length] as const);
	const [start, length] = starts
		.filter(([index]) => index >= 0)
		.reduce((first, one) => (one[0] < first[0] ? one : first), [Infinity, 0] as const);
	if (start === Infinity) return null;
	const [from, to] = [places[start]!, places[start + length]!];
	const line = (part: string) => part.replace(/\s+/g, ' ');
	return {
		before: `${from > BEFORE ? '…' : ''}${line(text.slice(Math.max(0, from - BEFORE), from))}`,
		word: text.slice(from, to),
		after: line(text.slice(to, to + AFTER))
	};
}
