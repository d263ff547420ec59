import fc from 'fast-check';
import { expect, it } from 'vitest';
import { offsetsOf, scrollFor, spanOf } from './virtual_list';

const heights = fc.array(fc.integer({ min: 1, max: 80 }), { maxLength: 200 });

it('shows each row that is in view, and few others', () => {
	fc.assert(
		fc.property(heights, fc.nat(5000), fc.integer({ min: 1, max: 900 }), (rows, top, height) => {
			const offsets = offsetsOf(rows.length, (index) => rows[index]!);
			const { start, end } = spanOf(offsets, top, height, 2);
			for (let index = 0; index < rows.length; index++) {
				const inView = offsets[index]! < top + height && offsets[index + 1]! > top;
				if (inView) expect(index >= start && index < end).toBe(true);
			}
			expect(end - start).toBeLessThanOrEqual(height + 6);
		})
	);
});

it('has nothing of an empty list', () => {
	expect(
		spanOf(
			offsetsOf(0, () => 30),
			0,
			500,
			3
		)
	).toEqual({ start: 0, end: 0 });
});

it('scrolls as far as a row needs', () => {
	const offsets = offsetsOf(100, () => 30);
	expect(scrollFor(offsets, 50, 1400, 300)).toBe(1400);
	expect(scrollFor(offsets, 10, 1400, 300)).toBe(300);
	expect(scrollFor(offsets, 99, 0, 300)).toBe(2700);
});
