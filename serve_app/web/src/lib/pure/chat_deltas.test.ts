import { expect, test } from 'vitest';
import { addDelta, emptyAnswer, readDelta } from './chat_deltas';

const chunk = (fields: unknown) => readDelta(JSON.stringify(fields))!;
const delta = (fields: unknown) => chunk({ id: 'c-1', choices: [{ index: 0, delta: fields }] });

test('chunks add up to an answer', () => {
	const answer = emptyAnswer();
	addDelta(answer, delta({ role: 'assistant', content: '' }));
	addDelta(answer, chunk({ choices: [], prompt_progress: { total: 9, cache: 4, processed: 6 } }));
	addDelta(answer, delta({ reasoning_content: 'hm' }));
	addDelta(answer, delta({ content: 'Hel' }));
	addDelta(answer, delta({ content: 'lo' }));
	addDelta(answer, chunk({ choices: [{ delta: {}, finish_reason: 'length' }] }));
	addDelta(
		answer,
		chunk({
			choices: [],
			usage: {
				prompt_tokens: 9,
				completion_tokens: 3,
				prompt_tokens_details: { cached_tokens: 4 }
			},
			timings: { prompt_ms: 1, predicted_n: 3, predicted_ms: 2, predicted_per_second: 1500 }
		})
	);
	expect(answer).toEqual({
		id: 'c-1',
		text: 'Hello',
		reasoning: 'hm',
		calls: [],
		finish: 'length',
		progress: { total: 9, done: 6 },
		usage: { prompt_tokens: 9, completion_tokens: 3, cached_tokens: 4 },
		timings: { prompt_ms: 1, predicted_n: 3, predicted_ms: 2, predicted_per_second: 1500 }
	});
	expect(readDelta('[DONE]')).toBeNull();
});

test('calls come in pieces, by their index', () => {
	const answer = emptyAnswer();
	const call = (index: number, fields: object) =>
		addDelta(answer, delta({ tool_calls: [{ index, ...fields }] }));
	call(0, { id: 'a', function: { name: 'one', arguments: '' } });
	call(0, { function: { arguments: '{"x"' } });
	call(1, { id: 'b', function: { name: 'two', arguments: '{}' } });
	call(0, { function: { arguments: ': 1}' } });
	expect(answer.calls).toEqual([
		{ id: 'a', name: 'one', arguments: '{"x": 1}' },
		{ id: 'b', name: 'two', arguments: '{}' }
	]);
});

test('an answer that goes on starts with what was there', () => {
	const answer = emptyAnswer({ text: 'Hel', reasoning: 'hm' });
	addDelta(answer, { text: 'lo' });
	expect(answer).toMatchObject({ text: 'Hello', reasoning: 'hm' });
});

test('an error in the midst is told as it came', () => {
	const error = { error: { message: 'gone', code: 'service_unavailable' } };
	expect(chunk(error)).toEqual({ error });
});
