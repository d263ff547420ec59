/** Files that are attached to a question: what is kept of them, and what a model gets to read. */
import {
	cleanName,
	decodeText,
	describeBytes,
	fittingSize,
	HEAD_BYTES,
	MAX_PDF_PAGES,
	MAX_PDF_PICTURES,
	MAX_PICTURE_BYTES,
	MAX_PICTURE_SIDE,
	sizeError,
	sniff
} from '#lib/pure/attachments';
import type { FileContent } from '#lib/pure/chat_request';
import { joinPages } from '#lib/pure/pdf_text';
import type { Attachment } from '#lib/types';

/** Why a file can't be attached, for the person. */
export class FileRefused extends Error {}

export interface PreparedFile {
	name: string;
	blob: Blob;
	as: Attachment['as'];
}

export interface Preparing {
	/** Of the store. */
	max_bytes?: number;
	pdfAs: 'text' | 'images';
	signal?: AbortSignal;
	/** 0 to 1. */
	onprogress?: (share: number) => void;
}

/** The sides of a page that is drawn: a letter is some 20 pixels high then. */
const PAGE_SIDE = 1600;
/** Texts of PDFs that are not read again. */
const MAX_KNOWN = 16;
const pdfTexts = new Map<string, string>();

export class FilesService {
	/** What is kept of a file. Pictures are drawn anew, which drops all that is not to be seen in them. */
	static async prepare(file: File, preparing: Preparing): Promise<PreparedFile> {
		const name = cleanName(file.name);
		const head = new Uint8Array(await file.slice(0, HEAD_BYTES).arrayBuffer());
		const found = sniff(head, name, file.type);
		if (typeof found === 'string') throw new FileRefused(found);
		const { kind, type } = found;
		const wrong = sizeError(name, kind, file.size, preparing.max_bytes);
		if (wrong) throw new FileRefused(wrong);
		if (kind === 'image') return { name, blob: await redrawn(file, name, type), as: 'raw' };
		const bytes = new Uint8Array(await file.arrayBuffer());
		const blob = new Blob([bytes], { type });
		if (kind === 'audio') return { name, blob, as: 'raw' };
		if (kind === 'text') {
			if (decodeText(bytes) === null)
				throw new FileRefused(`${name} has bytes that are no text in UTF-8 or UTF-16.`);
			return { name, blob, as: 'text' };
		}
		return { name, blob, as: await preparePdf(blob, name, preparing) };
	}

	/** What is sent of a kept file. Throws `FileRefused` where it can't be read any more. */
	static async content(attachment: Attachment, blob: Blob): Promise<FileContent> {
		const { name, type, sha256 } = attachment;
		if (attachment.as === 'images')
			return { images: await drawPages(blob, name, MAX_PDF_PICTURES, {}) };
		if (attachment.as === 'text') {
			if (type === 'application/pdf')
				return { text: pdfTexts.get(sha256) ?? (await keptPdfText(blob, name, sha256)) };
			const text = decodeText(new Uint8Array(await blob.arrayBuffer()));
			if (text === null) throw new FileRefused(`${name} is no text.`);
			return { text };
		}
		if (type.startsWith('audio/')) {
			const data = await dataUrl(blob);
			const format = type === 'audio/mpeg' ? 'mp3' : 'wav';
			return { audio: { data: data.slice(data.indexOf(',') + 1), format } };
		}
		return { images: [await dataUrl(blob)] };
	}
}

/** Answers what it is sent as: a scanned PDF has no text, so that its pages are sent. */
async function preparePdf(
	blob: Blob,
	name: string,
	preparing: Preparing
): Promise<Attachment['as']> {
	const text = await pdfText(blob, name, preparing);
	if (preparing.pdfAs === 'images') return 'images';
	if (text.trim() === '')
		throw new FileRefused(
			`${name} has no text, such as a scanned one has not. The setting "Attach PDF files as" sends its pages to models that read pictures.`
		);
	return 'text';
}

async function keptPdfText(blob: Blob, name: string, sha256: string): Promise<string> {
	const text = await pdfText(blob, name, {});
	if (pdfTexts.size >= MAX_KNOWN) pdfTexts.delete(pdfTexts.keys().next().value!);
	pdfTexts.set(sha256, text);
	return text;
}

async function pdfText(
	blob: Blob,
	name: string,
	{ signal, onprogress }: Partial<Preparing>
): Promise<string> {
	const { openPdf, textOfPage } = await import('./pdf');
	const { pdf, close } = await openOr(name, () => openPdf(blob));
	try {
		if (pdf.numPages > MAX_PDF_PAGES)
			throw new FileRefused(
				`${name} has ${pdf.numPages.toLocaleString('en')} pages; at most ${MAX_PDF_PAGES} can be read.`
			);
		const pages: string[] = [];
		for (let number = 1; number <= pdf.numPages; number++) {
			signal?.throwIfAborted();
			pages.push(await textOfPage(pdf, number));
			onprogress?.(number / pdf.numPages);
		}
		return joinPages(pages);
	} finally {
		await close();
	}
}

async function drawPages(
	blob: Blob,
	name: string,
	most: number,
	{ signal }: Partial<Preparing>
): Promise<string[]> {
	const { openPdf, drawPage } = await import('./pdf');
	const { pdf, close } = await openOr(name, () => openPdf(blob));
	try {
		const urls: string[] = [];
		for (let number = 1; number <= Math.min(pdf.numPages, most); number++) {
			signal?.throwIfAborted();
			urls.push(await dataUrl(await drawPage(pdf, number, PAGE_SIDE)));
		}
		return urls;
	} finally {
		await close();
	}
}

async function openOr<T>(name: string, open: () => Promise<T>): Promise<T> {
	try {
		return await open();
	} catch (error) {
		const locked = error instanceof Error && error.name === 'PasswordException';
		throw new FileRefused(
			locked ? `${name} is locked by a password.` : `${name} can't be read: it is damaged.`
		);
	}
}

async function redrawn(file: Blob, name: string, type: string): Promise<Blob> {
	let picture: ImageBitmap;
	try {
		picture = await createImageBitmap(new Blob([file], { type }));
	} catch {
		throw new FileRefused(`${name} can't be shown by this browser: it is damaged, or too large.`);
	}
	const { width, height } = fittingSize(picture.width, picture.height, MAX_PICTURE_SIDE);
	const canvas = document.createElement('canvas');
	canvas.width = width;
	canvas.height = height;
	const context = canvas.getContext('2d');
	if (!context) throw new FileRefused(`${name} is too large for this browser.`);
	context.imageSmoothingQuality = 'high';
	context.drawImage(picture, 0, 0, width, height);
	picture.close();
	const lossless = type !== 'image/jpeg' && (await encoded(canvas, 'image/png'));
	if (lossless && lossless.size <= MAX_PICTURE_BYTES) return lossless;
	const blob = await encoded(canvas, 'image/jpeg', 0.92);
	if (!blob || blob.size > MAX_PICTURE_BYTES)
		throw new FileRefused(
			`${name} has more than ${describeBytes(MAX_PICTURE_BYTES)}, also made smaller.`
		);
	return blob;
}

function encoded(canvas: HTMLCanvasElement, type: string, quality?: number): Promise<Blob | null> {
	return new Promise((done) => canvas.toBlob(done, type, quality));
}

export function dataUrl(blob: Blob): Promise<string> {
	return new Promise((done, fail) => {
		const reader = new FileReader();
		reader.onload = () => done(reader.result as string);
		reader.onerror = () => fail(reader.error ?? new Error('It can’t be read.'));
		reader.readAsDataURL(blob);
	});
}
