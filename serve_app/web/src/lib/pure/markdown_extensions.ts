/** What models write beside GitHub's markdown: formulas, footnotes, highlights, a few tags of HTML. */
import type { Tokens, TokenizerAndRendererExtension, TokenizerThis } from 'marked';

export function escapeHtml(text: string): string {
	return text
		.replaceAll('&', '&amp;')
		.replaceAll('<', '&lt;')
		.replaceAll('>', '&gt;')
		.replaceAll('"', '&quot;')
		.replaceAll("'", '&#39;');
}

/** Tags that are honoured, without attributes. All others are shown as they were written. */
const INLINE_TAGS = 'sub|sup|kbd|mark|u|b|i|s|em|strong|del|ins|small';
const INLINE_TAG = new RegExp(`^<(${INLINE_TAGS})>`, 'i');
const BREAK = /^<br\s*\/?>/i;
const ANY_TAG = new RegExp(`<(?:br\\s*/?|${INLINE_TAGS})>`, 'i');

function formula(source: string, display: boolean): string {
	const kind = display ? 'block' : 'inline';
	return `<span class="math math-${kind}" data-math="${kind}">${escapeHtml(source)}</span>`;
}

const BLOCK_MATH = /^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
// As pandoc has it: no space within the dollars, no digit after them, so that prices stay prices.
const INLINE_MATH =
	/^(?:\$\$([^$\n]+?)\$\$|\$(?![\s$])((?:\\.|[^$\\\n])*?)(?<!\s)\$(?!\d)|\\\(([\s\S]+?)\\\)|\\\[([\s\S]+?)\\\])/;

