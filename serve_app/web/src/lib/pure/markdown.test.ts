import { expect, test } from 'vitest';
import { safeHref, toHtml } from './markdown';

const html = (source: string) => toHtml(source).trim();

test('raw HTML is text', () => {
	expect(html('<script>alert(1)</script>')).toBe(
		'<p dir="auto">&lt;script&gt;alert(1)&lt;/script&gt;</p>'
	);
	expect(html('a <b onclick="x">c</b>')).toBe(
		'<p dir="auto">a &lt;b onclick=&quot;x&quot;&gt;c&lt;/b&gt;</p>'
	);
});

test('links are followed to the web and to mail alone, and show where they lead', () => {
	expect(html('[here](https://a.example/x)')).toBe(
		'<p dir="auto"><a href="https://a.example/x" target="_blank" rel="noopener noreferrer">here</a> <span class="host">(a.example)</span></p>'
	);
	expect(html('https://a.example/x')).not.toContain('class="host"');
	for (const bad of ['javascript:x', 'JaVaScRiPt&#58;x', 'data:text/html,x', '/relative', '#hash'])
		expect(html(`[a](${bad})`)).toBe('<p dir="auto">a</p>');
	expect(safeHref('mailto:a@b.example')?.href).toBe('mailto:a@b.example');
	expect(safeHref(' java\nscript:x')).toBeNull();
	expect(safeHref('vbscript:x')).toBeNull();
});

test('pictures by address are links, so that nothing is fetched', () => {
	const made = html('![a cat](https://a.example/cat.png)');
	expect(made).not.toContain('<img');
	expect(made).toContain('href="https://a.example/cat.png"');
	expect(made).toContain('>a cat</a>');
});

test('formulas are kept for the one who draws them', () => {
	expect(html('$a_1 < b$')).toBe(
		'<p dir="auto"><span class="math math-inline" data-math="inline">a_1 &lt; b</span></p>'
	);
	expect(html('$$\n\\frac{1}{2}\n$$')).toContain('data-math="block">\\frac{1}{2}<');
	expect(html('\\(x\\) and \\[y\\]')).toContain('data-math="inline">x<');
	expect(html('It costs $5, not $10.')).not.toContain('math');
	expect(html('`$x$`')).not.toContain('math');
});

test('headings stay below the title of the chat, and each block has its own direction', () => {
	expect(html('# One')).toBe('<h2 class="h1" dir="auto">One</h2>');
	expect(html('## Two')).toBe('<h2 class="h2" dir="auto">Two</h2>');
	expect(html('###### Six')).toBe('<h6 class="h6" dir="auto">Six</h6>');
});

test('tables, task lists and code', () => {
	expect(html('| a | b |\n|---|--:|\n| 1 | 2 |')).toContain(
		'<td dir="auto" class="to-right">2</td>'
	);
	expect(html('- [x] done')).toContain('aria-label="Done"');
	expect(html('```py"><script>\n<b>\n```')).toBe(
		'<pre data-lang="py"><code>&lt;b&gt;</code></pre>'
	);
});
