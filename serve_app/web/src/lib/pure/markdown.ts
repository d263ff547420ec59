/**
 * Markdown of a stranger to HTML: raw HTML becomes text but for a few tags without attributes, pictures
 * become links, links show where they lead. What comes out still goes through DOMPurify
 * (`services/markdown`).
 */
import { Marked, type RendererObject, type Token, type TokenizerObject, type Tokens } from 'marked';
import { ALERT, escapeHtml, math, ofAnswers } from './markdown_extensions';

/**
 * Whose words they are. A person's question may be a log or a program: `#` makes no heading there, four
 * spaces no block of code, and no tag counts.
 */
export type Author = 'model' | 'person';

const SCHEMES = new Set(['http:', 'https:', 'mailto:']);

/** The address if it may be followed; relative ones would lead into this page. */
export function safeHref(href: string): URL | null {
	try {
		const url = new URL(href.trim());
		return SCHEMES.has(url.protocol) ? url : null;
	} catch {
		return null;
	}
}

/** A link in HTML; `inner` is HTML. Its host is shown where its words don't. */
function link(href: string, inner: string, words: string, title?: string | null): string {
	const url = safeHref(href);
	if (!url) return inner;
	const host = url.protocol === 'mailto:' ? url.pathname : url.host;
	const told = words.includes(host) ? '' : ` <span class="host">(${escapeHtml(host)})</span>`;
	const hint = title ? ` title="${escapeHtml(title)}"` : '';
	return `<a href="${escapeHtml(url.href)}"${hint} target="_blank" rel="noopener noreferrer">${inner}</a>${told}`;
}

const renderer: RendererObject = {
	html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
	link({ href, title, tokens }) {
		return link(href, this.parser.parseInline(tokens), plain(tokens), title);
	},
	image({ href, text }) {
		const words = text || 'picture';
		return link(href, escapeHtml(words), words);
	},
	code({ text, lang }) {
		const language = /^[\w+#.-]{1,40}/.exec(lang ?? '')?.[0] ?? '';
		return `<pre data-lang="${escapeHtml(language)}"><code>${escapeHtml(text)}</code></pre>\n`;
	},
	checkbox: ({ checked }) =>
		`<span class="task" role="img" aria-label="${checked ? 'Done' : 'Not done'}">${checked ? '☑' : '☐'}</span> `,
	table({ header, rows, align }) {
		const cells = (row: Tokens.TableCell[], tag: string) =>
			row
				.map((cell, column) => {
					const side = align[column];
					const words = this.parser.parseInline(cell.tokens);
					return `<${tag} dir="auto"${side ? ` class="to-${side}"` : ''}>${words}</${tag}>`;
				})
				.join('');
		const body = rows.map((row) => `<tr>${cells(row, 'td')}</tr>`).join('');
		const head = `<thead><tr>${cells(header, 'th')}</tr></thead>`;
		return `<div class="table" tabindex="0" role="group" aria-label="Table"><table>${head}<tbody>${body}</tbody></table></div>\n`;
	},
	blockquote({ tokens }) {
		const kind = alertOf(tokens);
		const inner = this.parser.parse(tokens);
		if (!kind) return `<blockquote>\n${inner}</blockquote>\n`;
		const name = kind[0]!.toUpperCase() + kind.slice(1);
		return `<div class="alert alert-${kind}" role="note"><p class="alert-name">${name}</p>\n${inner}</div>\n`;
	},
	/** Spaces before the next line stay: a question may be a program. */
	br: ({ raw }) => `<br>${raw.slice(raw.indexOf('\n') + 1)}`,
	paragraph({ tokens }) {
		return `<p dir="auto">${this.parser.parseInline(tokens)}</p>\n`;
	},
	heading({ tokens, depth }) {
		// The chat's title is the page's `h1`; most answers begin with `##`, and no level is left out.
		const level = Math.max(depth, 2);
		return `<h${level} class="h${depth}" dir="auto">${this.parser.parseInline(tokens)}</h${level}>\n`;
	}
};

/** Takes the mark of an alert from the quote that begins with it, and answers its kind. */
function alertOf(quote: Token[]): string | null {
	const first = quote[0] as Tokens.Paragraph | undefined;
	const text = first?.tokens?.[0] as Tokens.Text | undefined;
	const mark = first?.type === 'paragraph' && ALERT.exec(first.text);
	if (!first || !mark || text?.type !== 'text') return null;
	// `breaks` has cut the mark from the lines below it.
	const rest = first.tokens.slice(1);
	if (rest[0]?.type === 'br') rest.shift();
	if (rest.length > 0) first.tokens = rest;
	else quote.shift();
	return mark[1]!.toLowerCase();
}

/** Lines that begin with a tag are lines of a paragraph. */
const noHtmlBlocks: TokenizerObject = { html: () => undefined };
const asWritten: TokenizerObject = {
	...noHtmlBlocks,
	heading: () => undefined,
	lheading: () => undefined,
	code: () => undefined
};

const markeds: Record<Author, Marked> = {
	model: new Marked({ gfm: true, breaks: true, renderer, tokenizer: noHtmlBlocks }),
	person: new Marked({ gfm: true, breaks: true, renderer, tokenizer: asWritten })
};
markeds.model.use({ extensions: ofAnswers });
markeds.person.use({ extensions: math });

function plain(tokens: Token[]): string {
	return tokens.map((token) => ('text' in token ? String(token.text) : token.raw)).join('');
}

export function toHtml(source: string, author: Author = 'model'): string {
	return markeds[author].parse(source, { async: false });
}

export function lexer(
	source: string,
	author: Author = 'model'
): { tokens: Token[]; links: Record<string, { href: string }> } {
	const tokens = markeds[author].lexer(source);
	return { tokens, links: tokens.links as Record<string, { href: string }> };
}
