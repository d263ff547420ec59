/** What MCP servers answer, as the page has it; all of it is a stranger's. */
import { failure, resultText, toolName, type Tool } from './tool_calls';

export const PROTOCOL_VERSION = '2025-06-18';

type Raw = Record<string, unknown>;

export interface McpPrompt {
	name: string;
	title: string;
	description: string;
	arguments: { name: string; description: string; required: boolean }[];
}

export interface McpResource {
	uri: string;
	name: string;
	title: string;
	description: string;
	type: string;
}

/** The address as it is asked; a text says why it can't be one. A path is one of this server. */
export function readAddress(text: string, base: string): URL | string {
	let url: URL;
	try {
		url = new URL(text.trim(), base);
	} catch {
		return 'This is not an address.';
	}
	if (url.protocol !== 'https:' && url.protocol !== 'http:')
		return 'The address must start with https:// or http://.';
	if (url.username || url.password) return 'Put a password in the field for the token.';
	return url;
}

/** Whether a page with this Content-Security-Policy may ask `url`; without one it may ask all. */
export function mayConnect(policy: string | null, url: URL, own: string): boolean {
	if (policy === null) return true;
	const directives = policy.split(';').map((one) => one.trim().split(/\s+/));
	const sources = directives.find(([name]) => name === 'connect-src');
	if (!sources) return !directives.some(([name]) => name === 'default-src');
	if (url.origin === own && sources.includes("'self'")) return true;
	return sources.includes(url.origin);
}

/** `of`: the server's id. */
export function readTools(
	list: unknown[],
	of: string,
	prefix: string,
	taken: ReadonlySet<string>
): Tool[] {
	const names = new Set(taken);
	return list.flatMap((raw) => {
		if (!isRaw(raw) || typeof raw.name !== 'string') return [];
		const name = toolName(prefix, raw.name, names);
		names.add(name);
		const annotations = isRaw(raw.annotations) ? raw.annotations : {};
		const schema = isRaw(raw.inputSchema) ? raw.inputSchema : { type: 'object', properties: {} };
		return [
			{
				name,
				title: text(raw.title) || text(annotations.title) || raw.name,
				description: text(raw.description),
				parameters: schema,
				writes: annotations.readOnlyHint !== true,
				of,
				own_name: raw.name
			}
		];
	});
}

/** What a call answered, as text. */
export function readToolResult(result: unknown): string {
	if (!isRaw(result)) return failure('The tool answered nothing that can be read.');
	const parts = Array.isArray(result.content) ? result.content.map(contentText) : [];
	const words = parts.filter(Boolean).join('\n\n');
	const said = words || (result.structuredContent ? resultText(result.structuredContent) : '');
	return result.isError === true ? failure(said || 'The tool failed.') : resultText(said);
}

function contentText(raw: unknown): string {
	if (!isRaw(raw)) return '';
	if (raw.type === 'text') return text(raw.text);
	if (raw.type === 'resource') return resourceText(raw.resource);
	if (raw.type === 'resource_link') return `${text(raw.name)} ${text(raw.uri)}`.trim();
	if (raw.type === 'image' || raw.type === 'audio')
		return `[${raw.type} of type ${text(raw.mimeType) || 'unknown'}, not shown]`;
	return '';
}

function resourceText(raw: unknown): string {
	if (!isRaw(raw)) return '';
	if (typeof raw.text === 'string') return raw.text;
	return `[${text(raw.uri)} of type ${text(raw.mimeType) || 'unknown'}, not shown]`;
}

export function readResources(list: unknown[]): McpResource[] {
	return list.flatMap((raw) => {
		if (!isRaw(raw) || typeof raw.uri !== 'string') return [];
		const name = text(raw.name) || raw.uri;
		const title = text(raw.title) || name;
		const { uri } = raw;
		return [{ uri, name, title, description: text(raw.description), type: text(raw.mimeType) }];
	});
}

/** The contents of a resource, as files. */
export function readContents(result: unknown): { bytes: Uint8Array<ArrayBuffer>; type: string }[] {
	const contents = isRaw(result) && Array.isArray(result.contents) ? result.contents : [];
	return contents.flatMap((raw) => {
		if (!isRaw(raw)) return [];
		const type = text(raw.mimeType) || 'text/plain';
		if (typeof raw.text === 'string') return [{ bytes: new TextEncoder().encode(raw.text), type }];
		if (typeof raw.blob !== 'string') return [];
		try {
			return [{ bytes: Uint8Array.from(atob(raw.blob), (one) => one.charCodeAt(0)), type }];
		} catch {
			return [];
		}
	});
}

export function readPrompts(list: unknown[]): McpPrompt[] {
	return list.flatMap((raw) => {
		if (!isRaw(raw) || typeof raw.name !== 'string') return [];
		const given = Array.isArray(raw.arguments) ? raw.arguments.filter(isRaw) : [];
		return [
			{
				name: raw.name,
				title: text(raw.title) || raw.name,
				description: text(raw.description),
				arguments: given.map((one) => ({
					name: text(one.name),
					description: text(one.description),
					required: one.required === true
				}))
			}
		];
	});
}

/** The words of a prompt, for the box: who sends it sees it first. */
export function promptText(result: unknown): string {
	const messages = isRaw(result) && Array.isArray(result.messages) ? result.messages : [];
	return messages
		.flatMap((message) => {
			if (!isRaw(message)) return [];
			const { content } = message;
			return Array.isArray(content) ? content.map(contentText) : [contentText(content)];
		})
		.filter(Boolean)
		.join('\n\n');
}

function isRaw(value: unknown): value is Raw {
	return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function text(value: unknown): string {
	return typeof value === 'string' ? value : '';
}
