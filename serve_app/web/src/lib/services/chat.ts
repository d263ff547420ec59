import { readDelta, type Delta } from '#lib/pure/chat_deltas';
import { buildRequest, countedRequest, type RequestParts } from '#lib/pure/chat_request';
import { bytesOf, readEvents } from '#lib/pure/sse';
import { api, ApiError, post, readError } from './api';

const RESUMES = 3;
const RESUME_WAIT_MS = 1000;

/** A stream broke, and what the server kept of it could not be read on. */
export class Interrupted extends Error {}

export interface KeptStream {
	conversation_id: string;
	is_done: boolean;
	total_bytes: number;
}

export class ChatService {
	/**
	 * The deltas of an answer. The server keeps the stream by `id`, so that a broken connection is
	 * taken up at the byte where it broke. Throws `ApiError`, `Interrupted`, or the abort's own error.
	 */
	static async *answer(
		parts: RequestParts,
		id: string,
		signal: AbortSignal
	): AsyncGenerator<Delta> {
		const headers = { 'X-Conversation-Id': id };
		const response = await api.stream(
			'v1/chat/completions',
			post(buildRequest(parts), { headers, signal })
		);
		yield* deltasOf(response, id, signal);
	}

	/** The deltas of a kept stream from its start, followed to its end. */
	static async *resume(id: string, signal: AbortSignal): AsyncGenerator<Delta> {
		const response = await kept(id, 0, signal);
		yield* deltasOf(response, id, signal);
	}

	/** Those of `ids` whose streams the server still has. */
	static async lookup(ids: string[]): Promise<KeptStream[]> {
		if (ids.length === 0) return [];
		return api.json('v1/streams/lookup', post({ conversation_ids: ids }));
	}

	/** Ends the answer: a kept stream goes on without its reader. */
	static async stop(id: string): Promise<void> {
		await api.stream(`v1/stream?conv_id=${encodeURIComponent(id)}`, { method: 'DELETE' });
	}

	static async endThinking(completion: string, model: string): Promise<boolean> {
		const body = { id: completion, action: 'reasoning_end', model };
		const answer = await api.json<{ success: boolean }>('v1/chat/completions/control', post(body));
		return answer.success;
	}

	/** Tokens that `parts` would take of the context. */
	static async count(parts: RequestParts, signal: AbortSignal): Promise<number> {
		const body = countedRequest(parts);
		const answer = await api.json<{ input_tokens: number }>(
			'v1/chat/completions/input_tokens',
			post(body, { signal })
		);
		return answer.input_tokens;
	}

	/** Whether the model's template can go on with an answer. */
	static async canGoOn(model: string): Promise<boolean> {
		const messages = [
			{ role: 'user', content: 'a' },
			{ role: 'assistant', content: 'b' }
		];
		const body = { model, messages, continue_final_message: true, add_generation_prompt: false };
		try {
			await api.json('apply-template', post(body));
			return true;
		} catch (error) {
			if (error instanceof ApiError && error.status === 400) return false;
			throw error;
		}
	}

	/** A title for a first question and its answer, in the model's words. */
	static async title(model: string, question: string, answer: string): Promise<string> {
		const ask = `Give this chat a title of at most six words. Answer with the title alone.\n\nQuestion: ${question.slice(0, 2000)}\n\nAnswer: ${answer.slice(0, 2000)}`;
		const body = {
			model,
			messages: [{ role: 'user', content: ask }],
			max_tokens: 16,
			priority: 10,
			reasoning_effort: 'none'
		};
		const reply = await api.json<{ choices: { message: { content: string | null } }[] }>(
			'v1/chat/completions',
			post(body)
		);
		return reply.choices[0]?.message.content ?? '';
	}
}

function kept(id: string, from: number, signal: AbortSignal): Promise<Response> {
	return api.stream(`v1/stream?conv_id=${encodeURIComponent(id)}&from=${from}`, { signal });
}

async function* deltasOf(
	response: Response,
	id: string,
	signal: AbortSignal
): AsyncGenerator<Delta> {
	const request_id = response.headers.get('x-request-id') ?? undefined;
	for await (const { data } of readEvents(wholeBody(response, id, signal))) {
		const delta = readDelta(data);
		if (delta === null) return;
		if (delta.error === undefined) yield delta;
		else throw withRequestId(readError(delta.error, 200), request_id);
	}
	throw new Interrupted('The answer broke off.');
}

/** The bytes of a kept stream, over as many connections as it takes. */
async function* wholeBody(
	response: Response,
	id: string,
	signal: AbortSignal
): AsyncGenerator<Uint8Array> {
	let read = 0;
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
		if (failures > RESUMES) throw new Interrupted('The connection broke off.');
		await pause(RESUME_WAIT_MS * 2 ** (failures - 1), signal);
		try {
			body = (await kept(id, read, signal)).body;
		} catch (error) {
			if (signal.aborted) throw error;
			const status = error instanceof ApiError ? error.status : 0;
			if (status === 404 || status === 400 || status === 401)
				throw new Interrupted('The server has not kept the rest of this answer.');
			body = null;
		}
	}
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

function withRequestId(error: ApiError, request_id: string | undefined): ApiError {
	return new ApiError(error.message, error.status, error.code, error.type, error.param, request_id);
}
