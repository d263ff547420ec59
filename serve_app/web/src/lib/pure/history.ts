/** Readings of the last minutes, for the charts and their tables. */
import type { Fleet } from './fleet';

export interface Point {
	/** Unix time in seconds. */
	time: number;
	/** null: nothing is known of this time. */
	values: (number | null)[];
}

export const HISTORY_S = 600;
/** Longer than this without a reading is a gap: no line is drawn over it. */
const GAP_S = 8;

/** The newest readings of `HISTORY_S`; one of the same or an earlier time than the last is dropped. */
export function addReading(readings: Fleet[], reading: Fleet): Fleet[] {
	const last = readings.at(-1);
	if (last && reading.time <= last.time) return readings;
	return [...readings.filter((one) => one.time > reading.time - HISTORY_S), reading];
}

/** A point for each reading, and one of nulls within each gap. */
export function series(readings: Fleet[], values: (reading: Fleet) => (number | null)[]): Point[] {
	const points: Point[] = [];
	for (const reading of readings) {
		const last = points.at(-1);
		if (last && reading.time - last.time > GAP_S)
			points.push({ time: last.time + GAP_S / 2, values: last.values.map(() => null) });
		points.push({ time: reading.time, values: values(reading) });
	}
	return points;
}

/** The newest first, the last one of each `every_s` seconds: what a table of the points shows. */
export function thinned(points: Point[], every_s: number): Point[] {
	const rows = new Map<number, Point>();
	for (const point of points)
		if (point.values.some((value) => value !== null))
			rows.set(Math.floor(point.time / every_s), point);
	return [...rows.values()].reverse();
}

/** The greatest known value, or 0. */
export function greatest(points: Point[]): number {
	return points.reduce(
		(most, { values }) => values.reduce((now: number, value) => Math.max(now, value ?? 0), most),
		0
	);
}
