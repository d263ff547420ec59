import { modelsStore } from '#lib/stores/models.svelte';

/**
 * `?model=` of the address chooses a model for new chats; `?q=` is in the message box by now (see
 * static/first_box.js). Both are taken once: a reload asks for nothing.
 */
export function takeAskedAddress(): void {
	const asked = new URLSearchParams(location.search);
	const model = asked.get('model');
	if (model) modelsStore.ask(model);
	if (location.search) history.replaceState(history.state, '', location.pathname + location.hash);
}
