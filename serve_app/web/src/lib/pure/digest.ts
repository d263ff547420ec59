import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';

/** The SHA-256 of a text's UTF-8, as 64 hexadecimal digits. */
export function digestOf(text: string): string {
	return bytesToHex(sha256(utf8ToBytes(text)));
}

/** The same of bytes: by the browser where it may, which is in a secure context alone. */
export async function digestOfBytes(bytes: Uint8Array<ArrayBuffer>): Promise<string> {
	const subtle = globalThis.crypto?.subtle;
	return bytesToHex(subtle ? new Uint8Array(await subtle.digest('SHA-256', bytes)) : sha256(bytes));
}
