import DOMPurify from 'dompurify';
import { inertDiagram } from '#lib/pure/diagram_source';
import { toHtml } from '#lib/pure/markdown';

const TAGS =
	'p br hr h1 h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a span div table thead tbody tr th td';
const ATTRIBUTES =
	'href title target rel class dir start role aria-label tabindex data-math data-lang';

/** Markdown as HTML that may stand in the page. */
export function renderMarkdown(source: string): string {
	return DOMPurify.sanitize(toHtml(source), {
		ALLOWED_TAGS: TAGS.split(' '),
		ALLOWED_ATTR: ATTRIBUTES.split(' '),
		ALLOW_DATA_ATTR: false,
		ALLOW_ARIA_ATTR: false,
		ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
		// The pattern is of addresses; no other attribute has one, and the renderer writes each.
		ADD_URI_SAFE_ATTR: ATTRIBUTES.split(' ').filter((name) => name !== 'href')
	});
}

/** A formula as MathML; its source stays a tooltip where it is none. */
export async function renderMath(source: string, display: boolean): Promise<string> {
	const { default: katex } = await import('katex');
	const html = katex.renderToString(source, {
		output: 'mathml',
		displayMode: display,
		throwOnError: true,
		trust: false,
		strict: 'ignore',
		maxSize: 20,
		maxExpand: 500
	});
	return DOMPurify.sanitize(html, {
		USE_PROFILES: { mathMl: true, html: true },
		ADD_TAGS: ['semantics', 'annotation'],
		FORBID_TAGS: ['style', 'img', 'form', 'a', 'input'],
		FORBID_ATTR: ['style', 'href', 'xlink:href']
	});
}

let diagrams = 0;

/** A diagram as SVG, in a picture's address: nothing within it can run or be clicked. */
export async function renderDiagram(source: string, dark: boolean): Promise<string> {
	const { default: mermaid } = await import('mermaid');
	mermaid.initialize({
		startOnLoad: false,
		securityLevel: 'strict',
		theme: dark ? 'dark' : 'neutral',
		layout: 'dagre',
		htmlLabels: false,
		flowchart: { htmlLabels: false },
		suppressErrorRendering: true
	});
	const { svg } = await mermaid.render(`diagram-${++diagrams}`, inertDiagram(source));
	return DOMPurify.sanitize(svg, {
		USE_PROFILES: { svg: true, svgFilters: true },
		FORBID_TAGS: ['a', 'image', 'foreignObject', 'script'],
		FORBID_ATTR: ['href', 'xlink:href'],
		ADD_TAGS: ['style']
	});
}
