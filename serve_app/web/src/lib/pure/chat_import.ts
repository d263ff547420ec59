/**
 * Chats of other programs: what llama-server's page, Open WebUI, ChatGPT and Claude export. What has
 * none of their shapes is left out.
 */
import { newId } from './ids';
import { isRaw, isTime } from './records';
import { cut } from './well_formed';
import type { ChatFields, Message } from '#lib/types';

type Raw = Record<string, unknown>;

export interface ForeignFile {
	name: string;
	/** Its content: a text, or bytes in base64. */
	text?: string;
	base64?: string;
	type: string;
	as: 'text' | 'raw';
}

export interface ForeignChat {
	fields: ChatFields;
	messages: (Message & { files: ForeignFile[] })[];
}

/** A message in its program's own words. */
interface Node {
	id: string;
	parent: string | null;
	role: Message['role'];
	text: string;
	reasoning?: string;
	model?: string;
	at: number;
	files: ForeignFile[];
}

interface Conversation {
	title: string;
	at: number;
	changed: number;
	leaf: string | null;
	pinned: boolean;
	/** Each after its parent or before it; what is not kept is null, so that what is below finds what is above. */
	nodes: Map<string, Node | { parent: string | null; isSkipped: true }>;
}

const MAX_TITLE = 1000;
const PICTURE = /^data:(image\/(?:png|jpeg|gif|webp));base64,([A-Za-z0-9+/=\s]+)$/;
const NOT_IN_FILE = '(A file that the export does not hold.)';

export function readForeign(value: unknown): ForeignChat[] {
	const found = Array.isArray(value) ? value : [value];
	return found.flatMap((one) => {
		const read = isRaw(one)
			? (llamaServer(one) ?? openWebUi(one) ?? chatGpt(one) ?? claude(one))
			: null;
		const made = read && toChat(read);
		return made && made.messages.length > 0 ? [made] : [];
	});
}

function llamaServer(raw: Raw): Conversation | null {
	const { conv, messages } = raw;
	if (!isRaw(conv) || !Array.isArray(messages)) return null;
	const nodes: Conversation['nodes'] = new Map();
	for (const one of messages) {
		if (!isRaw(one) || !isText(one.id)) continue;
		const parent = isText(one.parent) ? one.parent : null;
		const role = roleOf(one.role);
		if (!role || one.type === 'root' || role === 'tool')
			nodes.set(one.id, { parent, isSkipped: true });
		else
			nodes.set(one.id, {
				...{ id: one.id, parent, role, text: textOf(one.content), at: timeOf(one.timestamp) },
				...optional('reasoning', one.reasoningContent ?? one.thinking),
				...optional('model', one.model),
				files: list(one.extra).flatMap(llamaFile)
			});
	}
	const at = timeOf(conv.lastModified);
	return {
		title: textOf(conv.name),
		at,
		changed: at,
		leaf: idOf(conv.currNode),
		pinned: false,
		nodes
	};
}

function llamaFile(raw: Raw): ForeignFile[] {
	const name = textOf(raw.name) || 'file';
	const picture = pictureOf(raw.base64Url, name);
	if (picture) return [picture];
	if (isText(raw.base64Data) && isText(raw.mimeType) && raw.mimeType.startsWith('audio/'))
		return [{ name, base64: raw.base64Data, type: raw.mimeType, as: 'raw' }];
	return isText(raw.content) ? [{ name, text: raw.content, type: 'text/plain', as: 'text' }] : [];
}

function openWebUi(raw: Raw): Conversation | null {
	const chat = isRaw(raw.chat) ? raw.chat : raw;
	const history = isRaw(chat.history) ? chat.history : {};
	if (!isRaw(history.messages)) return null;
	const nodes: Conversation['nodes'] = new Map();
	for (const [id, one] of Object.entries(history.messages)) {
		if (!isRaw(one)) continue;
		const parent = idOf(one.parentId);
		const role = roleOf(one.role);
		if (!role || role === 'tool') nodes.set(id, { parent, isSkipped: true });
		else
			nodes.set(id, {
				...{ id, parent, role, at: timeOf(one.timestamp) },
				...withoutThought(textOf(one.content)),
				...optional('model', one.model),
				files: list(one.files).flatMap((file, index) => {
					const picture = pictureOf(file.url, textOf(file.name) || `picture ${index + 1}`);
					return picture ? [picture] : [];
				})
			});
	}
	const at = timeOf(raw.created_at ?? chat.timestamp);
	return {
		title: textOf(chat.title ?? raw.title),
		...{ at, changed: timeOf(raw.updated_at) || at, leaf: idOf(history.currentId) },
		...{ pinned: raw.pinned === true, nodes }
	};
}

