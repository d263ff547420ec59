import fc from 'fast-check';
import { expect, test } from 'vitest';
import { readEvents, SseParser, type ServerEvent } from './sse';

async function read(parts: Uint8Array[]): Promise<ServerEvent[]> {
	async function* body() {
		yield* parts;
	}
	const events: ServerEvent[] = [];
	for await (const event of readEvents(body())) events.push(event);
	return events;
}

const TEXT =
	': hello\r\n\r\ndata: {"a": "grün 🐚"}\r\n\r\nevent: x\nid: 7\ndata: one\ndata:two\n\n' +
	'data\n\nretry: 5\rdata:  spaced\r\rdata: cut off';
const EVENTS = [
	{ event: 'message', data: '{"a": "grün 🐚"}', id: '' },
	{ event: 'x', data: 'one\ntwo', id: '7' },
	{ event: 'message', data: '', id: '7' },
	{ event: 'message', data: ' spaced', id: '7' }
];

test('events are the same wherever the bytes are cut', async () => {
	const bytes = new TextEncoder().encode(TEXT);
	expect(await read([bytes])).toEqual(EVENTS);
	await fc.assert(
		fc.asyncProperty(fc.array(fc.nat(bytes.length), { maxLength: 12 }), async (cuts) => {
			const at = [0, ...cuts.sort((a, b) => a - b), bytes.length];
			const parts = at.slice(1).map((end, index) => bytes.slice(at[index], end));
			expect(await read(parts)).toEqual(EVENTS);
		})
	);
});

test('byte by byte', async () => {
	const bytes = new TextEncoder().encode(TEXT);
	expect(await read([...bytes].map((byte) => Uint8Array.of(byte)))).toEqual(EVENTS);
});

test('a line end may be cut in the middle', () => {
	const parser = new SseParser();
	expect(parser.feed('data: a\r')).toEqual([]);
	expect(parser.feed('\n\r')).toEqual([{ event: 'message', data: 'a', id: '' }]);
	expect(parser.feed('\ndata: b\n\n')).toEqual([{ event: 'message', data: 'b', id: '' }]);
});
