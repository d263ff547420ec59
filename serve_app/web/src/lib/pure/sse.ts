export interface ServerEvent {
	event: string;
	data: string;
	id: string;
}

/** The events of a stream, wherever its bytes are cut. */
export async function* readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<ServerEvent> {
	let rest = '';
	let event = { event: 'message', data: '', id: '' };
	const reader = body.pipeThrough(new TextDecoderStream() as never).getReader();
	try {
		for (;;) {
			const { done, value } = (await reader.read()) as { done: boolean; value?: string };
			if (done) return;
			const lines = (rest + value).split(/\r?\n/);
			rest = lines.pop() ?? '';
			for (const line of lines) {
				if (line === '') {
					if (event.data) yield event;
					event = { event: 'message', data: '', id: event.id };
				} else if (line.startsWith('data:')) {
					event.data += (event.data && '\n') + line.slice(5).replace(/^ /, '');
				} else if (line.startsWith('event:')) event.event = line.slice(6).trim();
			}
		}
	} finally {
		await reader.cancel().catch(() => undefined);
	}
}
