import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Interrupted, keptEvents } from './resume';

const BODY = new TextEncoder().encode('data: ä\n\ndata: b\n\n: silence\n\ndata: [DONE]\n\n');

/** A body of some bytes, after which the connection breaks, or ends. */
function part(from: number, to: number, breaks: boolean): Response {
	return new Response(
		new ReadableStream({
			pull(controller) {
				// An error drops what is not read yet, so that it comes later.
				if (from < to) controller.enqueue(BODY.slice(from, to));
				else if (breaks) controller.error(new TypeError('network error'));
				else controller.close();
				from = to;
			}
		})
	);
}

/** Answers these, one after the other, and keeps what was asked. */
function serve(...answers: (Response | 'away')[]): string[] {
	const asked: string[] = [];
	vi.stubGlobal('fetch', (address: string) => {
		asked.push(address);
		const answer = answers.shift();
		return answer instanceof Response ? Promise.resolve(answer) : Promise.reject(new TypeError());
	});
	return asked;
}

async function read(first: Response, from = 0) {
	const events: { data: string; read?: number }[] = [];
	const signal = new AbortController().signal;
	for await (const event of keptEvents(first, 'm', signal, from)) {
		events.push(event);
		if (event.data === '[DONE]') break;
	}
	return events;
}

beforeEach(() => {
	vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
	vi.setTimerTickMode('nextTimerAsync');
});
afterEach(() => {
	vi.useRealTimers();
	vi.unstubAllGlobals();
});

test('a stream that breaks, also within a letter, is read on at the byte where it broke', async () => {
	const asked = serve('away', part(7, 15, true), part(15, BODY.length, false));
	const events = await read(part(0, 7, true));
	expect(events.map(({ data }) => data)).toEqual(['ä', 'b', '[DONE]']);
	const froms = asked.map((address) => new URL(address, 'http://x').searchParams.get('from'));
	expect(froms).toEqual(['7', '7', '15']);
});

test('each event that ends what has come says where one can read on', async () => {
	serve();
	const [first] = await read(part(0, BODY.length, false));
	expect(first).toEqual({ data: 'ä' });
	const all = await read(part(10, BODY.length, false), 10);
	expect(all.at(-1)).toEqual({ data: '[DONE]', read: BODY.length });
});

test('what the server has not kept is interrupted, and so is what it never ends', async () => {
	serve(new Response('{}', { status: 404 }));
	await expect(read(part(0, 10, true))).rejects.toThrow(Interrupted);
	serve('away', 'away', 'away', 'away');
	await expect(read(part(0, 10, true))).rejects.toThrow(Interrupted);
});
