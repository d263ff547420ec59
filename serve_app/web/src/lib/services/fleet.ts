import { readFleet, type Fleet } from '#lib/pure/fleet';
import { readEvents } from '#lib/pure/sse';
import { api, ApiError, readError } from './api';

export class FleetService {
	/** The fleet, every two seconds; an `ApiError` in its place where the server could not read it. */
	static async *events(signal: AbortSignal): AsyncGenerator<Fleet | ApiError> {
		const response = await api.stream('fleet/sse', { signal });
		if (!response.body) return;
		for await (const { data } of readEvents(response.body)) {
			const raw = JSON.parse(data) as Record<string, unknown>;
			yield raw.error ? readError(raw, 503) : readFleet(raw);
		}
	}
}
