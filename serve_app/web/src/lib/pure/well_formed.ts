/** Half of a surrogate pair is no letter: the server refuses a body that has one. */

/** At most so many characters of `text`; a pair is not cut. */
export function cut(text: string, length: number): string {
	const part = text.slice(0, length);
	return part.length < text.length ? part.replace(/[\ud800-\udbff]$/, '') : part;
}

/** The same with all texts within as the server takes them. */
export function wellFormed<T>(value: T): T {
	if (typeof value === 'string') return value.toWellFormed() as T;
	if (Array.isArray(value)) return value.map(wellFormed) as T;
	if (typeof value !== 'object' || value === null) return value;
	return Object.fromEntries(
		Object.entries(value).map(([name, one]) => [name, wellFormed(one as unknown)])
	) as T;
}
