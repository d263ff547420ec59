/** What a file is, whether it can be attached, and what a model can't read of it. */
import type { Attachment } from '#lib/types';
import { cut } from './well_formed';

export type Kind = 'text' | 'image' | 'audio' | 'pdf';

export interface Sniffed {
	kind: Kind;
	/** By its content; a text's own type where the browser knows it. */
	type: string;
}

/** What a model reads apart from text. */
export interface Modalities {
	image: boolean;
	audio: boolean;
}

export const MAX_FILES = 20;
export const MAX_PICTURE_BYTES = 25 * 2 ** 20;
export const MAX_AUDIO_BYTES = 25 * 2 ** 20;
export const MAX_PDF_BYTES = 64 * 2 ** 20;
/** More than any model's context. */
export const MAX_TEXT_BYTES = 4 * 2 ** 20;
export const MAX_PICTURE_SIDE = 4096;
export const MAX_PDF_PAGES = 500;
/** Pages of a PDF that are sent as pictures; each is some thousand tokens. */
export const MAX_PDF_PICTURES = 50;
/** Bytes that `sniff` looks at. */
export const HEAD_BYTES = 4096;

const SIGNATURES: [kind: Kind, type: string, ...parts: [at: number, text: string][]][] = [
	['image', 'image/png', [0, '\x89PNG\r\n\x1a\n']],
	['image', 'image/jpeg', [0, '\xff\xd8\xff']],
	['image', 'image/gif', [0, 'GIF8']],
	['image', 'image/webp', [0, 'RIFF'], [8, 'WEBP']],
	['image', 'image/avif', [4, 'ftypavif']],
	['image', 'image/bmp', [0, 'BM'], [6, '\0\0\0\0']],
	['audio', 'audio/wav', [0, 'RIFF'], [8, 'WAVE']],
	['audio', 'audio/mpeg', [0, 'ID3']],
	['pdf', 'application/pdf', [0, '%PDF-']]
];
const OTHERS: [name: string, ...parts: [at: number, text: string][]][] = [
	['an Ogg file', [0, 'OggS']],
	['a FLAC file', [0, 'fLaC']],
	['a video or sound in MPEG-4', [4, 'ftyp']],
	['a Matroska or WebM file', [0, '\x1aE\xdf\xa3']],
	['an archive or an Office document', [0, 'PK\x03\x04']],
	['a compressed file', [0, '\x1f\x8b']],
	['a program', [0, '\x7fELF']],
	['a program', [0, 'MZ']]
];
const BY_ENDING: Record<string, Kind> = {
	...Object.fromEntries(
		['png', 'jpg', 'jpeg', 'gif', 'webp', 'avif', 'bmp'].map((one) => [one, 'image'])
	),
	...{ wav: 'audio', mp3: 'audio', pdf: 'pdf' }
};
const KIND_WORDS: Record<Kind, string> = {
	text: 'a text',
	image: 'a picture',
	audio: 'a sound',
	pdf: 'a PDF'
};

/** What the first `HEAD_BYTES` of a file say that it is; a text where they say why it can't be attached. */
export function sniff(head: Uint8Array, name: string, type = ''): Sniffed | string {
	if (head.length === 0) return `${name} is empty.`;
	const found = SIGNATURES.find(([, , ...parts]) => has(head, parts));
	const named = BY_ENDING[ending(name)];
	if (found) return { kind: found[0], type: found[1] };
	// A frame of MPEG audio: 11 bits set, a layer that is not reserved.
	if (
		head[0] === 0xff &&
		(head[1]! & 0xe0) === 0xe0 &&
		(head[1]! & 0x06) !== 0 &&
		named === 'audio'
	)
		return { kind: 'audio', type: 'audio/mpeg' };
	if (named) return `${name} is not ${KIND_WORDS[named]}, though its name says so.`;
	const other = OTHERS.find(([, ...parts]) => has(head, parts));
	if (other) return `${name} is ${other[0]}, which can't be attached.`;
	if (!isText(head)) return `${name} is neither a text, a PDF, a picture nor a sound.`;
	const isSvg = /^\s*(<\?xml[^>]*>\s*)?(<!--[^]*?-->\s*)*(<!DOCTYPE svg[^>]*>\s*)?<svg[\s>]/i.test(
		new TextDecoder().decode(head)
	);
	if (isSvg) return { kind: 'text', type: 'image/svg+xml' };
	// A type such as that of a script or of a page of HTML is none of a chat's business.
	return { kind: 'text', type: /^text\/(csv|markdown|plain)$/.test(type) ? type : 'text/plain' };
}

function has(head: Uint8Array, parts: [at: number, text: string][]): boolean {
	return parts.every(([at, text]) =>
		[...text].every((letter, index) => head[at + index] === letter.charCodeAt(0))
	);
}

