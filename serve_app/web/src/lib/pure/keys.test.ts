import { expect, test } from 'vitest';
import { actionOf, KEYS } from './keys';

const NONE = { ctrlKey: false, metaKey: false, shiftKey: false, altKey: false };

test('each key has one action, with Ctrl and with Command', () => {
	for (const { key, shift, action } of KEYS) {
		const pressed = { ...NONE, key: shift ? key.toUpperCase() : key, shiftKey: shift };
		expect(actionOf({ ...pressed, ctrlKey: true })).toBe(action);
		expect(actionOf({ ...pressed, metaKey: true })).toBe(action);
		expect(actionOf(pressed)).toBeUndefined();
		expect(actionOf({ ...pressed, ctrlKey: true, altKey: true })).toBeUndefined();
	}
});

test('a key without its Shift does nothing', () => {
	expect(actionOf({ ...NONE, ctrlKey: true, key: 'o' })).toBeUndefined();
	expect(actionOf({ ...NONE, ctrlKey: true, shiftKey: true, key: 'K' })).toBeUndefined();
});

test('the slash may need Shift', () => {
	expect(actionOf({ ...NONE, ctrlKey: true, shiftKey: true, key: '/' })).toBe('keys');
});
