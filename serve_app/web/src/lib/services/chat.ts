import { readDelta, type Delta } from '#lib/pure/chat_deltas';
import { buildRequest, countedRequest, type RequestParts } from '#lib/pure/chat_request';
import { cut } from '#lib/pure/well_formed';
import { api, ApiError, post, readError } from './api';
import { Interrupted, keptEvents, openKept } from './resume';

export { Interrupted };

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

	/** The deltas of a kept stream from a byte on, where an event starts, followed to its end. */
	static async *resume(id: string, from: number, signal: AbortSignal): AsyncGenerator<Delta> {
		let response: Response;
		try {
			response = await openKept(id, from, signal);
		} catch (error) {
			const isGone = error instanceof ApiError && (error.status === 404 || error.status === 400);
			throw isGone ? new Interrupted('The server has not kept this answer.') : error;
		}
		yield* deltasOf(response, id, signal, from);
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
	static async count(parts: RequestParts, signal?: AbortSignal): Promise<number> {
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
			if (error instanceof ApiError && [400, 404, 422, 501].includes(error.status)) return false;
			throw error;
		}
	}

	/** A title for a first question and its answer, in the model's words. */
	static async title(model: string, question: string, answer: string): Promise<string> {
		const ask = `Give this chat a title of at most six words. Answer with the title alone.\n\nQuestion: ${cut(question, 2000)}\n\nAnswer: ${cut(answer, 2000)}`;
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

async function* deltasOf(
	response: Response,
	id: string,
	signal: AbortSignal,
	from = 0
): AsyncGenerator<Delta> {
	const request_id = response.headers.get('x-request-id') ?? undefined;
	for await (const { data, read } of keptEvents(response, id, signal, from)) {
		const delta = readDelta(data);
		if (delta === null) return;
		if (delta.error === undefined) yield read === undefined ? delta : { ...delta, read };
		else throw withRequestId(readError(delta.error, 200), request_id);
	}
	throw new Interrupted('The answer broke off.');
}

function withRequestId(error: ApiError, request_id: string | undefined): ApiError {
	return new ApiError(error.message, error.status, error.code, error.type, error.param, request_id);
}
