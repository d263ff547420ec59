interface Limits {
	min?: number;
	max?: number;
	integer?: boolean;
}

/** What a field of a number says: nothing is no value; else a number within its limits, or why not. */
export function readNumber(text: string, limits: Limits): { value?: number; error?: string } {
	if (text.trim() === '') return {};
	const value = Number(text);
	if (!Number.isFinite(value)) return { error: 'This is not a number.' };
	if (limits.integer && !Number.isInteger(value)) return { error: 'This must be a whole number.' };
	if (limits.min !== undefined && value < limits.min)
		return { error: `The least is ${limits.min}.` };
	if (limits.max !== undefined && value > limits.max)
		return { error: `The most is ${limits.max}.` };
	return { value };
}
