import { untrack } from 'svelte';
import { ChatService } from '#lib/services/chat';
import { chatStore } from '#lib/stores/chat.svelte';
import { composerStore } from '#lib/stores/composer.svelte';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import { modelsStore } from '#lib/stores/models.svelte';
import { serverStore } from '#lib/stores/server_store.svelte';
import type { Chat, Message } from '#lib/types';
import type { UsedDraft } from './draft.svelte';

const COUNT_AFTER_MS = 400;
/** More is not sent for each pause in typing. */
const MAX_CHARACTERS = 1_000_000;

/** Counts what would be sent, a moment after it changed. The server would load a model for it. */
export function useTokenCount(chat: () => Chat | null, draft: UsedDraft): void {
	$effect(() => {
		const of = chat();
		const model = chatStore.modelOf(of);
		const { text, attachments } = draft;
		const isEmpty = text.trim() === '' && attachments.length === 0;
		const isLoaded = modelsStore.find(model)?.state === 'loaded';
		// The last answer says it, unless it came from elsewhere, or another part of the chat is sent now.
		const isKnown = chatStore.contextUsed(of) > 0 && of?.settings.from === undefined;
		if (
			(isEmpty && (isKnown || !of || conversationsStore.path.length === 0)) ||
			!isLoaded ||
			model === null ||
			!serverStore.reachable ||
			chatStore.isRunning(of?.id)
		) {
			composerStore.counted = null;
			return;
		}
		const controller = new AbortController();
		const timer = setTimeout(
			() =>
				void untrack(() =>
					count(of, model, isEmpty ? null : { text, attachments }, controller.signal)
				),
			COUNT_AFTER_MS
		);
		return () => {
			clearTimeout(timer);
			controller.abort();
		};
	});
	$effect(() => () => {
		composerStore.counted = null;
	});
}

async function count(
	chat: Chat | null,
	model: string,
	written: Pick<Message, 'text' | 'attachments'> | null,
	signal: AbortSignal
): Promise<void> {
	const branch: Message[] = chat ? [...conversationsStore.path] : [];
	if (written)
		branch.push({
			...{ id: '', chat: '', parent: null, role: 'user', ...written },
			...{ created_at: 0, revision: null, state: 'done' }
		});
	try {
		const parts = await chatStore.partsWithFiles(chat, model, branch);
		const size = branch.reduce((sum, one) => sum + one.text.length, 0) + sizeOf(parts.files);
		if (signal.aborted || size > MAX_CHARACTERS) return;
		const tokens = await ChatService.count(parts, signal);
		composerStore.counted = { chat: chat?.id ?? null, tokens };
	} catch {
		// Sending will say what is wrong.
		if (!signal.aborted) composerStore.counted = null;
	}
}

function sizeOf(files: ReadonlyMap<string, unknown> = new Map()): number {
	let size = 0;
	for (const content of files.values()) size += JSON.stringify(content).length;
	return size;
}
