/**
 * Ids that sort by the time they were made: UUIDv7 (RFC 9562). `crypto.randomUUID` exists in a
 * secure context only, and the page also runs on plain HTTP.
 */

let last = 0;
let count = 0;

/** A new id. Ids of one page rise, also within a millisecond. */
export function newId(now: number = Date.now()): string {
	const bytes = crypto.getRandomValues(new Uint8Array(16));
	if (now > last) {
		last = now;
		// Half of the counter's range is left to count up within this millisecond.
		count = ((bytes[6]! << 8) | bytes[7]!) & 0x7ff;
	} else if (++count > 0xfff) {
		last += 1;
		count = 0;
	}
	const view = new DataView(bytes.buffer);
	view.setUint32(0, Math.floor(last / 0x10000));
	view.setUint16(4, last % 0x10000);
	view.setUint16(6, 0x7000 | count);
	view.setUint8(8, 0x80 | (bytes[8]! & 0x3f));
	const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
	return [
		hex.slice(0, 8),
		hex.slice(8, 12),
		hex.slice(12, 16),
		hex.slice(16, 20),
		hex.slice(20)
	].join('-');
}

/** Whether `text` is a UUID as this page and the store write it. */
export function isId(text: unknown): text is string {
	return typeof text === 'string' && /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text);
}
