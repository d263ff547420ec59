/** What the page keeps and what it shows: see `docs/architecture.md` for who owns which. */

/** Milliseconds since 1970. */
export type Milliseconds = number;

export type Role = 'system' | 'user' | 'assistant' | 'tool';

/** How an answer ended. `stopped` by the person, `interrupted` by a lost connection. */
export type Finish = 'stop' | 'length' | 'tool_calls' | 'stopped' | 'interrupted' | 'error';

export type ReasoningEffort = 'none' | 'minimal' | 'low' | 'medium' | 'high';

/** A value that is absent is the server's. Names are those of `/v1/chat/completions`. */
export interface Sampling {
	temperature?: number;
	top_p?: number;
	top_k?: number;
	min_p?: number;
	max_tokens?: number;
	frequency_penalty?: number;
	presence_penalty?: number;
	repetition_penalty?: number;
	seed?: number;
	stop?: string[];
	typical_p?: number;
	top_n_sigma?: number;
	dynatemp_range?: number;
	dynatemp_exponent?: number;
	xtc_probability?: number;
	xtc_threshold?: number;
	dry_multiplier?: number;
	dry_base?: number;
	dry_allowed_length?: number;
	repeat_last_n?: number;
}

/** What a chat may begin with, under a name. */
export interface Preset {
	name: string;
	system: string;
	sampling: Sampling;
	thinking: ThinkingChoice;
}

export interface ThinkingChoice {
	effort?: ReasoningEffort;
	/** Tokens. */
	budget?: number;
}

export interface ChatSettings {
	sampling: Sampling;
	thinking: ThinkingChoice;
	/** Names of the tools that the model may call; absent: as the settings of the page say. */
	tools?: string[];
	/** The first message that the model is sent, where the chat is longer than its context. */
	from?: string;
}

/** A conversation: a tree of messages. */
export interface Chat {
	id: string;
	title: string;
	title_by: 'first_line' | 'model' | 'person';
	/** The message at the end of the visible branch. */
	leaf: string | null;
	pinned: boolean;
	model: string | null;
	system: string;
	settings: ChatSettings;
	forked_from?: string;
	created_at: Milliseconds;
	updated_at: Milliseconds;
	/** Of the server; null: never sent. */
	revision: number | null;
	/** Fields that changed since `revision`. */
	dirty: string[];
	deleted_at?: Milliseconds;
}

/** What of a chat goes to the server. */
export type ChatFields = Omit<Chat, 'id' | 'revision' | 'dirty' | 'deleted_at'>;

/** A chat as this browser keeps it. */
export interface StoredChat extends Chat {
	/** There while something is dirty; by it such chats are found. */
	outbox?: 'send';
	/** As the server had it at `revision`: what differs was changed here since. */
	base: ChatFields | null;
	/** Of its newest message; not sent, as it follows from them. Chats are listed by it. */
	active_at: Milliseconds;
}

export interface ToolCall {
	id: string;
	name: string;
	/** JSON, as the model wrote it. */
	arguments: string;
}

export interface Attachment {
	name: string;
	type: string;
	size: number;
	sha256: string;
	as: 'text' | 'images' | 'raw';
}

export interface Usage {
	prompt_tokens: number;
	completion_tokens: number;
	cached_tokens: number;
}

export interface Timings {
	/** Until the first token. */
	prompt_ms: number;
	predicted_n: number;
	predicted_ms: number;
	predicted_per_second: number;
	/** Until the first word of the answer after its thought. */
	thought_ms?: number;
}

export interface MessageError {
	title: string;
	/** The server's own words. */
	message: string;
	status?: number;
	code?: string;
	request_id?: string;
	/** When a retry may succeed; for 429 and 503. */
	retry_at?: Milliseconds;
}

/** A message that is `done` never changes; editing makes a sibling. */
export interface Message {
	id: string;
	chat: string;
	/** null: a root. */
	parent: string | null;
	role: Role;
	text: string;
	reasoning?: string;
	tool_calls?: ToolCall[];
	tool_call_id?: string;
	attachments: Attachment[];
	model?: string;
	/** What was sampled with. */
	params?: Sampling;
	usage?: Usage;
	timings?: Timings;
	finish?: Finish;
	error?: MessageError;
	completion_id?: string;
	/** Bytes of the kept stream that are in it; while it runs. */
	read?: number;
	created_at: Milliseconds;
	/** Of the server; null: never sent. */
	revision: number | null;
	state: 'running' | 'done';
	deleted_at?: Milliseconds;
}

/** A message as this browser keeps it. */
export interface StoredMessage extends Message {
	/** What the server is still to be told. */
	outbox?: 'send' | 'delete';
}

/** A question that was asked while the server was away. */
export interface QueuedQuestion {
	message: string;
	chat: string;
	created_at: Milliseconds;
}

export interface StoredFile {
	sha256: string;
	type: string;
	size: number;
	blob: Blob;
}

/** What is written but not sent. */
export interface Draft {
	/** `new` for the empty chat. */
	chat: string;
	text: string;
	attachments: Attachment[];
}
