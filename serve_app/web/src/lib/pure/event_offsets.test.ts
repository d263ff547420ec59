import fc from 'fast-check';
import { expect, test } from 'vitest';
import { EventOffsets } from './event_offsets';
import { SseParser } from './sse';

const encoder = new TextEncoder();

test('behind the last blank line, also where the bytes are cut in the midst of it', () => {
	const offsets = new EventOffsets(100);
	expect(offsets.feed(encoder.encode('data: a\n'))).toBeUndefined();
	expect(offsets.feed(encoder.encode('\ndata: b\n\ndata:'))).toBe(118);
	expect(offsets.feed(encoder.encode(' c\r\n\r\n'))).toBe(129);
});

test('who reads on from an offset misses no event and gets none twice', () => {
	const event = fc.record({ data: fc.string(), end: fc.constantFrom('\n', '\r\n') });
	fc.assert(
		fc.property(fc.array(event), fc.nat(), (events, cut) => {
			const text = events
				.map(({ data, end }) => `data: ${data.replace(/[\r\n]/g, '')}ß${end}${end}`)
				.join('');
			const bytes = encoder.encode(text);
			const first = bytes.subarray(0, bytes.length === 0 ? 0 : cut % bytes.length);
			const from = new EventOffsets().feed(first) ?? 0;
			const of = (part: Uint8Array) => new SseParser().feed(new TextDecoder().decode(part));
			const whole = of(bytes).map((one) => one.data);
			const parts = [...of(first.subarray(0, from)), ...of(bytes.subarray(from))];
			expect(parts.map((one) => one.data)).toEqual(whole);
		})
	);
});
