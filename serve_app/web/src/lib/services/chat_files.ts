import {
	chatLine,
	fileLine,
	fromBase64,
	readLine,
	type ReadChat,
	type ReadFile
} from '#lib/pure/chat_export';
import { readForeign, type ForeignChat, type ForeignFile } from '#lib/pure/chat_import';
import { digestOfBytes } from '#lib/pure/digest';
import type { Attachment, Chat, Message } from '#lib/types';

/** Where chats to be exported come from. */
export interface Source {
	messages(chat: string): Promise<Message[]>;
	file(sha256: string): Promise<Blob | undefined>;
}

/** Where imported ones go. */
export interface Target {
	addChats(chats: ReadChat[]): Promise<void>;
	addFile(blob: Blob): Promise<void>;
}

/** Chats, or about so many messages, that are added at once. */
const MANY_CHATS = 100;
const MANY_MESSAGES = 1000;

/** Chats with their messages and, each once and first, the files of those. */
export async function exportChats(chats: readonly Chat[], source: Source): Promise<Blob> {
	// Blobs of their own: the browser may keep them elsewhere than in memory.
	const lines: Blob[] = [];
	const digests = new Set<string>();
	for (const chat of chats) {
		const messages = await source.messages(chat.id);
		lines.push(new Blob([chatLine(chat, messages)]));
		for (const message of messages)
			for (const { sha256 } of message.attachments) digests.add(sha256);
	}
	const files: Blob[] = [];
	for (const sha256 of digests) {
		const blob = await source.file(sha256);
		if (!blob) continue;
		const bytes = new Uint8Array(await blob.arrayBuffer());
		files.push(new Blob([fileLine(sha256, blob.type, bytes)]));
	}
	// The reader has a file before the message that it belongs to.
	return new Blob([...files, ...lines], { type: 'application/jsonl' });
}

/** How many chats came. Throws if there are none. */
export async function importChats(file: Blob, target: Target): Promise<number> {
	let count = 0;
	let chats: ReadChat[] = [];
	let messages = 0;
	const add = async () => {
		if (chats.length > 0) await target.addChats(chats);
		count += chats.length;
		chats = [];
		messages = 0;
	};
	for await (const line of linesOf(file)) {
		const read = readLine(line);
		if (read === null) continue;
		if (isFile(read)) await addFile(read, target);
		else {
			chats.push(read);
			messages += read.messages.length;
			if (chats.length >= MANY_CHATS || messages >= MANY_MESSAGES) await add();
		}
	}
	await add();
	if (count === 0) count = await importForeign(file, target);
	if (count === 0)
		throw new Error(
			'This file has no chats as Manta, llama-server, Open WebUI, ChatGPT or Claude export them.'
		);
	return count;
}

/** A file of another program is one value. */
async function importForeign(file: Blob, target: Target): Promise<number> {
	let chats: ForeignChat[];
	try {
		chats = readForeign(JSON.parse(await file.text()));
	} catch {
		return 0;
	}
	for (const { fields, messages } of chats) {
		const kept: Message[] = [];
		for (const { files, ...message } of messages) {
			const attachments: Attachment[] = [];
			for (const one of files) {
				const attachment = await addForeignFile(one, target);
				if (attachment) attachments.push(attachment);
			}
			kept.push({ ...message, attachments });
		}
		await target.addChats([{ fields, messages: kept }]);
	}
	return chats.length;
}

async function addForeignFile(
	{ name, text, base64, type, as }: ForeignFile,
	target: Target
): Promise<Attachment | null> {
	const bytes =
		text === undefined ? fromBase64(base64 ?? '') : Uint8Array.from(new TextEncoder().encode(text));
	if (!bytes || bytes.length === 0) return null;
	await target.addFile(new Blob([bytes], { type }));
	return { name, type, size: bytes.length, sha256: await digestOfBytes(bytes), as };
}

async function addFile(file: ReadFile, target: Target): Promise<void> {
	// It is known by its digest, so a wrong one would be another file to whoever asks for it.
	if ((await digestOfBytes(file.bytes)) !== file.sha256) return;
	await target.addFile(new Blob([file.bytes], { type: file.type }));
}

function isFile(read: ReadChat | ReadFile): read is ReadFile {
	return 'sha256' in read;
}

async function* linesOf(file: Blob): AsyncGenerator<string> {
	const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
	let rest = '';
	for (;;) {
		const { value, done } = await reader.read();
		if (done) break;
		const lines = (rest + value).split('\n');
		rest = lines.pop()!;
		yield* lines;
	}
	yield rest;
}
