import { expect, test } from 'vitest';
import { describeProcessing } from './processing';

test('each phase says what is going on', () => {
	const elapsed_ms = 1400;
	expect(describeProcessing({ phase: 'waiting', elapsed_ms, loading: 0.42 })).toBe(
		'Loading the model, 42 %'
	);
	expect(describeProcessing({ phase: 'waiting', elapsed_ms })).toBe('');
	expect(describeProcessing({ phase: 'waiting', elapsed_ms: 61_000 })).toBe('Waiting, 1 min 1 s');
	const progress = { total: 200, done: 50 };
	expect(describeProcessing({ phase: 'prompt', elapsed_ms, progress })).toBe(
		'Reading the question, 25 %'
	);
	const timings = { predicted_n: 1200, predicted_per_second: 30.6 };
	expect(describeProcessing({ phase: 'thinking', elapsed_ms, timings })).toBe(
		'Thinking · 31 tok/s · 1,200 tokens · 1 s'
	);
	expect(describeProcessing({ phase: 'answering', elapsed_ms })).toBe('1 s');
	expect(describeProcessing({ phase: 'tools', elapsed_ms })).toBe('A tool is running');
});
