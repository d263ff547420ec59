import { goto } from '$app/navigation';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import { pageStore } from '#lib/stores/page.svelte';

/** Shows the empty chat at once: what is typed from now on is for it, while the address changes. */
export async function newChat(): Promise<void> {
	void conversationsStore.open(null);
	pageStore.focusComposer();
	await goto('#/', { reset: false });
}
