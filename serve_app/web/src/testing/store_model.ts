/** The store's endpoints in memory, as `deployments/store` has them: what the sync must get on with. */
type Fields = Record<string, unknown>;

interface Row {
	revision: number;
	/** null: deleted. */
	fields: Fields | null;
}

interface MessageRow extends Row {
	chat: string;
	parent: string | null;
}

const NONE = new Response(null, { status: 204 });

export class StoreModel {
	revision = 0;
	/** Tombstones up to here are forgotten. */
	swept = 0;
	/** Rows of a page, whatever is asked for. */
	maxRows = 3;
	readonly chats = new Map<string, Row>();
	readonly messages = new Map<string, MessageRow>();
	readonly files = new Map<string, Blob>();
	/** Of messages that were stored here when they were deleted. */
	readonly deletedTexts = new Set<unknown>();
	/** What is answered in place of the next requests: see `fail`. */
	readonly #failures: ('before' | 'after' | null)[] = [];

	/** The next requests, one after the other: nothing comes through, the answer is lost, or all is well. */
	fail(...failures: ('before' | 'after' | null)[]): void {
		this.#failures.push(...failures);
	}

	healed(): void {
		this.#failures.length = 0;
	}

	/** In place of the browser's. */
	readonly fetch = async (path: string, init: RequestInit = {}): Promise<Response> => {
		const failure = this.#failures.shift() ?? null;
		if (failure === 'before') throw new TypeError('Failed to fetch');
		const address = new URL(path, 'http://model/');
		const parts = address.pathname.split('/').slice(2);
		const headers = new Headers(init.headers);
		const answer = await this.#answer(init.method ?? 'GET', parts, address, headers, init.body);
		if (failure === 'after') throw new TypeError('Failed to fetch');
		return answer;
	};

	sweep(): void {
		for (const rows of [this.chats, this.messages])
			for (const [id, row] of rows)
				if (row.fields === null) {
					this.swept = Math.max(this.swept, row.revision);
					rows.delete(id);
				}
	}

	async #answer(
		method: string,
		[what, id, , message]: string[],
		address: URL,
		headers: Headers,
		body: unknown
	): Promise<Response> {
		if (what === 'changes') return this.#changes(address.searchParams);
		if (what === 'files') {
			this.files.set(id!, body as Blob);
			return NONE.clone();
		}
		if (method === 'PUT') return this.#putChat(id!, JSON.parse(String(body)) as Fields, headers);
		if (method === 'POST') {
			const { messages } = JSON.parse(String(body)) as { messages: Fields[] };
			return this.#addMessages(id!, messages);
		}
		if (message === undefined) this.#deleteChat(id!);
		else this.#deleteMessage(message);
		return NONE.clone();
	}

	#putChat(id: string, fields: Fields, headers: Headers): Response {
		const base = Number(headers.get('if-match')?.replaceAll('"', '') ?? 0);
		const found = this.chats.get(id);
		if (!found) {
			if (base !== 0) return refusal(412, { chat: null });
			return this.#storeChat(id, fields);
		}
		if (found.fields === null) return refusal(410);
		if (same(found.fields, fields)) return Response.json({ revision: found.revision });
		if (base !== found.revision) return refusal(412, { chat: this.#chat(id, found) });
		return this.#storeChat(id, fields);
	}

	#storeChat(id: string, fields: Fields): Response {
		this.chats.set(id, { revision: ++this.revision, fields });
		return Response.json({ revision: this.revision });
	}

	#addMessages(chat: string, messages: Fields[]): Response {
		if (!this.chats.get(chat)?.fields) return refusal(404);
		const added = new Map<string, Fields>();
		for (const [index, fields] of messages.entries()) {
			const id = String(fields.id);
			const param = `messages[${index}]`;
			const known = this.messages.get(id);
			if (known) {
				if (known.fields && !same(known.fields, fields)) return refusal(409, {}, param);
				continue;
			}
			const parent = fields.parent as string | null;
			if (parent !== null && !added.has(parent)) {
				const above = this.messages.get(parent);
				if (!above || above.chat !== chat) return refusal(400, {}, `${param}.parent`);
				if (!above.fields) return refusal(410, {}, `${param}.parent`);
			}
			added.set(id, fields);
		}
		for (const [id, fields] of added) {
			const parent = fields.parent as string | null;
			this.messages.set(id, { revision: ++this.revision, fields, chat, parent });
		}
		const files = messages.flatMap((fields) => fields.attachments as { sha256: string }[]);
		const missing = files.map((file) => file.sha256).filter((sha256) => !this.files.has(sha256));
		return Response.json({ revision: this.revision, missing_files: missing });
	}

	#deleteChat(id: string): void {
		const found = this.chats.get(id);
		if (!found?.fields) return;
		for (const [message, { chat, fields }] of this.messages) {
			if (chat !== id) continue;
			this.deletedTexts.add(fields?.text);
			this.messages.delete(message);
		}
		this.chats.set(id, { revision: ++this.revision, fields: null });
	}

	#deleteMessage(id: string): void {
		const found = this.messages.get(id);
		if (!found?.fields) return;
		this.deletedTexts.add(found.fields.text);
		this.messages.set(id, { ...found, revision: ++this.revision, fields: null });
		for (const [below, { parent }] of [...this.messages])
			if (parent === id) this.#deleteMessage(below);
	}

	#changes(query: URLSearchParams): Response {
		const [, upTo, down] = /^(\d+)(?:-(\d+))?$/.exec(query.get('since')!)!;
		let [since, below] = [Number(upTo), down === undefined ? null : Number(down)];
		if (since !== 0 && !(this.swept <= since && since <= this.revision)) return refusal(410);
		if (since === 0 && this.revision > 0) [since, below] = [this.revision, this.revision + 1];
		const rows = [
			...[...this.chats].map(([id, row]) => ({ row, chat: this.#chat(id, row) })),
			...[...this.messages].map(([id, row]) => ({ row, message: this.#message(id, row) }))
		].sort((a, b) => a.row.revision - b.row.revision);
		const limit = Math.min(Number(query.get('limit')), this.maxRows);
		const left =
			below === null
				? rows.filter(({ row }) => row.revision > since)
				: rows.filter(({ row }) => row.fields && row.revision < below).reverse();
		const page = left.slice(0, limit);
		const more = left.length > limit;
		const last = page.at(-1)?.row.revision ?? 0;
		const revision = below === null ? (more ? last : this.revision) : since;
		const next = below !== null && more ? `${revision}-${last}` : `${revision}`;
		return Response.json({
			...{ revision, next, more },
			chats: page.flatMap((one) => ('chat' in one ? [one.chat] : [])),
			messages: page.flatMap((one) => ('message' in one ? [one.message] : []))
		});
	}

	#chat(id: string, { revision, fields }: Row): Fields {
		return fields ? { ...fields, id, revision } : { id, revision, deleted_at: 1 };
	}

	#message(id: string, { revision, fields, chat }: MessageRow): Fields {
		return fields ? { ...fields, chat, revision } : { id, chat, revision, deleted_at: 1 };
	}
}

function refusal(status: number, more: Fields = {}, param?: string): Response {
	return Response.json({ error: { message: `Refused: ${status}`, param }, ...more }, { status });
}

function same(a: Fields, b: Fields): boolean {
	const sorted = (fields: Fields) => JSON.stringify(Object.entries(fields).sort());
	return sorted(a) === sorted(b);
}
