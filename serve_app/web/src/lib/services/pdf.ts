/** pdf.js, which is large: imported when the first PDF is attached. */
import { getDocument, GlobalWorkerOptions, type PDFDocumentProxy } from 'pdfjs-dist';
import workerUrl from 'pdfjs-dist/build/pdf.worker.min.mjs?url';
import { pageText, type Run } from '#lib/pure/pdf_text';

GlobalWorkerOptions.workerSrc = workerUrl;

export interface OpenPdf {
	pdf: PDFDocumentProxy;
	close: () => Promise<void>;
}

/** It fetches nothing, and runs no script of the document. */
export async function openPdf(blob: Blob): Promise<OpenPdf> {
	const task = getDocument({
		data: new Uint8Array(await blob.arrayBuffer()),
		useWasm: false,
		useWorkerFetch: false,
		disableFontFace: true,
		enableXfa: false,
		verbosity: 0
	});
	try {
		return { pdf: await task.promise, close: () => task.destroy() };
	} catch (error) {
		await task.destroy();
		throw error;
	}
}

export async function textOfPage(pdf: PDFDocumentProxy, number: number): Promise<string> {
	const page = await pdf.getPage(number);
	const { items } = await page.getTextContent();
	const text = pageText(items.filter((item): item is typeof item & Run => 'str' in item));
	page.cleanup();
	return text;
}

/** As a JPEG, its longer side `side` pixels. */
export async function drawPage(pdf: PDFDocumentProxy, number: number, side: number): Promise<Blob> {
	const page = await pdf.getPage(number);
	const natural = page.getViewport({ scale: 1 });
	const scale = side / Math.max(natural.width, natural.height);
	const viewport = page.getViewport({ scale });
	const canvas = document.createElement('canvas');
	canvas.width = Math.ceil(viewport.width);
	canvas.height = Math.ceil(viewport.height);
	await page.render({ canvas, viewport, background: 'white' }).promise;
	page.cleanup();
	const blob = await new Promise<Blob | null>((done) => canvas.toBlob(done, 'image/jpeg', 0.9));
	if (!blob) throw new Error('The page can’t be drawn.');
	return blob;
}
