/** A chat's title, from what a model answered. */
import { cut } from './well_formed';

const MAX_TITLE = 80;

/** "" where it said nothing of use. */
export function cleanTitle(answer: string): string {
	const line = answer
		.replace(/<think>[^]*?(<\/think>|$)/g, '')
		.split('\n')
		.map((one) => one.trim())
		.find((one) => /[\p{L}\p{N}]/u.test(one));
	const title = (line ?? '')
		.replace(/^(#+|[-*>]+)\s*/, '')
		.replace(/\*\*|__|`/g, '')
		.replace(/^(chat )?title\s*:\s*/i, '')
		.replace(/^["'“”„‘’«»]+|["'“”„‘’«»]+$/g, '')
		.replace(/\s+/g, ' ')
		.replace(/[.:;,]+$/, '')
		.trim();
	return title.length <= MAX_TITLE ? title : `${cut(title, MAX_TITLE - 1).trimEnd()}…`;
}
