/** The API key: of this tab, or of this device where the person said so. Never in an export. */
const NAME = 'manta-key';

export function readKey(): string | null {
	for (const storage of storages()) {
		const key = storage.getItem(NAME);
		if (key) return key;
	}
	return kept;
}

export function keepKey(key: string, remember: boolean): void {
	forgetKey();
	kept = key;
	const [tab, device] = storages();
	try {
		(remember ? device : tab)?.setItem(NAME, key);
	} catch {
		// Full or forbidden: the key lasts until the page is closed.
	}
}

export function forgetKey(): void {
	kept = null;
	for (const storage of storages()) storage.removeItem(NAME);
}

let kept: string | null = null;

function storages(): Storage[] {
	try {
		return [sessionStorage, localStorage];
	} catch {
		return [];
	}
}
