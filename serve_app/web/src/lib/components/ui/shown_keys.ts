import { isMac } from '#lib/pure/keys';

/** Keys as this device's keyboard has them: `Ctrl+K` or `⌘K`. */
export function shownKeys(keys: string): string {
	return isMac(navigator.userAgent) ? keys.replace('Ctrl+', '⌘') : keys;
}
