import { goto } from '$app/navigation';
import { actionOf, type KeyAction } from '#lib/pure/keys';
import { chatStore } from '#lib/stores/chat.svelte';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import { pageStore } from '#lib/stores/page.svelte';
import { settingsStore } from '#lib/stores/settings.svelte';
import { sidebarStore } from '#lib/stores/sidebar.svelte';
import { newChat } from './new_chat';

// One that is being closed is still drawn for a moment.
const OPEN = ['dialog', 'alertdialog', 'menu', 'listbox']
	.map((role) => `[role=${role}]:not([data-state=closed])`)
	.join();

/** For the window's `keydown`: what an open dialog or menu takes is left to it. */
export function onShortcut(event: KeyboardEvent): void {
	if (event.defaultPrevented || event.isComposing) return;
	const chat = conversationsStore.current;
	const inDialog = document.querySelector(OPEN) !== null;
	if (event.key === 'Escape' && chat && !inDialog && !pageStore.pickerOpen) {
		chatStore.stop(chat.id);
		return;
	}
	const action = actionOf(event);
	if (!action || (inDialog && action !== 'sidebar')) return;
	if (!chat && (action === 'rename' || action === 'delete')) return;
	event.preventDefault();
	ACTIONS[action]();
}

const ACTIONS: Record<KeyAction, () => void> = {
	search: () => void sidebarStore.focusSearch(),
	sidebar: () => sidebarStore.toggle(),
	new: () => void newChat(),
	rename: () => {
		const chat = conversationsStore.current;
		if (chat) sidebarStore.rename(chat.id);
	},
	delete: () => {
		sidebarStore.removing = conversationsStore.current;
	},
	previous: () => step(-1),
	next: () => step(1),
	model: () => {
		pageStore.pickerOpen = true;
	},
	settings: () => settingsStore.show(),
	keys: () => {
		pageStore.keysOpen = true;
	}
};

function step(by: -1 | 1): void {
	const { chats, current } = conversationsStore;
	const index = chats.findIndex((chat) => chat.id === current?.id);
	const next = index === -1 ? chats[0] : chats[index + by];
	if (next) void goto(`#/chat/${next.id}`);
}
