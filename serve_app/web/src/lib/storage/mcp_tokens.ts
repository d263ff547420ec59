/** Tokens of MCP servers: for this tab alone, and in no export. */
const PREFIX = 'manta-mcp-';
const memory = new Map<string, string>();

export function readToken(id: string): string | null {
	try {
		return sessionStorage.getItem(PREFIX + id) ?? memory.get(id) ?? null;
	} catch {
		return memory.get(id) ?? null;
	}
}

/** "": none. */
export function keepToken(id: string, token: string): void {
	memory.delete(id);
	try {
		if (token) sessionStorage.setItem(PREFIX + id, token);
		else sessionStorage.removeItem(PREFIX + id);
	} catch {
		if (token) memory.set(id, token);
	}
}
