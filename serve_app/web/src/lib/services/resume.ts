/** A kept stream, over as many connections as it takes: the server has its bytes by the answer's id. */
import { EventOffsets } from '#lib/pure/event_offsets';
import { bytesOf, SseParser } from '#lib/pure/sse';
import { api, ApiError } from './api';

const TRIES = 4;
const FIRST_WAIT_MS = 1000;
/** The server keeps a stream for so long when nobody reads it. */
const OFFLINE_MS = 300_000;

/** A stream broke, and what the server kept of it could not be read on. */
export class Interrupted extends Error {}

export interface KeptEvent {
	data: string;
	/** Bytes of the stream up to its end, where it is the last of those that came together. */
	read?: number;
}

export function openKept(id: string, from: number, signal: AbortSignal): Promise<Response> {
	return api.stream(`v1/stream?conv_id=${encodeURIComponent(id)}&from=${from}`, { signal });
}

/** `from`: where `response` begins, which must be the start of an event. Throws `Interrupted`. */
export async function* keptEvents(
	response: Response,
	id: string,
	signal: AbortSignal,
	from = 0
): AsyncGenerator<KeptEvent> {
	const parser = new SseParser();
	const decoder = new TextDecoder();
	const offsets = new EventOffsets(from);
	for await (const bytes of wholeBody(response, id, signal, from)) {
		const read = offsets.feed(bytes);
		const events = parser.feed(decoder.decode(bytes, { stream: true }));
		for (const [index, { data }] of events.entries())
			yield index === events.length - 1 && read !== undefined ? { data, read } : { data };
	}
}

async function* wholeBody(
	response: Response,
	id: string,
	signal: AbortSignal,
	from: number
): AsyncGenerator<Uint8Array> {
	let read = from;
	let failures = 0;
	let body = response.body;
	for (;;) {
		try {
			if (body)
				for await (const bytes of bytesOf(body)) {
					read += bytes.length;
					failures = 0;
					yield bytes;
				}
			// The body ended by itself; who has read `[DONE]` does not ask for more.
			failures += 1;
		} catch (error) {
			if (signal.aborted) throw error;
			failures += 1;
		}
		if (failures > TRIES) throw new Interrupted('The connection broke off.');
		await untilOnline(signal);
		await pause(FIRST_WAIT_MS * 2 ** (failures - 1), signal);
		try {
			body = (await openKept(id, read, signal)).body;
		} catch (error) {
			if (signal.aborted) throw error;
			const status = error instanceof ApiError ? error.status : 0;
			if (status === 404 || status === 400 || status === 401)
				throw new Interrupted('The server has not kept the rest of this answer.');
			body = null;
		}
	}
}

/** A browser that knows it has no network is not asked to try. */
async function untilOnline(signal: AbortSignal): Promise<void> {
	if (globalThis.navigator?.onLine !== false) return;
	const ends = AbortSignal.any([signal, AbortSignal.timeout(OFFLINE_MS)]);
	await new Promise<void>((done) => {
		addEventListener('online', () => done(), { once: true, signal: ends });
		ends.addEventListener('abort', () => done(), { once: true });
	});
	signal.throwIfAborted();
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
	return new Promise((done, fail) => {
		const stopped = () => {
			clearTimeout(timer);
			fail(signal.reason as Error);
		};
		const timer = setTimeout(() => {
			signal.removeEventListener('abort', stopped);
			done();
		}, ms);
		signal.addEventListener('abort', stopped, { once: true });
	});
}
