import { expect, test } from 'vitest';
import { mergeSampling, serverSampling } from './parameters';

const PARAMS = {
	temperature: 0.3,
	top_k: 40,
	repeat_penalty: 1,
	seed: 4294967295,
	max_tokens: -1,
	samplers: ['top_k']
};

test('the values of /props get the names of requests; what is open there is absent', () => {
	expect(serverSampling(PARAMS)).toEqual({ temperature: 0.3, top_k: 40, repetition_penalty: 1 });
	expect(serverSampling({ seed: 3, max_tokens: 64, temperature: 'hot', stop: 1 })).toEqual({
		seed: 3,
		max_tokens: 64
	});
});

test('the chat goes before the person, the person before the operator, he before the model', () => {
	const merged = mergeSampling({
		chat: { temperature: 1 },
		own: { temperature: 0.5, top_p: 0.9 },
		operator: { top_p: 0.1, min_p: 0.2 },
		model: { temperature: 0.3, top_k: 40, min_p: 0 }
	});
	expect(merged.sampling).toEqual({ temperature: 1, top_p: 0.9, min_p: 0.2 });
	expect(merged.shown).toEqual({ temperature: 1, top_p: 0.9, min_p: 0.2, top_k: 40 });
	expect(merged.origins).toMatchObject({
		temperature: 'custom',
		top_p: 'custom',
		min_p: 'server',
		top_k: 'server',
		stop: 'server'
	});
});

test('without a choice nothing is sent: the server counts', () => {
	expect(mergeSampling({ own: {} }).sampling).toEqual({});
});

test('an undefined value of the chat hides none of the person', () => {
	const merged = mergeSampling({ chat: { seed: undefined }, own: { seed: 7 } });
	expect(merged.sampling).toEqual({ seed: 7 });
});
