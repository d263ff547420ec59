import { SvelteMap, SvelteSet } from 'svelte/reactivity';
import { pauseAfter } from '#lib/pure/backoff';
import type { RequestParts } from '#lib/pure/chat_request';
import { firstLine } from '#lib/pure/chat_request';
import { describeError } from '#lib/pure/chat_errors';
import { newId } from '#lib/pure/ids';
import { cleanTitle } from '#lib/pure/title';
import { DENIED, openCalls, roundsOf, withIds } from '#lib/pure/tool_calls';
import { pathTo } from '#lib/pure/tree';
import { firstThatFits, sentPart } from '#lib/pure/trimming';
import { ApiError } from '#lib/services/api';
import { ChatService, Interrupted } from '#lib/services/chat';
import type { Attachment, Chat, Finish, Message, ToolCall } from '#lib/types';
import { conversationsStore } from './conversations.svelte';
import { contentsOf } from './file_contents';
import { modelsStore } from './models.svelte';
import { newChatStore } from './new_chat.svelte';
import { nextQuestionStore } from './next_question.svelte';
import { Run } from './run.svelte';
import { serverStore } from './server_store.svelte';
import { settingsStore } from './settings.svelte';
import { toolsStore } from './tools.svelte';

const SAVE_EVERY_MS = 1000;
const STOP_AGAIN_MS = 2000;
/** So much of a context is taken by a chat whose oldest messages are left out. */
const FULL = 0.6;

class ChatStore {
	/** Running answers by chat; several chats may run at once. */
	runs = new SvelteMap<string, Run>();
	/** Said to screen readers: that an answer started or finished, or was copied; never its words. */
	said = $state('');
	/** Chats whose question is being kept; true: its answer was stopped before it began. */
	readonly #sends = new SvelteMap<string, boolean>();
	readonly #goesOn = new SvelteMap<string, boolean>();
	readonly #asked = new Set<string>();
	/** Questions that were asked again by itself. */
	readonly #retried = new SvelteSet<string>();
	/** What the person said of calls of tools, by message and call. */
	readonly #decisions = new SvelteMap<string, 'allow' | 'deny'>();
	/** Answers that ran when the page was closed, and that the server was not asked for yet. */
	#left: Message[] = [];
	#resumes = false;
	#sendsQueued = false;

	constructor() {
		conversationsStore.onclose = () => this.#leave();
	}

