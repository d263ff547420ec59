import { expect, it } from 'vitest';
import { grouped, nextDay } from './groups';

const now = new Date(2026, 10, 25, 12, 0).getTime();
const at = (month: number, day: number, hour = 12, year = 2026) =>
	new Date(year, month - 1, day, hour).getTime();
const chat = (active_at: number, pinned = false) => ({ active_at, pinned });

function headings(times: number[]): (string | null)[] {
	return grouped(
		times.map((time) => chat(time)),
		now
	).map((row) => row.heading);
}

it('names days, weeks, months and years', () => {
	expect(headings([at(11, 25, 0), at(11, 24, 23), at(11, 24, 0), at(11, 23, 23)])).toEqual([
		'Today',
		'Yesterday',
		null,
		'Previous 7 days'
	]);
	expect(headings([at(11, 18), at(11, 17), at(10, 26), at(10, 25), at(1, 1)])).toEqual([
		'Previous 7 days',
		'Previous 30 days',
		null,
		'October',
		'January'
	]);
	expect(headings([at(12, 31, 12, 2025), at(12, 1, 12, 2024)])).toEqual([
		'December 2025',
		'December 2024'
	]);
});

it('takes what comes from a clock that is ahead for today', () => {
	expect(headings([at(11, 27)])).toEqual(['Today']);
});

it('has pinned chats as the first group, whatever their age', () => {
	const rows = grouped([chat(at(1, 1), true), chat(now, true), chat(now)], now);
	expect(rows.map((row) => row.heading)).toEqual(['Pinned', null, 'Today']);
});

it('knows when the day ends', () => {
	expect(nextDay(now)).toBe(at(11, 26, 0));
});
