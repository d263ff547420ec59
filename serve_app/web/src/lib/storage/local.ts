/**
 * LocalStorage as JSON. A browser may forbid it or have it full; what is written then lasts until
 * the page is closed.
 */
const memory = new Map<string, string>();

export function readLocal(name: string): unknown {
	const text = memory.get(name) ?? raw(() => localStorage.getItem(name));
	if (!text) return undefined;
	try {
		return JSON.parse(text);
	} catch {
		return undefined;
	}
}

export function writeLocal(name: string, value: unknown): void {
	const text = JSON.stringify(value);
	memory.delete(name);
	if (raw(() => (localStorage.setItem(name, text), true)) === undefined) memory.set(name, text);
}

export function removeLocal(name: string): void {
	memory.delete(name);
	raw(() => localStorage.removeItem(name));
}

/** Calls `listener` when another tab wrote `name`; answers what ends it. */
export function onLocalChange(name: string, listener: () => void): () => void {
	const heard = (event: StorageEvent) => event.key === name && listener();
	globalThis.addEventListener?.('storage', heard);
	return () => globalThis.removeEventListener?.('storage', heard);
}

function raw<T>(access: () => T): T | undefined {
	try {
		return access();
	} catch {
		return undefined;
	}
}
