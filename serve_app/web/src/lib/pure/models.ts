/** `GET /models` and the events of `/models/sse`, as the page has them. */

export type ModelState =
	'loaded' | 'loading' | 'asleep' | 'unloaded' | 'unloading' | 'failed' | 'downloading';

export interface ModelEntry {
	id: string;
	state: ModelState;
	/** 0 to 1, with the name of what is done. */
	progress?: { stage: string; value: number };
	/** Why it failed, or what it waits for: the server's words. */
	message?: string;
	/** Tokens. */
	n_ctx?: number;
	replicas?: number;
	/** What it reads beside text; undefined: only a loaded model says it. */
	modalities?: { image: boolean; audio: boolean };
	/** Questions that it answers well, for a new chat. */
	starters: string[];
	/** It answers chats, or is not loaded, so that the server does not say it. */
	chats: boolean;
	/** Downloaded by the server, so that it may be deleted. */
	removable: boolean;
	aliases: string[];
	/** Of an adapter: its model, whose state it has. */
	parent?: string;
}

const STATES: Record<string, ModelState> = {
	ready: 'loaded',
	loaded: 'loaded',
	loading: 'loading',
	sleeping: 'asleep',
	unloading: 'unloading',
	unloaded: 'unloaded',
	failed: 'failed',
	downloading: 'downloading'
};

type Fields = Record<string, unknown>;

/** What a status says, of a list (`value`) or an event (`status`). */
export function readStatus(status: Fields): Pick<ModelEntry, 'state' | 'progress' | 'message'> {
	const word = String(status.state ?? status.value ?? status.status ?? '');
	const state = status.failed === true ? 'failed' : (STATES[word] ?? 'unloaded');
	const progress = status.progress as { current?: unknown; value?: unknown } | undefined;
	return {
		state,
		...(typeof progress?.value === 'number' && {
			progress: { stage: String(progress.current ?? ''), value: progress.value }
		}),
		...(typeof status.message === 'string' && status.message && { message: status.message })
	};
}

export function readModel(raw: Fields): ModelEntry {
	const meta = (raw.meta ?? {}) as Fields;
	const inputs = (raw.architecture as { input_modalities?: string[] } | undefined)
		?.input_modalities;
	const tasks = (raw.tasks ?? ['generate']) as string[];
	const status = (raw.status ?? {}) as Fields;
	const n_ctx = meta.n_ctx ?? raw.max_model_len;
	const replicas = raw.replicas ?? status.replicas;
	const id = String(raw.id);
	return {
		id,
		...readStatus(status),
		...(typeof n_ctx === 'number' && { n_ctx }),
		...(typeof replicas === 'number' && { replicas }),
		...(inputs && {
			modalities: { image: inputs.includes('image'), audio: inputs.includes('audio') }
		}),
		starters: (raw.starters ?? []) as string[],
		chats: tasks.includes('generate'),
		removable: raw.can_remove === true,
		aliases: ((raw.aliases ?? []) as string[]).filter((alias) => alias !== id),
		...(typeof raw.parent === 'string' && { parent: raw.parent })
	};
}

export interface ModelEvent {
	model: string;
	event: string;
	data: Fields;
}

/** The list after an event; `null`: it has to be read anew. */
export function afterEvent(list: ModelEntry[], { model, event, data }: ModelEvent) {
	const isOf = (entry: ModelEntry) => entry.id === model || entry.parent === model;
	if (event === 'model_remove') return list.filter((entry) => !isOf(entry));
	if (event === 'models_reload') return null;
	const known = list.find((entry) => entry.id === model);
	if (!known) return null;
	const status = readStatus(data);
	if (status.state === 'loaded' && known.state !== 'loaded') return null; // its context is known now
	return list.map((entry) => {
		const { state: _s, progress: _p, message: _m, ...rest } = entry;
		return isOf(entry) ? { ...rest, ...status } : entry;
	});
}

export const STATE_WORDS: Record<ModelState, string> = {
	loaded: 'loaded',
	loading: 'loading',
	asleep: 'asleep',
	unloaded: 'not loaded',
	unloading: 'unloading',
	failed: 'failed',
	downloading: 'downloading'
};

/** "loaded, 32k tokens of context, text and image, 2 replicas": an option's description. */
export function describeModel(model: ModelEntry): string {
	const percent = model.progress ? ` ${Math.round(model.progress.value * 100)} %` : '';
	const state = `${STATE_WORDS[model.state]}${percent}`;
	const parts = [
		model.state === 'failed' && model.message ? `${state}: ${model.message}` : state,
		model.n_ctx && `${shortCount(model.n_ctx)} tokens of context`,
		describeInputs(model),
		model.replicas !== undefined && model.replicas > 1 && `${model.replicas} replicas`
	];
	return parts.filter(Boolean).join('; ');
}

/** "text, image": what it reads. */
export function describeInputs({ modalities }: ModelEntry): string {
	if (!modalities) return 'takes: known when loaded';
	const { image, audio } = modalities;
	return ['text', image && 'image', audio && 'audio'].filter(Boolean).join(', ');
}

/** 2048: "2k"; 131072: "128k"; 1000: "1,000". */
export function shortCount(count: number): string {
	if (count >= 1024 && count % 1024 === 0) return `${count / 1024}k`;
	return count >= 10000 ? `${Math.round(count / 1000)}k` : count.toLocaleString('en');
}

/** Loaded ones first, then those on the way, asleep, not loaded, failed; each by name. */
export function groupModels(
	list: ModelEntry[],
	search: string
): { title: string; models: ModelEntry[] }[] {
	const words = search.toLowerCase().split(/\s+/).filter(Boolean);
	const found = list.filter((model) => {
		const text = [model.id, ...model.aliases].join(' ').toLowerCase();
		return words.every((word) => text.includes(word));
	});
	const sorted = found.toSorted((a, b) => a.id.localeCompare(b.id));
	const groups: [string, ModelState[]][] = [
		['Loaded', ['loaded']],
		['Loading', ['loading', 'downloading']],
		['Not loaded', ['asleep', 'unloaded', 'unloading']],
		['Failed', ['failed']]
	];
	return groups
		.map(([title, states]) => ({
			title,
			models: sorted.filter((model) => states.includes(model.state))
		}))
		.filter((group) => group.models.length > 0);
}
