import { expect, test } from 'vitest';
import { joinPages, pageText } from './pdf_text';

test('lines stay, a word that was cut at the end of a line is whole again', () => {
	const runs = [
		{ str: 'A page ta-', hasEOL: true },
		{ str: 'ble maps', hasEOL: true },
		{ str: 'X-', hasEOL: true },
		{ str: 'Y  ', hasEOL: true },
		{ str: 'end' }
	];
	expect(pageText(runs)).toBe('A page table maps\nX-\nY\nend');
});

test('pages are numbered where there are several, and empty ones are left out', () => {
	expect(joinPages(['one'])).toBe('one');
	expect(joinPages(['one', '', 'three'])).toBe('[Page 1]\none\n\n[Page 3]\nthree');
});
