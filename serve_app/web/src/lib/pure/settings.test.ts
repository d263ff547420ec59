import { expect, test } from 'vitest';
import { DEFAULTS, extraFieldsError, readSettings, readStored, SETTINGS_VERSION } from './settings';

test('what was stored is read again', () => {
	const values = { temperature: 0.5, stop: ['END'], sendWith: 'mod-enter', showStats: false };
	expect(readStored(JSON.parse(JSON.stringify({ version: SETTINGS_VERSION, values })))).toEqual(
		values
	);
});

test('values of other types, out of limits, or of unknown names are left out', () => {
	const raw = {
		temperature: 3,
		top_p: '0.5',
		sendWith: 'space',
		showStats: 'yes',
		key: 'secret',
		__proto__: { system: 'x' },
		constructor: 1,
		seed: 7
	};
	expect(readSettings(raw)).toEqual({ seed: 7 });
});

test.each([undefined, null, 1, 'x', []])('%s holds no settings', (raw) => {
	expect(readStored(raw)).toEqual({});
	expect(readSettings(raw)).toEqual({});
});

test('the defaults are settings', () => {
	expect(readSettings(DEFAULTS)).toEqual(DEFAULTS);
});

test('extra fields are a JSON object', () => {
	expect(extraFieldsError('')).toBe('');
	expect(extraFieldsError('{"a": 1}')).toBe('');
	expect(extraFieldsError('[1]')).toContain('object');
	expect(extraFieldsError('{')).toContain('not JSON');
});
