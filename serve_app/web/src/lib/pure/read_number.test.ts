import { expect, test } from 'vitest';
import { readNumber } from './read_number';

test('nothing written is no value, and no error', () => {
	expect(readNumber(' ', { min: 1 })).toEqual({});
});

test('a number within its limits is taken', () => {
	expect(readNumber('0.7', { min: 0, max: 2 })).toEqual({ value: 0.7 });
	expect(readNumber('0', { min: 0 })).toEqual({ value: 0 });
});

test.each([
	['x', {}, 'not a number'],
	['1.5', { integer: true }, 'whole'],
	['-1', { min: 0 }, 'least is 0'],
	['3', { max: 2 }, 'most is 2']
])('%s is refused with its reason', (text, limits, reason) => {
	const read = readNumber(text, limits);
	expect(read.value).toBeUndefined();
	expect(read.error).toContain(reason);
});
