import { SvelteSet } from 'svelte/reactivity';
import type { ToolDefinition } from '#lib/pure/chat_request';
import { failure, parseArguments, type Tool } from '#lib/pure/tool_calls';
import { ToolsService } from '#lib/services/tools';
import { readLocal, writeLocal } from '#lib/storage/local';
import type { Chat, ToolCall } from '#lib/types';
import type { McpStore } from './mcp.svelte';
import { settingsStore } from './settings.svelte';

const NAME = 'manta-tools';
/** Of the MCP servers, as their store keeps them. */
const MCP_SERVERS = 'manta-mcp';
/** Chats whose allowances are kept. */
const MAX_CHATS = 200;

interface Stored {
	/** Tools that read, in all chats. */
	always?: unknown;
	/** By chat. */
	chats?: unknown;
}

/** The tools that models may call, and which calls the person has allowed; those are not synced. */
class ToolsStore {
	/** Null: not asked yet, or the operator enabled none. */
	#own = $state.raw<Tool[] | null>(null);
	/** Imported once the person has added a server. */
	mcp = $state.raw<McpStore | null>(null);
	/** The server has said which it has. */
	known = $state(false);
	#asked: Promise<void> | null = null;
	readonly #always = new SvelteSet<string>();
	readonly #inChats = new SvelteSet<string>();

	readonly list: Tool[] = $derived([...(this.#own ?? []), ...(this.mcp?.tools ?? [])]);

	constructor() {
		const stored = (readLocal(NAME) ?? {}) as Stored;
		for (const name of texts(stored.always)) this.#always.add(name);
		for (const key of texts(stored.chats)) this.#inChats.add(key);
	}

	/** Asks the server once, and again after a failure; connects the MCP servers. */
	async read(): Promise<void> {
		await Promise.all([this.#readOwn(), this.readMcp()]);
	}

	/** Nothing is imported where no server was added. */
	async readMcp(): Promise<void> {
		const servers = readLocal(MCP_SERVERS);
		if (Array.isArray(servers) && servers.length > 0) await (await this.openMcp()).connectAll();
	}

	async openMcp(): Promise<McpStore> {
		this.mcp ??= (await import('./mcp.svelte')).mcpStore;
		return this.mcp;
	}

	async #readOwn(): Promise<void> {
		this.#asked ??= ToolsService.list().then(
			(list) => {
				this.#own = list;
				this.known = true;
			},
			() => {
				this.#asked = null;
			}
		);
		await this.#asked;
	}

	find(name: string): Tool | undefined {
		return this.list.find((tool) => tool.name === name);
	}

	/** Whether the person lets a chat's model call it. */
	isOffered(chat: Chat | null, name: string): boolean {
		const chosen = chat?.settings.tools;
		if (chosen) return chosen.includes(name);
		// Who added an MCP server wants its tools to be used.
		return settingsStore.values.useTools || this.find(name)?.of !== 'server';
	}

	async offered(chat: Chat | null): Promise<ToolDefinition[]> {
		if (settingsStore.values.useTools || chat?.settings.tools?.length) await this.read();
		else await this.readMcp();
		return this.list
			.filter((tool) => this.isOffered(chat, tool.name))
			.map(({ name, description, parameters }) => ({
				type: 'function',
				function: { name, description, parameters }
			}));
	}

	/** What writes is allowed for one chat at a time. */
	isAllowed(chat: string, name: string): boolean {
		const tool = this.find(name);
		// The call of a tool that is not there is refused, so that nobody has to be asked.
		if (!tool) return this.known;
		return tool.writes
			? this.#inChats.has(`${chat} ${keyOf(tool)}`)
			: this.#always.has(keyOf(tool));
	}

	allow(chat: string, name: string): void {
		const tool = this.find(name);
		if (!tool) return;
		if (tool.writes) this.#inChats.add(`${chat} ${keyOf(tool)}`);
		else this.#always.add(keyOf(tool));
		this.#write();
	}

	/** Whether the operator enabled any, or an MCP server has some. */
	get hasTools(): boolean {
		return this.list.length > 0;
	}

	get hasAllowances(): boolean {
		return this.#always.size + this.#inChats.size > 0;
	}

	forgetAllowances(): void {
		this.#always.clear();
		this.#inChats.clear();
		this.#write();
	}

	/** The result as text. Throws the abort's own error, or an `ApiError` for a key that is worth nothing. */
	async call(call: ToolCall, signal: AbortSignal): Promise<string> {
		await this.read();
		const tool = this.find(call.name);
		if (!tool && !this.known) return failure('The server could not be asked for its tools.');
		if (!tool) return failure(`There is no tool ${call.name}.`);
		const params = parseArguments(call.arguments);
		if (typeof params === 'string') return failure(params);
		if (tool.of === 'server') return ToolsService.call(tool.own_name, params, signal);
		return this.mcp?.call(tool, params, signal) ?? failure(`${call.name} is not there now.`);
	}

	#write(): void {
		writeLocal(NAME, {
			always: [...this.#always],
			chats: [...this.#inChats].slice(-MAX_CHATS)
		});
	}
}

/** A tool of one server is not that of another. */
function keyOf(tool: Tool): string {
	return `${tool.of} ${tool.own_name}`;
}

function texts(raw: unknown): string[] {
	return Array.isArray(raw) ? raw.filter((one) => typeof one === 'string') : [];
}

export const toolsStore = new ToolsStore();
