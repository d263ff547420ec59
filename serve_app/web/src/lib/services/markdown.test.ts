// @vitest-environment jsdom
import { expect, test } from 'vitest';
import { BlockCutter } from '#lib/pure/markdown_blocks';
import { renderFormula } from './formula';
import { renderMarkdown } from './markdown';

/** What a stranger tries: in an answer, a file, a title that is shown as markdown. */
const TRICKS = [
	'<script>alert(1)</script>',
	'<img src=x onerror=alert(1)>',
	'<svg onload=alert(1)><script>alert(1)</script></svg>',
	'<svg><animate onbegin=alert(1) attributeName=x></svg>',
	'<svg><a xlink:href="javascript:alert(1)"><text>x</text></a></svg>',
	'<math><mtext><table><mglyph><style><img src=x onerror=alert(1)></style></table></math>',
	'<math href="javascript:alert(1)">x</math>',
	'</textarea><script>alert(1)</script>',
	'<iframe srcdoc="<script>alert(1)</script>"></iframe>',
	'<form action=https://e.example><input name=a><button>b</button></form>',
	'<p style="background:url(https://e.example)">a</p>',
	'<a href="java&#115;cript:alert(1)">a</a>',
	'[a](javascript:alert(1))',
	'[a](JaVaScRiPt&#58;alert(1))',
	'[a](data:text/html;base64,PHNjcmlwdD4=)',
	'[a](https://e.example "x\\" onmouseover=\\"alert(1)")',
	'[a](<https://e.example/"onmouseover="alert(1)>)',
	'![a](javascript:alert(1))',
	'![a](https://e.example/x.png"onerror="alert(1))',
	'<javascript:alert(1)>',
	'[a]: javascript:alert(1)\n\n[a]',
	'```"><img src=x onerror=alert(1)>\n</code></pre><script>alert(1)</script>\n```',
	'| <img src=x onerror=alert(1)> |\n|---|\n| <script>alert(1)</script> |',
	'$</span><img src=x onerror=alert(1)>$',
	'- [ ] <img src=x onerror=alert(1)>',
	'<sub onclick=alert(1)>a</sub>',
	'<details ontoggle=alert(1) open><summary>a</summary>b</details>',
	'<details><summary><img src=x onerror=alert(1)></summary>\n\n<script>alert(1)</script>\n\n</details>',
	'<kbd><svg onload=alert(1)></kbd>',
	'> [!NOTE]\n> <img src=x onerror=alert(1)>',
	'a[^"><img src=x onerror=alert(1)>]\n\n[^1]: <script>alert(1)</script>',
	'==<img src=x onerror=alert(1)>=='
];
const NAMES = new Set(
	'p br hr h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a span div table thead tbody tr th td sub sup kbd mark u b i s ins small details summary'.split(
		' '
	)
);

function check(source: string): void {
	const page = new DOMParser().parseFromString(renderMarkdown(source), 'text/html').body;
	for (const element of page.querySelectorAll('*')) {
		expect(NAMES, source).toContain(element.localName);
		for (const { name } of element.attributes) {
			expect(name, source).not.toMatch(/^on|^style$|^src$|^srcdoc$|^id$|^name$/);
		}
		if (element.localName === 'a') {
			expect(element.getAttribute('href') ?? 'https:', source).toMatch(/^(https?|mailto):/);
			if (element.hasAttribute('href'))
				expect(element.getAttribute('rel')).toBe('noopener noreferrer');
		}
	}
}

test.each(TRICKS)('%s is inert', check);

test.each(TRICKS)('%s is inert however it is cut while it comes', (trick) => {
	const cutter = new BlockCutter();
	for (let end = 1; end <= trick.length; end++)
		for (const block of cutter.update(trick.slice(0, end))) check(block.source);
});

test('what is written is still there to be read', () => {
	const page = new DOMParser().parseFromString(renderMarkdown(TRICKS.join('\n\n')), 'text/html');
	expect(page.body.textContent).toContain('<script>alert(1)</script>');
	expect(page.body.textContent).toContain('<img src=x onerror=alert(1)>');
});

test.each([
	'\\href{javascript:alert(1)}{x}',
	'\\url{javascript:alert(1)}',
	'\\htmlStyle{background:url(https://e.example)}{x}',
	'\\htmlData{a=b}{x}',
	'\\includegraphics{https://e.example/x.png}',
	'\\text{<img src=x onerror=alert(1)>}'
])('the formula %s is inert', async (formula) => {
	const html = await renderFormula(formula, true).catch(() => '');
	const page = new DOMParser().parseFromString(html, 'text/html').body;
	expect(page.querySelector('a, img, script, style, form, [href], [onerror], [data-a]')).toBeNull();
	for (const element of page.querySelectorAll('[style]'))
		expect(element.getAttribute('style')).not.toMatch(/url|[(/\\]/);
});

test('a formula becomes HTML with its spacing, and MathML', async () => {
	const html = await renderFormula('\\begin{pmatrix}1&\\sqrt{2}\\\\3&4\\end{pmatrix}', true);
	expect(html).toContain('<mtable');
	expect(html).toMatch(/class="arraycolsep" style="width:/);
	expect(html).toContain('<svg');
	expect(await renderFormula('\\ce{H2O}', false)).toContain('<mi mathvariant="normal">O');
});