	/** The chats are closed: what runs in them goes on when they are open again. */
	#leave(): void {
		for (const run of this.runs.values()) run.controller.abort();
		this.runs.clear();
		this.#left = [];
		nextQuestionStore.forget();
	}

	/** Another answer of the chat may run by now. */
	#end(run: Run): void {
		if (this.runs.get(run.chat) === run) this.runs.delete(run.chat);
	}

	/** From the moment in which a question is sent. */
	isRunning(chat: string | null | undefined): boolean {
		return chat !== null && chat !== undefined && (this.runs.has(chat) || this.#sends.has(chat));
	}

	runOf(chat: string, message: string): Run | undefined {
		const run = this.runs.get(chat);
		return run?.message === message ? run : undefined;
	}

	/** Whether the model's template can go on with an answer; false until that is known. */
	canGoOn(model: string | null): boolean {
		if (model === null || modelsStore.find(model)?.state !== 'loaded') return false;
		if (!this.#asked.has(model)) {
			this.#asked.add(model);
			void this.#askGoOn(model);
		}
		return this.#goesOn.get(model) ?? false;
	}

	async #askGoOn(model: string): Promise<void> {
		for (let failures = 0; this.#asked.has(model); failures++) {
			try {
				this.#goesOn.set(model, await ChatService.canGoOn(model));
				return;
			} catch {
				await new Promise((done) => setTimeout(done, pauseAfter(failures, Math.random())));
			}
			// The list is read again when the server is back, and so is this asked again.
			if (!serverStore.reachable || serverStore.needsKey) this.#asked.delete(model);
		}
	}

	/** Tokens that the visible branch takes of the model's context, as last told by the server. */
	contextUsed(chat: Chat | null): number {
		const timings = chat && this.runs.get(chat.id)?.timings;
		const last = conversationsStore.path.findLast((message) => message.usage);
		const before = last?.usage ? last.usage.prompt_tokens + last.usage.completion_tokens : 0;
		return timings ? Math.max(before, timings.predicted_n) : before;
	}

	/** An overloaded server is asked again once for each question. */
	retriesByItself({ error, parent, id }: Message): boolean {
		return error?.status === 429 && !!error.retry_at && !this.#retried.has(parent ?? id);
	}

	/** The model that a chat talks to. */
	modelOf(chat: Chat | null): string | null {
		return modelsStore.find(chat?.model)?.id ?? chat?.model ?? modelsStore.selected;
	}

	/** `id`: of the open chat, or of the new one that this makes. Answers it; null: not sent. */
	async send(
		text: string,
		attachments: Attachment[] = [],
		id = conversationsStore.current?.id ?? newId()
	): Promise<string | null> {
		const open = conversationsStore.current;
		const model = this.modelOf(open);
		if ((open && open.id !== id) || this.isRunning(id)) return null;
		if (model === null && serverStore.reachable) return null;
		const title = firstLine(text) || attachments[0]?.name || 'New chat';
		const { system } = settingsStore.values;
		await this.#keepAndAsk(id, async () => {
			const fields = open ? {} : newChatStore.take();
			const chat =
				open ?? (await conversationsStore.create({ title, model, system, ...fields }, id));
			return { chat, question: newMessage(chat, chat.leaf, 'user', { text, attachments }) };
		});
		return id;
	}

	/** Answers once the question is kept, with what ends when it is answered. */
	async #keepAndAsk(
		id: string,
		make: () => Promise<{ chat: Chat; question: Message }>
	): Promise<{ answered: Promise<void> }> {
		this.#sends.set(id, false);
		try {
			const { chat, question } = await make();
			await conversationsStore.addMessage(question, { select: true });
			const isStopped = this.#sends.get(id);
			return {
				answered: isStopped ? Promise.resolve() : this.#ask(chat, question, this.modelOf(chat))
			};
		} finally {
			this.#sends.delete(id);
		}
	}

	/** What was asked during an answer, now that it has ended; of a chat that need not be the open one. */
	async sendNext(id: string): Promise<void> {
		const chat = conversationsStore.find(id);
		if (!chat || this.isRunning(id)) return;
		const next = nextQuestionStore.take(id);
		if (!next) return;
		const { text, attachments } = next;
		await this.#keepAndAsk(id, () => {
			const { leaf } = conversationsStore.find(id) ?? chat;
			const question = newMessage(chat, leaf, 'user', { text, attachments });
			return Promise.resolve({ chat, question });
		});
	}

	/** For what stands at the end of the open branch without an answer. */
	async askAgain(): Promise<void> {
		const chat = conversationsStore.current;
		const last = conversationsStore.path.at(-1);
		if (!chat || !last || this.isRunning(chat.id)) return;
		const model = this.modelOf(chat);
		if (last.role === 'assistant') await this.retry(last.id);
		else if (last.role === 'user') await this.#ask(chat, last, model);
		else if (model !== null) await this.#answer(chat, last.id, model);
	}

	/** Now, or once the server is back. */
	async #ask(chat: Chat, question: Message, model: string | null): Promise<void> {
		if (model === null || !serverStore.reachable) await conversationsStore.enqueue(question);
		else await this.#answer(chat, question.id, model);
	}

	/** Asks what was written while the server was away. To be called when it is there. */
	async sendQueued(): Promise<void> {
		if (this.#sendsQueued) return;
		this.#sendsQueued = true;
		try {
			const waiting = await conversationsStore.queued();
			// Of questions in a row the last one is asked, with those before it.
			const followed = new Set(waiting.map((question) => question.parent));
			for (const question of waiting) {
				if (!serverStore.reachable) return;
				const chat = conversationsStore.find(question.chat);
				const model = this.modelOf(chat ?? null);
				if (chat && (model === null || this.isRunning(chat.id))) continue;
				if (!(await conversationsStore.dequeue(question.id))) continue;
				if (chat && model !== null && !followed.has(question.id))
					await this.#answer(chat, question.id, model, { select: false });
			}
		} finally {
			this.#sendsQueued = false;
		}
	}

	/**
	 * Goes on with answers that ran when the page was closed, as far as the server has kept them. To be
	 * called when it is there; what it could not be asked for is asked for at the next call.
	 */
	async resume(): Promise<void> {
		if (this.#resumes) return;
		this.#resumes = true;
		try {
			this.#left.push(...(await conversationsStore.runningOnStart()));
			const kept = await ChatService.lookup(this.#left.map((message) => message.id));
			const ids = new Set(kept.map((stream) => stream.conversation_id));
			for (const message of this.#left.splice(0))
				if (ids.has(message.id)) void this.#resumeOne(message);
				else await conversationsStore.finish(message.id, { ...ENDED, finish: 'interrupted' });
		} catch {
			// They are asked for at the next call.
		} finally {
			this.#resumes = false;
		}
	}

	async #resumeOne(message: Message): Promise<void> {
		const run = new Run(message.chat, message.id, message.parent, message.model ?? '', message);
		// Another may have been asked for by now.
		if (!this.isRunning(message.chat)) this.runs.set(message.chat, run);
		run.show();
		const end = await this.#follow(run, () =>
			Promise.resolve(ChatService.resume(message.id, message.read ?? 0, run.controller.signal))
		);
		const chat = conversationsStore.find(message.chat);
		if (chat) await this.#after(chat, { ...message, ...end });
	}

	/** Ends the chat's answer; what has come stays. */
	stop(chat: string): void {
		const run = this.runs.get(chat);
		if (!run && this.#sends.has(chat)) this.#sends.set(chat, true);
		if (!run) return;
		run.controller.abort(new DOMException('Stopped', 'AbortError'));
		const tell = () => void ChatService.stop(run.message).catch(() => undefined);
		tell();
		// The server may hear of the stop before it hears of the question.
		if (run.completion === undefined) setTimeout(tell, STOP_AGAIN_MS);
	}

	/** Another answer to the same question, beside this one. */
	async regenerate(id: string, model?: string): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		const asked = model ?? this.modelOf(chat);
		if (asked) await this.#answer(chat, message.parent, asked);
	}

	/** The same after an error: what said nothing is replaced. */
	async retry(
		id: string,
		{ byItself = false, model: other }: { byItself?: boolean; model?: string } = {}
	): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		if (byItself) this.#retried.add(message.parent ?? message.id);
		const model = other ?? message.model ?? this.modelOf(chat);
		if (!model) return;
		const said = message.text || message.reasoning;
		await this.#answer(chat, message.parent, model, { instead: said ? undefined : id });
	}

	/** A sibling with other words; after a question an answer is asked for. */
	async edit(id: string, text: string): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		const sibling = newMessage(chat, message.parent, message.role, {
			text,
			attachments: message.attachments,
			...(message.role === 'assistant' && { model: message.model, finish: 'stop' as const })
		});
		if (message.role !== 'user') {
			await conversationsStore.addMessage(sibling, { select: true });
			return;
		}
		const made = { chat, question: sibling };
		await (
			await this.#keepAndAsk(chat.id, () => Promise.resolve(made))
		).answered;
	}

	/** Goes on with an answer that was cut: in its place, as what is kept never changes. */
	async continue(id: string): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		const model = message.model ?? this.modelOf(chat);
		if (model)
			await this.#answer(chat, message.parent, model, { before: message, instead: message.id });
	}

	/** False: the server can't, as the thought is over. */
	async endThinking(id: string): Promise<boolean> {
		const run = [...this.runs.values()].find((one) => one.message === id);
		if (!run?.completion) return false;
		return ChatService.endThinking(run.completion, run.model);
	}

	#find(id: string): { chat: Chat | null; message: Message | undefined } {
		return { chat: conversationsStore.current, message: conversationsStore.messages.get(id) };
	}

	/** What a chat would send, with `branch` as its end. */
	parts(chat: Chat | null, model: string, branch: Message[]): RequestParts {
		const { sampling, thinking } = settingsStore.effective(chat, model);
		return {
			model,
			system: chat?.system ?? settingsStore.values.system,
			branch: sentPart(branch, chat?.settings.from),
			sampling,
			thinking,
			caps: modelsStore.props(model)?.caps,
			sendThoughts: settingsStore.values.sendThoughts,
			extra: extraFields(settingsStore.values.extraFields)
		};
	}

	/** The same with what is in the files of the branch. */
	async partsWithFiles(chat: Chat | null, model: string, branch: Message[]): Promise<RequestParts> {
		const parts = this.parts(chat, model, branch);
		const files = await contentsOf(branch, model);
		const tools = await toolsStore.offered(chat);
		const isLast = roundsOf(branch) >= settingsStore.values.maxToolRounds;
		return { ...parts, files, tools, toolChoice: isLast ? 'none' : 'auto' };
	}

	/** From now on the oldest messages of the open chat are not sent, so that the model has room to answer. */
	async leaveOutOldest(): Promise<void> {
		const chat = conversationsStore.current;
		const model = this.modelOf(chat);
		const size = modelsStore.props(model)?.n_ctx;
		if (!chat || model === null || !size) return;
		const { path } = conversationsStore;
		const whole = { ...chat, settings: { ...chat.settings, from: undefined } };
		const from = await firstThatFits(path, async (start) => {
			const parts = await this.partsWithFiles(whole, model, path.slice(start));
			return (await ChatService.count(parts)) <= size * FULL;
		});
		if (from !== null)
			await conversationsStore.update(chat.id, { settings: { ...chat.settings, from } });
	}

	/** The whole chat is sent again. */
	async sendAll(chat: Chat): Promise<void> {
		const { from: _gone, ...settings } = chat.settings;
		await conversationsStore.update(chat.id, { settings });
	}

	/** Calls of a message of the open chat that wait for the person. */
	waitingCalls(message: Message): ToolCall[] {
		const { path } = conversationsStore;
		if (!message.tool_calls || this.isRunning(message.chat)) return [];
		const index = path.findIndex((one) => one.id === message.id);
		return openCalls(path, index).filter(
			(call) => !this.#decisions.has(decisionKey(message, call))
		);
	}

	/** Once all calls of a message are decided, they are made, one after the other. */
	async decide(id: string, call: ToolCall, choice: 'once' | 'always' | 'deny'): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		if (choice === 'always') toolsStore.allow(chat.id, call.name);
		this.#decisions.set(decisionKey(message, call), choice === 'deny' ? 'deny' : 'allow');
		await this.#callTools(chat, message, conversationsStore.path);
	}

	#decisionOf(message: Message, call: ToolCall): 'allow' | 'deny' | undefined {
		const decided = this.#decisions.get(decisionKey(message, call));
		return decided ?? (toolsStore.isAllowed(message.chat, call.name) ? 'allow' : undefined);
	}

	/** Nothing where a call waits for the person. `branch` is the one that has the message. */
	async #callTools(chat: Chat, message: Message, branch: readonly Message[]): Promise<void> {
		const index = branch.findIndex((one) => one.id === message.id);
		const calls = openCalls(branch, index);
		const model = message.model ?? this.modelOf(chat);
		await toolsStore.read();
		if (calls.length === 0 || model === null || this.isRunning(chat.id)) return;
		if (calls.some((call) => !this.#decisionOf(message, call))) return;
		const run = new Run(chat.id, message.id, message.parent, model, message);
		run.phase = 'tools';
		this.runs.set(chat.id, run);
		let parent = branch.at(-1)!.id;
		let failed = false;
		try {
			for (const call of calls) {
				run.call = call.id;
				const text =
					this.#decisionOf(message, call) === 'deny'
						? DENIED
						: await toolsStore.call(call, run.controller.signal);
				run.controller.signal.throwIfAborted();
				const result = newMessage(chat, parent, 'tool', { text, tool_call_id: call.id });
				await conversationsStore.addMessage(result, { select: true });
				parent = result.id;
			}
		} catch {
			// Stopped by the person, or the key is worth nothing: the rest waits, to be allowed again.
			failed = true;
			for (const call of calls) this.#decisions.delete(decisionKey(message, call));
		} finally {
			this.#end(run);
		}
		if (!failed) await this.#answer(chat, parent, model);
	}

	/** What follows an answer: calls of tools, a title, what waited for its end. */
	async #after(chat: Chat, message: Message): Promise<void> {
		if (conversationsStore.queuedIds.size > 0 && serverStore.reachable) void this.sendQueued();
		const isCut = message.error || message.finish === 'stopped' || message.finish === 'interrupted';
		if (!message.tool_calls?.length && (!isCut || nextQuestionStore.isWanted(chat.id)))
			void this.sendNext(chat.id);
		if (isCut) return;
		const branch = await this.#branch(chat.id, message.id);
		if (message.tool_calls?.length) await this.#callTools(chat, message, branch);
		else await this.#title(chat.id, branch);
	}

	/** In the model's words after the first answer, if the person wants that and gave none. */
	async #title(id: string, branch: readonly Message[]): Promise<void> {
		const questions = branch.filter((message) => message.role === 'user');
		const [question, answer] = [questions[0], branch.at(-1)];
		const wanted = () =>
			settingsStore.values.titleBy === 'model' &&
			conversationsStore.find(id)?.title_by === 'first_line';
		if (!wanted() || questions.length !== 1 || !question || !answer?.text || !answer.model) return;
		try {
			const title = cleanTitle(await ChatService.title(answer.model, question.text, answer.text));
			if (title && wanted()) await conversationsStore.update(id, { title, title_by: 'model' });
		} catch {
			// The first line is a title too.
		}
	}

	/** The branch that ends with `leaf`, of a chat that need not be the open one. */
	async #branch(chat: string, leaf: string | null): Promise<Message[]> {
		if (conversationsStore.current?.id === chat) return pathTo(conversationsStore.messages, leaf);
		const messages = await conversationsStore.allMessages(chat);
		return pathTo(new Map(messages.map((message) => [message.id, message])), leaf);
	}

	/** before: the answer that it goes on with. instead: a message that it replaces. */
	async #answer(
		of: Chat,
		parent: string | null,
		model: string,
		options: { before?: Message; instead?: string; select?: boolean } = {}
	): Promise<void> {
		const { before, instead, select = true } = options;
		// Calls of tools may take long: its settings may be others since.
		const chat = conversationsStore.find(of.id) ?? of;
		const start = before && { text: before.text, reasoning: before.reasoning };
		const message = newMessage(chat, parent, 'assistant', { model, state: 'running', ...start });
		const run = new Run(chat.id, message.id, parent, model, start);
		this.runs.set(chat.id, run);
		this.said = 'Answer started';
		const { sampling: params } = settingsStore.effective(chat, model);
		let isThere = false;
		try {
			isThere = await conversationsStore.addMessage({ ...message, params }, { select });
		} finally {
			if (!isThere) this.#end(run);
		}
		if (!isThere) return;
		let branch: Message[] = [];
		const end = await this.#follow(run, async () => {
			if (instead !== undefined) await conversationsStore.removeMessage(instead);
			branch = await this.#branch(chat.id, parent);
			const all = before ? [...branch, before] : branch;
			const parts = await this.partsWithFiles(chat, model, all);
			return ChatService.answer({ ...parts, goOn: !!before }, message.id, run.controller.signal);
		});
		const question = branch.at(-1);
		if (question?.role === 'user' && run.wasNotReached && !end.text && !end.reasoning) {
			await conversationsStore.enqueue(question);
			await conversationsStore.removeMessage(message.id);
		} else await this.#after(chat, { ...message, ...end });
	}

	/** Reads an answer to its end, whatever that is, and keeps it. */
	async #follow(
		run: Run,
		open: () => Promise<AsyncGenerator<Parameters<Run['add']>[0]>>
	): Promise<Partial<Message>> {
		const saver = setInterval(
			() => conversationsStore.changeRunning(run.message, run.fields()),
			SAVE_EVERY_MS
		);
		let end: Partial<Message>;
		try {
			for await (const delta of await open()) run.add(delta);
			end = { finish: run.answer.finish ?? 'stop' };
		} catch (error) {
			end = endOf(error, run);
			run.wasNotReached = error instanceof ApiError && error.status === 0;
		}
		clearInterval(saver);
		run.show();
		const fields = { ...run.fields(), ...end, ...ENDED };
		if (fields.tool_calls) fields.tool_calls = withIds(fields.tool_calls, new Set());
		await conversationsStore.finish(run.message, fields);
		this.#end(run);
		this.said = end.error ? 'The answer failed' : 'Answer finished';
		return fields;
	}
}

/** What a message has only while it runs. */
const ENDED: Partial<Message> = { read: undefined };

function decisionKey(message: Message, call: ToolCall): string {
	return `${message.id} ${call.id}`;
}

function endOf(error: unknown, run: Run): Partial<Message> {
	if (run.controller.signal.aborted) return { finish: 'stopped' };
	if (error instanceof Interrupted) return { finish: 'interrupted' };
	const finish: Finish = run.answer.text ? 'interrupted' : 'error';
	return { finish, error: describeError(error) };
}

function extraFields(text: string): Record<string, unknown> | undefined {
	return text.trim() ? (JSON.parse(text) as Record<string, unknown>) : undefined;
}

function newMessage(
	chat: Chat,
	parent: string | null,
	role: Message['role'],
	fields: Partial<Message>
): Message {
	return {
		id: newId(),
		chat: chat.id,
		parent,
		role,
		text: '',
		attachments: [],
		created_at: Date.now(),
		revision: null,
		state: 'done',
		...fields
	};
}

export const chatStore = new ChatStore();
