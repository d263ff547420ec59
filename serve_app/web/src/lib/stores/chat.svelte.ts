import { SvelteMap, SvelteSet } from 'svelte/reactivity';
import type { FileContent, RequestParts } from '#lib/pure/chat_request';
import { firstLine } from '#lib/pure/chat_request';
import { describeError } from '#lib/pure/chat_errors';
import { newId } from '#lib/pure/ids';
import { pathTo } from '#lib/pure/tree';
import { ChatService, Interrupted } from '#lib/services/chat';
import type { Attachment, Chat, Finish, Message } from '#lib/types';
import { conversationsStore } from './conversations.svelte';
import { modelsStore } from './models.svelte';
import { Run } from './run.svelte';
import { serverStore } from './server_store.svelte';
import { settingsStore } from './settings.svelte';

const SAVE_EVERY_MS = 1000;

class ChatStore {
	/** Running answers by chat; several chats may run at once. */
	runs = new SvelteMap<string, Run>();
	/** Said to screen readers: that an answer started or finished, never its words. */
	said = $state('');
	readonly #goesOn = new SvelteMap<string, boolean>();
	readonly #asked = new Set<string>();
	/** Questions that were asked again by itself. */
	readonly #retried = new SvelteSet<string>();

	isRunning(chat: string | null | undefined): boolean {
		return chat !== null && chat !== undefined && this.runs.has(chat);
	}

	runOf(chat: string, message: string): Run | undefined {
		const run = this.runs.get(chat);
		return run?.message === message ? run : undefined;
	}

	/** Whether the model's template can go on with an answer; false until that is known. */
	canGoOn(model: string | null): boolean {
		if (model === null || modelsStore.find(model)?.state !== 'loaded') return false;
		const known = this.#goesOn.get(model);
		if (known === undefined && !this.#asked.has(model)) {
			this.#asked.add(model);
			void ChatService.canGoOn(model).then(
				(can) => this.#goesOn.set(model, can),
				() => this.#asked.delete(model)
			);
		}
		return known ?? false;
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

	/** Answers the chat's id: a new one's where none was open. */
	async send(text: string, attachments: Attachment[] = []): Promise<string | null> {
		const model = this.modelOf(conversationsStore.current);
		if (model === null) return null;
		const chat =
			conversationsStore.current ??
			(await conversationsStore.create({
				title: firstLine(text) || attachments[0]?.name || 'New chat',
				model,
				system: settingsStore.values.system
			}));
		if (this.isRunning(chat.id)) return null;
		const question = newMessage(chat, chat.leaf, 'user', { text, attachments });
		await conversationsStore.addMessage(question, { select: true });
		if (serverStore.reachable) {
			void this.#answer(chat, question.id, model);
			return chat.id;
		}
		// Of questions in a row the last one is asked.
		if (chat.leaf !== null) await conversationsStore.dequeue(chat.leaf);
		await conversationsStore.enqueue(question);
		return chat.id;
	}

	/** Asks what was written while the server was away; of several tabs one does it. */
	async askQueued(): Promise<void> {
		for (const { id, chat: of } of await conversationsStore.queued()) {
			const chat = conversationsStore.find(of);
			const model = this.modelOf(chat ?? null);
			if (!chat || model === null || !serverStore.reachable || this.isRunning(of)) continue;
			if (await conversationsStore.dequeue(id)) void this.#answer(chat, id, model);
		}
	}

	/** Ends the chat's answer; what has come stays. */
	stop(chat: string): void {
		const run = this.runs.get(chat);
		if (!run) return;
		run.controller.abort(new DOMException('Stopped', 'AbortError'));
		void ChatService.stop(run.message).catch(() => undefined);
	}

	/** Another answer to the same question, beside this one. */
	async regenerate(id: string, model?: string): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		const asked = model ?? this.modelOf(chat);
		if (asked) await this.#answer(chat, message.parent, asked);
	}

	/** The same after an error: what said nothing is replaced. */
	async retry(id: string, { byItself = false } = {}): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		if (byItself) this.#retried.add(message.parent ?? message.id);
		const model = message.model ?? this.modelOf(chat);
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
		await conversationsStore.addMessage(sibling, { select: true });
		const model = this.modelOf(chat);
		if (message.role === 'user' && model) await this.#answer(chat, sibling.id, model);
	}

	/** A sibling that starts with this answer and goes on with it. */
	async continue(id: string): Promise<void> {
		const { chat, message } = this.#find(id);
		if (!chat || !message || this.isRunning(chat.id)) return;
		const model = message.model ?? this.modelOf(chat);
		if (model) await this.#answer(chat, message.parent, model, { before: message });
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
			branch,
			sampling,
			thinking,
			caps: modelsStore.props(model)?.caps,
			sendThoughts: settingsStore.values.sendThoughts,
			extra: extraFields(settingsStore.values.extraFields)
		};
	}

	/** before: the answer that it goes on with. instead: a message that it replaces. */
	async #answer(
		chat: Chat,
		parent: string | null,
		model: string,
		{ before, instead }: { before?: Message; instead?: string } = {}
	): Promise<void> {
		const start = before && { text: before.text, reasoning: before.reasoning };
		const message = newMessage(chat, parent, 'assistant', { model, state: 'running', ...start });
		const run = new Run(chat.id, message.id, parent, model, start);
		this.runs.set(chat.id, run);
		this.said = 'Answer started';
		const branch = pathTo(await this.#messagesOf(chat.id), parent);
		const parts = this.parts(chat, model, before ? [...branch, before] : branch);
		await conversationsStore.addMessage({ ...message, params: parts.sampling }, { select: true });
		if (instead !== undefined) await conversationsStore.removeMessage(instead);
		await this.#follow(run, async () => {
			parts.files = await this.#contents(parts.branch);
			return ChatService.answer({ ...parts, goOn: !!before }, message.id, run.controller.signal);
		});
	}

	/** Reads an answer to its end, whatever that is, and keeps it. */
	async #follow(
		run: Run,
		open: () => Promise<AsyncGenerator<Parameters<Run['add']>[0]>>
	): Promise<void> {
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
		}
		clearInterval(saver);
		run.show();
		await conversationsStore.finish(run.message, { ...run.fields(), ...end });
		this.runs.delete(run.chat);
		this.said = end.error ? 'The answer failed' : 'Answer finished';
		if (end.finish === 'error' && !serverStore.reachable) await this.#askLater(run);
	}

	/** Nobody heard the question. */
	async #askLater({ message, parent }: Run): Promise<void> {
		const question = parent === null ? undefined : conversationsStore.messages.get(parent);
		if (question?.role !== 'user') return;
		await conversationsStore.removeMessage(message);
		await conversationsStore.enqueue(question);
	}

	/** Also of a chat that is not open. */
	async #messagesOf(chat: string): Promise<ReadonlyMap<string, Message>> {
		if (conversationsStore.current?.id === chat) return conversationsStore.messages;
		const messages = await conversationsStore.allMessages(chat);
		return new Map(messages.map((message) => [message.id, message]));
	}

	async #contents(_branch: Message[]): Promise<ReadonlyMap<string, FileContent>> {
		return new Map();
	}
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
