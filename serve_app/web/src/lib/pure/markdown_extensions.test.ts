import { expect, test } from 'vitest';
import { toHtml } from './markdown';
const html = (source: string, author: 'model' | 'person' = 'model') =>
	toHtml(source, author).trim();

test('a few tags count, without attributes', () => {
	expect(html('H<sub>2</sub>O and x<sup>a*b*</sup>')).toBe(
		'<p dir="auto">H<sub>2</sub>O and x<sup>a<em>b</em></sup></p>'
	);
	expect(html('| a |\n|---|\n| one<br>two |')).toContain('<td dir="auto">one<br>two</td>');
	expect(html('<kbd>Ctrl</kbd>+<KBD>C</KBD>')).toContain('<kbd>Ctrl</kbd>+<kbd>C</kbd>');
	expect(html('<u onclick="x">a</u>')).toContain('&lt;u onclick=&quot;x&quot;&gt;a');
	expect(html('open <u>to the end')).toBe('<p dir="auto">open <u>to the end</u></p>');
	expect(html('<b>a <b>b</b> c</b> d')).toBe('<p dir="auto"><b>a <b>b</b> c</b> d</p>');
	expect(html('`<sub>`')).toContain('<code>&lt;sub&gt;</code>');
});

test('an answer that begins with a tag keeps its lists, fences and lines', () => {
	const made = html('<answer>\n- one\n- two\n\n```js\nx\n```\n</answer>');
	expect(made).toContain('&lt;answer&gt;');
	expect(made).toContain('<li>one</li>');
	expect(made).toContain('<pre data-lang="js">');
});

test('details open and close, also while they are written', () => {
	expect(html('<details>\n<summary>More *here*</summary>\n\n- a\n\n</details>\n\nAfter')).toBe(
		'<details><summary>More <em>here</em></summary><ul>\n<li>a</li>\n</ul>\n</details>\n<p dir="auto">After</p>'
	);
	expect(html('<details><summary>M</summary>\n\ntext')).toContain(
		'<p dir="auto">text</p>\n</details>'
	);
	expect(html('<details open>\nx\n<details>\ny\n</details>\nz</details>')).toContain('z');
});

test('footnotes, alerts and highlights', () => {
	expect(html('Said[^1].\n\n[^1]: By *him*.\n    At home.')).toBe(
		'<p dir="auto">Said<sup class="footnote-mark">1</sup>.</p>\n<p class="footnote" dir="auto"><sup>1</sup> By <em>him</em>.<br>At home.</p>'
	);
	expect(html('> [!WARNING]\n> Hot *tea*.')).toBe(
		'<div class="alert alert-warning" role="note"><p class="alert-name">Warning</p>\n<p dir="auto">Hot <em>tea</em>.</p>\n</div>'
	);
	expect(html('> [!NOTE]\n>\n> - a')).toContain('<li>a</li>');
	expect(html('> [!NOTE]')).toContain('alert-note');
	expect(html('> [!NOTE] of text')).toContain('<blockquote>');
	expect(html('a ==b c== d')).toBe('<p dir="auto">a <mark>b c</mark> d</p>');
	for (const code of ['if a==1 and b==2:', 'x == y and y == z', '=====', 'a ==b==c'])
		expect(html(code)).not.toContain('<mark>');
});

test('a question is markdown but for what logs and programs have', () => {
	expect(html('**b** `c`\n\n```py\nx\n```', 'person')).toContain(
		'<strong>b</strong> <code>c</code>'
	);
	expect(html('# a comment', 'person')).toBe('<p dir="auto"># a comment</p>');
	expect(html('a\n===', 'person')).toContain('a<br>===');
	expect(html('x:\n\n    y', 'person')).not.toContain('<pre');
	expect(html('<sub>a</sub>', 'person')).toContain('&lt;sub&gt;');
	expect(html('<b>\n- a', 'person')).toContain('<li>a</li>');
});

test.each(['<b>', '<details>\n', '<sub>a</sub>', '==a', '[^a]'])(
	'%s many times takes no time',
	(part) => {
		expect(html(part.repeat(5000))).toBeTruthy();
	}
);