const THOUGHT =
	/^\s*<details type="reasoning"[^>]*>\s*(?:<summary>[^<]*<\/summary>)?([\s\S]*?)<\/details>\s*/;

/** It keeps a thought in its answer, quoted and escaped. */
function withoutThought(content: string): { text: string; reasoning?: string } {
	const thought = THOUGHT.exec(content);
	if (!thought) return { text: content };
	const reasoning = thought[1]!
		.replace(/^(?:>|&gt;) ?/gm, '')
		.replaceAll('&lt;', '<')
		.replaceAll('&gt;', '>')
		.replaceAll('&quot;', '"')
		.replaceAll('&#x27;', "'")
		.replaceAll('&amp;', '&')
		.trim();
	return { text: content.slice(thought[0].length), reasoning };
}

function chatGpt(raw: Raw): Conversation | null {
	if (!isRaw(raw.mapping)) return null;
	const nodes: Conversation['nodes'] = new Map();
	for (const [id, node] of Object.entries(raw.mapping)) {
		if (!isRaw(node)) continue;
		const parent = idOf(node.parent);
		const message = isRaw(node.message) ? node.message : {};
		const author = isRaw(message.author) ? message.author : {};
		const content = isRaw(message.content) ? message.content : {};
		const metadata = isRaw(message.metadata) ? message.metadata : {};
		const role = roleOf(author.role);
		const isHidden = metadata.is_visually_hidden_from_conversation === true || role === 'tool';
		const { text, reasoning } = chatGptContent(content);
		if (!role || isHidden || (!text && !reasoning)) nodes.set(id, { parent, isSkipped: true });
		else
			nodes.set(id, {
				...{ id, parent, role, text, at: timeOf(message.create_time), files: [] },
				...optional('reasoning', reasoning),
				...optional('model', metadata.model_slug)
			});
	}
	const at = timeOf(raw.create_time);
	return {
		title: textOf(raw.title),
		...{ at, changed: timeOf(raw.update_time) || at, leaf: idOf(raw.current_node) },
		...{ pinned: false, nodes }
	};
}

function chatGptContent(content: Raw): { text: string; reasoning?: string } {
	if (content.content_type === 'thoughts') {
		const thoughts = list(content.thoughts).map((one) => textOf(one.content));
		return { text: '', reasoning: thoughts.join('\n\n') };
	}
	if (content.content_type === 'code') return { text: `\`\`\`\n${textOf(content.text)}\n\`\`\`` };
	const parts = Array.isArray(content.parts) ? content.parts : [];
	const words = parts.map((part) => (isText(part) ? part : isRaw(part) ? NOT_IN_FILE : ''));
	return { text: words.filter(Boolean).join('\n\n') };
}

/** A line of messages: it has no branches. */
function claude(raw: Raw): Conversation | null {
	if (!Array.isArray(raw.chat_messages)) return null;
	const nodes: Conversation['nodes'] = new Map();
	let last: string | null = null;
	for (const one of list(raw.chat_messages)) {
		const id = idOf(one.uuid);
		const role = one.sender === 'human' ? 'user' : one.sender === 'assistant' ? 'assistant' : null;
		if (id === null || !role) continue;
		const parts = list(one.content).filter((part) => part.type === 'text');
		const text = parts.map((part) => textOf(part.text)).join('\n\n') || textOf(one.text);
		const thoughts = list(one.content).filter((part) => part.type === 'thinking');
		nodes.set(id, {
			...{ id, parent: last, role, text, at: timeOf(one.created_at) },
			...optional('reasoning', thoughts.map((part) => textOf(part.thinking)).join('\n\n')),
			files: list(one.attachments).flatMap((file) =>
				isText(file.extracted_content)
					? [
							{
								...{ name: textOf(file.file_name) || 'file.txt', text: file.extracted_content },
								...{ type: 'text/plain', as: 'text' as const }
							}
						]
					: []
			)
		});
		last = id;
	}
	const at = timeOf(raw.created_at);
	return {
		title: textOf(raw.name),
		...{ at, changed: timeOf(raw.updated_at) || at, leaf: last, pinned: false, nodes }
	};
}

