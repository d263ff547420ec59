/** The list of chats by when they were last used: Pinned, Today, Yesterday, then further back. */
import type { Milliseconds } from '#lib/types';

interface Listed {
	pinned: boolean;
	active_at: Milliseconds;
}

/** `heading`: set for the first chat of a group. */
export interface Row<T> {
	chat: T;
	heading: string | null;
}

/** `chats` in their order: pinned ones first, then the newest. */
export function grouped<T extends Listed>(chats: readonly T[], now: Milliseconds): Row<T>[] {
	const name = namer(now);
	let before: string | null = null;
	return chats.map((chat) => {
		const group = chat.pinned ? 'Pinned' : name(chat.active_at);
		const heading = group === before ? null : group;
		before = group;
		return { chat, heading };
	});
}

/** When the names of groups are others: the next midnight here. */
export function nextDay(now: Milliseconds): Milliseconds {
	return dayStart(now, 1);
}

function namer(now: Milliseconds): (time: Milliseconds) => string {
	const today = dayStart(now, 0);
	const yesterday = dayStart(now, -1);
	const week = dayStart(now, -7);
	const month = dayStart(now, -30);
	const year = new Date(now).getFullYear();
	const inYear = new Intl.DateTimeFormat('en', { month: 'long' });
	const earlier = new Intl.DateTimeFormat('en', { month: 'long', year: 'numeric' });
	return (time) => {
		if (time >= today) return 'Today';
		if (time >= yesterday) return 'Yesterday';
		if (time >= week) return 'Previous 7 days';
		if (time >= month) return 'Previous 30 days';
		return (new Date(time).getFullYear() === year ? inYear : earlier).format(time);
	};
}

/** By the calendar: a day may have 23 or 25 hours. */
function dayStart(now: Milliseconds, days: number): Milliseconds {
	const date = new Date(now);
	return new Date(date.getFullYear(), date.getMonth(), date.getDate() + days).getTime();
}
