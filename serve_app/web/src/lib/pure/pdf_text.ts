/** The words of a PDF's pages, as pdf.js finds them, as text. */

/** A run of letters; pdf.js says where a line ends. */
export interface Run {
	str: string;
	hasEOL?: boolean;
}

/** One page: lines as they stand, words that the typesetter cut put together again. */
export function pageText(runs: readonly Run[]): string {
	let text = '';
	for (const { str, hasEOL } of runs) text += hasEOL ? `${str}\n` : str;
	return text
		.replace(/\u0000/g, '')
		.replace(/\u00ad\n/g, '')
		.replace(/(\p{Ll})-\n(?=\p{Ll})/gu, '$1')
		.replace(/[ \t]+\n/g, '\n')
		.replace(/\n{3,}/g, '\n\n')
		.trim();
}

/** All pages; who reads it can say on which page something is. */
export function joinPages(pages: readonly string[]): string {
	if (pages.length === 1) return pages[0]!;
	return pages
		.map((page, index) => (page ? `[Page ${index + 1}]\n${page}` : ''))
		.filter(Boolean)
		.join('\n\n');
}
