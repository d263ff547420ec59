// @vitest-environment jsdom
import 'fake-indexeddb/auto';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { Message } from '#lib/types';
import { chatStore } from './chat.svelte';
import { conversationsStore } from './conversations.svelte';
import { modelsStore } from './models.svelte';
import { nextQuestionStore } from './next_question.svelte';
import { serverStore } from './server_store.svelte';

const CHAT = '/v1/chat/completions';
const LOOKUP = '/v1/streams/lookup';

let owners = 0;
let owner = '';
/** What the server answers, by address; else 404. */
let answers: Record<string, (init: RequestInit) => Response | Promise<Response>>;
let asked: { path: string; method: string }[];

beforeEach(async () => {
	answers = {};
	asked = [];
	vi.stubGlobal('fetch', (path: string, init: RequestInit = {}) => {
		asked.push({ path, method: init.method ?? 'GET' });
		const answer = answers[path.split('?')[0]!];
		return Promise.resolve(answer?.(init) ?? Response.json({}, { status: 404 }));
	});
	modelsStore.select('demo');
	owner = `owner ${owners++}`;
	await conversationsStore.use(owner, 'http://here/');
});

afterEach(async () => {
	await conversationsStore.close();
	vi.restoreAllMocks();
	vi.unstubAllGlobals();
});

/** As Dexie tells of a full storage. */
function full(): Error {
	const inner = new DOMException('', 'QuotaExceededError');
	return Object.assign(new Error('It was aborted'), { name: 'AbortError', inner });
}

function chunk(delta: object, finish_reason: string | null = null): string {
	const choices = [{ index: 0, delta, finish_reason }];
	return `data: ${JSON.stringify({ id: 'chatcmpl-1', choices })}\n\n`;
}

function whole(text: string): Response {
	return new Response(chunk({ content: text }) + chunk({}, 'stop') + 'data: [DONE]\n\n');
}

/** Says something and goes on until it is stopped. */
function endless(text: string) {
	return ({ signal }: RequestInit) =>
		new Response(
			new ReadableStream({
				start(controller) {
					controller.enqueue(new TextEncoder().encode(chunk({ content: text })));
					signal!.addEventListener('abort', () => controller.error(signal!.reason));
				}
			})
		);
}

async function until(check: () => void): Promise<void> {
	await vi.waitFor(check, { timeout: 20_000 });
}

async function ask(text: string): Promise<string> {
	const id = await chatStore.send(text);
	expect(id).not.toBeNull();
	return id!;
}

const said = () => conversationsStore.path.map(({ text, finish }) => [text, finish]);

it('keeps what had come when an answer is stopped', async () => {
	answers[CHAT] = endless('Once');
	const chat = await ask('A story');
	await until(() => expect(chatStore.runs.get(chat)?.answer.text).toBe('Once'));
	chatStore.stop(chat);
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	expect(said()).toEqual([
		['A story', undefined],
		['Once', 'stopped']
	]);
	expect(asked.some(({ method }) => method === 'DELETE')).toBe(true);
});

it('takes questions again after an answer could not be kept', async () => {
	answers[CHAT] = () => whole('Well');
	const chat = await ask('One');
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	const { parent, id } = conversationsStore.path.at(-1)!;
	const add = vi.spyOn(conversationsStore.database!, 'addMessage');
	add.mockRejectedValueOnce(full());
	await expect(chatStore.regenerate(id)).rejects.toThrow();
	expect(chatStore.isRunning(chat)).toBe(false);
	expect(conversationsStore.failure).toContain('full');
	await chatStore.regenerate(id);
	expect(said().at(-1)).toEqual(['Well', 'stop']);
	expect(conversationsStore.path.at(-1)!.parent).toBe(parent);
});

it('shows an answer that could not be written, and writes it with the next', async () => {
	answers[CHAT] = () => whole('Well');
	const replace = vi.spyOn(conversationsStore.database!, 'replaceMessage');
	replace.mockRejectedValueOnce(full());
	const chat = await ask('One');
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	expect(said().at(-1)).toEqual(['Well', 'stop']);
	const { id } = conversationsStore.path.at(-1)!;
	expect((await conversationsStore.database!.message(id))?.state).toBe('running');
	await conversationsStore.flush();
	const kept = await conversationsStore.database!.message(id);
	expect(kept).toMatchObject({ text: 'Well', state: 'done', outbox: 'send' });
});

