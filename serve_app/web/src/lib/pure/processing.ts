/** What is going on while an answer comes, in words. */
import type { Progress } from './chat_deltas';

export interface Processing {
	phase: 'waiting' | 'prompt' | 'thinking' | 'answering' | 'tools';
	progress?: Progress;
	timings?: { predicted_n: number; predicted_per_second: number };
	/** Since the question was sent. */
	elapsed_ms: number;
	/** Of the model, while it is loaded: 0 to 1. */
	loading?: number | null;
}

export function describeProcessing(state: Processing): string {
	if (state.loading !== undefined)
		return state.loading === null
			? 'Loading the model'
			: `Loading the model, ${percent(state.loading)}`;
	if (state.phase === 'tools') return 'A tool is running';
	if (state.phase === 'waiting' || state.phase === 'prompt') {
		const { progress } = state;
		if (progress && progress.total > progress.done)
			return `Reading the question, ${percent(progress.done / progress.total)}`;
		return state.elapsed_ms > 3000 ? `Waiting, ${seconds(state.elapsed_ms)}` : '';
	}
	const { timings } = state;
	const rate = timings
		? `${Math.round(timings.predicted_per_second).toLocaleString('en')} tok/s · ${timings.predicted_n.toLocaleString('en')} tokens`
		: '';
	return [state.phase === 'thinking' ? 'Thinking' : '', rate, seconds(state.elapsed_ms)]
		.filter(Boolean)
		.join(' · ');
}

function percent(share: number): string {
	return `${Math.round(100 * Math.min(Math.max(share, 0), 1))} %`;
}

function seconds(ms: number): string {
	return ms < 60_000
		? `${Math.round(ms / 1000)} s`
		: `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}
