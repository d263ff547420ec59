/**
 * A stranger's diagram before mermaid reads it. Mermaid parses labels as HTML, and drops what is dangerous
 * only afterwards: the browser then reports the handlers, links and pictures that the page forbids. What
 * reaches mermaid has no tag but `<br>`, and no address that is loaded.
 */

// What mermaid makes of `#lt;` and `#gt;`: no grammar has a meaning for them, and the picture has `<` and `>`.
const LESS = 'ﬂ°lt¶ß';
const GREATER = 'ﬂ°gt¶ß';

// A line break, and the stereotype of a class or a state: `<<interface>>`, `<<choice>>`.
const KEPT = String.raw`<br\s*/?>|<<\w+(?: (?!on)\w+)*>>`;
// `<` opens a tag before these alone: the arrows `<--`, `<|--` and `<->>` go on. A `>` may end an arrow, too.
const TAG = String.raw`<(?=[a-z/!?])([^<>\n]*(?<![-=.])>)?`;
const MARKUP = new RegExp(`(${KEPT})|${TAG}`, 'gi');

function escapeTags(source: string): string {
	return source.replace(MARKUP, (_, kept?: string, tag?: string) => {
		if (kept) return kept;
		return tag ? `${LESS}${tag.slice(0, -1)}${GREATER}` : LESS;
	});
}

/** Menus of links below an actor: mermaid opens them by a handler in the picture. */
function withoutMenus(source: string): string {
	if (!/^\s*sequenceDiagram\b/m.test(source)) return source;
	return source.replace(/^[ \t]*links?[ \t]+[^:>\n]+:.*$/gim, '');
}

/** The picture of a node, and of a style: it would be fetched. */
function withoutPictures(source: string): string {
	return source
		.replace(/(@\{[^}]*?)\bimg\s*:\s*(?:"[^"]*"|'[^']*'|[^,}\n]*),?/gi, '$1')
		.replace(/\b(url|image-set)\(/gi, '$1 (');
}

export function inertDiagram(source: string): string {
	return escapeTags(withoutPictures(withoutMenus(source)));
}
