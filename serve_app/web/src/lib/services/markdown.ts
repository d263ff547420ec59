import DOMPurify from 'dompurify';
import { toHtml, type Author } from '#lib/pure/markdown';

const TAGS =
	'p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a span div table thead tbody tr th td sub sup kbd mark u b i s ins small details summary';
const ATTRIBUTES =
	'href title target rel class dir start role aria-label tabindex data-math data-lang';

/** Markdown as HTML that may stand in the page. */
export function renderMarkdown(source: string, author: Author = 'model'): string {
	return DOMPurify.sanitize(toHtml(source, author), {
		ALLOWED_TAGS: TAGS.split(' '),
		ALLOWED_ATTR: ATTRIBUTES.split(' '),
		ALLOW_DATA_ATTR: false,
		ALLOW_ARIA_ATTR: false,
		ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
		// The pattern is of addresses; no other attribute has one, and the renderer writes each.
		ADD_URI_SAFE_ATTR: ATTRIBUTES.split(' ').filter((name) => name !== 'href')
	});
}
