/**
 * Markdown of a stranger to HTML: raw HTML becomes text, pictures become links, links show where they
 * lead. What comes out still goes through DOMPurify (`services/markdown`).
 */
import { Marked, type Token, type TokenizerAndRendererExtension, type Tokens } from 'marked';

const SCHEMES = new Set(['http:', 'https:', 'mailto:']);

export function escapeHtml(text: string): string {
	return text
		.replaceAll('&', '&amp;')
		.replaceAll('<', '&lt;')
		.replaceAll('>', '&gt;')
		.replaceAll('"', '&quot;')
		.replaceAll("'", '&#39;');
}

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

function math(source: string, display: boolean): string {
	const kind = display ? 'block' : 'inline';
	return `<span class="math math-${kind}" data-math="${kind}">${escapeHtml(source)}</span>`;
}

interface MathToken {
	type: string;
	raw: string;
	text: string;
}

const BLOCK_MATH = /^(?:\$\$([\s\S]+?)\$\$|\\\[([\s\S]+?)\\\])[ \t]*(?:\n|$)/;
// As pandoc has it: no space within the dollars, no digit after them, so that prices stay prices.
const INLINE_MATH =
	/^(?:\$\$([^$\n]+?)\$\$|\$(?![\s$])((?:\\.|[^$\\\n])*?)(?<!\s)\$(?!\d)|\\\(([\s\S]+?)\\\))/;

const blockMath: TokenizerAndRendererExtension = {
	name: 'blockMath',
	level: 'block',
	start: (source) => source.match(/(?:^|\n)(?:\$\$|\\\[)/)?.index,
	tokenizer(source) {
		const match = BLOCK_MATH.exec(source);
		if (!match) return undefined;
		return { type: 'blockMath', raw: match[0], text: (match[1] ?? match[2] ?? '').trim() };
	},
	renderer: (token) => `<p>${math((token as MathToken).text, true)}</p>\n`
};

const inlineMath: TokenizerAndRendererExtension = {
	name: 'inlineMath',
	level: 'inline',
	start: (source) => source.match(/\$|\\\(/)?.index,
	tokenizer(source) {
		const match = INLINE_MATH.exec(source);
		const text = match?.[1] ?? match?.[2] ?? match?.[3];
		if (!match || !text?.trim()) return undefined;
		return { type: 'inlineMath', raw: match[0], text: text.trim() };
	},
	renderer: (token) => math((token as MathToken).text, token.raw.startsWith('$$'))
};

const marked = new Marked({
	gfm: true,
	breaks: true,
	extensions: undefined,
	renderer: {
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
		paragraph({ tokens }) {
			return `<p dir="auto">${this.parser.parseInline(tokens)}</p>\n`;
		},
		heading({ tokens, depth }) {
			// The chat's title is the page's `h1`; most answers begin with `##`, and no level is left out.
			const level = Math.max(depth, 2);
			return `<h${level} class="h${depth}" dir="auto">${this.parser.parseInline(tokens)}</h${level}>\n`;
		}
	}
});
marked.use({ extensions: [blockMath, inlineMath] });

function plain(tokens: Token[]): string {
	return tokens.map((token) => ('text' in token ? String(token.text) : token.raw)).join('');
}

export function toHtml(source: string): string {
	return marked.parse(source, { async: false });
}

export function lexer(source: string): {
	tokens: Token[];
	links: Record<string, { href: string }>;
} {
	const tokens = marked.lexer(source);
	return { tokens, links: tokens.links as Record<string, { href: string }> };
}
