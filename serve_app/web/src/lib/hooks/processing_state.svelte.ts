import { describeProcessing } from '#lib/pure/processing';
import { chatStore } from '#lib/stores/chat.svelte';
import { modelsStore } from '#lib/stores/models.svelte';

const TICK_MS = 500;

/** How far a chat's running answer is, in words; "" where none runs or nothing is to be said. */
export function useProcessingState(chat: () => string | null) {
	let now = $state(Date.now());
	const run = $derived(chatStore.runs.get(chat() ?? ''));
	$effect(() => {
		if (!run) return;
		now = Date.now();
		const timer = setInterval(() => (now = Date.now()), TICK_MS);
		return () => clearInterval(timer);
	});
	const text = $derived.by(() => {
		if (!run) return '';
		const model = modelsStore.find(run.model);
		const loads = model?.state === 'loading' && run.phase === 'waiting';
		return describeProcessing({
			phase: run.phase,
			progress: run.progress,
			timings: run.timings,
			elapsed_ms: Math.max(0, now - run.started_at),
			...(loads && { loading: model.progress?.value ?? null })
		});
	});
	return {
		get text() {
			return text;
		}
	};
}
