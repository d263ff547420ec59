import { expect, test } from 'vitest';
import type { Message } from '#lib/types';
import { asBlock, buildRequest, contentKey, countedRequest, firstLine } from './chat_request';

const message = (role: Message['role'], text: string, fields: Partial<Message> = {}): Message => ({
	id: text,
	chat: 'c',
	parent: null,
	role,
	text,
	attachments: [],
	created_at: 0,
	revision: null,
	state: 'done',
	...fields
});
const parts = (branch: Message[], fields: object = {}) => ({
	model: 'm',
	system: '',
	branch,
	sampling: {},
	thinking: {},
	...fields
});
const messagesOf = (branch: Message[], fields: object = {}) =>
	countedRequest(parts(branch, fields)).messages as Record<string, unknown>[];

test('a branch is sent with its system message, less what failed or said nothing', () => {
	const branch = [
		message('user', 'Hello'),
		message('assistant', '', { finish: 'stopped' }),
		message('assistant', 'half', { finish: 'error' }),
		message('assistant', 'Hi', { reasoning: 'hm' }),
		message('user', 'Bye')
	];
	expect(messagesOf(branch, { system: 'Be short.' })).toEqual([
		{ role: 'system', content: 'Be short.' },
		{ role: 'user', content: 'Hello' },
		{ role: 'assistant', content: 'Hi' },
		{ role: 'user', content: 'Bye' }
	]);
});

test('thoughts go back only where the template keeps them and it is wanted', () => {
	const branch = [message('user', 'a'), message('assistant', 'b', { reasoning: 'hm' })];
	const caps = { supports_preserve_reasoning: true };
	expect(messagesOf(branch, { caps })[1]).not.toHaveProperty('reasoning_content');
	expect(messagesOf(branch, { caps, sendThoughts: true })[1]).toHaveProperty('reasoning_content');
	expect(messagesOf(branch, { sendThoughts: true })[1]).not.toHaveProperty('reasoning_content');
});

test('only values that differ from the server’s are sent, and thinking only to who thinks', () => {
	const body = buildRequest(
		parts([message('user', 'a')], {
			sampling: { temperature: 0.2 },
			thinking: { effort: 'low', budget: 9 },
			extra: { logit_bias: {} }
		})
	);
	expect(body).toMatchObject({
		model: 'm',
		temperature: 0.2,
		reasoning_effort: 'low',
		thinking_token_budget: 9,
		logit_bias: {},
		stream: true
	});
	expect(body).not.toHaveProperty('top_p');
	expect(body).not.toHaveProperty('tools');
	const mute = { caps: { supports_thinking: false }, thinking: { effort: 'low' } };
	expect(countedRequest(parts([], mute))).not.toHaveProperty('reasoning_effort');
});

test('an answer goes on from its words', () => {
	const branch = [message('user', 'a'), message('assistant', 'half', { finish: 'stopped' })];
	expect(countedRequest(parts(branch, { goOn: true }))).toMatchObject({
		continue_final_message: true,
		add_generation_prompt: false
	});
});

test('calls are sent with what they answered, or not at all', () => {
	const calls = [
		{ id: '1', name: 'f', arguments: '' },
		{ id: '2', name: 'g', arguments: '{}' }
	];
	const sent = messagesOf([
		message('user', 'a'),
		message('assistant', '', { tool_calls: calls }),
		message('tool', 'done', { tool_call_id: '1' })
	]);
	expect(sent[1]).toEqual({
		role: 'assistant',
		content: '',
		tool_calls: [{ id: '1', type: 'function', function: { name: 'f', arguments: '{}' } }]
	});
	expect(sent[2]).toEqual({ role: 'tool', tool_call_id: '1', content: 'done' });
});

test('files go before the words of their question', () => {
	const file = { name: 'a.txt', type: 'text/plain', size: 1, sha256: 'x', as: 'text' as const };
	const picture = { ...file, name: 'p.png', sha256: 'y', as: 'images' as const };
	const files = new Map([
		[contentKey(file), { text: 'inside' }],
		[contentKey(picture), { images: ['data:1'] }]
	]);
	const asked = message('user', 'Read', { attachments: [file, picture] });
	expect(messagesOf([asked], { files })[0]!.content).toEqual([
		{ type: 'image_url', image_url: { url: 'data:1' } },
		{ type: 'text', text: 'File: a.txt\n```\ninside\n```\n\nRead' }
	]);
	expect(messagesOf([{ ...asked, attachments: [file] }], { files })[0]!.content).toBe(
		'File: a.txt\n```\ninside\n```\n\nRead'
	);
});

test('a fence is longer than any within', () => {
	expect(asBlock('a', 'x\n````\ny\n')).toBe('File: a\n`````\nx\n````\ny\n`````');
});

test('a title is the first line, cut at a word', () => {
	expect(firstLine('\n\n## What is it?\nmore')).toBe('What is it?');
	expect(firstLine('word '.repeat(40), 20)).toBe('word word word…');
	expect(firstLine('x'.repeat(40), 20)).toBe(`${'x'.repeat(19)}…`);
});
