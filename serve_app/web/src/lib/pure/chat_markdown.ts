import type { Chat, Message } from '#lib/types';

/** The visible branch of a chat, to be read elsewhere: thoughts and calls of tools are left out. */
export function chatMarkdown(
	chat: Pick<Chat, 'title' | 'system'>,
	path: readonly Message[]
): string {
	const parts = [`# ${chat.title}`];
	if (chat.system) parts.push(`> ${chat.system.replaceAll('\n', '\n> ')}`);
	for (const message of path) {
		if (message.role !== 'user' && message.role !== 'assistant') continue;
		const files = message.attachments.map(({ name }) => `- ${name}`).join('\n');
		const text = [files, message.text].filter(Boolean).join('\n\n');
		if (text)
			parts.push(`## ${message.role === 'user' ? 'You' : (message.model ?? 'Assistant')}`, text);
	}
	return `${parts.join('\n\n')}\n`;
}
