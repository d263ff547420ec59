import { untrack } from 'svelte';
import { pauseAfter } from '#lib/pure/backoff';
import { digestOf } from '#lib/pure/digest';
import { newId } from '#lib/pure/ids';
import { describeSync } from '#lib/pure/sync_words';
import { ApiError } from '#lib/services/api';
import type { DatabaseService } from '#lib/services/database';
import { asLeader } from '#lib/services/leader';
import { SyncService } from '#lib/services/sync';
import { SyncDatabase, type Touched } from '#lib/services/sync_database';
import { SyncLoop } from '#lib/services/sync_loop';
import type { TabMessage } from '#lib/services/tabs';
import { readLocal, removeLocal, writeLocal } from '#lib/storage/local';
import { conversationsStore } from './conversations.svelte';
import { serverStore } from './server_store.svelte';
import { settingsStore } from './settings.svelte';

const NAME = 'manta-owner';
/** A tab that nobody looked at for so long is quiet. */
const QUIET_AFTER_MS = 5 * 60_000;
/** How long signing out waits for what is still to be sent. */
const LAST_PUSH_MS = 5000;

/** Files that nothing needs any more are looked for once the page has begun. */
const SWEEP_AFTER_MS = 60_000;

/** Whose chats are shown, and whether the server keeps them. */
interface Identity {
	owner: string;
	store: 'server' | 'none';
	/** It is known by a key: without one its chats are not shown. */
	keyed: boolean;
}

/** What belongs to the database that is open. */
interface Session {
	identity: Identity;
	database: DatabaseService;
	store: SyncDatabase;
	service: SyncService;
	loop: SyncLoop;
	/** Of another tab, while that one talks to the server. */
	heard: { refusal: string | null; isRead: boolean };
	leader: AbortController | null;
	isLeader: boolean;
}

/** Keeps what this browser has and what the server has the same. */
class SyncStore {
	readonly #tab = newId();
	#followers = 0;
	#end: (() => void) | null = null;
	#session: Session | null = null;
	/** Databases are opened one after the other. */
	#turn: Promise<unknown> = Promise.resolve();
	#quiet: ReturnType<typeof setTimeout> | undefined;
	#again: ReturnType<typeof setTimeout> | undefined;
	#asked = 0;
	#remembered = $state.raw(readIdentity());

