import { SvelteMap } from 'svelte/reactivity';
import { newId } from '#lib/pure/ids';
import {
	mayConnect,
	promptText,
	readAddress,
	readContents,
	readPrompts,
	readResources,
	readToolResult,
	readTools,
	type McpPrompt,
	type McpResource
} from '#lib/pure/mcp';
import { failure, type Tool } from '#lib/pure/tool_calls';
import { McpClient, McpError, pagePolicy, TokenRefused } from '#lib/services/mcp';
import { onLocalChange, readLocal, writeLocal } from '#lib/storage/local';
import { keepToken, readToken } from '#lib/storage/mcp_tokens';

const MCP_SERVERS = 'manta-mcp';
const MAX_SERVERS = 16;

/** As this browser keeps it. */
export interface McpServer {
	id: string;
	name: string;
	/** Absolute, or a path of this server. */
	address: string;
}

/** What is known of a server now. */
export interface McpState {
	state: 'connecting' | 'connected' | 'failed';
	/** Why it failed. */
	error?: string;
	/** It failed for want of the right token. */
	asksToken?: boolean;
	tools: Tool[];
	resources: McpResource[];
	prompts: McpPrompt[];
}

const NOTHING = { tools: [], resources: [], prompts: [] };

/** The MCP servers that the person added, each asked from this browser. */
class McpStore {
	servers = $state.raw<McpServer[]>([]);
	readonly states = new SvelteMap<string, McpState>();
	readonly #clients = new Map<string, McpClient>();
	#policy: Promise<string | null> | null = null;

	readonly tools: Tool[] = $derived(
		this.servers.flatMap((server) => this.states.get(server.id)?.tools ?? [])
	);

	constructor() {
		this.#read();
		onLocalChange(MCP_SERVERS, () => {
			this.#read();
			void this.connectAll();
		});
	}

	/** Why it can't be added; "" once it is. */
	async add(name: string, address: string, token: string): Promise<string> {
		const url = readAddress(address, location.href);
		if (typeof url === 'string') return url;
		if (this.servers.length >= MAX_SERVERS) return `At most ${MAX_SERVERS} servers can be added.`;
		if (this.servers.some((one) => String(readAddress(one.address, location.href)) === url.href))
			return 'This server is there already.';
		const server = { id: newId(), name: name.trim() || url.hostname, address: address.trim() };
		keepToken(server.id, token.trim());
		this.#write([...this.servers, server]);
		await this.connect(server);
		return '';
	}

	async remove(id: string): Promise<void> {
		this.#write(this.servers.filter((server) => server.id !== id));
		keepToken(id, '');
		await this.#forget(id);
	}

	async setToken(server: McpServer, token: string): Promise<void> {
		keepToken(server.id, token.trim());
		await this.connect(server);
	}

	/** Those that are not connected yet; each says itself why it could not be. */
	async connectAll(): Promise<void> {
		const left = this.servers.filter(({ id }) => !this.states.has(id));
		await Promise.all(left.map((server) => this.connect(server)));
	}

	async connect(server: McpServer): Promise<void> {
		const { id } = server;
		await this.#forget(id);
		this.states.set(id, { state: 'connecting', ...NOTHING });
		let client: McpClient | undefined;
		try {
			const url = await this.#allowed(server.address);
			client = new McpClient(url.href, readToken(id));
			this.#clients.set(id, client);
			await client.connect();
			const tools = await client.list('tools');
			const resources = await client.list('resources');
			const prompts = await client.list('prompts');
			if (this.#clients.get(id) !== client) return;
			const taken = new Set(this.tools.filter((tool) => tool.of !== id).map((tool) => tool.name));
			this.states.set(id, {
				state: 'connected',
				tools: readTools(tools, id, server.name, taken),
				resources: readResources(resources),
				prompts: readPrompts(prompts)
			});
		} catch (error) {
			if (this.#clients.get(id) !== client) return;
			const asksToken = error instanceof TokenRefused;
			this.states.set(id, { state: 'failed', error: wordsOf(error), asksToken, ...NOTHING });
		}
	}

	/** The result as text; throws the abort's own error. */
	async call(tool: Tool, params: Record<string, unknown>, signal: AbortSignal): Promise<string> {
		const client = this.#clients.get(tool.of);
		if (!client) return failure('The server of this tool is not connected.');
		try {
			return readToolResult(await client.callTool(tool.own_name, params, signal));
		} catch (error) {
			if (signal.aborted) throw error;
			return failure(wordsOf(error));
		}
	}

	async readResource(server: string, resource: McpResource): Promise<File[]> {
		const client = this.#connected(server);
		const answer = await client.request('resources/read', { uri: resource.uri });
		return readContents(answer).map(
			({ bytes, type }) => new File([bytes], resource.name, { type })
		);
	}

	/** The words of a prompt, for the box. */
	async readPrompt(
		server: string,
		prompt: McpPrompt,
		values: Record<string, string>
	): Promise<string> {
		const given = Object.fromEntries(Object.entries(values).filter(([, value]) => value !== ''));
		const client = this.#connected(server);
		return promptText(await client.request('prompts/get', { name: prompt.name, arguments: given }));
	}

	#connected(server: string): McpClient {
		const client = this.#clients.get(server);
		if (!client) throw new McpError('This server is not connected.');
		return client;
	}

	async #allowed(address: string): Promise<URL> {
		const url = readAddress(address, location.href);
		if (typeof url === 'string') throw new McpError(url);
		this.#policy ??= pagePolicy().catch(() => {
			this.#policy = null;
			throw new McpError("The server of this page can't be reached.");
		});
		if (!mayConnect(await this.#policy, url, location.origin))
			throw new McpError(
				`This page may not ask ${url.origin}: the operator has to name it in \`connect_origins\` of \`web\`.`
			);
		return url;
	}

	async #forget(id: string): Promise<void> {
		const client = this.#clients.get(id);
		this.#clients.delete(id);
		this.states.delete(id);
		await client?.close();
	}

	#read(): void {
		const raw = readLocal(MCP_SERVERS);
		this.servers = (Array.isArray(raw) ? raw : []).filter(isServer).slice(0, MAX_SERVERS);
		for (const id of this.states.keys())
			if (!this.servers.some((server) => server.id === id)) void this.#forget(id);
	}

	#write(servers: McpServer[]): void {
		this.servers = servers;
		writeLocal(MCP_SERVERS, servers);
	}
}

function isServer(raw: unknown): raw is McpServer {
	if (typeof raw !== 'object' || raw === null) return false;
	const { id, name, address } = raw as Partial<McpServer>;
	return typeof id === 'string' && typeof name === 'string' && typeof address === 'string';
}

export function wordsOf(error: unknown): string {
	return error instanceof Error ? error.message : String(error);
}

export const mcpStore = new McpStore();
export type { McpStore };
