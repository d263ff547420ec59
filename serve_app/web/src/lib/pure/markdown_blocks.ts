/** An answer cut into blocks while it grows: paragraphs, lists, code, tables. */
import type { Token, Tokens } from 'marked';
import { lexer, type Author } from './markdown';

export interface Block {
	/** Where it starts in the text: its key. */
	start: number;
	source: string;
	/** A fenced or indented block of code; what is not closed yet may grow. */
	code?: { text: string; lang: string; closed: boolean };
}

/**
 * Text that only grows is read from the start of the last finished block; what is before it is never
 * read again. A block of code that is not closed takes new lines without being read again.
 */
export class BlockCutter {
	#text = '';
	#done = false;
	#finished: Block[] = [];
	/** Where the part starts that is read again. */
	#from = 0;
	#definitions = '';
	blocks: Block[] = [];

	constructor(readonly author: Author = 'model') {}

	/** Definitions of links (`[1]: https://...`), which count in all blocks. */
	get definitions(): string {
		return this.#definitions;
	}

	update(text: string, done = false): Block[] {
		if (text === this.#text && (this.#done || !done)) return this.blocks;
		// What followed may have changed what was finished before it, as an unclosed `$$` does.
		if (done || !text.startsWith(this.#text)) this.#reset();
		this.#done = done;
		this.#text = text;
		const open = this.#openCode(text, done);
		if (open) return open;
		const { tokens, links } = lexer(text.slice(this.#from), this.author);
		this.#define(links);
		const read = toBlocks(tokens, this.#from, done);
		// The last block may grow, and the one before it may yet join it.
		const settled = done ? read.length : Math.max(0, read.length - 2);
		const all = [...this.#finished, ...read];
		this.#finished = all.slice(0, this.#finished.length + settled);
		this.#from = all[this.#finished.length]?.start ?? text.length;
		this.blocks = all;
		return all;
	}

	/** While the last block is a fence that is not closed, only the new lines are looked at. */
	#openCode(text: string, done: boolean): Block[] | null {
		const last = this.blocks.at(-1);
		if (done || !last?.code || last.code.closed) return null;
		const fence = /^ {0,3}(`{3,}|~{3,})[^\n]*\n/.exec(last.source);
		if (!fence) return null;
		const source = text.slice(last.start);
		const grown = source.slice(Math.max(0, last.source.lastIndexOf('\n')));
		const close = new RegExp(`\\n {0,3}${fence[1]![0]}{${fence[1]!.length},}[ \\t]*(\\n|$)`);
		if (close.test(grown)) return null;
		const code = { ...last.code, text: source.slice(fence[0].length) };
		this.blocks = [...this.blocks.slice(0, -1), { ...last, source, code }];
		return this.blocks;
	}

	#define(links: Record<string, { href: string }>): void {
		for (const [label, { href }] of Object.entries(links)) {
			const line = `[${label}]: <${href.replace(/[<>\n]/g, '')}>\n`;
			if (!this.#definitions.includes(line)) this.#definitions += line;
		}
	}

	#reset(): void {
		this.#text = '';
		this.#finished = [];
		this.#from = 0;
		this.#definitions = '';
		this.blocks = [];
	}
}

function toBlocks(tokens: Token[], from: number, done: boolean): Block[] {
	const blocks: Block[] = [];
	let start = from;
	for (const [index, token] of tokens.entries()) {
		const source = token.raw;
		if (token.type === 'code') {
			const { text, lang } = token as Tokens.Code;
			blocks.push({
				start,
				source,
				code: {
					text,
					lang: lang ?? '',
					closed: done || index < tokens.length - 1 || isClosed(source)
				}
			});
		} else if (token.type !== 'space' && token.type !== 'def') blocks.push({ start, source });
		start += source.length;
	}
	return blocks;
}

function isClosed(source: string): boolean {
	const fence = /^ {0,3}(`{3,}|~{3,})/.exec(source)?.[1];
	if (!fence) return false;
	const last = source.trimEnd().split('\n').slice(1).at(-1) ?? '';
	return new RegExp(`^ {0,3}${fence[0]}{${fence.length},}\\s*$`).test(last);
}
