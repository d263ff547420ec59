import 'fake-indexeddb/auto';
import fc from 'fast-check';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { newId } from '#lib/pure/ids';
import { change, fieldsOf, sentMessage, withDirt } from '#lib/pure/sync_merge';
import { withAllBelow } from '#lib/pure/tree';
import type { Message, StoredChat } from '#lib/types';
import { StoreModel } from '../../testing/store_model';
import { DatabaseService, withOutbox } from './database';
import { SyncService } from './sync';
import { SyncDatabase } from './sync_database';

const signal = new AbortController().signal;
let model: StoreModel;
let names = 0;
let clock = 1_000;

/** A browser that keeps the owner's chats. */
class Device {
	readonly sync: SyncDatabase;
	readonly service: SyncService;
	/** How often there was something new. */
	told = 0;

	private constructor(readonly database: DatabaseService) {
		this.sync = new SyncDatabase(database.db);
		this.service = new SyncService(this.sync, () => void this.told++, Infinity);
	}

	static async open(): Promise<Device> {
		return new Device(await DatabaseService.open(`device ${names++}`, 'http://here/'));
	}

	async chat(title: string): Promise<StoredChat> {
		const times = { created_at: clock, updated_at: clock, active_at: clock };
		const chat = withDirt({
			...{ id: newId(), title, title_by: 'person', leaf: null, pinned: false, model: null },
			...{ system: '', settings: { sampling: {}, thinking: {} }, revision: null },
			...{ ...times, dirty: [], base: null }
		});
		await this.database.add([chat]);
		return chat;
	}

	async edit(id: string, fields: Partial<StoredChat>): Promise<void> {
		await this.database.changeChat(id, (chat) => change(chat, fields, ++clock));
	}

	async write(
		chat: string,
		parent: string | null,
		text: string,
		state: Message['state'] = 'done'
	): Promise<Message> {
		const message: Message = {
			...{ id: newId(), chat, parent, role: 'user', text, attachments: [] },
			...{ created_at: ++clock, revision: null, state }
		};
		await this.database.addMessage(message, (before) =>
			change(before, { leaf: message.id }, clock)
		);
		return message;
	}

	async finish(message: Message): Promise<void> {
		await this.database.replaceMessage(withOutbox({ ...message, state: 'done' }));
	}

	async erase(id: string): Promise<void> {
		const top = (await this.database.message(id))!;
		const all = new Map((await this.database.messages(top.chat)).map((one) => [one.id, one]));
		await this.database.removeMessages(top, withAllBelow(all, id), ++clock);
	}

	async pull(): Promise<void> {
		await this.service.pull(0, signal);
	}

	async push(): Promise<void> {
		await this.service.push(signal);
	}

	async round(): Promise<void> {
		await this.pull();
		await this.push();
	}

	async titles(): Promise<string[]> {
		return (await this.database.chats()).map((chat) => chat.title).sort();
	}

	async texts(): Promise<string[]> {
		const found = await Promise.all(
			(await this.database.chats()).map((chat) => this.database.messages(chat.id))
		);
		return found
			.flat()
			.map((message) => message.text)
			.sort();
	}

	/** All that it shows, in a form that can be compared. */
	async snapshot() {
		const chats = await this.database.db.chats.toArray();
		const messages = await this.database.db.messages.toArray();
		return {
			chats: Object.fromEntries(chats.map((chat) => [chat.id, fieldsOf(chat)])),
			messages: Object.fromEntries(messages.map((one) => [one.id, sentMessage(one)]))
		};
	}
}

async function settle(...devices: Device[]): Promise<void> {
	model.healed();
	for (let round = 0; round < 20; round++) {
		const before = model.revision;
		for (const device of devices) await device.round();
		const pending = await Promise.all(devices.map((device) => device.sync.pending()));
		if (model.revision === before && pending.every((count) => count === 0)) return;
	}
	throw new Error('The devices do not come to rest.');
}

beforeEach(() => {
	model = new StoreModel();
	vi.stubGlobal('fetch', model.fetch);
});

