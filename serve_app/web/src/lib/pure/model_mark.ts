/** A letter and a colour by which a model is known at a glance; the same on every device. */
export function markOf(name: string): { letter: string; hue: number } {
	const base = name.slice(name.lastIndexOf('/') + 1);
	const [letter = '?'] = base.match(/[\p{L}\p{N}]/u) ?? [];
	let sum = 0;
	for (const one of name) sum = (sum * 31 + one.codePointAt(0)!) % 360_007;
	// By the golden angle names that are alike lie far from each other.
	return { letter: letter.toUpperCase(), hue: Math.round(sum * 137.508) % 360 };
}
