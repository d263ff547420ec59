import { setMode, userPrefersMode } from 'mode-watcher';
import { mergeSampling, samplingOf, type Effective } from '#lib/pure/parameters';
import {
	DEFAULTS,
	readSettings,
	readStored,
	SETTINGS_VERSION,
	type SettingName,
	type Settings
} from '#lib/pure/settings';
import { onLocalChange, readLocal, writeLocal } from '#lib/storage/local';
import type { Chat, ThinkingChoice } from '#lib/types';
import { modelsStore } from './models.svelte';
import { serverStore } from './server_store.svelte';

const NAME = 'manta-settings';

export type Theme = 'system' | 'light' | 'dark';

export const SECTIONS = ['general', 'sampling', 'display', 'tools', 'data', 'developer'] as const;
export type Section = (typeof SECTIONS)[number];

class SettingsStore {
	/** Only what the person chose; a value that is absent is the server's. */
	#own = $state.raw<Partial<Settings>>({});
	/** The section of the settings that is open. */
	section = $state<Section | null>(null);

	readonly operators = $derived(readSettings(serverStore.owner?.defaults));
	readonly values: Settings = $derived({ ...DEFAULTS, ...this.operators, ...this.#own });

	constructor() {
		this.#read();
		onLocalChange(NAME, () => this.#read());
	}

	set<Name extends SettingName>(name: Name, value: Settings[Name]): void {
		if (value === undefined) this.reset(name);
		else this.#write({ ...this.#own, [name]: value });
	}

	reset(name: SettingName): void {
		const { [name]: _gone, ...rest } = this.#own;
		this.#write(rest);
	}

	/** Answers what brings all back. */
	resetAll(): () => void {
		const { theme } = this;
		const own = this.#own;
		this.#write({});
		this.theme = 'system';
		return () => {
			this.#write(own);
			this.theme = theme;
		};
	}

	isOwn(name: SettingName): boolean {
		return this.#own[name] !== undefined;
	}

	/** The chat's own values before the person's, those before the operator's, those before the model's. */
	effective(chat: Chat | null, model: string | null): Effective & { thinking: ThinkingChoice } {
		const { effort, budget } = this.values;
		const merged = mergeSampling({
			chat: chat?.settings.sampling,
			own: samplingOf(this.#own),
			operator: samplingOf(this.operators),
			model: modelsStore.props(model)?.sampling
		});
		const chosen = chat?.settings.thinking ?? {};
		return {
			...merged,
			thinking: {
				...(effort !== undefined && { effort }),
				...(budget !== undefined && { budget }),
				...chosen
			}
		};
	}

	get theme(): Theme {
		return userPrefersMode.current;
	}

	set theme(theme: Theme) {
		setMode(theme);
	}

	show(section: Section = 'general'): void {
		this.section = section;
	}

	/** The settings as a file; the key is none of them. */
	export(): string {
		const stored = { version: SETTINGS_VERSION, values: this.#own, theme: this.theme };
		return JSON.stringify(stored, null, '\t');
	}

	/** How many were taken; what is no setting is left out. */
	import(text: string): number {
		const raw: unknown = JSON.parse(text);
		const values = readStored(raw);
		this.#write({ ...this.#own, ...values });
		const theme = (raw as { theme?: unknown }).theme;
		if (theme === 'light' || theme === 'dark' || theme === 'system') this.theme = theme;
		return Object.keys(values).length;
	}

	#read(): void {
		this.#own = readStored(readLocal(NAME));
	}

	#write(values: Partial<Settings>): void {
		this.#own = values;
		writeLocal(NAME, { version: SETTINGS_VERSION, values });
	}
}

export const settingsStore = new SettingsStore();
