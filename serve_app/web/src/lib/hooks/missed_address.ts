import { goto } from '$app/navigation';
import { page } from '$app/state';

/**
 * An address that came while the page started, such as by a bookmark: the router takes the one that it
 * began with, hears of others once its first screen is there, and writes its own over them.
 */
let missed = '';
const hear = ({ newURL }: HashChangeEvent) => {
	missed = new URL(newURL).hash;
};
// As this module is loaded, which is before the router begins.
globalThis.addEventListener?.('hashchange', hear);

/** Opens it, if one came. To be called by the first screen. */
export function openMissedAddress(): void {
	setTimeout(() => {
		removeEventListener('hashchange', hear);
		if (missed && missed !== page.url.hash) void goto(missed);
	});
}
