import { expect, it } from 'vitest';
import { chatMarkdown } from './chat_markdown';
import type { Message } from '#lib/types';

it('has the questions and answers of a branch, with the names of their files', () => {
	const message = (role: Message['role'], text: string, more: Partial<Message> = {}): Message => ({
		...{ id: '', chat: '', parent: null, role, text, attachments: [], created_at: 0 },
		...{ revision: null, state: 'done', ...more }
	});
	const file = { name: 'a.txt', type: 'text/plain', size: 1, sha256: '', as: 'text' as const };
	const path = [
		message('user', 'Why?', { attachments: [file] }),
		message('assistant', '', { tool_calls: [] }),
		message('tool', 'found'),
		message('assistant', '- **So**', { model: 'm', reasoning: 'Hm.' })
	];
	expect(chatMarkdown({ title: 'T', system: 'Be\nbrief.' }, path)).toBe(
		'# T\n\n> Be\n> brief.\n\n## You\n\n- a.txt\n\nWhy?\n\n## m\n\n- **So**\n'
	);
});
