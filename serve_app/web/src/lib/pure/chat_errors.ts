import type { MessageError } from '#lib/types';

/** As `ApiError` has them; a status of 0: nothing answered. */
interface Refusal {
	message: string;
	status: number;
	code?: string;
	request_id?: string;
	retry_after_ms?: number;
}

const BY_CODE: Record<string, string> = {
	context_length_exceeded: 'The chat is too long for this model',
	model_not_found: 'The server does not have this model',
	overloaded: 'The server is busy',
	model_replaced: 'The model was replaced while it answered',
	timeout: 'The answer took too long'
};
const BY_STATUS: Record<number, string> = {
	0: "The server can't be reached",
	400: 'The server refused this request',
	401: 'The server asks for a key',
	404: 'The server does not have this',
	413: 'This is too large for the server',
	422: 'The server refused this request',
	429: 'The server is busy',
	501: 'The server does not support this',
	503: 'The model is not available',
	504: 'The answer took too long'
};

/** What the card at the end of a message says. */
export function describeError(error: unknown, now = Date.now()): MessageError {
	if (!isRefusal(error))
		return {
			title: 'Something went wrong',
			message: error instanceof Error ? error.message : String(error)
		};
	const { message, status, code, request_id, retry_after_ms } = error;
	const mayRetry = status === 429 || status === 503;
	return {
		title: BY_CODE[code ?? ''] ?? BY_STATUS[status] ?? 'The server failed',
		message,
		...(status > 0 && status !== 200 && { status }),
		...(code && { code }),
		...(request_id && { request_id }),
		...(mayRetry && { retry_at: now + (retry_after_ms ?? 5000) })
	};
}

function isRefusal(error: unknown): error is Refusal {
	return error instanceof Error && typeof (error as unknown as Refusal).status === 'number';
}
