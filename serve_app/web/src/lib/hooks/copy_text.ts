/** Copies, also on plain HTTP, where browsers have no clipboard for scripts. */
export async function copyText(text: string): Promise<boolean> {
	try {
		if (navigator.clipboard) {
			await navigator.clipboard.writeText(text);
			return true;
		}
	} catch {
		// Not allowed: the older way below needs no permission.
	}
	const focused = document.activeElement as HTMLElement | null;
	const field = document.createElement('textarea');
	field.value = text;
	field.setAttribute('readonly', '');
	field.style.position = 'fixed';
	field.style.opacity = '0';
	(focused?.closest('[role=dialog]') ?? document.body).append(field);
	field.select();
	const done = document.execCommand('copy');
	field.remove();
	focused?.focus();
	return done;
}
