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
		readonly retry_after_ms?: number
	) {
		super(message);
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

async function stream(path: string, init: RequestInit = {}): Promise<Response> {
	const headers = new Headers(init.headers);
	const key = readKey();
	if (key) headers.set('Authorization', `Bearer ${key}`);
	let response: Response;
	try {
		response = await fetch(path.startsWith('./') ? path : url(path), { ...init, headers });
	} catch (error) {
		if (!init.signal?.aborted) listeners.lost();
		throw new ApiError(String(error), 0);
	}
	listeners.reached();
	if (response.ok) return response;
	if (response.status === 401) listeners.signedOut();
	throw await refusal(response);
}

async function refusal(response: Response): Promise<ApiError> {
	const body = (await response.json().catch(() => ({}))) as { error?: Record<string, string> };
	const error = body.error ?? {};
	const after = Number(response.headers.get('retry-after'));
	return new ApiError(
		error.message ?? `The server answered ${response.status}`,
		response.status,
		error.code,
		error.type,
		error.param,
		response.headers.get('x-request-id') ?? undefined,
		after ? after * 1000 : undefined
	);
}

async function json<T>(path: string, init?: RequestInit): Promise<T> {
	return (await (await stream(path, init)).json()) as T;
}

export const api = { json, stream };
