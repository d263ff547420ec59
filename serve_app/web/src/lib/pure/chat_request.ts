/** The body of `/v1/chat/completions` for a branch. The server refuses what it does not know. */
import type { Attachment, Message, Sampling, ThinkingChoice } from '#lib/types';
import { cut } from './well_formed';

export interface ToolDefinition {
	type: 'function';
	function: { name: string; description?: string; parameters?: unknown };
}

/** What is sent of a file: its text, or the address of its bytes (`data:`), one a page or picture. */
export type FileContent =
	{ text: string } | { images: string[] } | { audio: { data: string; format: string } };

export interface RequestParts {
	model: string;
	system: string;
	branch: Message[];
	sampling: Sampling;
	thinking: ThinkingChoice;
	/** Of `chat_template_caps`; undefined: the model is not loaded, so nobody knows. */
	caps?: Record<string, boolean>;
	sendThoughts?: boolean;
	/** The branch ends with an answer that is to go on. */
	goOn?: boolean;
	tools?: ToolDefinition[];
	/** `none`: the model has to answer now. */
	toolChoice?: 'auto' | 'none';
	/** By `contentKey`. */
	files?: ReadonlyMap<string, FileContent>;
	/** Fields that the person added to each request. */
	extra?: Record<string, unknown>;
}

export function contentKey(attachment: Attachment): string {
	return `${attachment.sha256} ${attachment.as}`;
}

export function buildRequest(parts: RequestParts): Record<string, unknown> {
	return {
		...countedRequest(parts),
		stream: true,
		stream_options: { include_usage: true },
		timings_per_token: true,
		return_progress: true,
		reasoning_control: true
	};
}

/** The part that also `/input_tokens` takes. */
export function countedRequest(parts: RequestParts): Record<string, unknown> {
	const { effort, budget } = thinkingFields(parts);
	return {
		model: parts.model,
		messages: messagesOf(parts),
		...parts.sampling,
		...(effort !== undefined && { reasoning_effort: effort }),
		...(budget !== undefined && { thinking_token_budget: budget }),
		...(parts.tools?.length && { tools: parts.tools, tool_choice: parts.toolChoice ?? 'auto' }),
		...(parts.goOn && { add_generation_prompt: false, continue_final_message: true }),
		...parts.extra
	};
}

/** A model that does not think is not asked to. */
function thinkingFields({ thinking, caps }: RequestParts): ThinkingChoice {
	if (caps?.supports_thinking === false && !caps.supports_reasoning_effort) return {};
	return thinking;
}

type Wire = Record<string, unknown>;

function messagesOf(parts: RequestParts): Wire[] {
	const messages: Wire[] = parts.system.trim() ? [{ role: 'system', content: parts.system }] : [];
	const answered = new Set(
		parts.branch.filter((one) => one.role === 'tool').map((one) => one.tool_call_id)
	);
	for (const message of parts.branch) {
		if (message.finish === 'error') continue;
		if (message.role === 'assistant') {
			const wire = answerOf(message, parts, answered);
			if (wire) messages.push(wire);
		} else if (message.role === 'tool') {
			messages.push({ role: 'tool', tool_call_id: message.tool_call_id, content: message.text });
		} else messages.push({ role: message.role, content: contentOf(message, parts.files) });
	}
	return messages;
}

/** Null: it said nothing. Calls that nobody answered are left out: templates refuse them. */
function answerOf(
	message: Message,
	parts: RequestParts,
	answered: ReadonlySet<string | undefined>
): Wire | null {
	const calls = (message.tool_calls ?? []).filter((call) => answered.has(call.id));
	const last = parts.goOn && message === parts.branch.at(-1);
	if (!message.text && calls.length === 0 && !(last && message.reasoning)) return null;
	const keeps = parts.sendThoughts && parts.caps?.supports_preserve_reasoning;
	return {
		role: 'assistant',
		content: message.text,
		...(message.reasoning && (keeps || last) && { reasoning_content: message.reasoning }),
		...(calls.length > 0 && {
			tool_calls: calls.map((call) => ({
				id: call.id,
				type: 'function',
				function: { name: call.name, arguments: call.arguments || '{}' }
			}))
		})
	};
}

function contentOf(message: Message, files?: ReadonlyMap<string, FileContent>): string | Wire[] {
	const texts: string[] = [];
	const media: Wire[] = [];
	for (const attachment of message.attachments) {
		const content = files?.get(contentKey(attachment));
		if (!content) continue;
		if ('text' in content) texts.push(asBlock(attachment.name, content.text));
		else if ('images' in content)
			media.push(...content.images.map((url) => ({ type: 'image_url', image_url: { url } })));
		else media.push({ type: 'input_audio', input_audio: content.audio });
	}
	const text = [...texts, message.text].filter(Boolean).join('\n\n');
	return media.length === 0 ? text : [...media, ...(text ? [{ type: 'text', text }] : [])];
}

/** A file among the words of a question; its fence is longer than any within it. */
export function asBlock(name: string, text: string): string {
	const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((run) => run.length));
	const fence = '`'.repeat(longest + 1);
	return `File: ${name.replace(/\s+/g, ' ')}\n${fence}\n${text.replace(/\n$/, '')}\n${fence}`;
}

/** The first line of a question, as a chat's title. */
export function firstLine(text: string, length = 60): string {
	const line = text.split('\n').find((one) => one.trim() !== '') ?? '';
	const clean = line
		.replace(/^[\s#>*-]+/, '')
		.replace(/\s+/g, ' ')
		.trim();
	if (clean.length <= length) return clean;
	const start = cut(clean, length - 1);
	const space = start.lastIndexOf(' ');
	return `${space > length / 2 ? start.slice(0, space) : start}…`;
}
