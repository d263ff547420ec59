/** Server-sent events by hand: EventSource sends neither a key nor a body. */

export interface ServerEvent {
	event: string;
	data: string;
	id: string;
}

/** Takes text as it comes, cut anywhere; answers the events that are whole. */
export class SseParser {
	#line = '';
	#afterCr = false;
	#data: string[] = [];
	#event = '';
	#id = '';

	feed(text: string): ServerEvent[] {
		const events: ServerEvent[] = [];
		if (this.#afterCr && text.startsWith('\n')) text = text.slice(1);
		if (text === '') return events;
		this.#afterCr = text.endsWith('\r');
		const lines = text.split(/\r\n|\n|\r/);
		lines[0] = this.#line + lines[0];
		this.#line = lines.pop()!;
		for (const line of lines) {
			if (line !== '') this.#field(line);
			else {
				if (this.#data.length > 0)
					events.push({
						event: this.#event || 'message',
						data: this.#data.join('\n'),
						id: this.#id
					});
				this.#data = [];
				this.#event = '';
			}
		}
		return events;
	}

	#field(line: string): void {
		const colon = line.indexOf(':');
		const name = colon < 0 ? line : line.slice(0, colon);
		let value = colon < 0 ? '' : line.slice(colon + 1);
		if (value.startsWith(' ')) value = value.slice(1);
		if (name === 'data') this.#data.push(value);
		else if (name === 'event') this.#event = value;
		else if (name === 'id' && !value.includes('\0')) this.#id = value;
	}
}

/** The events of a body, wherever its bytes are cut; an event without its end is dropped. */
export async function* readEvents(
	body: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>
): AsyncGenerator<ServerEvent> {
	const parser = new SseParser();
	const decoder = new TextDecoder();
	for await (const bytes of bytesOf(body))
		yield* parser.feed(decoder.decode(bytes, { stream: true }));
}

/** Safari's streams can't be iterated over. */
export async function* bytesOf(
	body: ReadableStream<Uint8Array> | AsyncIterable<Uint8Array>
): AsyncGenerator<Uint8Array> {
	if (!(body instanceof ReadableStream)) return yield* body;
	const reader = body.getReader();
	try {
		for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
	} finally {
		await reader.cancel().catch(() => undefined);
	}
}
