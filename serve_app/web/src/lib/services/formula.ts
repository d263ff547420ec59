import DOMPurify from 'dompurify';

/** What KaTeX writes: lengths, colours by name or number. Nothing that is an address, or a function. */
const STYLE = /^[\w\s.:;#%-]*$/;

async function load() {
	const [{ default: katex }] = await Promise.all([
		import('katex'),
		import('katex/dist/katex.min.css')
	]);
	// Chemistry, and that a copied formula is its source.
	await Promise.all([import('katex/contrib/mhchem'), import('katex/contrib/copy-tex')]);
	const purify = DOMPurify(window);
	purify.addHook('uponSanitizeAttribute', (_, attribute) => {
		if (attribute.attrName === 'style' && !STYLE.test(attribute.attrValue))
			attribute.keepAttr = false;
	});
	return { katex, purify };
}

let loading: ReturnType<typeof load> | undefined;

/** A formula as HTML with KaTeX's fonts, and as MathML for screen readers. Throws where it is none. */
export async function renderFormula(source: string, display: boolean): Promise<string> {
	const { katex, purify } = await (loading ??= load());
	const html = katex.renderToString(source, {
		output: 'htmlAndMathml',
		displayMode: display,
		throwOnError: true,
		trust: false,
		strict: 'ignore',
		maxSize: 20,
		maxExpand: 500
	});
	return purify.sanitize(html, {
		USE_PROFILES: { mathMl: true, html: true, svg: true },
		ADD_TAGS: ['semantics', 'annotation'],
		FORBID_TAGS: ['style', 'img', 'image', 'form', 'a', 'input', 'foreignObject'],
		FORBID_ATTR: ['href', 'xlink:href', 'id', 'name']
	});
}
