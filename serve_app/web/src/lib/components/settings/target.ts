import { getContext, setContext } from 'svelte';
import type { SettingName, Settings } from '#lib/pure/settings';
import { settingsStore } from '#lib/stores/settings.svelte';

/** Whose values the fields show and change: the person's, or those of one chat. */
export interface Target {
	/** Undefined: it has none of its own. */
	value<Name extends SettingName>(name: Name): Settings[Name] | undefined;
	set<Name extends SettingName>(name: Name, value: Settings[Name]): void;
	reset(name: SettingName): void;
}

const KEY = Symbol('settings');

const own: Target = {
	value: (name) => (settingsStore.isOwn(name) ? settingsStore.values[name] : undefined),
	set: (name, value) => settingsStore.set(name, value),
	reset: (name) => settingsStore.reset(name)
};

export function setTarget(target: Target): void {
	setContext(KEY, target);
}

export function getTarget(): Target {
	return getContext<Target | undefined>(KEY) ?? own;
}