	/** No `$derived`: one that was null while a key was asked for told its effect of nothing after it. */
	get #identity(): Identity | null {
		if (serverStore.needsKey) return null;
		const me = serverStore.owner;
		if (me) {
			const key = serverStore.hasKey ? serverStore.key() : null;
			const owner = me.owner || (key ? digestOf(key) : '');
			return { owner, store: me.store, keyed: key !== null };
		}
		// Until the server says who we are, or while it is away: who we were.
		const before = this.#remembered;
		if (before && (!before.keyed || serverStore.hasKey)) return before;
		// Who has no key and is let in is everybody. Whom a key means only the server can say.
		const isEverybody = serverStore.known && !serverStore.hasKey;
		return isEverybody ? { owner: '', store: 'server', keyed: false } : null;
	}

	/**
	 * Whose chats are shown follows who is signed in; answers what ends that. To be called by what stays
	 * as long as the page: what it watches ends with the component that called it first.
	 */
	follow(): () => void {
		if (this.#followers++ === 0) this.#end = this.#begin();
		return () => {
			if (--this.#followers === 0) this.#end?.();
		};
	}

	#begin(): () => void {
		const seen = () => this.#seen();
		const refresh = () => this.#session?.loop.refresh();
		document.addEventListener('visibilitychange', seen);
		addEventListener('online', refresh);
		addEventListener('offline', refresh);
		addEventListener('pagehide', this.#flush);
		serverStore.onsignout = () => this.#leave();
		if (document.visibilityState === 'hidden') seen();
		const end = $effect.root(() => {
			$effect(() => {
				const identity = this.#identity;
				const key = JSON.stringify(identity);
				untrack(() => this.#switch(identity, key));
			});
			$effect(() => {
				const { reachable, owner } = serverStore;
				untrack(() => this.#reach(reachable && owner !== undefined));
			});
			$effect(() => {
				isUnknown();
				untrack(() => this.#askAgain());
			});
		});
		return () => {
			end();
			document.removeEventListener('visibilitychange', seen);
			removeEventListener('online', refresh);
			removeEventListener('offline', refresh);
			removeEventListener('pagehide', this.#flush);
			clearTimeout(this.#again);
			this.#switch(null, 'null');
		};
	}

	readonly #flush = () => void conversationsStore.flush();

	#shown = '';

	#switch(identity: Identity | null, key: string): void {
		if (key === this.#shown) return;
		const before = this.#session?.identity ?? null;
		this.#shown = key;
		if (serverStore.owner && identity) this.#remember(identity);
		if (isSame(before, identity)) return;
		const opened = this.#turn.then(async () => {
			// Meanwhile it may have become another again.
			if (key !== this.#shown) return;
			this.#stop();
			if (identity) await this.#open(identity);
			else await conversationsStore.close();
		});
		// Whatever went wrong, the next one's turn comes.
		this.#turn = opened.catch((error: unknown) => {
			conversationsStore.failure = error instanceof Error ? error.message : String(error);
		});
	}

	#remember(identity: Identity): void {
		this.#remembered = identity;
		writeLocal(NAME, identity);
	}

	async #open(identity: Identity): Promise<void> {
		const server = location.origin + location.pathname;
		const database = await conversationsStore.use(identity.owner, server);
		if (!database) return this.#show();
		const store = new SyncDatabase(database.db);
		const service = new SyncService(store, (touched) => {
			loop.push();
			void this.#changed(touched);
		});
		const loop: SyncLoop = new SyncLoop(service, () => void this.#stepped());
		const heard = { refusal: null, isRead: false };
		const session = { identity, database, store, service, loop, heard };
		this.#session = { ...session, leader: null, isLeader: false };
		conversationsStore.onchange = () => {
			loop.push();
			void this.#show();
		};
		conversationsStore.fetchFile = (sha256) => this.#fetchFile(sha256);
		conversationsStore.tabs?.listen((message) => this.#heard(message));
		conversationsStore.tabs?.tell({ kind: 'who-syncs' });
		this.#lead();
		setTimeout(() => {
			if (this.#session?.database !== database) return;
			// What fails is done on another day.
			void database.sweepFiles(Date.now()).catch(() => undefined);
		}, SWEEP_AFTER_MS);
		await this.#show();
	}

	#stop(): void {
		this.#session?.leader?.abort();
		this.#session = null;
		conversationsStore.onchange = null;
		conversationsStore.fetchFile = null;
	}

	/** Talks to the server once no other tab does, and once the server said whose chats it means. */
	#lead(): void {
		const session = this.#session;
		if (!session || session.leader || session.identity.store !== 'server') return;
		if (!serverStore.owner || !isSame(session.identity, this.#identity)) return;
		const leader = new AbortController();
		session.leader = leader;
		const work = async (signal: AbortSignal) => {
			session.isLeader = true;
			try {
				await session.loop.run(signal);
			} finally {
				session.isLeader = false;
			}
		};
		void asLeader(session.database.db, this.#tab, leader.signal, work).catch((error: unknown) => {
			session.loop.failure = error instanceof Error ? error.message : String(error);
			void this.#show();
		});
	}

	#seen(): void {
		clearTimeout(this.#quiet);
		const isHidden = document.visibilityState === 'hidden';
		if (isHidden) {
			void conversationsStore.flush();
			this.#quiet = setTimeout(() => this.#rest(), QUIET_AFTER_MS);
			return;
		}
		this.#lead();
		this.#session?.loop.refresh();
		if (!serverStore.reachable || isUnknown())
			void serverStore.start().then(() => this.#askAgain());
	}

	/** Another tab may talk to the server now, and this one is silent. */
	#rest(): void {
		serverStore.rest();
		clearTimeout(this.#again);
		const session = this.#session;
		session?.leader?.abort();
		if (session) session.leader = null;
	}

	#reach(isReached: boolean): void {
		if (isReached) {
			this.#lead();
			this.#session?.loop.wake();
		}
		void this.#show();
	}

	#askAgain(): void {
		clearTimeout(this.#again);
		if (!isUnknown()) this.#asked = 0;
		else if (serverStore.reachable)
			this.#again = setTimeout(
				() => void serverStore.start().then(() => this.#askAgain()),
				pauseAfter(this.#asked++, Math.random())
			);
	}

	/** The server had news. */
	async #changed({ chats, messages }: Touched): Promise<void> {
		if (chats.size + messages.size === 0) return;
		const changed = { chats: [...chats], messages: [...messages] };
		conversationsStore.tabs?.tell({ kind: 'changed', ...changed, toSend: false });
		await conversationsStore.reread(chats, messages);
	}

	#stepped(): void {
		this.#tell();
		void this.#show();
	}

	#tell(): void {
		const session = this.#session;
		if (!session?.isLeader) return;
		const { isRead } = session.loop;
		conversationsStore.tabs?.tell({ kind: 'sync', refusal: refusalOf(session), isRead });
	}

	#heard(message: TabMessage): void {
		const session = this.#session;
		if (!session) return;
		if (message.kind === 'sync') {
			const { refusal, isRead } = message;
			session.heard = { refusal, isRead };
			void this.#show();
		} else if (message.kind === 'who-syncs') this.#tell();
		else if (message.kind === 'changed') {
			if (message.toSend) session.loop.push();
			void this.#show();
		} else if (message.kind === 'signed-out') serverStore.signedOut();
	}

	async #show(): Promise<void> {
		const session = this.#session;
		const isForgotten = conversationsStore.ready && !conversationsStore.database;
		const isKept = !isForgotten && (session?.identity ?? this.#identity)?.store !== 'none';
		const pending = session && isKept ? await session.store.pending().catch(() => 0) : 0;
		if (session !== this.#session) return;
		const told = session?.isLeader
			? { refusal: refusalOf(session), isRead: session.loop.isRead }
			: session?.heard;
		conversationsStore.sync = describeSync({
			isKept,
			isForgotten,
			isReachable: serverStore.reachable && (serverStore.owner !== undefined || !serverStore.known),
			isRead: told?.isRead ?? false,
			isShared: serverStore.owner?.shared ?? false,
			refusal: told?.refusal ?? null,
			pending
		});
	}

	async #fetchFile(sha256: string): Promise<Blob | undefined> {
		const session = this.#session;
		if (session?.identity.store !== 'server') return undefined;
		try {
			const blob = await session.service.fetchFile(sha256);
			// A full storage does not keep it from being seen.
			if (blob) await session.database.keepFile(sha256, blob).catch(() => undefined);
			return blob;
		} catch (error) {
			if (error instanceof ApiError) return undefined;
			throw error;
		}
	}

	/**
	 * The person signs out: the chats leave this device, unless they shall stay or the server does not
	 * have all of them.
	 */
	async #leave(): Promise<void> {
		const session = this.#session;
		removeLocal(NAME);
		this.#remembered = null;
		if (!session) return;
		if (!settingsStore.values.keepChats && session.identity.store === 'server') {
			const signal = AbortSignal.timeout(LAST_PUSH_MS);
			await conversationsStore.flush();
			await session.service.push(signal).catch(() => undefined);
			if ((await session.store.pending()) === 0) {
				conversationsStore.tabs?.tell({ kind: 'signed-out' });
				this.#stop();
				// First: an answer that runs is written to it.
				await conversationsStore.close();
				await session.database.deleteAll();
				return;
			}
		}
		conversationsStore.tabs?.tell({ kind: 'signed-out' });
	}
}

function isSame(a: Identity | null, b: Identity | null): boolean {
	return a !== null && b !== null && a.owner === b.owner && a.store === b.store;
}

function refusalOf(session: Session): string | null {
	const [refusal] = session.service.refused.values();
	return refusal ?? session.loop.failure;
}

function readIdentity(): Identity | null {
	const raw = readLocal(NAME) as Partial<Identity> | null | undefined;
	if (typeof raw?.owner !== 'string' || typeof raw.keyed !== 'boolean') return null;
	return { owner: raw.owner, store: raw.store === 'server' ? 'server' : 'none', keyed: raw.keyed };
}

/** The server is there and did not say who we are: its store may not be ready yet. */
function isUnknown(): boolean {
	return serverStore.known && !serverStore.owner && !serverStore.needsKey;
}

export const syncStore = new SyncStore();
