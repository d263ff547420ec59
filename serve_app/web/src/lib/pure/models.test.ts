import { expect, test } from 'vitest';
import { afterEvent, describeModel, groupModels, readModel, shortCount } from './models';

const READY = {
	id: 'qwen',
	aliases: ['qwen', 'big'],
	status: { value: 'loaded', state: 'ready' },
	meta: { n_ctx: 32768 },
	architecture: { input_modalities: ['text', 'image'] },
	can_remove: true
};
const FAILED = {
	id: 'broken',
	status: { value: 'unloaded', state: 'failed', failed: true, message: 'no config.json' }
};
const qwen = readModel(READY);

test('a model of the list', () => {
	expect(qwen).toEqual({
		id: 'qwen',
		state: 'loaded',
		n_ctx: 32768,
		modalities: { image: true, audio: false },
		starters: [],
		chats: true,
		removable: true,
		aliases: ['big']
	});
	expect(readModel(FAILED)).toMatchObject({ state: 'failed', message: 'no config.json' });
	expect(readModel({ ...READY, tasks: ['embed'] }).chats).toBe(false);
	expect(readModel({ ...READY, starters: ['Who?'] }).starters).toEqual(['Who?']);
});

test('an event changes its model alone, and the old progress is gone', () => {
	const loading = afterEvent([qwen, readModel(FAILED)], {
		model: 'broken',
		event: 'status_change',
		data: { status: 'loading', state: 'loading', progress: { current: 'weights', value: 0.42 } }
	});
	expect(loading?.[0]).toBe(qwen);
	expect(loading?.[1]).toMatchObject({
		state: 'loading',
		progress: { stage: 'weights', value: 0.42 }
	});
	expect(loading?.[1]).not.toHaveProperty('message');
	const asleep = afterEvent(loading ?? [], {
		model: 'broken',
		event: 'status_change',
		data: { status: 'sleeping', state: 'sleeping' }
	});
	expect(asleep?.[1]).toMatchObject({ state: 'asleep' });
	expect(asleep?.[1]).not.toHaveProperty('progress');
});

test('an adapter has the state of its model, and goes with it', () => {
	const list = [qwen, readModel({ ...READY, id: 'polite', aliases: [], parent: 'qwen' })];
	const event = { model: 'qwen', event: 'status_change', data: { state: 'unloading' } };
	expect(afterEvent(list, event)?.map((entry) => entry.state)).toEqual(['unloading', 'unloading']);
	expect(afterEvent(list, { model: 'qwen', event: 'model_remove', data: {} })).toEqual([]);
});

test('the list is read anew where an event does not say enough', () => {
	const event = { model: 'new', event: 'status_change', data: { state: 'ready' } };
	expect(afterEvent([qwen], event)).toBeNull();
	expect(afterEvent([qwen], { model: '*', event: 'models_reload', data: {} })).toBeNull();
	expect(afterEvent([qwen], { model: 'qwen', event: 'model_remove', data: {} })).toEqual([]);
});

test('its description says state, context, kinds, replicas, and why it failed', () => {
	expect(describeModel({ ...qwen, replicas: 2 })).toBe(
		'loaded; 32k tokens of context; text, image; 2 replicas'
	);
	expect(describeModel(readModel(FAILED))).toBe('failed: no config.json; takes: known when loaded');
});

test('groups by state, names sorted, every word of the search must match', () => {
	const list = [readModel(FAILED), { ...qwen, id: 'b' }, { ...qwen, id: 'a' }];
	expect(groupModels(list, '').map(({ title, models }) => [title, models.length])).toEqual([
		['Loaded', 2],
		['Failed', 1]
	]);
	expect(groupModels(list, '')[0]?.models.map((model) => model.id)).toEqual(['a', 'b']);
	expect(groupModels(list, 'BIG a').flatMap(({ models }) => models.map((m) => m.id))).toEqual([
		'a'
	]);
	expect(groupModels(list, 'nothing')).toEqual([]);
});

test('counts are short where nothing is lost', () => {
	expect([1000, 2048, 32768, 131072, 200000].map(shortCount)).toEqual([
		'1,000',
		'2k',
		'32k',
		'128k',
		'200k'
	]);
});
