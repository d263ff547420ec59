/** Which rows of a long list are on the screen: only those are made. */
export interface Span {
	start: number;
	/** The first that is not shown. */
	end: number;
}

/** Where each row begins, and behind the last one where the list ends. */
export function offsetsOf(count: number, heightOf: (index: number) => number): Float64Array {
	const offsets = new Float64Array(count + 1);
	for (let index = 0; index < count; index++)
		offsets[index + 1] = offsets[index]! + heightOf(index);
	return offsets;
}

/** The rows that show between `top` and `top + height`, and `around` more on each side. */
export function spanOf(offsets: Float64Array, top: number, height: number, around: number): Span {
	const count = offsets.length - 1;
	const start = Math.max(0, rowAt(offsets, top) - around);
	const end = Math.min(count, rowAt(offsets, top + height) + 1 + around);
	return { start: Math.min(start, count), end };
}

/** The row at a height; the last one that begins at or above it. */
function rowAt(offsets: Float64Array, height: number): number {
	let [low, high] = [0, Math.max(0, offsets.length - 2)];
	while (low < high) {
		const middle = (low + high + 1) >> 1;
		if (offsets[middle]! <= height) low = middle;
		else high = middle - 1;
	}
	return low;
}

/** Where to scroll so that a row is in view; `top` itself if it is. */
export function scrollFor(
	offsets: Float64Array,
	index: number,
	top: number,
	height: number
): number {
	const [from, to] = [offsets[index]!, offsets[index + 1]!];
	if (from < top) return from;
	return to > top + height ? to - height : top;
}
