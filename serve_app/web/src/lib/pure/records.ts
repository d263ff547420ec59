/**
 * Chats and messages as they come from outside: from the server or from a file. What has not their
 * shape is `null`; fields that nobody knows are left out.
 */
import { isId } from './ids';
import { cut } from './well_formed';
import type {
	Attachment,
	ChatFields,
	ChatSettings,
	Message,
	MessageError,
	Preset,
	Sampling,
	Timings,
	ToolCall,
	Usage
} from '#lib/types';

type Raw = Record<string, unknown>;

const ROLES = ['system', 'user', 'assistant', 'tool'] as const;
const TITLES = ['first_line', 'model', 'person'] as const;
const ENDS = ['stop', 'length', 'tool_calls', 'stopped', 'interrupted', 'error'] as const;
const EFFORTS = ['none', 'minimal', 'low', 'medium', 'high'] as const;
const FORMS = ['text', 'images', 'raw'] as const;
const NUMBERS = [
	'temperature',
	'top_p',
	'top_k',
	'min_p',
	'max_tokens',
	'frequency_penalty',
	'presence_penalty',
	'repetition_penalty',
	'seed',
	'typical_p',
	'top_n_sigma',
	'dynatemp_range',
	'dynatemp_exponent',
	'xtc_probability',
	'xtc_threshold',
	'dry_multiplier',
	'dry_base',
	'dry_allowed_length',
	'repeat_last_n'
] as const;
const MAX_TITLE = 1000;
const MAX_PRESET_NAME = 60;

export function readFields(raw: unknown): ChatFields | null {
	if (!isRaw(raw) || !isTime(raw.created_at)) return null;
	if (!isText(raw.title)) return null;
	return {
		title: cut(raw.title, MAX_TITLE),
		title_by: oneOf(raw.title_by, TITLES) ?? 'first_line',
		leaf: isId(raw.leaf) ? raw.leaf : null,
		pinned: raw.pinned === true,
		model: isText(raw.model) ? raw.model : null,
		system: isText(raw.system) ? raw.system : '',
		settings: readSettings(raw.settings),
		...(isId(raw.forked_from) && { forked_from: raw.forked_from }),
		created_at: raw.created_at,
		updated_at: isTime(raw.updated_at) ? raw.updated_at : raw.created_at
	};
}

export function readPreset(raw: unknown): Preset | null {
	if (!isRaw(raw) || !isText(raw.name) || raw.name.trim() === '') return null;
	const { sampling, thinking } = readSettings(raw);
	const system = isText(raw.system) ? raw.system : '';
	return { name: cut(raw.name, MAX_PRESET_NAME), system, sampling, thinking };
}

export function readMessage(raw: unknown): Message | null {
	if (!isRaw(raw) || !isId(raw.id) || !isId(raw.chat)) return null;
	const role = oneOf(raw.role, ROLES);
	if (!role || !isText(raw.text) || !isTime(raw.created_at)) return null;
	if (raw.parent !== null && raw.parent !== undefined && !isId(raw.parent)) return null;
	if (raw.parent === raw.id) return null;
	const finish = oneOf(raw.finish, ENDS);
	const usage = numbers<Usage>(raw.usage, ['prompt_tokens', 'completion_tokens', 'cached_tokens']);
	const error = readError(raw.error);
	return {
		id: raw.id,
		chat: raw.chat,
		parent: raw.parent ?? null,
		role,
		text: raw.text,
		...(isText(raw.reasoning) && { reasoning: raw.reasoning }),
		...(Array.isArray(raw.tool_calls) && { tool_calls: all(raw.tool_calls, readCall) }),
		...(isText(raw.tool_call_id) && { tool_call_id: raw.tool_call_id }),
		attachments: all(raw.attachments, readAttachment),
		...(isText(raw.model) && { model: raw.model }),
		...(isRaw(raw.params) && { params: readSampling(raw.params) }),
		...(usage && { usage }),
		...readTimings(raw.timings),
		...(finish && { finish }),
		...(error && { error }),
		...(isText(raw.completion_id) && { completion_id: raw.completion_id }),
		created_at: raw.created_at,
		revision: null,
		state: 'done'
	};
}

function readSettings(raw: unknown): ChatSettings {
	if (!isRaw(raw)) return { sampling: {}, thinking: {} };
	const thinking = isRaw(raw.thinking) ? raw.thinking : {};
	const effort = oneOf(thinking.effort, EFFORTS);
	return {
		sampling: readSampling(raw.sampling),
		thinking: {
			...(effort && { effort }),
			...(isNumber(thinking.budget) && { budget: thinking.budget })
		},
		...(Array.isArray(raw.tools) && { tools: raw.tools.filter(isText) }),
		...(isId(raw.from) && { from: raw.from })
	};
}

function readSampling(raw: unknown): Sampling {
	if (!isRaw(raw)) return {};
	const sampling: Sampling = {};
	for (const name of NUMBERS) {
		const value = raw[name];
		if (isNumber(value)) sampling[name] = value;
	}
	if (Array.isArray(raw.stop)) sampling.stop = raw.stop.filter(isText);
	return sampling;
}

function readCall(raw: unknown): ToolCall | null {
	if (!isRaw(raw) || !isText(raw.id) || !isText(raw.name) || !isText(raw.arguments)) return null;
	return { id: raw.id, name: raw.name, arguments: raw.arguments };
}

function readAttachment(raw: unknown): Attachment | null {
	if (!isRaw(raw) || !isText(raw.name) || !isDigest(raw.sha256)) return null;
	const as = oneOf(raw.as, FORMS);
	if (!as || !isText(raw.type) || !isNumber(raw.size)) return null;
	return { name: raw.name, type: raw.type, size: raw.size, sha256: raw.sha256, as };
}

function readError(raw: unknown): MessageError | null {
	if (!isRaw(raw) || !isText(raw.title) || !isText(raw.message)) return null;
	return {
		title: raw.title,
		message: raw.message,
		...(isNumber(raw.status) && { status: raw.status }),
		...(isText(raw.code) && { code: raw.code }),
		...(isText(raw.request_id) && { request_id: raw.request_id })
	};
}

function readTimings(raw: unknown): { timings?: Timings } {
	const names = ['prompt_ms', 'predicted_n', 'predicted_ms', 'predicted_per_second'] as const;
	const timings = numbers<Timings>(raw, names);
	if (!timings) return {};
	const thought = (raw as Raw).thought_ms;
	return { timings: { ...timings, ...(isNumber(thought) && { thought_ms: thought }) } };
}

function numbers<T>(raw: unknown, names: readonly (keyof T & string)[]): T | null {
	if (!isRaw(raw) || !names.every((name) => isNumber(raw[name]))) return null;
	return Object.fromEntries(names.map((name) => [name, raw[name]])) as T;
}

function all<T>(raw: unknown, read: (one: unknown) => T | null): T[] {
	if (!Array.isArray(raw)) return [];
	return raw.map(read).filter((one): one is T & {} => one !== null);
}

function oneOf<T extends string>(value: unknown, values: readonly T[]): T | undefined {
	return values.find((one) => one === value);
}

export function isRaw(value: unknown): value is Raw {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isText(value: unknown): value is string {
	return typeof value === 'string';
}

function isNumber(value: unknown): value is number {
	return typeof value === 'number' && Number.isFinite(value);
}

export function isTime(value: unknown): value is number {
	return Number.isSafeInteger(value) && (value as number) >= 0;
}

export function isDigest(value: unknown): value is string {
	return typeof value === 'string' && /^[0-9a-f]{64}$/.test(value);
}
