import { tick } from 'svelte';
import { MediaQuery } from 'svelte/reactivity';
import { readLocal, writeLocal } from '#lib/storage/local';
import type { StoredChat } from '#lib/types';

const NAME = 'manta-sidebar';

/** The list of chats: a column on wide screens, a drawer on narrow ones. */
class SidebarStore {
	readonly #wide = new MediaQuery('width >= 48rem', true);
	#column = $state(readLocal(NAME) !== 'closed');
	#drawer = $state(false);
	/** The id of the chat whose title is being written. */
	renaming = $state<string | null>(null);
	/** The chat of which is asked whether it shall be deleted. */
	removing = $state.raw<StoredChat | null>(null);
	/** The box of the search, while it is on the screen. */
	search: HTMLInputElement | null = null;

	get isWide(): boolean {
		return this.#wide.current;
	}

	get isOpen(): boolean {
		return this.isWide ? this.#column : this.#drawer;
	}

	set isOpen(open: boolean) {
		if (!this.isWide) this.#drawer = open;
		else {
			this.#column = open;
			writeLocal(NAME, open ? 'open' : 'closed');
		}
	}

	toggle(): void {
		this.isOpen = !this.isOpen;
	}

	/** After something was chosen a drawer is in the way. */
	closeDrawer(): void {
		this.#drawer = false;
	}

	async focusSearch(): Promise<void> {
		this.isOpen = true;
		await tick();
		this.search?.select();
		this.search?.focus();
	}

	rename(id: string): void {
		this.isOpen = true;
		this.renaming = id;
	}
}

export const sidebarStore = new SidebarStore();
