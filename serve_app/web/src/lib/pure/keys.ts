/** The page's keys, all with Ctrl or Command. */
export type KeyAction =
	| 'search'
	| 'sidebar'
	| 'new'
	| 'rename'
	| 'delete'
	| 'previous'
	| 'next'
	| 'model'
	| 'settings'
	| 'keys';

interface Key {
	action: KeyAction;
	/** `KeyboardEvent.key`, in lower case. */
	key: string;
	shift: boolean;
	shown: string;
	does: string;
}

export const KEYS: readonly Key[] = [
	{ action: 'search', key: 'k', shift: false, shown: 'K', does: 'Search chats' },
	{ action: 'sidebar', key: 'b', shift: false, shown: 'B', does: 'Show or hide the sidebar' },
	{ action: 'new', key: 'o', shift: true, shown: 'O', does: 'New chat' },
	{ action: 'rename', key: 'e', shift: true, shown: 'E', does: 'Rename the chat' },
	{ action: 'delete', key: 'd', shift: true, shown: 'D', does: 'Delete the chat' },
	{ action: 'previous', key: 'arrowup', shift: true, shown: '↑', does: 'Previous chat' },
	{ action: 'next', key: 'arrowdown', shift: true, shown: '↓', does: 'Next chat' },
	{ action: 'model', key: 'm', shift: false, shown: 'M', does: 'Choose a model' },
	{ action: 'settings', key: ',', shift: false, shown: ',', does: 'Settings' },
	{ action: 'keys', key: '/', shift: false, shown: '/', does: 'This list' }
];

type Pressed = Pick<KeyboardEvent, 'key' | 'ctrlKey' | 'metaKey' | 'shiftKey' | 'altKey'>;

export function actionOf(event: Pressed): KeyAction | undefined {
	if (!(event.ctrlKey || event.metaKey) || event.altKey) return undefined;
	const pressed = event.key.toLowerCase();
	// "/" is typed with Shift on some keyboards.
	return KEYS.find(
		(key) => key.key === pressed && (key.shift === event.shiftKey || key.action === 'keys')
	)?.action;
}

export function isMac(userAgent: string): boolean {
	return /Mac|iPhone|iPad/.test(userAgent);
}
