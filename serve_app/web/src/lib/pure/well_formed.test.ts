import { expect, test } from 'vitest';
import { cut, wellFormed } from './well_formed';

test('a pair is not cut', () => {
	expect(cut('ab😀', 3)).toBe('ab');
	expect(cut('ab😀', 4)).toBe('ab😀');
	expect(cut('abc', 2)).toBe('ab');
});

test('half a pair becomes a sign of its own, wherever it is', () => {
	const found = wellFormed({ text: 'a\ud83d', list: [{ name: '\ude00b' }], size: 3, none: null });
	expect(found).toEqual({ text: 'a\ufffd', list: [{ name: '\ufffdb' }], size: 3, none: null });
	expect(wellFormed('😀')).toBe('😀');
});
