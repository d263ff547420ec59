import {
	addDelta,
	emptyAnswer,
	type Answer,
	type Delta,
	type Progress,
	type Start
} from '#lib/pure/chat_deltas';
import type { Message, Timings, ToolCall } from '#lib/types';

export type Phase = 'waiting' | 'prompt' | 'thinking' | 'answering' | 'tools';

/**
 * An answer that is being written. Deltas go to a plain object; what the screen shows of it is copied
 * at most once a frame, however many come.
 */
export class Run {
	readonly controller = new AbortController();
	readonly started_at = Date.now();
	readonly answer: Answer;
	/** It ended as nothing answered. */
	wasNotReached = false;
	phase = $state<Phase>('waiting');
	/** The id of the call that is made now. */
	call = $state<string | undefined>();
	text = $state('');
	reasoning = $state('');
	calls = $state.raw<ToolCall[]>([]);
	progress = $state.raw<Progress | undefined>();
	timings = $state.raw<Timings | undefined>();
	completion = $state<string | undefined>();
	/** Of the thought, once it ended. */
	thought_ms = $state<number | undefined>();
	#thought_at: number | undefined;
	#frame: number | undefined;

	constructor(
		readonly chat: string,
		readonly message: string,
		readonly parent: string | null,
		readonly model: string,
		before: Start = {}
	) {
		this.answer = emptyAnswer(before);
		this.text = this.answer.text;
		this.reasoning = this.answer.reasoning;
	}

	add(delta: Delta): void {
		if (delta.reasoning) this.#thought_at ??= Date.now();
		if ((delta.text || delta.calls) && this.#thought_at && this.thought_ms === undefined)
			this.thought_ms = Date.now() - this.#thought_at;
		addDelta(this.answer, delta);
		// A hidden tab gets no frames; it is shown what it missed when it is looked at again.
		this.#frame ??= requestAnimationFrame(() => this.show());
	}

	show(): void {
		if (this.#frame !== undefined) cancelAnimationFrame(this.#frame);
		this.#frame = undefined;
		const { answer } = this;
		this.text = answer.text;
		this.reasoning = answer.reasoning;
		if (answer.calls.length > 0)
			// The server may begin one later than one after it.
			this.calls = answer.calls.filter(Boolean).map((call) => ({ ...call }));
		this.progress = answer.progress;
		this.timings = answer.timings;
		this.completion = answer.id;
		if (answer.text || answer.calls.length > 0) this.phase = 'answering';
		else if (answer.reasoning) this.phase = 'thinking';
		else if (answer.progress) this.phase = 'prompt';
	}

	/** What of the message is known by now. */
	fields(): Partial<Message> {
		const { answer } = this;
		const thought_ms =
			this.thought_ms ?? (this.#thought_at ? Date.now() - this.#thought_at : undefined);
		const timings = answer.timings ?? (thought_ms === undefined ? undefined : NO_TIMINGS);
		return {
			text: answer.text,
			...(answer.reasoning && { reasoning: answer.reasoning }),
			...(answer.calls.length > 0 && { tool_calls: answer.calls.filter(Boolean) }),
			...(answer.usage && { usage: answer.usage }),
			...(timings && { timings: { ...timings, ...(thought_ms !== undefined && { thought_ms }) } }),
			...(answer.id && { completion_id: answer.id }),
			...(answer.read !== undefined && { read: answer.read })
		};
	}
}

const NO_TIMINGS: Timings = {
	prompt_ms: 0,
	predicted_n: 0,
	predicted_ms: 0,
	predicted_per_second: 0
};
