/** What a model may call, what it wrote for that, and what came of it. */
import type { Message, ToolCall } from '#lib/types';
import { cut } from './well_formed';

export interface Tool {
	/** As the model knows it; of letters, digits, `_` and `-`. */
	name: string;
	title: string;
	description: string;
	/** A JSON schema. */
	parameters: unknown;
	/** It changes something: each chat has to allow it by itself. */
	writes: boolean;
	/** Whose it is: `server`, or the id of an MCP server. */
	of: string;
	/** Its name there. */
	own_name: string;
}

/** Longer results are cut: they would fill the model's context. */
export const MAX_RESULT = 100_000;
export const DENIED = 'The person did not allow this call.';

/** Answers why they are none in words for the model. */
export function parseArguments(text: string): Record<string, unknown> | string {
	if (text.trim() === '') return {};
	try {
		const value: unknown = JSON.parse(text);
		if (typeof value === 'object' && value !== null && !Array.isArray(value))
			return value as Record<string, unknown>;
		return 'The arguments must be a JSON object.';
	} catch (error) {
		return `The arguments are not JSON: ${(error as Error).message}`;
	}
}

/** Arguments as a person reads them. */
export function prettyArguments(text: string): string {
	const value = parseArguments(text);
	if (typeof value === 'string') return text;
	return Object.keys(value).length === 0 ? '' : JSON.stringify(value, null, 2);
}

export function resultText(value: unknown): string {
	const text = typeof value === 'string' ? value : JSON.stringify(value);
	if (text === undefined) return '';
	return text.length <= MAX_RESULT ? text : `${cut(text, MAX_RESULT)}\n[cut here]`;
}

export function failure(message: string): string {
	return JSON.stringify({ error: message });
}

export type Outcome = 'done' | 'denied' | 'failed';

export function outcomeOf(result: string): Outcome {
	if (result === DENIED) return 'denied';
	if (!result.startsWith('{"error"')) return 'done';
	try {
		return typeof (JSON.parse(result) as { error?: unknown }).error === 'string'
			? 'failed'
			: 'done';
	} catch {
		return 'done';
	}
}

/** The results that follow the message at `index` of a branch, by the ids of their calls. */
export function resultsAfter(branch: readonly Message[], index: number): Map<string, Message> {
	const results = new Map<string, Message>();
	for (let next = index + 1; branch[next]?.role === 'tool'; next++)
		results.set(branch[next]!.tool_call_id ?? '', branch[next]!);
	return results;
}

/** Calls at the end of a branch that nobody has answered: these wait for the person. */
export function openCalls(branch: readonly Message[], index: number): ToolCall[] {
	const message = branch[index];
	if (message?.state !== 'done' || !message.tool_calls?.length) return [];
	const results = resultsAfter(branch, index);
	if (index + results.size !== branch.length - 1) return [];
	return message.tool_calls.filter((call) => !results.has(call.id));
}

/** How often tools were called since the person last said something. */
export function roundsOf(branch: readonly Message[]): number {
	const question = branch.findLastIndex((message) => message.role === 'user');
	return branch.slice(question + 1).filter((message) => message.tool_calls?.length).length;
}

/** Models and servers make calls without ids, or two with one: each gets one of its own. */
export function withIds(calls: readonly ToolCall[], taken: ReadonlySet<string>): ToolCall[] {
	const known = new Set(taken);
	return calls.map((call, index) => {
		let id = call.id;
		for (let count = index; id === '' || known.has(id); count++) id = `call_${count}`;
		known.add(id);
		return id === call.id ? call : { ...call, id };
	});
}

/** A tool's name that servers take, and that no other tool has. */
export function toolName(prefix: string, name: string, taken: ReadonlySet<string>): string {
	const clean =
		`${prefix}${prefix ? '_' : ''}${name}`.replace(/[^\w-]+/g, '_').slice(0, 60) || 'tool';
	let fresh = clean;
	for (let count = 2; taken.has(fresh); count++) fresh = `${clean}_${count}`;
	return fresh;
}
