import type { Message } from '#lib/types';
import { openCalls } from './tool_calls';

/** Whether a branch ends without an answer, which nobody is writing, and that no error explains. */
export function isUnanswered(branch: readonly Message[]): boolean {
	const last = branch.at(-1);
	if (!last || last.state === 'running' || last.error) return false;
	if (last.role === 'assistant') return !last.text && !last.reasoning && !last.tool_calls?.length;
	if (last.role === 'user') return true;
	// The results of calls, while no other call waits for the person.
	const caller = branch.findLastIndex((message) => message.role === 'assistant');
	return last.role === 'tool' && openCalls(branch, caller).length === 0;
}
