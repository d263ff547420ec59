import { fileName } from '#lib/pure/chat_export';
import { chatMarkdown } from '#lib/pure/chat_markdown';
import { exportChats, importChats, type Source } from '#lib/services/chat_files';
import { conversationsStore } from '#lib/stores/conversations.svelte';
import type { Chat } from '#lib/types';
import { saveFile } from './save_file';

const source: Source = {
	messages: (chat) => conversationsStore.allMessages(chat),
	file: (sha256) => conversationsStore.file(sha256)
};

/** Saves a chat with all its branches and files. */
export async function saveChat(chat: Chat): Promise<void> {
	saveFile(await exportChats([chat], source), fileName(chat.title));
}

/** Saves what is seen of the open chat. */
export function saveAsMarkdown(chat: Chat): void {
	const text = chatMarkdown(chat, conversationsStore.path);
	saveFile(new Blob([text], { type: 'text/markdown' }), fileName(chat.title, 'md'));
}

/** All chats, as one file. */
export function exportAll(): Promise<Blob> {
	return exportChats(conversationsStore.chats, source);
}

/** Adds the chats of a file, under new ids; answers how many. Throws if there are none. */
export function importFile(file: Blob): Promise<number> {
	return importChats(file, {
		async addChats(chats) {
			await conversationsStore.addChats(chats);
		},
		async addFile(blob) {
			await conversationsStore.putFile(blob);
		}
	});
}
