import { expect, test } from 'vitest';
import type { Message } from '#lib/types';
import {
	failure,
	MAX_RESULT,
	DENIED,
	openCalls,
	outcomeOf,
	parseArguments,
	prettyArguments,
	resultText,
	roundsOf,
	toolName,
	withIds
} from './tool_calls';

let count = 0;
function message(role: Message['role'], fields: Partial<Message> = {}): Message {
	const id = `m${++count}`;
	return {
		...{ id, chat: 'c', parent: null, role, text: '', attachments: [] },
		...{ created_at: count, revision: null, state: 'done' as const },
		...fields
	};
}
const call = (id: string) => ({ id, name: 'read_file', arguments: '{}' });

test('arguments are an object or a reason', () => {
	expect(parseArguments('{"a": 1}')).toEqual({ a: 1 });
	expect(parseArguments(' ')).toEqual({});
	expect(parseArguments('[1]')).toBe('The arguments must be a JSON object.');
	expect(parseArguments('{"a": ')).toContain('not JSON');
	expect(prettyArguments('{"a":1}')).toBe('{\n  "a": 1\n}');
	expect(prettyArguments('{"a":')).toBe('{"a":');
	expect(prettyArguments('{}')).toBe('');
});

test('a result is text, and bounded', () => {
	expect(resultText({ plain_text_response: 'a' })).toBe('{"plain_text_response":"a"}');
	expect(resultText('a')).toBe('a');
	expect(resultText(undefined)).toBe('');
	expect(resultText('a'.repeat(MAX_RESULT + 1)).length).toBeLessThan(MAX_RESULT + 20);
	expect(outcomeOf(failure('no'))).toBe('failed');
	expect(outcomeOf('{"error": null}')).toBe('done');
	expect(outcomeOf('{"error" and so on')).toBe('done');
	expect(outcomeOf(DENIED)).toBe('denied');
	expect(outcomeOf('fine')).toBe('done');
});

test('calls are open at the end of a branch alone, and less those with results', () => {
	const asks = message('assistant', { tool_calls: [call('a'), call('b')] });
	const result = message('tool', { tool_call_id: 'a', text: 'x' });
	const branch = [message('user'), asks];
	expect(openCalls(branch, 1).map(({ id }) => id)).toEqual(['a', 'b']);
	expect(openCalls([...branch, result], 1).map(({ id }) => id)).toEqual(['b']);
	expect(openCalls([...branch, message('user')], 1)).toEqual([]);
	expect(openCalls([...branch, result, message('assistant')], 1)).toEqual([]);
	expect(openCalls([message('user'), { ...asks, state: 'running' }], 1)).toEqual([]);
	expect(openCalls(branch, 0)).toEqual([]);
});

test('rounds are counted since the last question', () => {
	const asks = () => message('assistant', { tool_calls: [call('a')] });
	const branch = [
		message('user'),
		asks(),
		message('tool'),
		message('user'),
		asks(),
		message('tool')
	];
	expect(roundsOf(branch)).toBe(1);
	expect(roundsOf([...branch, asks()])).toBe(2);
	expect(roundsOf([])).toBe(0);
});

test('each call has an id of its own', () => {
	const ids = withIds([call(''), call('x'), call('x'), call('')], new Set(['call_0'])).map(
		({ id }) => id
	);
	expect(new Set([...ids, 'call_0']).size).toBe(5);
	expect(ids[1]).toBe('x');
});

test('names that servers take', () => {
	expect(toolName('my server', 'get.time', new Set())).toBe('my_server_get_time');
	expect(toolName('', 'a', new Set(['a', 'a_2']))).toBe('a_3');
	expect(toolName('p', 'x'.repeat(100), new Set()).length).toBeLessThanOrEqual(64);
});
