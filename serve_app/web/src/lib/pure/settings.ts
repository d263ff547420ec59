/** The settings of the page: their names, what holds without a choice, and how stored ones are read. */
import { readPreset } from './records';
import type { Preset, ReasoningEffort, Sampling } from '#lib/types';

export interface Settings extends Sampling {
	/** The system message of new chats. */
	system: string;
	sendWith: 'enter' | 'mod-enter';
	titleBy: 'first_line' | 'model';
	loadOn: 'select' | 'send';
	effort?: ReasoningEffort;
	/** Tokens. */
	budget?: number;
	/** Thoughts are open while they are written. */
	showThoughts: boolean;
	showStats: boolean;
	autoScroll: boolean;
	wrapCode: boolean;
	/** The model may call the server's tools. */
	useTools: boolean;
	maxToolRounds: number;
	pdfAs: 'text' | 'images';
	/** Characters from which a pasted text becomes a file; 0: never. */
	pasteAsFile: number;
	/** On signing out. */
	keepChats: boolean;
	/** Where the model's template keeps them. */
	sendThoughts: boolean;
	/** Fields of each request, as JSON. */
	extraFields: string;
	presets: Preset[];
}

export type SettingName = keyof Settings;

export const DEFAULTS: Settings = {
	system: '',
	sendWith: 'enter',
	titleBy: 'first_line',
	loadOn: 'select',
	showThoughts: true,
	showStats: true,
	autoScroll: true,
	wrapCode: false,
	useTools: false,
	maxToolRounds: 10,
	pdfAs: 'text',
	pasteAsFile: 4000,
	keepChats: false,
	sendThoughts: false,
	extraFields: '',
	presets: []
};

export const MAX_PRESETS = 100;

type Check = (value: unknown) => boolean;

const isBoolean: Check = (value) => typeof value === 'boolean';
const isText: Check = (value) => typeof value === 'string';
const between =
	(min: number, max: number): Check =>
	(value) =>
		typeof value === 'number' && value >= min && value <= max;
const whole =
	(min: number, max = Number.MAX_SAFE_INTEGER): Check =>
	(value) =>
		Number.isInteger(value) && between(min, max)(value);
const oneOf =
	(...values: string[]): Check =>
	(value) =>
		values.includes(value as string);
const isTexts: Check = (value) =>
	Array.isArray(value) && value.length <= 16 && value.every((one) => isText(one) && one !== '');

const CHECKS: Record<SettingName, Check> = {
	system: isText,
	sendWith: oneOf('enter', 'mod-enter'),
	titleBy: oneOf('first_line', 'model'),
	loadOn: oneOf('select', 'send'),
	effort: oneOf('none', 'minimal', 'low', 'medium', 'high'),
	budget: whole(0),
	showThoughts: isBoolean,
	showStats: isBoolean,
	autoScroll: isBoolean,
	wrapCode: isBoolean,
	useTools: isBoolean,
	maxToolRounds: whole(1, 100),
	pdfAs: oneOf('text', 'images'),
	pasteAsFile: whole(0),
	keepChats: isBoolean,
	sendThoughts: isBoolean,
	extraFields: (value) => isText(value) && extraFieldsError(value as string) === '',
	temperature: between(0, 2),
	top_p: between(0, 1),
	top_k: whole(0),
	min_p: between(0, 1),
	max_tokens: whole(1),
	frequency_penalty: between(-2, 2),
	presence_penalty: between(-2, 2),
	repetition_penalty: between(0.01, 2),
	seed: whole(0),
	stop: isTexts,
	typical_p: between(0, 1),
	top_n_sigma: between(-1, 100),
	dynatemp_range: between(0, 2),
	dynatemp_exponent: between(0, 10),
	xtc_probability: between(0, 1),
	xtc_threshold: between(0, 1),
	dry_multiplier: between(0, 10),
	dry_base: between(1, 10),
	dry_allowed_length: whole(0),
	repeat_last_n: whole(-1),
	presets: (value) =>
		Array.isArray(value) && value.length <= MAX_PRESETS && value.every((one) => readPreset(one))
};

/** What of an object of a stranger (LocalStorage, a file, the server's defaults) are settings. */
export function readSettings(raw: unknown): Partial<Settings> {
	if (typeof raw !== 'object' || raw === null) return {};
	const entries = Object.entries(raw).filter(
		([name, value]) => Object.hasOwn(CHECKS, name) && CHECKS[name as SettingName](value)
	);
	return Object.fromEntries(entries);
}

export const SETTINGS_VERSION = 1;

export interface StoredSettings {
	version: number;
	values: Partial<Settings>;
}

/** Migrations go here, from each version to the next. */
export function readStored(raw: unknown): Partial<Settings> {
	if (typeof raw !== 'object' || raw === null || !('values' in raw)) return {};
	return readSettings(raw.values);
}

/** Why `text` can't be added to a request; "" where it can. */
export function extraFieldsError(text: string): string {
	if (text.trim() === '') return '';
	try {
		const value: unknown = JSON.parse(text);
		if (typeof value === 'object' && value !== null && !Array.isArray(value)) return '';
		return 'This must be a JSON object, such as {"logit_bias": {}}.';
	} catch {
		return 'This is not JSON.';
	}
}
