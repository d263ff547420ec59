import 'fake-indexeddb/auto';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { newId } from '#lib/pure/ids';
import { DatabaseService } from '#lib/services/database';
import { Tabs } from '#lib/services/tabs';
import type { Message } from '#lib/types';
import { conversationsStore as store } from './conversations.svelte';

let owners = 0;
let owner = '';

beforeEach(async () => {
	owner = `owner ${owners++}`;
	await store.use(owner, 'http://here/');
});

afterEach(() => store.close());

function message(chat: string, parent: string | null, fields: Partial<Message> = {}): Message {
	return {
		...{ id: newId(), chat, parent, role: 'user', text: 'Hello', attachments: [] },
		...{ created_at: Date.now(), revision: null, state: 'done' },
		...fields
	};
}

async function reopen(): Promise<void> {
	await store.use(owner, 'http://here/');
}

async function conversation() {
	const chat = await store.create({ title: 'Tables' });
	const question = message(chat.id, null, { text: 'What is a page table?' });
	await store.addMessage(question, { select: true });
	const answer = message(chat.id, question.id, { role: 'assistant', text: 'A map.' });
	await store.addMessage(answer, { select: true });
	return { chat, question, answer };
}

const texts = () => store.path.map((one) => one.text);

it('keeps a chat with its messages', async () => {
	const { chat } = await conversation();
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
	await reopen();
	expect(store.current?.id).toBe(chat.id);
	expect(store.current?.title).toBe('Tables');
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
});

it('shows nothing of another owner', async () => {
	const { chat } = await conversation();
	await store.use('somebody else', 'http://here/');
	expect(store.chats).toEqual([]);
	await store.open(chat.id);
	expect(store.current).toBeNull();
});

it('lists pinned chats first, then those with the newest messages', async () => {
	const made = [];
	for (const title of ['a', 'b', 'c']) made.push(await store.create({ title }));
	const [a, b] = made;
	await store.addMessage(message(b!.id, null, { created_at: Date.now() + 1000 }));
	await store.update(a!.id, { pinned: true });
	// A new title alone does not bring a chat to the top.
	await store.update(made[2]!.id, { title: 'd' });
	expect(store.chats.map((chat) => chat.title)).toEqual(['a', 'b', 'd']);
	await reopen();
	expect(store.chats.map((chat) => chat.title)).toEqual(['a', 'b', 'd']);
});

it('goes from branch to branch, and keeps the choice', async () => {
	const { chat, question } = await conversation();
	const other = message(chat.id, null, { text: 'What is paging?' });
	await store.addMessage(other, { select: true });
	expect(texts()).toEqual(['What is paging?']);
	await store.selectSibling(question.id);
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
	await reopen();
	await store.open(chat.id);
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
});

it('writes a running answer within a second, and at once when it is done', async () => {
	const { chat, answer } = await conversation();
	const running = message(chat.id, answer.id, { role: 'assistant', text: '', state: 'running' });
	await store.addMessage(running, { select: true });
	vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
	store.changeRunning(running.id, { text: 'Pag' });
	store.changeRunning(running.id, { text: 'Pages' });
	expect(texts().at(-1)).toBe('Pages');
	vi.advanceTimersByTime(1000);
	vi.useRealTimers();
	await vi.waitFor(
		async () => expect((await store.database!.message(running.id))?.text).toBe('Pages'),
		{ timeout: 20_000 }
	);
	await store.finish(running.id, { text: 'Pages.', finish: 'stop' });
	const kept = await store.database!.message(running.id);
	expect(kept).toMatchObject({ text: 'Pages.', state: 'done', finish: 'stop', outbox: 'send' });
});

it('finds answers that ran when the page was closed', async () => {
	const { chat, answer } = await conversation();
	const running = message(chat.id, answer.id, { role: 'assistant', text: '', state: 'running' });
	await store.addMessage(running, { select: true });
	store.changeRunning(running.id, { text: 'Half' });
	await store.flush();
	expect(await store.runningOnStart()).toEqual([]);
	await reopen();
	const found = await store.runningOnStart();
	expect(found.map((one) => one.text)).toEqual(['Half']);
	await store.open(chat.id);
	store.changeRunning(running.id, { text: 'Half and' });
	expect(texts().at(-1)).toBe('Half and');
	await store.finish(running.id, { text: 'Half and half' });
	await reopen();
	expect(await store.runningOnStart()).toEqual([]);
});

