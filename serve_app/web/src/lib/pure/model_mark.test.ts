import { expect, test } from 'vitest';
import { markOf } from './model_mark';

test('a model has a letter of its own name and a colour of its whole one', () => {
	expect(markOf('Qwen/qwen3-8b')).toEqual(markOf('Qwen/qwen3-8b'));
	expect(markOf('Qwen/qwen3-8b').letter).toBe('Q');
	expect(markOf('a').hue).not.toBe(markOf('b').hue);
	expect(markOf('…').letter).toBe('?');
});
