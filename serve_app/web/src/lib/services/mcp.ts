/** A client of MCP servers by streamable HTTP; imported when the first one is configured. */
import { PROTOCOL_VERSION } from '#lib/pure/mcp';
import { readEvents } from '#lib/pure/sse';

const TIMEOUT_MS = 30_000;
/** Of a call of a tool. */
const CALL_TIMEOUT_MS = 300_000;
/** Pages of a list. */
const MAX_PAGES = 50;

export class McpError extends Error {}

/** The server wants a token, or another one. */
export class TokenRefused extends McpError {}

interface RpcMessage {
	jsonrpc?: string;
	id?: number | string | null;
	method?: string;
	result?: unknown;
	error?: { code?: number; message?: string };
}

/** The policy that the server gave this page: whom it may ask. */
export async function pagePolicy(): Promise<string | null> {
	const response = await fetch('./', { method: 'HEAD' });
	return response.headers.get('content-security-policy');
}

export class McpClient {
	#session: string | null = null;
	#version = PROTOCOL_VERSION;
	#capabilities: Record<string, unknown> = {};
	#count = 0;
	/** What the server calls itself. */
	title = '';

	constructor(
		readonly url: string,
		/** Sent to this server alone. */
		private readonly token: string | null
	) {}

	has(what: 'tools' | 'resources' | 'prompts'): boolean {
		return what in this.#capabilities;
	}

	async connect(): Promise<void> {
		this.#session = null;
		const answer = (await this.#ask('initialize', {
			protocolVersion: PROTOCOL_VERSION,
			capabilities: {},
			clientInfo: { name: 'manta', version: '1' }
		})) as {
			protocolVersion?: string;
			capabilities?: Record<string, unknown>;
			serverInfo?: { name?: string; title?: string };
		} | null;
		this.#version = answer?.protocolVersion ?? PROTOCOL_VERSION;
		this.#capabilities = answer?.capabilities ?? {};
		this.title = answer?.serverInfo?.title ?? answer?.serverInfo?.name ?? '';
		await this.#send({ method: 'notifications/initialized' }, AbortSignal.timeout(TIMEOUT_MS));
	}

	/** All pages of `tools/list`, `resources/list` or `prompts/list`. */
	async list(what: 'tools' | 'resources' | 'prompts'): Promise<unknown[]> {
		if (!this.has(what)) return [];
		const found: unknown[] = [];
		let cursor: string | undefined;
		for (let page = 0; page < MAX_PAGES; page++) {
			const answer = (await this.request(`${what}/list`, cursor ? { cursor } : {})) as
				(Record<string, unknown> & { nextCursor?: string }) | null;
			if (Array.isArray(answer?.[what])) found.push(...(answer[what] as unknown[]));
			cursor = answer?.nextCursor;
			if (!cursor) break;
		}
		return found;
	}

	async callTool(
		name: string,
		params: Record<string, unknown>,
		signal: AbortSignal
	): Promise<unknown> {
		const ends = AbortSignal.any([signal, AbortSignal.timeout(CALL_TIMEOUT_MS)]);
		return this.request('tools/call', { name, arguments: params }, ends);
	}

	/** A session that the server has forgotten is begun anew, once. */
	async request(method: string, params: unknown, signal?: AbortSignal): Promise<unknown> {
		try {
			return await this.#ask(method, params, signal);
		} catch (error) {
			if (!(error instanceof SessionGone)) throw error;
			await this.connect();
			return this.#ask(method, params, signal);
		}
	}

	async close(): Promise<void> {
		if (this.#session === null) return;
		const headers = this.#headers();
		this.#session = null;
		const signal = AbortSignal.timeout(TIMEOUT_MS);
		await fetch(this.url, { method: 'DELETE', headers, signal }).catch(() => undefined);
	}

	async #ask(
		method: string,
		params: unknown,
		signal: AbortSignal = AbortSignal.timeout(TIMEOUT_MS)
	): Promise<unknown> {
		const id = ++this.#count;
		let response: Response;
		try {
			response = await this.#send({ id, method, params }, signal);
			if (method === 'initialize') this.#session = response.headers.get('mcp-session-id');
			return resultOf(await this.#answer(response, id));
		} catch (error) {
			if (signal.aborted) {
				const reason = { requestId: id, reason: 'The person stopped it.' };
				void this.#send({ method: 'notifications/cancelled', params: reason }).catch(
					() => undefined
				);
				if (signal.reason instanceof DOMException && signal.reason.name === 'TimeoutError')
					throw new McpError('It did not answer in time.');
			}
			throw error;
		}
	}

	async #send(message: Record<string, unknown>, signal?: AbortSignal): Promise<Response> {
		const headers = this.#headers();
		headers.set('Content-Type', 'application/json');
		headers.set('Accept', 'application/json, text/event-stream');
		const body = JSON.stringify({ jsonrpc: '2.0', ...message });
		let response: Response;
		try {
			response = await fetch(this.url, {
				method: 'POST',
				headers,
				body,
				signal,
				credentials: 'omit',
				redirect: 'error'
			});
		} catch (error) {
			if (signal?.aborted) throw error;
			throw new McpError(
				"It can't be reached, or does not let pages of this origin ask it (CORS)."
			);
		}
		if (response.ok) return response;
		await response.body?.cancel();
		if (response.status === 404 && this.#session !== null) throw new SessionGone();
		if (response.status === 401 || response.status === 403)
			throw new TokenRefused(this.token ? 'It asks for another token.' : 'It asks for a token.');
		throw new McpError(`It answered ${response.status}.`);
	}

	#headers(): Headers {
		const headers = new Headers();
		if (this.token) headers.set('Authorization', `Bearer ${this.token}`);
		if (this.#session !== null) {
			headers.set('Mcp-Session-Id', this.#session);
			headers.set('MCP-Protocol-Version', this.#version);
		}
		return headers;
	}

	async #answer(response: Response, id: number): Promise<RpcMessage> {
		const type = response.headers.get('content-type') ?? '';
		if (type.startsWith('text/event-stream') && response.body) {
			for await (const { data } of readEvents(response.body)) {
				if (!data) continue;
				const message = JSON.parse(data) as RpcMessage;
				if (message.id === id && message.method === undefined) return message;
				if (message.method !== undefined && message.id !== undefined) void this.#refuse(message);
			}
			throw new McpError('It ended its answer too early.');
		}
		const body: unknown = await response.json().catch(() => null);
		const messages = (Array.isArray(body) ? body : [body]) as (RpcMessage | null)[];
		const found = messages.find((one) => one?.id === id);
		if (!found) throw new McpError('It answered nothing that can be read: is this an MCP server?');
		return found;
	}

	/** What the server asks of the page: it can say that it is there, and nothing else. */
	async #refuse({ id, method }: RpcMessage): Promise<void> {
		const answer =
			method === 'ping'
				? { id, result: {} }
				: { id, error: { code: -32601, message: 'This client does not do that.' } };
		await this.#send(answer).catch(() => undefined);
	}
}

class SessionGone extends McpError {}

function resultOf(message: RpcMessage): unknown {
	if (message.error) throw new McpError(message.error.message ?? 'It refused.');
	return message.result;
}
