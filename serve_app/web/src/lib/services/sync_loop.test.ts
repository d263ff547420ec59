import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ApiError } from './api';
import { SyncLoop } from './sync_loop';

/** A server whose answers the test gives. */
class Server {
	readonly log: string[] = [];
	away = false;
	#answer: (() => void) | null = null;

	pull = async (wait: number, signal: AbortSignal): Promise<void> => {
		this.log.push(`pull ${wait}`);
		if (this.away) throw new ApiError('away', 0);
		if (wait === 0) return;
		await new Promise<void>((done, fail) => {
			this.#answer = done;
			signal.addEventListener('abort', () => fail(signal.reason as Error));
		});
	};

	push = async (): Promise<void> => {
		this.log.push('push');
		if (this.away) throw new ApiError('away', 0);
	};

	/** Something changed there. */
	news(): void {
		this.#answer?.();
	}
}

let server: Server;
let loop: SyncLoop;
let end: AbortController;

beforeEach(() => {
	vi.useFakeTimers();
	server = new Server();
	loop = new SyncLoop(server, () => undefined);
	end = new AbortController();
});

afterEach(() => {
	end.abort();
	vi.useRealTimers();
});

const pass = (ms: number) => vi.advanceTimersByTimeAsync(ms);

it('reads first, sends what waited, and then waits for news', async () => {
	void loop.run(end.signal);
	await pass(1000);
	expect(server.log).toEqual(['pull 0', 'pull 25', 'push']);
	server.news();
	await pass(0);
	expect(server.log.slice(3)).toEqual(['pull 25']);
});

it('sends what is written within a moment at once, together', async () => {
	void loop.run(end.signal);
	await pass(1000);
	loop.push();
	await pass(100);
	loop.push();
	await pass(1000);
	expect(server.log.slice(3)).toEqual(['push']);
});

it('waits longer after each failure, and reads before it sends again', async () => {
	server.away = true;
	void loop.run(end.signal);
	await pass(500);
	expect(server.log).toEqual(['pull 0']);
	expect(loop.failure).toBe('away');
	await pass(1000);
	expect(server.log).toEqual(['pull 0', 'pull 0']);
	await pass(60 * 60_000);
	expect(server.log.length).toBeLessThan(150);
	server.log.length = 0;
	server.away = false;
	loop.refresh();
	await pass(1000);
	expect(server.log).toEqual(['pull 0', 'pull 25', 'push']);
	expect(loop.failure).toBeNull();
});

it('asks anew when the network may be another', async () => {
	void loop.run(end.signal);
	await pass(1000);
	loop.refresh();
	await pass(0);
	expect(server.log.slice(3)).toEqual(['pull 0', 'pull 25']);
});

it('ends with its tab', async () => {
	const run = loop.run(end.signal);
	await pass(1000);
	end.abort();
	await run;
	server.news();
	loop.push();
	await pass(1000);
	expect(server.log).toEqual(['pull 0', 'pull 25', 'push']);
});
