// @vitest-environment jsdom
import { expect, test } from 'vitest';
import { BlockCutter } from '#lib/pure/markdown_blocks';
import { renderMarkdown, renderMath } from './markdown';

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
	'- [ ] <img src=x onerror=alert(1)>'
];
const NAMES = new Set(
	'p br hr h2 h3 h4 h5 h6 strong em del code pre blockquote ul ol li a span div table thead tbody tr th td'.split(
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
	const html = await renderMath(formula, true).catch(() => '');
	const page = new DOMParser().parseFromString(html, 'text/html').body;
	expect(page.querySelector('a, img, script, style, form, [href], [style], [onerror]')).toBeNull();
});

test('a formula becomes MathML', async () => {
	expect(await renderMath('\\frac{1}{2}', true)).toContain('<mfrac>');
});
