/** `GET /fleet` and the events of `/fleet/sse`, as the page has them. */
import { describeBytes } from './attachments';
import { readStatus, type ModelState } from './models';

export interface Quantiles {
	p50: number;
	p99: number;
}

/** Sums of replicas; null: none has reported yet. */
interface Counters {
	running: number | null;
	waiting: number | null;
	pages_used: number | null;
	pages_total: number | null;
	preemptions: number | null;
	tokens_generated: number | null;
}

/** Of the last seconds; null: nothing happened in them. Times are seconds. */
interface Rates {
	tokens_per_second: number | null;
	time_to_first_token_s: Quantiles | null;
	inter_token_latency_s: Quantiles | null;
}

/** Slower memory that keeps prefixes longer: what lies there, and what came from there. */
export interface Tier {
	name: string;
	bytes: number;
	hit_tokens: number;
}

export interface FleetReplica extends Counters {
	id: string;
	node: string;
	state: string;
}

export interface FleetModel extends Counters, Rates {
	id: string;
	state: ModelState;
	progress?: { stage: string; value: number };
	/** Why it failed, or what it waits for: the server's words. */
	message?: string;
	/** Running, and how many there are to be. */
	replicas_running: number;
	replicas_target: number;
	tiers: Tier[];
	replicas: FleetReplica[];
}

export interface Fleet extends Counters, Rates {
	/** Unix time in seconds. */
	time: number;
	uptime_s: number;
	/** Models may be downloaded and deleted. */
	can_download: boolean;
	models: FleetModel[];
}

type Fields = Record<string, unknown>;

export function readFleet(raw: Fields): Fleet {
	return {
		time: number(raw.time) ?? 0,
		uptime_s: number(raw.uptime_s) ?? 0,
		can_download: raw.can_download === true,
		...counters(raw),
		...rates(raw),
		models: list(raw.models).map((model) => {
			const status = (model.status ?? {}) as Fields;
			return {
				id: String(model.id),
				...readStatus(status),
				replicas_running: number(status.replicas) ?? 0,
				replicas_target: number(status.replicas_target) ?? 0,
				...counters(model),
				...rates(model),
				tiers: tiers(model.tiers),
				replicas: list(model.replicas).map((replica) => ({
					id: String(replica.id),
					node: String(replica.node ?? ''),
					state: String(replica.state ?? ''),
					...counters(replica)
				}))
			};
		})
	};
}

function counters(raw: Fields): Counters {
	return {
		running: number(raw.running),
		waiting: number(raw.waiting),
		pages_used: number(raw.pages_used),
		pages_total: number(raw.pages_total),
		preemptions: number(raw.preemptions),
		tokens_generated: number(raw.tokens_generated)
	};
}

function tiers(raw: unknown): Tier[] {
	return Object.entries((raw ?? {}) as Record<string, Fields>).map(([name, tier]) => ({
		name,
		bytes: number(tier.bytes) ?? 0,
		hit_tokens: number(tier.hit_tokens) ?? 0
	}));
}

function rates(raw: Fields): Rates {
	return {
		tokens_per_second: number(raw.tokens_per_second),
		time_to_first_token_s: quantiles(raw.time_to_first_token_s),
		inter_token_latency_s: quantiles(raw.inter_token_latency_s)
	};
}

function number(value: unknown): number | null {
	return typeof value === 'number' && Number.isFinite(value) ? value : null;
}

function quantiles(value: unknown): Quantiles | null {
	const { p50, p99 } = (value ?? {}) as Partial<Quantiles>;
	return number(p50) === null || number(p99) === null ? null : { p50: p50!, p99: p99! };
}

function list(value: unknown): Fields[] {
	return Array.isArray(value) ? value : [];
}

const TIER_PLACES: Record<string, string> = {
	ram: 'In the RAM tier',
	disk: 'On the disk',
	remote: 'At other replicas'
};

/** "On the disk: 1.2 GB, 45,120 prompt tokens came from there". */
export function describeTier({ name, bytes, hit_tokens }: Tier): string {
	const place = TIER_PLACES[name] ?? name;
	const size = name === 'remote' ? '' : `${describeBytes(bytes)}, `;
	return `${place}: ${size}${hit_tokens.toLocaleString('en')} prompt tokens came from there`;
}

/** 0.1834: "183 ms"; 2.34: "2.3 s"; 0.00042: "0.42 ms". */
export function shortSeconds(seconds: number): string {
	if (seconds >= 9.95) return `${Math.round(seconds)} s`;
	if (seconds >= 0.9995) return `${seconds.toFixed(1)} s`;
	const ms = seconds * 1000;
	if (ms >= 9.95 || ms === 0) return `${Math.round(ms)} ms`;
	return `${ms.toFixed(ms >= 0.995 ? 1 : 2)} ms`;
}

/** 418.2: "418"; 3.21: "3.2"; 0.04: "0.04"; 12345: "12,345". */
export function shortRate(value: number): string {
	const digits = value >= 9.95 || value === 0 ? 0 : value >= 0.995 ? 1 : 2;
	return value.toLocaleString('en', {
		minimumFractionDigits: digits,
		maximumFractionDigits: digits
	});
}

/** The two largest units, of minutes without seconds: 11,220: "3 h 7 min"; 42: "42 s". */
export function duration(seconds: number): string {
	const UNITS: [string, number][] = [
		['d', 86400],
		['h', 3600],
		['min', 60],
		['s', 1]
	];
	const whole = Math.max(0, Math.floor(seconds));
	const largest = UNITS.find(([, size]) => whole >= size);
	if (!largest) return '0 s';
	const [unit, size] = largest;
	const parts = [`${Math.floor(whole / size)} ${unit}`];
	const next = UNITS[UNITS.indexOf(largest) + 1];
	const rest = next && next[0] !== 's' ? Math.floor((whole % size) / next[1]) : 0;
	if (rest > 0) parts.push(`${rest} ${next?.[0]}`);
	return parts.join(' ');
}
