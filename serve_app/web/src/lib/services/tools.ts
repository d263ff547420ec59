/** The server's own tools: `GET` and `POST /tools`. */
import { failure, resultText, type Tool } from '#lib/pure/tool_calls';
import { api, ApiError, post } from './api';

interface RawTool {
	tool: string;
	permissions?: { write?: boolean };
	definition?: { function?: { name?: string; description?: string; parameters?: unknown } };
}

export class ToolsService {
	/** Null: the operator enabled none. */
	static async list(): Promise<Tool[] | null> {
		try {
			return (await api.json<RawTool[]>('tools')).map(readTool);
		} catch (error) {
			if (error instanceof ApiError && (error.status === 403 || error.status === 404)) return null;
			throw error;
		}
	}

	/** Its result as text; a refusal of the server's is one, as the model may do better. */
	static async call(
		tool: string,
		params: Record<string, unknown>,
		signal: AbortSignal
	): Promise<string> {
		try {
			return readResult(await api.json<unknown>('tools', post({ tool, params }, { signal })));
		} catch (error) {
			if (error instanceof ApiError && error.status !== 401) return failure(error.message);
			throw error;
		}
	}
}

/** Most tools answer text alone: it is easier to read without its envelope. */
function readResult(answer: unknown): string {
	if (typeof answer === 'object' && answer !== null && 'plain_text_response' in answer)
		return resultText(answer.plain_text_response);
	return resultText(answer);
}

function readTool(raw: RawTool): Tool {
	const definition = raw.definition?.function ?? {};
	const name = definition.name ?? raw.tool;
	return {
		name,
		title: name,
		description: definition.description ?? '',
		parameters: definition.parameters ?? { type: 'object', properties: {} },
		writes: raw.permissions?.write !== false,
		of: 'server',
		own_name: raw.tool
	};
}
