/** The chunks of `/v1/chat/completions`, and the answer that they add up to. */
import type { Finish, Message, Timings, ToolCall, Usage } from '#lib/types';

export interface Progress {
	/** Tokens of the prompt; `done` includes what the cache had. */
	total: number;
	done: number;
}

export interface CallDelta {
	index: number;
	id?: string;
	name?: string;
	arguments?: string;
}

export interface Delta {
	id?: string;
	text?: string;
	reasoning?: string;
	calls?: CallDelta[];
	finish?: Finish;
	usage?: Usage;
	timings?: Timings;
	progress?: Progress;
	/** In the midst of a stream; as the server wrote it. */
	error?: unknown;
	/** Bytes of the stream up to the end of this event, where an event ends a part of it. */
	read?: number;
}

interface Chunk {
	id?: string;
	choices?: {
		delta?: {
			content?: string | null;
			reasoning_content?: string | null;
			tool_calls?: {
				index?: number;
				id?: string;
				function?: { name?: string; arguments?: string };
			}[];
		};
		finish_reason?: string | null;
	}[];
	usage?: {
		prompt_tokens?: number;
		completion_tokens?: number;
		prompt_tokens_details?: { cached_tokens?: number } | null;
	} | null;
	timings?: Record<string, number>;
	prompt_progress?: { total?: number; processed?: number; cache?: number };
	error?: unknown;
}

const FINISHES: Record<string, Finish> = {
	stop: 'stop',
	length: 'length',
	tool_calls: 'tool_calls',
	content_filter: 'stop'
};

/** What one event says; null for `[DONE]`. */
export function readDelta(data: string): Delta | null {
	if (data === '[DONE]') return null;
	const chunk = JSON.parse(data) as Chunk;
	if (chunk.error !== undefined) return { error: chunk };
	const choice = chunk.choices?.[0];
	const delta: Delta = {};
	if (chunk.id) delta.id = chunk.id;
	if (choice?.delta?.content) delta.text = choice.delta.content;
	if (choice?.delta?.reasoning_content) delta.reasoning = choice.delta.reasoning_content;
	if (choice?.delta?.tool_calls)
		delta.calls = choice.delta.tool_calls.map((call) => ({
			index: call.index ?? 0,
			id: call.id,
			name: call.function?.name,
			arguments: call.function?.arguments
		}));
	if (choice?.finish_reason) delta.finish = FINISHES[choice.finish_reason] ?? 'stop';
	if (chunk.usage)
		delta.usage = {
			prompt_tokens: chunk.usage.prompt_tokens ?? 0,
			completion_tokens: chunk.usage.completion_tokens ?? 0,
			cached_tokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0
		};
	if (chunk.timings)
		delta.timings = {
			prompt_ms: chunk.timings.prompt_ms ?? 0,
			predicted_n: chunk.timings.predicted_n ?? 0,
			predicted_ms: chunk.timings.predicted_ms ?? 0,
			predicted_per_second: chunk.timings.predicted_per_second ?? 0
		};
	if (chunk.prompt_progress)
		delta.progress = {
			total: chunk.prompt_progress.total ?? 0,
			done: chunk.prompt_progress.processed ?? 0
		};
	return delta;
}

export interface Answer {
	id?: string;
	text: string;
	reasoning: string;
	calls: ToolCall[];
	finish?: Finish;
	usage?: Usage;
	timings?: Timings;
	progress?: Progress;
	/** Bytes of the stream that are in it: from there a kept one is read on. */
	read?: number;
}

/** What an answer starts with: that which it goes on, or what was read of it before. */
export type Start = Pick<Message, 'reasoning' | 'tool_calls' | 'read' | 'completion_id'> & {
	text?: string;
};

export function emptyAnswer(before: Start = {}): Answer {
	return {
		text: before.text ?? '',
		reasoning: before.reasoning ?? '',
		calls: (before.tool_calls ?? []).map((call) => ({ ...call })),
		...(before.completion_id && { id: before.completion_id }),
		...(before.read !== undefined && { read: before.read })
	};
}

/** Changes `answer`: a copy for each token would make a long answer quadratic. */
export function addDelta(answer: Answer, delta: Delta): void {
	if (delta.id) answer.id = delta.id;
	if (delta.text) answer.text += delta.text;
	if (delta.reasoning) answer.reasoning += delta.reasoning;
	for (const call of delta.calls ?? []) {
		const known = (answer.calls[call.index] ??= { id: '', name: '', arguments: '' });
		if (call.id) known.id = call.id;
		if (call.name) known.name += call.name;
		if (call.arguments) known.arguments += call.arguments;
	}
	if (delta.finish) answer.finish = delta.finish;
	if (delta.usage) answer.usage = delta.usage;
	if (delta.timings) answer.timings = { ...answer.timings, ...delta.timings };
	if (delta.progress) answer.progress = delta.progress;
	if (delta.read !== undefined) answer.read = delta.read;
}