afterEach(() => vi.unstubAllGlobals());

async function two(): Promise<[Device, Device, StoredChat, Message]> {
	const [a, b] = [await Device.open(), await Device.open()];
	const chat = await a.chat('Tables');
	const question = await a.write(chat.id, null, 'What is a page table?');
	await settle(a, b);
	return [a, b, chat, question];
}

it('brings a chat to another device', async () => {
	const [, b] = await two();
	expect(await b.titles()).toEqual(['Tables']);
	expect(await b.texts()).toEqual(['What is a page table?']);
	const [chat] = await b.database.chats();
	expect(chat).toMatchObject({ dirty: [], active_at: expect.any(Number) });
	expect(chat!.leaf).not.toBeNull();
});

it('keeps what both wrote below one message as branches', async () => {
	const [a, b, chat, question] = await two();
	await a.write(chat.id, question.id, 'A map.');
	await b.write(chat.id, question.id, 'A tree.');
	await settle(a, b);
	for (const device of [a, b])
		expect(await device.texts()).toEqual(['A map.', 'A tree.', 'What is a page table?']);
	expect(await a.snapshot()).toEqual(await b.snapshot());
});

it('merges fields that either changed, and takes the later of one that both did', async () => {
	const [a, b, chat] = await two();
	await a.edit(chat.id, { title: 'Maps', pinned: true });
	await b.edit(chat.id, { title: 'Trees' });
	await b.edit(chat.id, { settings: { sampling: { top_k: 3 }, thinking: {} } });
	await a.edit(chat.id, { settings: { sampling: { seed: 1 }, thinking: {} } });
	await settle(a, b);
	const [merged] = await b.database.chats();
	expect(merged).toMatchObject({
		title: 'Maps',
		pinned: true,
		settings: { sampling: { top_k: 3, seed: 1 }, thinking: {} }
	});
	expect(await a.snapshot()).toEqual(await b.snapshot());
});

it('keeps in a new chat what was written in one that was deleted elsewhere', async () => {
	const [a, b, chat, question] = await two();
	await a.database.removeChat(chat.id, ++clock);
	await b.write(chat.id, question.id, 'A tree.');
	await settle(a, b);
	for (const device of [a, b]) {
		expect(await device.titles()).toEqual(['Tables (restored)']);
		expect(await device.texts()).toEqual(['A tree.', 'What is a page table?']);
	}
});

it('deletes a chat that was only renamed elsewhere', async () => {
	const [a, b, chat] = await two();
	await a.database.removeChat(chat.id, ++clock);
	await b.edit(chat.id, { title: 'Trees' });
	await settle(b, a);
	for (const device of [a, b]) expect(await device.titles()).toEqual([]);
	expect(await a.snapshot()).toEqual({ chats: {}, messages: {} });
});

it('keeps what was written below a message that was deleted elsewhere', async () => {
	const [a, b, chat, question] = await two();
	await a.erase(question.id);
	await a.push();
	const mine = await b.write(chat.id, question.id, 'A tree.');
	// It is told by the refusal of a write, before any reading.
	await b.push();
	await settle(a, b);
	expect(await a.titles()).toEqual(['Tables', 'Tables (restored)']);
	expect(await a.texts()).toEqual(['A tree.', 'What is a page table?']);
	expect(await b.database.message(mine.id)).toBeUndefined();
	expect(await a.snapshot()).toEqual(await b.snapshot());
});

it('sends an answer once it is written, and what follows it after it', async () => {
	const [a, b, chat, question] = await two();
	const running = await a.write(chat.id, question.id, 'A map', 'running');
	await a.write(chat.id, running.id, 'Why?');
	await settle(a, b).catch(() => undefined);
	expect(await b.texts()).toEqual(['What is a page table?']);
	await a.finish(running);
	await settle(a, b);
	expect(await b.texts()).toEqual(['A map', 'What is a page table?', 'Why?']);
});