it('goes on with an answer in the first of the tabs that ask for it', async () => {
	const { chat } = await conversation();
	const running = message(chat.id, null, { role: 'assistant', state: 'running' });
	await store.addMessage(running);
	await reopen();
	const other = new Tabs(store.database!.name);
	const told: string[][] = [];
	const heard = new Promise<void>((done) =>
		other.listen((said) => {
			if (said.kind === 'who-runs') {
				other.tell({ kind: 'who-runs', turn: '0' });
				other.tell({ kind: 'who-runs', turn: newId() });
			} else if (said.kind === 'runs') done(void told.push(said.ids));
		})
	);
	const found = await store.runningOnStart();
	await heard;
	expect(found.map(({ id }) => id)).toEqual([running.id]);
	expect(told).toEqual([[running.id]]);
	other.close();
});

it('deletes a message with all below it and shows the nearest branch', async () => {
	const { chat, question, answer } = await conversation();
	const second = message(chat.id, question.id, { role: 'assistant', text: 'A table.' });
	await store.addMessage(second, { select: true });
	const below = message(chat.id, second.id, { text: 'Why?' });
	await store.addMessage(below);
	await store.removeMessage(second.id);
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
	expect([...store.messages.keys()].sort()).toEqual([question.id, answer.id].sort());
	await reopen();
	await store.open(chat.id);
	expect(store.messages.size).toBe(2);
});

it('deletes a chat with what was written for it', async () => {
	const { chat } = await conversation();
	await store.saveDraft({ chat: chat.id, text: 'More', attachments: [] });
	await store.removeChat(chat.id);
	expect(store.current).toBeNull();
	expect(store.messages.size).toBe(0);
	await reopen();
	expect(store.chats).toEqual([]);
	expect(await store.draft(chat.id)).toBeUndefined();
	await store.addMessage(message(chat.id, null));
	expect(store.chats).toEqual([]);
});

it('forks a branch into a chat of its own', async () => {
	const { chat, question, answer } = await conversation();
	await store.addMessage(message(chat.id, answer.id, { text: 'Why?' }));
	const fork = await store.fork(chat.id, answer.id);
	expect(fork).toMatchObject({ title: 'Copy of Tables', forked_from: chat.id });
	expect(store.current?.id).toBe(chat.id);
	await store.open(fork.id);
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
	expect(store.messages.has(question.id)).toBe(false);
});

it('searches titles and messages', async () => {
	await conversation();
	const other = await store.create({ title: 'Fjords' });
	await store.addMessage(message(other.id, null, { text: 'Which is the deepest?' }));
	const titles = async (query: string) => (await store.search(query)).map(({ chat }) => chat.title);
	expect(await titles('page MAP')).toEqual(['Tables']);
	expect(await titles('fjörd deepest')).toEqual(['Fjords']);
	expect(await titles('nothing')).toEqual([]);
	expect(await titles(' ')).toEqual(['Fjords', 'Tables']);
});

it('keeps drafts, files and questions that wait', async () => {
	const { question } = await conversation();
	await store.saveDraft({ chat: 'new', text: 'Dear', attachments: [] });
	const file = await store.putFile(new Blob(['abc'], { type: 'text/plain' }));
	expect(file.sha256).toMatch(/^ba7816bf/);
	await store.enqueue(question);
	await reopen();
	expect((await store.draft('new'))?.text).toBe('Dear');
	expect((await store.file(file.sha256))?.size).toBe(3);
	expect(store.queuedIds.has(question.id)).toBe(true);
	expect((await store.queued()).map((one) => one.id)).toEqual([question.id]);
	expect(await store.dequeue(question.id)).toBe(true);
	expect(await store.dequeue(question.id)).toBe(false);
	await store.saveDraft({ chat: 'new', text: '', attachments: [] });
	expect(await store.draft('new')).toBeUndefined();
});

it('deletes files a day after nothing has them any more', async () => {
	const { chat, answer } = await conversation();
	const files = await Promise.all(
		['in a message', 'in a draft', 'in nothing'].map(async (text) => {
			const { sha256, type, size } = await store.putFile(new Blob([text]));
			return { name: 'a.txt', type, size, sha256, as: 'text' as const };
		})
	);
	const [sent, drafted] = files.map((one) => [one]);
	await store.addMessage(message(chat.id, answer.id, { attachments: sent! }));
	await store.saveDraft({ chat: 'new', text: '', attachments: drafted! });
	const database = store.database!;
	const left = () => Promise.all(files.map(async (one) => !!(await store.file(one.sha256))));
	const day = 24 * 3600 * 1000;
	for (const hours of [0, 1, 23]) {
		await database.sweepFiles(hours * 3600 * 1000);
		expect(await left()).toEqual([true, true, true]);
	}
	await database.sweepFiles(day);
	expect(await left()).toEqual([true, true, false]);
});

