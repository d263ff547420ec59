/** Chats that are longer than a model's context: their oldest messages are not sent. */
import type { Message } from '#lib/types';

/** What of a branch is sent; `from` counts where it is in it. */
export function sentPart<T extends Pick<Message, 'id'>>(
	branch: T[],
	from: string | undefined
): T[] {
	const start = branch.findIndex(({ id }) => id === from);
	return start > 0 ? branch.slice(start) : branch;
}

/**
 * The first question from which on `fits` says that the branch is short enough; the last question where
 * none is. `fits` is asked about as often as the logarithm of their number.
 */
export async function firstThatFits(
	branch: readonly Message[],
	fits: (start: number) => Promise<boolean>
): Promise<string | null> {
	const questions = [...branch.keys()].filter((index) => branch[index]!.role === 'user');
	if (questions.length === 0) return null;
	let low = 0;
	let high = questions.length - 1;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (await fits(questions[middle]!)) high = middle;
		else low = middle + 1;
	}
	return branch[questions[low]!]!.id;
}