it('reads all anew where the server has forgotten what was deleted', async () => {
	const [a, b, chat] = await two();
	const other = await a.chat('Fjords');
	await settle(a, b);
	await a.database.removeChat(chat.id, ++clock);
	await a.push();
	model.sweep();
	await b.write(other.id, null, 'Which is the deepest?');
	await settle(b);
	expect(await b.titles()).toEqual(['Fjords']);
	expect(await b.texts()).toEqual(['Which is the deepest?']);
});

it('sends again what the server has lost', async () => {
	const [a, b] = await two();
	model.chats.clear();
	model.messages.clear();
	model.revision = 0;
	await settle(a, b);
	expect(model.chats.size).toBe(1);
	expect(model.messages.size).toBe(1);
	expect(await a.titles()).toEqual(['Tables']);
});

it('sends files before it calls their message sent, and again what the server has no more', async () => {
	const [a, b, chat, question] = await two();
	const file = await a.database.putFile(new Blob(['abc'], { type: 'text/plain' }));
	const { sha256, type, size } = file;
	const attachments = [{ name: 'a.txt', type, size, sha256, as: 'text' as const }];
	const message = { ...question, id: newId(), parent: question.id, text: 'Read', attachments };
	await a.database.addMessage(message, (before) => before);
	model.fail(null, null, 'before');
	await expect(a.round()).rejects.toMatchObject({ status: 0 });
	expect(await a.sync.pending()).toBe(1);
	await settle(a, b);
	expect(await model.files.get(sha256)!.text()).toBe('abc');
	model.files.clear();
	const again = { ...message, id: newId(), text: 'Again' };
	await a.database.addMessage(again, (before) => before);
	await settle(a, b);
	expect(model.files.size).toBe(1);
});

it('keeps what the server refuses, sends all else, and tries again once there is room', async () => {
	const [a, b, chat] = await two();
	const fetch = model.fetch;
	vi.stubGlobal('fetch', async (path: string, init: RequestInit = {}) =>
		String(init.body).includes('Too long')
			? Response.json({ error: { message: 'Too much' } }, { status: 413 })
			: fetch(path, init)
	);
	await a.edit(chat.id, { title: 'Too long' });
	const other = await a.chat('Fjords');
	await a.round();
	await b.round();
	expect([...a.service.refused]).toEqual([[chat.id, 'Too much']]);
	expect(await b.titles()).toEqual(['Fjords', 'Tables']);
	expect(await a.sync.pending()).toBe(1);
	vi.stubGlobal('fetch', fetch);
	await a.database.removeChat(other.id, ++clock);
	await settle(a, b);
	expect(await b.titles()).toEqual(['Too long']);
});

it('sends what is beside a message that the server refuses', async () => {
	const [a, b, chat, question] = await two();
	const fetch = model.fetch;
	vi.stubGlobal('fetch', async (path: string, init: RequestInit = {}) => {
		const { messages = [] } = JSON.parse(String(init.body ?? '{}')) as { messages?: Message[] };
		const index = messages.findIndex(({ text }) => text === 'Too long');
		const error = { message: 'Too much', param: `messages[${index}]` };
		return index < 0 ? fetch(path, init) : Response.json({ error }, { status: 413 });
	});
	const long = await a.write(chat.id, question.id, 'Too long');
	await a.write(chat.id, long.id, 'Below');
	await a.write(chat.id, question.id, 'A map.');
	// As the loop does, which sends again when it is told of more.
	for (let told = -1; told < a.told; await a.push()) told = a.told;
	await b.round();
	expect([...a.service.refused]).toEqual([[long.id, 'Too much']]);
	expect(await b.texts()).toEqual(['A map.', 'What is a page table?']);
});

/** What is done in one step, and by whom; numbers choose among what is there. */
const step = fc.record({
	device: fc.nat(1),
	kind: fc.constantFrom(
		...([
			'chat',
			'write',
			'write',
			'write',
			'answer',
			'finish',
			'title',
			'pin',
			'sampling'
		] as const),
		...(['erase', 'remove', 'pull', 'push', 'round', 'round', 'sweep'] as const)
	),
	which: fc.nat(1000),
	other: fc.nat(1000),
	failures: fc.array(fc.constantFrom('before', 'after', null, null), { maxLength: 4 })
});

