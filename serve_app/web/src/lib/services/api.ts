import { readKey } from '#lib/storage/secret';

/** The server's refusal, or with status 0 that nothing answered. */
export class ApiError extends Error {
	constructor(
		message: string,
		readonly status: number,
		readonly code?: string,
		readonly type?: string,
		readonly param?: string,
		readonly request_id?: string,
		readonly retry_after_ms?: number,
		/** All that the server said. */
		readonly body?: unknown
	) {
		super(message);
		this.name = 'ApiError';
	}
}

/** Told of each answer: stores hang themselves in here, as services know no stores. */
export const listeners = { signedOut() {}, reached() {}, lost() {} };

/** The address of a thing of the server: the page lies in `ui/` below it, and at its root in development. */
export function url(path: string): string {
	return import.meta.env.DEV ? `/${path}` : `../${path}`;
}

export function uiUrl(path: string): string {
	return `./${path}`;
}

/** An answer with a good status; else an `ApiError`. Who aborts gets the abort's own error. */
async function stream(path: string, init: RequestInit = {}): Promise<Response> {
	const headers = new Headers(init.headers);
	const key = readKey();
	if (key) headers.set('Authorization', `Bearer ${key}`);
	let response: Response;
	try {
		response = await fetch(path.startsWith('./') ? path : url(path), { ...init, headers });
	} catch (error) {
		if (init.signal?.aborted) throw error;
		throw lost();
	}
	if (response.ok) {
		listeners.reached();
		return response;
	}
	const refused = await refusal(response);
	if (isOfProxy(refused)) {
		// The store may be away while the models are there, and what only took long was heard.
		const wasHeard = refused.status === 504 && (init.method ?? 'GET') !== 'GET';
		throw path.startsWith('./') || wasHeard ? refused : lost();
	}
	listeners.reached();
	// Who signed in meanwhile has another key.
	if (response.status === 401 && readKey() === key) listeners.signedOut();
	throw refused;
}

function lost(): ApiError {
	listeners.lost();
	return new ApiError("The server can't be reached.", 0);
}

/** A proxy in front says that nobody answers it: the server itself says what is wrong. */
function isOfProxy({ status, body }: ApiError): boolean {
	const error = (body as { error?: unknown } | null)?.error;
	return [502, 503, 504].includes(status) && (typeof error !== 'object' || error === null);
}

/** `error` of a body or of an event, in OpenAI's or llama-server's form. */
export function readError(
	body: unknown,
	status: number,
	headers: Headers = new Headers()
): ApiError {
	const raw = (body as { error?: unknown } | null)?.error;
	const error = (typeof raw === 'object' && raw !== null ? raw : {}) as Record<string, unknown>;
	const text = (value: unknown) =>
		value === undefined || value === null ? undefined : String(value);
	const after = Number(headers.get('retry-after'));
	return new ApiError(
		text(error.message) ?? text(raw) ?? `The server answered ${status}.`,
		status,
		text(error.code),
		text(error.type),
		text(error.param),
		headers.get('x-request-id') ?? undefined,
		after > 0 ? after * 1000 : undefined,
		body
	);
}

async function refusal(response: Response): Promise<ApiError> {
	const body: unknown = await response.json().catch(() => null);
	return readError(body, response.status, response.headers);
}

async function json<T>(path: string, init?: RequestInit): Promise<T> {
	const response = await stream(path, init);
	if (response.status === 204) return undefined as T;
	try {
		return (await response.json()) as T;
	} catch (error) {
		if (init?.signal?.aborted) throw error;
		if (!(error instanceof SyntaxError)) throw lost();
		throw new ApiError('The server answered something that is no JSON.', response.status);
	}
}

/** What sends `body` as JSON. */
export function post(body: unknown, init: RequestInit = {}): RequestInit {
	const headers = new Headers(init.headers);
	headers.set('Content-Type', 'application/json');
	return { ...init, method: 'POST', headers, body: JSON.stringify(body) };
}

export const api = { json, stream };