function isText(head: Uint8Array): boolean {
	if (utf16(head)) return true;
	if (head.includes(0)) return false;
	// The last letter may be cut.
	for (let cut = 0; cut < 4 && cut < head.length; cut++)
		try {
			new TextDecoder('utf-8', { fatal: true }).decode(head.subarray(0, head.length - cut));
			return true;
		} catch {
			if (head.length < HEAD_BYTES) return false;
		}
	return false;
}

function utf16(bytes: Uint8Array): 'utf-16le' | 'utf-16be' | null {
	if (bytes[0] === 0xff && bytes[1] === 0xfe) return 'utf-16le';
	if (bytes[0] === 0xfe && bytes[1] === 0xff) return 'utf-16be';
	return null;
}

/** A text file's text; null: it is none, beyond its beginning. Models are sent no `\0`. */
export function decodeText(bytes: Uint8Array): string | null {
	try {
		const text = new TextDecoder(utf16(bytes) ?? 'utf-8', { fatal: true }).decode(bytes);
		return text.includes('\0') ? null : text;
	} catch {
		return null;
	}
}

export function ending(name: string): string {
	const dot = name.lastIndexOf('.');
	return dot < 0 ? '' : name.slice(dot + 1).toLowerCase();
}

/** Why a file of this kind is too large; "" where it is not. `most`: the store's own limit. */
export function sizeError(name: string, kind: Kind, size: number, most = Infinity): string {
	const own = {
		text: MAX_TEXT_BYTES,
		image: MAX_PICTURE_BYTES,
		audio: MAX_AUDIO_BYTES,
		pdf: MAX_PDF_BYTES
	}[kind];
	const limit = Math.min(own, most);
	if (size <= limit) return '';
	return `${name} has ${describeBytes(size)}; ${KIND_WORDS[kind]} may have ${describeBytes(limit)}.`;
}

/** The largest size of the same form with no side longer than `most`; never larger than before. */
export function fittingSize(width: number, height: number, most = MAX_PICTURE_SIDE) {
	const scale = Math.min(1, most / Math.max(width, height, 1));
	return {
		width: Math.max(1, Math.round(width * scale)),
		height: Math.max(1, Math.round(height * scale))
	};
}

/** What a model has to read of it: SVG is text, and so is a PDF unless its pages are drawn. */
export function needs(attachment: Pick<Attachment, 'type' | 'as'>): Kind {
	if (attachment.as === 'text') return 'text';
	if (attachment.as === 'images' || attachment.type.startsWith('image/')) return 'image';
	return attachment.type.startsWith('audio/') ? 'audio' : 'text';
}

/** Why the model can't read it; "" where it can, or where nobody knows yet. */
export function whyUnread(
	attachment: Pick<Attachment, 'name' | 'type' | 'as'>,
	model: string,
	modalities: Modalities | undefined
): string {
	const kind = needs(attachment);
	if (kind === 'text' || !modalities || modalities[kind === 'audio' ? 'audio' : 'image']) return '';
	const what =
		attachment.as === 'images' ? 'is sent as pictures of its pages' : `is ${KIND_WORDS[kind]}`;
	return `${attachment.name} ${what}, and ${model} reads ${takes(modalities)}.`;
}

export function takes({ image, audio }: Modalities): string {
	const kinds = ['text', ...(image ? ['pictures'] : []), ...(audio ? ['sound'] : [])];
	if (kinds.length === 1) return 'text only';
	return `${kinds.slice(0, -1).join(', ')} and ${kinds.at(-1)} only`;
}

export function describeBytes(bytes: number): string {
	if (bytes < 1000) return `${bytes} B`;
	if (bytes < 1000 * 1024) return `${Math.max(1, Math.round(bytes / 1024))} kB`;
	const mega = bytes / 2 ** 20;
	if (mega >= 1000) return `${(mega / 1024).toFixed(1)} GB`;
	return `${mega < 10 && mega % 1 !== 0 ? mega.toFixed(1) : Math.round(mega)} MB`;
}

/** A name that no other has: two files called `image.png` are `image.png` and `image (2).png`. */
export function freshName(name: string, taken: readonly string[]): string {
	const dot = name.lastIndexOf('.');
	const [stem, end] = dot > 0 ? [name.slice(0, dot), name.slice(dot)] : [name, ''];
	let fresh = name;
	for (let count = 2; taken.includes(fresh); count++) fresh = `${stem} (${count})${end}`;
	return fresh;
}

/** A name without what may fool its reader: control characters and marks that turn its direction. */
export function cleanName(name: string): string {
	const clean = name
		// eslint-disable-next-line no-control-regex
		.replace(/[\u0000-\u001f\u007f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, '')
		.trim();
	return cut(clean, 200) || 'file';
}