it('converges on two devices and loses no message, whatever is lost on the way', async () => {
	await fc.assert(
		fc.asyncProperty(fc.array(step, { maxLength: 40, size: 'max' }), async (steps) => {
			model = new StoreModel();
			vi.stubGlobal('fetch', model.fetch);
			const devices = [await Device.open(), await Device.open()];
			const history = new History();
			for (const { device, ...does } of steps) await history.step(devices[device]!, does);
			await history.finishAll();
			await settle(...devices);
			const [a, b] = devices as [Device, Device];
			const shown = await a.snapshot();
			expect(await b.snapshot()).toEqual(shown);
			expect(Object.keys(shown.messages).sort()).toEqual(
				[...model.messages]
					.filter(([, row]) => row.fields)
					.map(([id]) => id)
					.sort()
			);
			for (const { parent } of Object.values(shown.messages))
				expect(parent === null || parent in shown.messages).toBe(true);
			const texts = new Set(await a.texts());
			for (const text of history.kept()) expect(texts).toContain(text);
			for (const { database } of devices) await database.deleteAll();
		}),
		{ numRuns: 40 }
	);
}, 120_000);

type Step = Omit<typeof step extends fc.Arbitrary<infer T> ? T : never, 'device'>;

/** What was written, and what was deleted by who saw it; each text is unlike all others. */
class History {
	readonly #written = new Set<string>();
	readonly #gone = new Set<string>();
	readonly #running: { device: Device; message: Message }[] = [];

	async step(device: Device, { kind, which, other, failures }: Step): Promise<void> {
		const chats = await device.database.chats();
		const chat = chats[which % (chats.length || 1)];
		if (kind === 'chat') await device.chat(`chat ${clock++}`);
		else if (kind === 'sweep') model.sweep();
		else if (kind === 'pull' || kind === 'push' || kind === 'round') {
			model.healed();
			model.fail(...failures);
			await device[kind]().catch((error: unknown) => expect(error).toMatchObject({ status: 0 }));
		} else if (kind === 'finish') {
			const [one] = this.#running.splice(which % (this.#running.length || 1), 1);
			if (one) await one.device.finish(one.message);
		} else if (chat) await this.#inChat(device, chat, kind, other);
	}

	async #inChat(device: Device, chat: StoredChat, kind: Step['kind'], other: number) {
		const messages = await device.database.messages(chat.id);
		const message = messages[other % (messages.length + 1)];
		if (kind === 'title') await device.edit(chat.id, { title: `title ${clock}` });
		else if (kind === 'pin') await device.edit(chat.id, { pinned: !chat.pinned });
		else if (kind === 'sampling') {
			const sampling = { ...chat.settings.sampling, [other % 2 ? 'seed' : 'top_k']: other };
			await device.edit(chat.id, { settings: { sampling, thinking: {} } });
		} else if (kind === 'remove') {
			for (const one of messages) this.#gone.add(one.text);
			await device.database.removeChat(chat.id, ++clock);
		} else if (kind === 'erase' && message) {
			const all = new Map(messages.map((one) => [one.id, one]));
			for (const id of withAllBelow(all, message.id)) this.#gone.add(all.get(id)!.text);
			await device.erase(message.id);
		} else if (kind === 'write' || kind === 'answer') {
			const text = `text ${clock++}`;
			this.#written.add(text);
			const state = kind === 'write' ? 'done' : 'running';
			const written = await device.write(chat.id, message?.id ?? null, text, state);
			if (state === 'running') this.#running.push({ device, message: written });
		}
	}

	async finishAll(): Promise<void> {
		for (const { device, message } of this.#running) await device.finish(message);
	}

	/**
	 * What must still be there: all but what somebody deleted who saw it, and what the server had when
	 * its chat, or what it answers, was deleted.
	 */
	kept(): string[] {
		return [...this.#written].filter(
			(text) => !this.#gone.has(text) && !model.deletedTexts.has(text)
		);
	}
}
