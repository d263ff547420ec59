import fc from 'fast-check';
import { expect, it } from 'vitest';
import { chatLine, fileLine, fileName, readLine, type ReadChat } from './chat_export';
import { newId } from './ids';
import type { Chat, Message } from '#lib/types';

const chat: Chat = {
	...{ id: newId(), title: 'Tables', title_by: 'person', leaf: null, pinned: true, model: 'demo' },
	...{ system: 'Be brief.', settings: { sampling: { seed: 1 }, thinking: {} } },
	...{ created_at: 1, updated_at: 2, revision: 7, dirty: ['title'] }
};

function message(id: string, parent: string | null, fields: Partial<Message> = {}): Message {
	return {
		...{ id, chat: chat.id, parent, role: 'user', text: 'Hello\n', attachments: [] },
		...{ created_at: 3, revision: 8, state: 'done' },
		...fields
	};
}

it('reads what it wrote', () => {
	const [a, b, c] = [newId(), newId(), newId()];
	const sha256 = '0'.repeat(64);
	const attachments = [{ name: 'a.txt', type: 'text/plain', size: 3, sha256, as: 'text' as const }];
	const messages = [
		message(a, null, { attachments }),
		message(b, a, { role: 'assistant', reasoning: 'Hm.', finish: 'stop', model: 'demo' }),
		message(c, b, { state: 'running' })
	];
	const line = chatLine(chat, messages);
	expect(line).toMatch(/^[^\n]*\n$/);
	const read = readLine(line) as ReadChat;
	expect(read.fields).toMatchObject({ title: 'Tables', pinned: true, system: 'Be brief.' });
	// What runs is left out, and so is what is the server's.
	expect(read.messages).toEqual(messages.slice(0, 2).map((one) => ({ ...one, revision: null })));
	expect(readLine(fileLine(sha256, 'image/png', Uint8Array.of(0, 128, 255)))).toEqual({
		...{ sha256, type: 'image/png', bytes: Uint8Array.of(0, 128, 255) }
	});
});

it.each(['', '{', '[]', '{}', '{"chat": {}, "messages": []}', '{"file": {"sha256": "x"}}'])(
	'takes nothing from %j',
	(line) => expect(readLine(line)).toBeNull()
);

it('makes a tree of whatever parents a file names', () => {
	const ids = Array.from({ length: 8 }, () => newId());
	const parent = fc.option(fc.constantFrom(...ids, newId()));
	fc.assert(
		fc.property(fc.array(parent, { minLength: 1, maxLength: 8 }), (parents) => {
			const messages = parents.map((one, index) => message(ids[index]!, one));
			const read = readLine(chatLine(chat, messages)) as ReadChat;
			const byId = new Map(read.messages.map((one) => [one.id, one]));
			for (const start of read.messages) {
				const seen = new Set<string>();
				for (let one: Message | undefined = start; one;) {
					expect(seen.has(one.id)).toBe(false);
					seen.add(one.id);
					if (one.parent !== null) expect(byId.has(one.parent)).toBe(true);
					one = one.parent === null ? undefined : byId.get(one.parent);
				}
			}
		})
	);
});

it('keeps a tree as it is', () => {
	const ids = Array.from({ length: 8 }, () => newId());
	fc.assert(
		fc.property(fc.array(fc.option(fc.nat(6)), { minLength: 8, maxLength: 8 }), (above) => {
			const parents = above.map((one, index) => (one === null || one >= index ? null : ids[one]!));
			const messages = parents.map((parent, index) => message(ids[index]!, parent));
			const read = readLine(chatLine(chat, messages.reverse())) as ReadChat;
			const found = new Map(read.messages.map((one) => [one.id, one.parent]));
			expect(ids.map((id) => found.get(id))).toEqual(parents);
		})
	);
});

it.each([
	['What is a page table?', 'What-is-a-page-table.jsonl'],
	['Äpfel / Öl: 東京', 'Äpfel-Öl-東京.jsonl'],
	['../../etc/passwd', 'etc-passwd.jsonl'],
	['???', 'chat.jsonl'],
	['a'.repeat(200), `${'a'.repeat(60)}.jsonl`]
])('names the file of %j', (title, name) => expect(fileName(title)).toBe(name));
