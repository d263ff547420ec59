import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BlockCutter } from './markdown_blocks';

const PIECES = [
	'word ',
	'\n',
	'\n\n',
	'```py\n',
	'```\n',
	'~~~\n',
	'- item\n',
	'  more\n',
	'1. one\n',
	'> quote\n',
	'# head\n',
	'| a | b |\n|---|---|\n',
	'| 1 | 2 |\n',
	'    code\n',
	'[x]: https://a.example\n',
	'[x] ',
	'<b>',
	'$$\n',
	'---\n',
	'`'
];

test('text that comes in pieces is cut as the whole is', () => {
	fc.assert(
		fc.property(fc.array(fc.constantFrom(...PIECES), { maxLength: 30 }), (pieces) => {
			const growing = new BlockCutter();
			let text = '';
			for (const piece of pieces) growing.update((text += piece));
			expect(growing.update(text, true)).toEqual(new BlockCutter().update(text, true));
		}),
		{ numRuns: 300 }
	);
});

test('nothing of the text is lost, and blocks that are finished stay the same objects', () => {
	const cutter = new BlockCutter();
	const first = cutter.update('One.\n\nTwo.\n\nThree.\n\nFo')[0];
	const blocks = cutter.update('One.\n\nTwo.\n\nThree.\n\nFour.\n\nFive.');
	expect(blocks[0]).toBe(first);
	expect(blocks.map((block) => block.source)).toEqual(['One.', 'Two.', 'Three.', 'Four.', 'Five.']);
});

test('code is closed by its own fence', () => {
	const cutter = new BlockCutter();
	const code = (text: string) => cutter.update(text).at(-1)!.code;
	expect(code('````md\n```\na')).toEqual({ text: '```\na', lang: 'md', closed: false });
	expect(code('````md\n```\na\n```\nb')).toMatchObject({ closed: false });
	expect(code('````md\n```\na\n```\nb\n````\n')).toEqual({
		text: '```\na\n```\nb',
		lang: 'md',
		closed: true
	});
});

test('another text is cut anew', () => {
	const cutter = new BlockCutter();
	cutter.update('One.\n\nTwo.', true);
	expect(cutter.update('Other', true).map((block) => block.source)).toEqual(['Other']);
});
