import { expect, test } from 'vitest';
import { cleanTitle } from './title';

test.each([
	['Page tables', 'Page tables'],
	['"Page tables."', 'Page tables'],
	['**Title: A trip to Oslo**\n\nIt is about', 'A trip to Oslo'],
	['\n# Rain\n', 'Rain'],
	['<think>They ask', ''],
	['<think>x</think>\nRain', 'Rain'],
	['...', ''],
	['雨の俳句', '雨の俳句']
])('%j is the title %j', (answer, title) => {
	expect(cleanTitle(answer)).toBe(title);
});

test('a long answer is cut', () => {
	expect(cleanTitle('word '.repeat(100)).length).toBeLessThanOrEqual(80);
});
