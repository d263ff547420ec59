import { expect, test } from 'vitest';
import { describeError } from './chat_errors';

const refusal = (fields: object) => Object.assign(new Error('the words'), fields);

test('a refusal keeps the server’s words, its code and the request', () => {
	expect(
		describeError(refusal({ status: 400, code: 'context_length_exceeded', request_id: 'r-1' }))
	).toEqual({
		title: 'The chat is too long for this model',
		message: 'the words',
		status: 400,
		code: 'context_length_exceeded',
		request_id: 'r-1'
	});
});

test('who is busy says when to come back', () => {
	const busy = refusal({ status: 429, code: 'overloaded', retry_after_ms: 2000 });
	expect(describeError(busy, 1000)).toMatchObject({ title: 'The server is busy', retry_at: 3000 });
	expect(describeError(refusal({ status: 503 }), 1000).retry_at).toBe(6000);
});

test('what is no refusal has its own words', () => {
	expect(describeError(new TypeError('x is undefined'))).toEqual({
		title: 'Something went wrong',
		message: 'x is undefined'
	});
	expect(describeError(refusal({ status: 0 }))).toEqual({
		title: "The server can't be reached",
		message: 'the words'
	});
});
