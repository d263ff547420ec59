import { readModel, type ModelEntry, type ModelEvent } from '#lib/pure/models';
import { readEvents } from '#lib/pure/sse';
import { api, post } from './api';

export class ModelsService {
	static async list(): Promise<ModelEntry[]> {
		const answer = await api.json<{ data: Record<string, unknown>[] }>('models');
		return answer.data.map(readModel);
	}

	/** Answers when the server has heard it; how far it is comes by `events`. */
	static async load(model: string): Promise<void> {
		await api.json('models/load', post({ model }));
	}

	static async unload(model: string): Promise<void> {
		await api.json('models/unload', post({ model }));
	}

	/** From the hub, where the operator named a folder for it; else an `ApiError` with status 403. */
	static async download(model: string, revision?: string): Promise<void> {
		await api.json('models', post({ model, revision }));
	}

	/** Deletes what was downloaded, or ends a download. */
	static async remove(model: string): Promise<void> {
		await api.json(`models?model=${encodeURIComponent(model)}`, { method: 'DELETE' });
	}

	/** First the state of each model, then each change. EventSource would send no key. */
	static async *events(signal: AbortSignal): AsyncGenerator<ModelEvent> {
		const response = await api.stream('models/sse', { signal });
		if (!response.body) return;
		for await (const { data } of readEvents(response.body)) yield JSON.parse(data) as ModelEvent;
	}
}