it('asks what nobody answered once more, also where another chat is open by then', async () => {
	let go = () => {};
	const away = new Promise<void>((done) => (go = done));
	answers[CHAT] = async () => {
		await away;
		throw new TypeError('Failed to fetch');
	};
	const chat = await ask('One');
	await until(() => expect(asked.map(({ path }) => path)).toContain(CHAT));
	await conversationsStore.open(null);
	go();
	await until(() => expect(conversationsStore.queuedIds.size).toBe(1));
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	answers[CHAT] = () => whole('Well');
	await until(async () => {
		expect((await conversationsStore.allMessages(chat)).map(({ text }) => text)).toEqual(['One']);
	});
	serverStore.reached();
	await chatStore.sendQueued();
	await conversationsStore.open(chat);
	expect(said()).toEqual([
		['One', undefined],
		['Well', 'stop']
	]);
});

it('asks again whether an answer can go on, where the first time failed', async () => {
	const models = { data: [{ id: 'demo', status: { value: 'loaded' } }] };
	answers['/models'] = () => Response.json(models);
	await modelsStore.refresh();
	const busy = Response.json({ error: { message: 'Busy' } }, { status: 503 });
	const replies = [busy, Response.json({ prompt: '' })];
	answers['/apply-template'] = () => replies.shift()!;
	vi.useFakeTimers({ toFake: ['setTimeout'] });
	expect(chatStore.canGoOn('demo')).toBe(false);
	await vi.advanceTimersByTimeAsync(1000);
	vi.useRealTimers();
	await until(() => expect(chatStore.canGoOn('demo')).toBe(true));
});

it('leaves an answer to whoever has the chats next, and goes on with it then', async () => {
	answers[CHAT] = endless('Once');
	const chat = await ask('A story');
	await until(() => expect(chatStore.runs.get(chat)?.answer.text).toBe('Once'));
	conversationsStore.changeRunning(chatStore.runs.get(chat)!.message, { text: 'Once' });
	await conversationsStore.use('somebody else', 'http://here/');
	expect(chatStore.runs.size).toBe(0);
	expect(conversationsStore.chats).toEqual([]);
	await conversationsStore.use(owner, 'http://here/');
	const message = (await conversationsStore.allMessages(chat)).at(-1) as Message;
	expect(message).toMatchObject({ text: 'Once', state: 'running' });
	answers[LOOKUP] = () => Response.json([{ conversation_id: message.id }]);
	answers['/v1/stream'] = () => whole(' upon a time');
	await chatStore.resume();
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	await conversationsStore.open(chat);
	expect(said().at(-1)).toEqual(['Once upon a time', 'stop']);
});

it('sends what was asked during an answer once that has ended, also of another chat', async () => {
	let end = () => {};
	answers[CHAT] = async () => {
		await new Promise<void>((done) => (end = done));
		return whole('Once');
	};
	const chat = await ask('A story');
	await until(() => expect(asked.map(({ path }) => path)).toContain(CHAT));
	await nextQuestionStore.add(chat, 'And', []);
	await nextQuestionStore.add(chat, 'then?', []);
	nextQuestionStore.forget(); // as a page that ends
	await nextQuestionStore.read(chat);
	expect(nextQuestionStore.of(chat)?.text).toBe('And\n\nthen?');
	await conversationsStore.open(null);
	answers[CHAT] = () => whole('Well');
	end();
	await until(async () => {
		const texts = (await conversationsStore.allMessages(chat)).map(({ text }) => text);
		expect(texts.toSorted()).toEqual(['A story', 'And\n\nthen?', 'Once', 'Well'].toSorted());
	});
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	await conversationsStore.open(chat);
	expect(said().map(([text]) => text)).toEqual(['A story', 'Once', 'And\n\nthen?', 'Well']);
	nextQuestionStore.forget();
	await nextQuestionStore.read(chat);
	expect(nextQuestionStore.of(chat)).toBeUndefined();
});

it('keeps what was asked during an answer that is stopped, until it is wanted', async () => {
	answers[CHAT] = endless('Once');
	const chat = await ask('A story');
	await until(() => expect(chatStore.runs.get(chat)?.answer.text).toBe('Once'));
	await nextQuestionStore.add(chat, 'Next', []);
	chatStore.stop(chat);
	await until(() => expect(chatStore.isRunning(chat)).toBe(false));
	expect(said()).toHaveLength(2);
	answers[CHAT] = () => whole('Well');
	await chatStore.sendNext(chat);
	await until(() => expect(said().at(-1)).toEqual(['Well', 'stop']));
});