const blockMath: TokenizerAndRendererExtension = {
	name: 'blockMath',
	level: 'block',
	start: (source) => source.match(/(?:^|\n)(?:\$\$|\\\[)/)?.index,
	tokenizer(source) {
		const match = BLOCK_MATH.exec(source);
		if (!match) return undefined;
		return { type: 'blockMath', raw: match[0], text: (match[1] ?? match[2] ?? '').trim() };
	},
	renderer: ({ text }) => `<p>${formula(String(text), true)}</p>\n`
};

const inlineMath: TokenizerAndRendererExtension = {
	name: 'inlineMath',
	level: 'inline',
	start: (source) => source.match(/\$|\\\(|\\\[/)?.index,
	tokenizer(source) {
		const match = INLINE_MATH.exec(source);
		const text = match?.slice(1).find((group) => group !== undefined);
		if (!match || !text?.trim()) return undefined;
		return { type: 'inlineMath', raw: match[0], text: text.trim() };
	},
	renderer: ({ text, raw }) => formula(String(text), /^(?:\$\$|\\\[)/.test(raw))
};

/** Tags within tags beyond this are text: each level is read by a function within another. */
const MAX_DEPTH = 8;
let depth = 0;

function within<T>(read: () => T): T {
	depth++;
	try {
		return read();
	} finally {
		depth--;
	}
}

/** Where the element ends that begins before `source`: others of its name may lie within it. */
function endOf(source: string, name: string): { inner: string; raw: string } {
	const tag = new RegExp(`<(/?)${name}>`, 'gi');
	let open = 1;
	for (let found = tag.exec(source); found; found = tag.exec(source)) {
		open += found[1] ? -1 : 1;
		if (open === 0)
			return { inner: source.slice(0, found.index), raw: source.slice(0, tag.lastIndex) };
	}
	return { inner: source, raw: source }; // it is still written
}

const inlineTag: TokenizerAndRendererExtension = {
	name: 'inlineTag',
	level: 'inline',
	start: (source) => source.match(ANY_TAG)?.index,
	tokenizer(this: TokenizerThis, source) {
		const newLine = BREAK.exec(source);
		if (newLine) return { type: 'inlineTag', raw: newLine[0], tag: 'br', tokens: [] };
		const open = depth < MAX_DEPTH && INLINE_TAG.exec(source);
		if (!open) return undefined;
		const tag = open[1]!.toLowerCase();
		const { inner, raw } = endOf(source.slice(open[0].length), tag);
		const tokens = within(() => this.lexer.inlineTokens(inner));
		return { type: 'inlineTag', raw: open[0] + raw, tag, tokens };
	},
	renderer(token) {
		if (token.tag === 'br') return '<br>';
		return `<${token.tag}>${this.parser.parseInline(token.tokens ?? [])}</${token.tag}>`;
	}
};

const DETAILS = /^ {0,3}<details(?:\s+open)?>\s*(?:<summary>([\s\S]*?)<\/summary>)?/i;

const details: TokenizerAndRendererExtension = {
	name: 'details',
	level: 'block',
	start: (source) => source.match(/(?:^|\n) {0,3}<details[\s>]/i)?.index,
	tokenizer(this: TokenizerThis, source) {
		const open = depth < MAX_DEPTH && DETAILS.exec(source);
		if (!open) return undefined;
		const { inner, raw } = endOf(source.slice(open[0].length), 'details');
		const summary: Tokens.Generic = { type: 'summary', raw: '', tokens: [] };
		summary.tokens = this.lexer.inlineTokens((open[1] ?? '').trim() || 'Details');
		const tokens = within(() => this.lexer.blockTokens(`${inner.trim()}\n`, []));
		return { type: 'details', raw: open[0] + raw, summary, tokens };
	},
	renderer(token) {
		const summary = this.parser.parseInline((token.summary as Tokens.Generic).tokens ?? []);
		const inner = this.parser.parse(token.tokens ?? []);
		return `<details><summary>${summary}</summary>${inner}</details>\n`;
	}
};

const LABEL = String.raw`\[\^([^\]\s^[]{1,40})\]`;
const NOTE = new RegExp(`^${LABEL}:[ \\t]*([^\\n]*(?:\\n(?:[ \\t]+[^\\n]*|(?!\\n)$))*)(?:\\n|$)`);
const NOTE_MARK = new RegExp(`^${LABEL}(?!:)`);

/** The text of a footnote stays where it was written: an answer that grows never moves. */
const footnote: TokenizerAndRendererExtension = {
	name: 'footnote',
	level: 'block',
	start: (source) => source.match(/(?:^|\n)\[\^/)?.index,
	tokenizer(this: TokenizerThis, source) {
		const match = NOTE.exec(source);
		if (!match) return undefined;
		const tokens = this.lexer.inlineTokens(match[2]!.replace(/\n[ \t]+/g, '\n').trim());
		return { type: 'footnote', raw: match[0], label: match[1], tokens };
	},
	renderer(token) {
		const words = this.parser.parseInline(token.tokens ?? []);
		const label = escapeHtml(String(token.label));
		return `<p class="footnote" dir="auto"><sup>${label}</sup> ${words}</p>\n`;
	}
};

const footnoteMark: TokenizerAndRendererExtension = {
	name: 'footnoteMark',
	level: 'inline',
	start: (source) => source.match(/\[\^/)?.index,
	tokenizer(source) {
		const match = NOTE_MARK.exec(source);
		return match ? { type: 'footnoteMark', raw: match[0], label: match[1] } : undefined;
	},
	renderer: ({ label }) => `<sup class="footnote-mark">${escapeHtml(String(label))}</sup>`
};

// Not within words, so that `a==b and c==d` stays code.
const MARK = /^==(?=[^\s=])([^\n]*?[^\s=])==(?![\w=])/;

const highlight: TokenizerAndRendererExtension = {
	name: 'highlight',
	level: 'inline',
	start: (source) => source.match(/(?<![\w=])==(?=[^\s=])/)?.index,
	tokenizer(this: TokenizerThis, source) {
		const match = MARK.exec(source);
		if (!match) return undefined;
		return { type: 'highlight', raw: match[0], tokens: this.lexer.inlineTokens(match[1]!) };
	},
	renderer(token) {
		return `<mark>${this.parser.parseInline(token.tokens ?? [])}</mark>`;
	}
};

export const math = [blockMath, inlineMath];
export const ofAnswers = [...math, details, footnote, inlineTag, footnoteMark, highlight];

/** GitHub's alerts: the kind of a quote that begins with `[!NOTE]`. */
export const ALERT = /^\[!(NOTE|TIP|IMPORTANT|WARNING|CAUTION)\][ \t]*(?:\n|$)/i;