it('keeps a tree, whose visible branch ends at the leaf, whatever is edited', async () => {
	const step = fc.record({
		kind: fc.constantFrom('add', 'add', 'branch', 'select', 'remove', 'fork'),
		which: fc.nat(100)
	});
	await fc.assert(
		fc.asyncProperty(fc.array(step, { maxLength: 25, size: 'max' }), async (steps) => {
			const chat = await store.create({ title: 'Tree' });
			for (const { kind, which } of steps) {
				const ids = [...store.messages.keys()];
				const id = ids[which % (ids.length || 1)];
				const leaf = store.current!.leaf;
				if (kind === 'add') await store.addMessage(message(chat.id, leaf), { select: true });
				else if (id === undefined) continue;
				else if (kind === 'select') await store.selectSibling(id);
				else if (kind === 'remove') await store.removeMessage(id);
				else if (kind === 'fork') await store.fork(chat.id, id);
				else {
					const { parent } = store.messages.get(id)!;
					await store.addMessage(message(chat.id, parent), { select: true });
				}
				checkTree();
			}
			const before = [store.current, store.path];
			await store.open(null);
			await store.open(chat.id);
			expect([store.current, store.path]).toEqual(before);
		}),
		{ numRuns: 15 }
	);
});

function checkTree(): void {
	const leaf = store.current!.leaf;
	expect(leaf === null).toBe(store.messages.size === 0);
	expect(store.path.at(-1)?.id ?? null).toBe(leaf);
	expect(store.path[0]?.parent ?? null).toBeNull();
	for (const { parent } of store.messages.values())
		expect(parent === null || store.messages.has(parent)).toBe(true);
}

it('shows what another tab wrote while a chat was read', async () => {
	const { chat, answer } = await conversation();
	await store.open(null);
	const written = message(chat.id, answer.id, { text: 'Why?' });
	const opening = store.open(chat.id);
	await store.database!.addMessage(written, (before) => ({ ...before, leaf: written.id }));
	await Promise.all([store.reread([chat.id], [chat.id]), opening]);
	expect(texts()).toEqual(['What is a page table?', 'A map.', 'Why?']);
	// And it takes nothing away that was added meanwhile.
	const rereading = store.reread([chat.id], [chat.id]);
	await store.addMessage(message(chat.id, written.id, { text: 'So.' }), { select: true });
	await rereading;
	expect(texts().at(-1)).toBe('So.');
	expect(store.chats[0]!.leaf).toBe(store.path.at(-1)!.id);
});

it('shows the newest branch while the leaf is still with another device', async () => {
	const { chat } = await conversation();
	await store.update(chat.id, { leaf: newId() });
	expect(texts()).toEqual(['What is a page table?', 'A map.']);
	expect(store.current?.leaf).toBe(store.path.at(-1)?.id);
});

it('goes on without a database', async () => {
	vi.stubGlobal('indexedDB', undefined);
	const { Dexie } = await import('dexie');
	const before = Dexie.dependencies.indexedDB;
	Dexie.dependencies.indexedDB = undefined as never;
	await store.use('nobody', 'http://here/');
	Dexie.dependencies.indexedDB = before;
	vi.unstubAllGlobals();
	expect(store.failure).toContain('keeps no chats');
	const { chat, question, answer } = await conversation();
	await store.removeMessage(answer.id);
	expect(texts()).toEqual(['What is a page table?']);
	await store.saveDraft({ chat: chat.id, text: 'And', attachments: [] });
	const fork = await store.fork(chat.id, question.id);
	await store.open(fork.id);
	await store.addMessage(message(chat.id, question.id, { text: 'A tree.' }));
	await store.open(chat.id);
	expect(texts()).toEqual(['What is a page table?', 'A tree.']);
	expect((await store.draft(chat.id))?.text).toBe('And');
	expect(await store.search('tree')).toHaveLength(1);
});

it('goes on where another tab deletes its database', async () => {
	const { chat, question } = await conversation();
	const heard = vi.spyOn(store, 'reread');
	const elsewhere = await DatabaseService.open(owner, 'http://here/');
	await elsewhere.deleteAll();
	expect(store.failure).toBeNull();
	const other = new Tabs(elsewhere.name);
	other.tell({ kind: 'queue' });
	other.tell({ kind: 'changed', chats: [chat.id], messages: [chat.id], toSend: false });
	await vi.waitFor(() => expect(heard).toHaveBeenCalled());
	await heard.mock.results[0]!.value;
	other.close();
	expect(await store.draft(chat.id)).toBeUndefined();
	expect(await store.addMessage(message(chat.id, question.id))).toBe(false);
	expect(store.failure).toContain('deleted from this browser');
	expect((await indexedDB.databases()).map(({ name }) => name)).not.toContain(elsewhere.name);
	await store.close();
	expect(store.failure).toBeNull();
});

it('closes also where its database is gone', async () => {
	const { chat, answer } = await conversation();
	const running = message(chat.id, answer.id, { role: 'assistant', state: 'running' });
	await store.addMessage(running);
	await store.database!.deleteAll();
	await store.use('somebody else', 'http://here/');
	expect(store.chats).toEqual([]);
	expect(store.failure).toBeNull();
});
