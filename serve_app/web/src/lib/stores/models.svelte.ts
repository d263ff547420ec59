import { SvelteMap } from 'svelte/reactivity';
import { pauseAfter } from '#lib/pure/backoff';
import { afterEvent, type ModelEntry } from '#lib/pure/models';
import { ApiError } from '#lib/services/api';
import { ModelsService } from '#lib/services/models';
import { PropsService, type Props } from '#lib/services/props';
import { readLocal, writeLocal } from '#lib/storage/local';
import { serverStore } from './server_store.svelte';
import { Follower, pause } from './while_visible';

const SELECTED = 'manta-model';
const FIRST_WAIT_MS = 1000;
const LAST_WAIT_MS = 30_000;

class ModelsStore {
	list = $state.raw<ModelEntry[]>([]);
	/** The list came at least once. */
	known = $state(false);
	/** Why the list could not be read. */
	error = $state('');
	/** Why the server refused to load, unload, download or delete a model, by its name. */
	refusals = new SvelteMap<string, string>();
	#chosen = $state<string | null>(null);
	/** What an address asked for; see `missing`. */
	#wanted = $state<string | null>(null);
	#props = new SvelteMap<string, Props>();
	#asked = new Set<string>();
	#follower = new Follower((signal) => this.#followUntil(signal));

	constructor() {
		const stored = readLocal(SELECTED);
		if (typeof stored === 'string') this.#chosen = stored;
	}

	/** Those that a chat may have. */
	get chatting(): ModelEntry[] {
		return this.list.filter((model) => model.chats);
	}

	/** What was chosen last, while the server has it; else a loaded one; else the first. */
	get selected(): string | null {
		if (!this.known) return this.#chosen;
		if (this.find(this.#chosen)?.chats) return this.#chosen;
		const models = this.chatting;
		const isUp = (model: ModelEntry) => model.state === 'loaded' || model.state === 'asleep';
		const first = models.find(isUp) ?? models[0];
		return first?.id ?? null;
	}

	find(id: string | null | undefined): ModelEntry | undefined {
		return this.list.find((model) => model.id === id || model.aliases.includes(id ?? ''));
	}

	select(id: string): void {
		if (id !== this.#wanted) this.#wanted = null;
		this.#chosen = id;
		writeLocal(SELECTED, id);
	}

	/** By an address, which may name what the server does not have. */
	ask(id: string): void {
		this.#wanted = id;
		this.select(id);
	}

	/** The model that an address asked for, if no chat may have it. */
	get missing(): string | null {
		const isThere = !this.known || this.#wanted === null || this.find(this.#wanted)?.chats;
		return isThere ? null : this.#wanted;
	}

	async refresh(): Promise<void> {
		try {
			this.#take(await ModelsService.list());
			this.error = '';
		} catch (error) {
			this.error = wordsOf(error);
			throw error;
		}
	}

	/** An adapter is loaded with its model. */
	async load(id: string): Promise<void> {
		const model = this.find(id)?.parent ?? id;
		await this.#ask(model, 'loading', () => ModelsService.load(model));
	}

	async unload(id: string): Promise<void> {
		await this.#ask(id, 'unloading', () => ModelsService.unload(id));
	}

	async remove(id: string): Promise<void> {
		await this.#ask(id, undefined, () => ModelsService.remove(id));
	}

	/** An `ApiError` of the server's, with its words, where it can't. */
	async download(name: string, revision?: string): Promise<void> {
		await ModelsService.download(name, revision);
		await this.refresh();
	}

	/** What the model's server says of it; undefined while it is not known, as before it is loaded. */
	props(id: string | null): Props | undefined {
		if (id === null) return undefined;
		const found = this.#props.get(id);
		if (!found && this.#hasProps(id)) void this.#readProps(id);
		return found;
	}

	/** Follows all models while the page is visible; answers what ends it. */
	follow(): () => void {
		return this.#follower.start();
	}

	async #followUntil(signal: AbortSignal): Promise<void> {
		let wait = FIRST_WAIT_MS;
		while (!signal.aborted) {
			try {
				await this.refresh();
				for await (const event of ModelsService.events(signal)) {
					wait = FIRST_WAIT_MS;
					const list = afterEvent(this.list, event);
					if (list) this.#take(list);
					else await this.refresh();
				}
			} catch {
				// Asked again below; `error` says why to who looks.
			}
			if (!signal.aborted) await pause(wait, signal);
			wait = Math.min(wait * 2, LAST_WAIT_MS);
		}
	}

	#take(list: ModelEntry[]): void {
		for (const model of list) {
			const before = this.list.find((one) => one.id === model.id)?.state;
			if (before !== 'loaded' && model.state === 'loaded') this.#forgetProps(model.id);
			if (model.state === 'loaded') this.refusals.delete(model.id);
		}
		this.list = list;
		this.known = true;
	}

	async #ask(id: string, state: 'loading' | 'unloading' | undefined, request: () => Promise<void>) {
		this.refusals.delete(id);
		const before = this.list.find((model) => model.id === id);
		const put = (entry: ModelEntry) =>
			(this.list = this.list.map((model) => (model.id === id ? entry : model)));
		if (state && before) put({ ...before, state, message: undefined });
		try {
			await request();
		} catch (error) {
			const now = this.list.find((model) => model.id === id);
			if (before && now?.state === state) put(before);
			this.refusals.set(id, wordsOf(error));
			return;
		}
		// It was heard: where the list can't be read now, its events tell.
		await this.refresh().catch(() => undefined);
	}

	#forgetProps(id: string): void {
		this.#props.delete(id);
		this.#asked.delete(id);
	}

	async #readProps(id: string): Promise<void> {
		if (this.#asked.has(id)) return;
		this.#asked.add(id);
		for (let failures = 0; this.#asked.has(id); failures++) {
			try {
				this.#props.set(id, await PropsService.read(id));
				return;
			} catch (error) {
				// Asked again it would say the same.
				if (error instanceof ApiError && [400, 404, 501].includes(error.status)) return;
				await new Promise((done) => setTimeout(done, pauseAfter(failures, Math.random())));
			}
			// Who looks at it asks again once the list was read anew.
			const isThere = serverStore.reachable && !serverStore.needsKey;
			if (!isThere || !this.#hasProps(id)) this.#asked.delete(id);
		}
	}

	#hasProps(id: string): boolean {
		const state = this.find(id)?.state;
		return state === 'loaded' || state === 'asleep';
	}
}

function wordsOf(error: unknown): string {
	return error instanceof ApiError ? error.message : String(error);
}

export const modelsStore = new ModelsStore();
