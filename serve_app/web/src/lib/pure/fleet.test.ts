import { describe, expect, it } from 'vitest';
import { describeTier, duration, readFleet, shortRate, shortSeconds } from './fleet';
import { addReading, greatest, HISTORY_S, series, thinned } from './history';

const RAW = {
	time: 1000.5,
	uptime_s: 10800,
	running: 12,
	waiting: 3,
	pages_used: 2439,
	pages_total: 4000,
	preemptions: 0,
	tokens_generated: 81234,
	tokens_per_second: null,
	time_to_first_token_s: { p50: 0.18, p99: 0.9 },
	inter_token_latency_s: null,
	models: [
		{
			id: 'a/b',
			status: { value: 'unloaded', state: 'failed', failed: true, message: 'no config.json' },
			running: 0,
			tiers: { disk: { bytes: 5 * 2 ** 30, hit_tokens: 45120 } },
			replicas: [{ id: 'a1f3', node: '10.0.0.2', state: 'starting', running: null }]
		}
	]
};

describe('readFleet', () => {
	it('takes what the server says', () => {
		const fleet = readFleet(RAW);
		expect(fleet).toMatchObject({ running: 12, uptime_s: 10800, tokens_per_second: null });
		expect(fleet.time_to_first_token_s).toEqual({ p50: 0.18, p99: 0.9 });
		expect(fleet.inter_token_latency_s).toBeNull();
		expect(fleet.models[0]).toMatchObject({
			id: 'a/b',
			state: 'failed',
			message: 'no config.json',
			replicas_running: 0,
			tiers: [{ name: 'disk', bytes: 5 * 2 ** 30, hit_tokens: 45120 }]
		});
		expect(fleet.models[0]?.tiers.map(describeTier)).toEqual([
			'On the disk: 5.0 GB, 45,120 prompt tokens came from there'
		]);
		expect(fleet.models[0]?.replicas[0]).toMatchObject({ id: 'a1f3', running: null });
	});

	it('takes a server that says less', () => {
		expect(readFleet({ models: [{ id: 'a' }] }).models[0]?.tiers).toEqual([]);
		expect(readFleet({})).toMatchObject({ time: 0, models: [], running: null });
		expect(readFleet({ time_to_first_token_s: { p50: 1 } }).time_to_first_token_s).toBeNull();
	});
});

describe('addReading', () => {
	const at = (time: number) => readFleet({ ...RAW, time });

	it('keeps ten minutes in order', () => {
		let readings = [at(0), at(2)];
		readings = addReading(readings, at(2));
		readings = addReading(readings, at(1));
		expect(readings.map(({ time }) => time)).toEqual([0, 2]);
		readings = addReading(readings, at(HISTORY_S + 1));
		expect(readings.map(({ time }) => time)).toEqual([2, HISTORY_S + 1]);
	});
});

describe('series', () => {
	it('breaks the line where nothing was read', () => {
		const readings = [0, 2, 60, 62].map((time) => readFleet({ ...RAW, time: time + 100 }));
		const points = series(readings, (one) => [one.running, one.tokens_per_second]);
		expect(points.map(({ time }) => time - 100)).toEqual([0, 2, 6, 60, 62]);
		expect(points[2]?.values).toEqual([null, null]);
		expect(points[0]?.values).toEqual([12, null]);
		expect(greatest(points)).toBe(12);
	});
});

describe('thinned', () => {
	it('shows the newest of each span first and leaves out what is unknown', () => {
		const points = [0, 4, 8, 12, 21].map((time) => ({ time, values: [time === 21 ? null : time] }));
		expect(thinned(points, 10).map(({ time }) => time)).toEqual([12, 8]);
	});
});

describe('words for numbers', () => {
	it.each([
		[0, '0 ms'],
		[0.00042, '0.42 ms'],
		[0.0042, '4.2 ms'],
		[0.1834, '183 ms'],
		[0.9996, '1.0 s'],
		[2.34, '2.3 s'],
		[75.2, '75 s']
	])('%d s is %s', (seconds, text) => expect(shortSeconds(seconds)).toBe(text));

	it.each([
		[0, '0'],
		[0.04, '0.04'],
		[3.21, '3.2'],
		[418.2, '418'],
		[12345, '12,345']
	])('%d a second is %s', (rate, text) => expect(shortRate(rate)).toBe(text));

	it.each([
		[0, '0 s'],
		[42, '42 s'],
		[125, '2 min'],
		[11220, '3 h 7 min'],
		[7200, '2 h'],
		[2 * 86400 + 3600, '2 d 1 h']
	])('%d s last %s', (seconds, text) => expect(duration(seconds)).toBe(text));
});
