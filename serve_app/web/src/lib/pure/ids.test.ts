import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isId, newId } from './ids';

describe('newId', () => {
	it('is a UUIDv7 that carries its time', () => {
		const now = Date.UTC(2040, 0, 1);
		const id = newId(now);
		expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
		expect(parseInt(id.replaceAll('-', '').slice(0, 12), 16)).toBe(now);
		expect(isId(id)).toBe(true);
	});

	it('rises whatever the clock does', () => {
		fc.assert(
			fc.property(fc.array(fc.integer({ min: 1, max: 2 ** 47 }), { minLength: 2 }), (times) => {
				const ids = times.map((time) => newId(time));
				expect([...ids].sort()).toEqual(ids);
				expect(new Set(ids).size).toBe(ids.length);
			})
		);
	});

	it('rises through more ids than one millisecond counts', () => {
		const ids = Array.from({ length: 10_000 }, () => newId(1));
		expect([...ids].sort()).toEqual(ids);
	});
});

it('tells ids from other text', () => {
	for (const text of ['', 'x', null, 7, '../../etc', newId().toUpperCase()]) {
		expect(isId(text)).toBe(false);
	}
});
