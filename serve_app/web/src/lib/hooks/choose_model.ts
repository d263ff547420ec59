import { modelsStore } from '#lib/stores/models.svelte';
import { settingsStore } from '#lib/stores/settings.svelte';

/** For new chats from now on. It is loaded now, if the person wants that. */
export function chooseModel(model: string): void {
	modelsStore.select(model);
	const state = modelsStore.find(model)?.state;
	if (settingsStore.values.loadOn === 'select' && (state === 'unloaded' || state === 'failed'))
		void modelsStore.load(model);
}
