import { expect, test } from 'vitest';
import type { Message } from '#lib/types';
import { isUnanswered } from './unanswered';

const CALL = { id: 'a', name: 'read', arguments: '{}' };
const OTHER = { ...CALL, id: 'b' };

function message(role: Message['role'], fields: Partial<Message> = {}): Message {
	const common = { id: role, chat: 'c', parent: null, attachments: [], created_at: 0 };
	return { ...common, role, text: '', revision: null, state: 'done', ...fields };
}

const question = message('user', { text: 'Who?' });
const result = message('tool', { text: 'It is.', tool_call_id: 'a' });
const calling = message('assistant', { tool_calls: [CALL], finish: 'tool_calls' });
const error = { title: 'No', message: 'no' };

test.each<[string, Message[], boolean]>([
	['nothing', [], false],
	['a question alone', [question], true],
	['an answer', [question, message('assistant', { text: 'I.', finish: 'stop' })], false],
	['an answer that runs', [question, message('assistant', { state: 'running' })], false],
	[
		'one stopped before its first word',
		[question, message('assistant', { finish: 'stopped' })],
		true
	],
	[
		'one whose connection broke then',
		[question, message('assistant', { finish: 'interrupted' })],
		true
	],
	['one stopped in its thought', [question, message('assistant', { reasoning: 'Hm' })], false],
	['one that failed, which is tried again', [question, message('assistant', { error })], false],
	['calls that wait', [question, calling], false],
	['the results of all calls', [question, calling, result], true],
	['the results of some', [question, { ...calling, tool_calls: [CALL, OTHER] }, result], false],
	['a system message', [message('system', { text: 'Be short.' })], false]
])('%s', (_, branch, expected) => {
	expect(isUnanswered(branch)).toBe(expected);
});
