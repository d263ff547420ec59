import { goto } from '$app/navigation';
import { page } from '$app/state';

/**
 * Opens the address that came while the page started, such as by a link or a bookmark: the router takes
 * one as it begins, and hears of others once its first screen is there. To be called by that screen.
 */
export function openMissedAddress(): void {
	setTimeout(() => {
		const { hash } = location;
		if (hash !== page.url.hash) void goto(hash || '#/', { replaceState: true });
	});
}
