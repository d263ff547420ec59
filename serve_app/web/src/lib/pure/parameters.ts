/** Sampling from many hands: the chat's own, the person's, the operator's, the model's. */
import type { Sampling } from '#lib/types';

/** `server`: the operator's or the model's. */
export type Origin = 'custom' | 'server';

export interface Effective {
	/** What a request says; what is absent here, the server fills in itself. */
	sampling: Sampling;
	/** What holds, of the server's too as far as it is known. */
	shown: Sampling;
	origins: Record<keyof Sampling, Origin>;
}

export const SAMPLING_NAMES = [
	'temperature',
	'top_p',
	'top_k',
	'min_p',
	'max_tokens',
	'frequency_penalty',
	'presence_penalty',
	'repetition_penalty',
	'seed',
	'stop',
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
] as const satisfies readonly (keyof Sampling)[];

const NAMES_IN_PROPS: Partial<Record<keyof Sampling, string>> = {
	repetition_penalty: 'repeat_penalty'
};
/** By which llama-server's `/props` says "any". */
const RANDOM_SEED = 4294967295;

/** `default_generation_settings.params` of `/props`; what has no limit or no fixed value is absent. */
export function serverSampling(params: Record<string, unknown>): Sampling {
	const found: Record<string, unknown> = {};
	for (const name of SAMPLING_NAMES) {
		const value = params[NAMES_IN_PROPS[name] ?? name];
		if (value === undefined || value === null) continue;
		if (name === 'seed' && value === RANDOM_SEED) continue;
		if (name === 'max_tokens' && Number(value) < 0) continue;
		if (name === 'stop' ? !Array.isArray(value) : typeof value !== 'number') continue;
		found[name] = value;
	}
	return found;
}

export function samplingOf(values: Partial<Sampling>): Sampling {
	const named = SAMPLING_NAMES.map((name) => [name, values[name]] as const);
	return Object.fromEntries(named.filter(([, value]) => value !== undefined));
}

/** The earlier of `chat`, `own` and `operator` counts; `model` needs not be sent. */
export function mergeSampling(layers: {
	chat?: Sampling;
	own: Sampling;
	operator?: Sampling;
	model?: Sampling;
}): Effective {
	const custom = { ...samplingOf(layers.own), ...samplingOf(layers.chat ?? {}) };
	const sampling = { ...samplingOf(layers.operator ?? {}), ...custom };
	const origins = Object.fromEntries(
		SAMPLING_NAMES.map((name) => [name, custom[name] === undefined ? 'server' : 'custom'])
	) as Record<keyof Sampling, Origin>;
	return { sampling, shown: { ...layers.model, ...sampling }, origins };
}