function toChat({ title, at, changed, leaf, pinned, nodes }: Conversation): ForeignChat {
	const chat = newId();
	let system = '';
	const made = new Map<string, Message & { files: ForeignFile[] }>();
	const byId = new Map<string, Message & { files: ForeignFile[] }>();
	const counts = new Map<string | null, number>();
	for (const { parent } of nodes.values()) counts.set(parent, (counts.get(parent) ?? 0) + 1);

	/** The message that `id` is in, or the nearest above that is kept. */
	const place = (from: string | null): string | null => {
		const seen = new Set<string>();
		for (let id = from; id !== null && !seen.has(id); id = nodes.get(id)?.parent ?? null) {
			seen.add(id);
			const message = made.get(id);
			if (message) return message.id;
		}
		return null;
	};
	for (const node of inOrder(nodes)) {
		const parent = place(node.parent);
		if (node.role === 'system') {
			if (parent === null) system ||= node.text;
			continue;
		}
		// A thought, a call and an answer may be messages of their own; here they are one.
		const above = parent === null ? undefined : byId.get(parent);
		const isMore = above?.role === 'assistant' && node.role === 'assistant';
		if (isMore && node.parent !== null && counts.get(node.parent) === 1) {
			above.text = [above.text, node.text].filter(Boolean).join('\n\n');
			above.reasoning = [above.reasoning, node.reasoning].filter(Boolean).join('\n\n') || undefined;
			above.model ??= node.model;
			made.set(node.id, above);
			continue;
		}
		const { role, text, reasoning, model, files } = node;
		const message = {
			...{ id: newId(), chat, parent, role, text, attachments: [], files },
			...(reasoning && { reasoning }),
			...(model && { model }),
			...(role === 'assistant' && { finish: 'stop' as const }),
			...{ created_at: node.at || at, revision: null, state: 'done' as const }
		};
		made.set(node.id, message);
		byId.set(message.id, message);
	}
	const messages = [...new Set(made.values())];
	return {
		fields: {
			...{ title: cut(title, MAX_TITLE) || 'Imported chat', title_by: 'person', pinned, system },
			leaf: place(leaf) ?? messages.at(-1)?.id ?? null,
			...{ model: null, settings: { sampling: {}, thinking: {} } },
			...{ created_at: at, updated_at: changed }
		},
		messages
	};
}

/** Each after what is above it; what names itself as its own ancestor begins anew. */
function inOrder(nodes: Conversation['nodes']): Node[] {
	const order: Node[] = [];
	const placed = new Set<string>();
	for (const start of nodes.keys()) {
		const line: string[] = [];
		for (let id: string | null = start; id !== null && nodes.has(id) && !placed.has(id);) {
			placed.add(id);
			line.push(id);
			id = nodes.get(id)!.parent;
		}
		for (const id of line.reverse()) {
			const node = nodes.get(id)!;
			if (!('isSkipped' in node)) order.push(node);
		}
	}
	return order;
}

function pictureOf(url: unknown, name: string): ForeignFile | null {
	const data = isText(url) ? PICTURE.exec(url) : null;
	return data && { name, base64: data[2]!, type: data[1]!, as: 'raw' };
}

function roleOf(value: unknown): Message['role'] | null {
	const roles = ['system', 'user', 'assistant', 'tool'] as const;
	return roles.find((role) => role === value) ?? null;
}

/** Seconds or milliseconds since 1970, or a date in words; 0: none. */
function timeOf(value: unknown): number {
	const number = isText(value) ? Number(value) || Date.parse(value) : Number(value);
	const time = Math.round(number < 1e11 ? number * 1000 : number);
	return isTime(time) ? time : 0;
}

function optional<Name extends string>(name: Name, value: unknown): { [name in Name]?: string } {
	return isText(value) && value !== '' ? ({ [name]: value } as { [name in Name]: string }) : {};
}

function idOf(value: unknown): string | null {
	return isText(value) && value !== '' ? value : null;
}

function list(value: unknown): Raw[] {
	return Array.isArray(value) ? value.filter(isRaw) : [];
}

function textOf(value: unknown): string {
	return isText(value) ? value : '';
}

function isText(value: unknown): value is string {
	return typeof value === 'string';
}
