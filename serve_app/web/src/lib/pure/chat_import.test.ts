import { expect, it } from 'vitest';
import { readForeign } from './chat_import';
import { isId } from './ids';

const PNG = 'data:image/png;base64,iVBORw0KGgo=';

/** The branch that is shown, as [role, text, files]. */
function shown(value: unknown) {
	const chats = readForeign(value);
	return chats.map(({ fields, messages }) => {
		const byId = new Map(messages.map((one) => [one.id, one]));
		const path = [];
		for (let one = byId.get(fields.leaf ?? ''); one; one = byId.get(one.parent ?? ''))
			path.unshift([one.role, one.text, one.files.map(({ name }) => name).join()]);
		return { title: fields.title, system: fields.system, path, count: messages.length };
	});
}

it('reads what llama-server exports, its branches and files', () => {
	const message = (id: string, parent: string, role: string, content: string, more = {}) => ({
		...{ id, convId: 'c', type: 'text', timestamp: 1_760_000_000_000, parent, role, content },
		...{ children: [], thinking: '', ...more }
	});
	const value = {
		conv: { id: 'c', name: 'Sea', lastModified: 1_760_000_000_001, currNode: 'a2' },
		messages: [
			{ ...message('r', '', 'system', ''), type: 'root', parent: null },
			message('s', 'r', 'system', 'Be brief.'),
			message('q', 's', 'user', 'Look', {
				extra: [
					{ type: 'IMAGE', name: 'a.png', base64Url: PNG },
					{ type: 'TEXT', name: 'b.txt', content: 'words' },
					{ type: 'AUDIO', name: 'c.wav', base64Data: 'AAAA', mimeType: 'audio/wav' }
				]
			}),
			message('a1', 'q', 'assistant', 'No.'),
			message('a2', 'q', 'assistant', 'Yes.', { thinking: 'Hm.', model: 'm' })
		]
	};
	expect(shown(value)).toEqual([
		{
			...{ title: 'Sea', system: 'Be brief.', count: 3 },
			path: [
				['user', 'Look', 'a.png,b.txt,c.wav'],
				['assistant', 'Yes.', '']
			]
		}
	]);
	const [chat] = readForeign([value]);
	const last = chat!.messages.at(-1)!;
	expect(last).toMatchObject({ reasoning: 'Hm.', model: 'm', state: 'done', created_at: 1.76e12 });
	expect(isId(last.id)).toBe(true);
});

it('reads what Open WebUI exports', () => {
	const thought =
		'<details type="reasoning" done="true" duration="2">\n<summary>Thought for 2 seconds</summary>\n&gt; a &lt; b\n</details>\nYes.';
	const messages = {
		q: { id: 'q', parentId: null, role: 'user', content: 'Hi', timestamp: 1_760_000_000 },
		a: { id: 'a', parentId: 'q', role: 'assistant', content: thought, model: 'm' }
	};
	messages.q = { ...messages.q, ...{ files: [{ type: 'image', url: PNG }] } };
	const value = [
		{ title: 'T', pinned: true, chat: { title: 'T', history: { currentId: 'a', messages } } }
	];
	expect(shown(value)[0]!.path).toEqual([
		['user', 'Hi', 'picture 1'],
		['assistant', 'Yes.', '']
	]);
	expect(readForeign(value)[0]!.messages[1]).toMatchObject({ reasoning: 'a < b', model: 'm' });
	expect(readForeign(value)[0]!.fields.pinned).toBe(true);
});

it('reads what ChatGPT exports, and makes one answer of its parts', () => {
	const node = (id: string, parent: string | null, role: string, content: object, more = {}) => ({
		[id]: {
			id,
			parent,
			children: [],
			message: { author: { role }, create_time: 1.76e9, content, ...more }
		}
	});
	const text = (...parts: unknown[]) => ({ content_type: 'text', parts });
	const value = [
		{
			...{ title: 'T', create_time: 1_760_000_000.5, update_time: null, current_node: 'a' },
			mapping: {
				root: { id: 'root', parent: null, message: null },
				...node('s', 'root', 'system', text('')),
				...node('q', 's', 'user', text('Why?', { content_type: 'image_asset_pointer' })),
				...node('t', 'q', 'assistant', {
					content_type: 'thoughts',
					thoughts: [{ content: 'Hm.' }]
				}),
				...node('u', 't', 'tool', text('found')),
				...node('a', 'u', 'assistant', text('So.'), { metadata: { model_slug: 'g' } })
			}
		}
	];
	expect(shown(value)[0]!.path).toEqual([
		['user', 'Why?\n\n(A file that the export does not hold.)', ''],
		['assistant', 'So.', '']
	]);
	const answer = readForeign(value)[0]!.messages[1];
	expect(answer).toMatchObject({ reasoning: 'Hm.', model: 'g' });
});

it('reads what Claude exports', () => {
	const value = [
		{
			...{ uuid: 'c', name: 'T', created_at: '2025-10-09T08:53:20Z' },
			chat_messages: [
				{
					...{ uuid: '1', sender: 'human', text: 'Hi', content: [{ type: 'text', text: 'Hi' }] },
					attachments: [{ file_name: 'n.txt', extracted_content: 'words' }]
				},
				{ uuid: '2', sender: 'assistant', text: 'Hello', content: [] }
			]
		}
	];
	expect(shown(value)[0]!.path).toEqual([
		['user', 'Hi', 'n.txt'],
		['assistant', 'Hello', '']
	]);
	expect(readForeign(value)[0]!.fields.created_at).toBe(1_760_000_000_000);
});

it.each([
	...[null, 1, 'a', [], {}, [[]], { conv: {} }, { conv: {}, messages: [] }, { mapping: {} }],
	{ mapping: { a: { parent: 'b' }, b: { parent: 'a' } } },
	{ chat: { history: { messages: { a: null } } } }
])('takes nothing from %j', (value) => expect(readForeign(value)).toEqual([]));

it('begins anew where messages are above each other', () => {
	const one = (id: string, parent: string) => ({
		id,
		parent,
		role: 'user',
		content: id,
		timestamp: 1
	});
	const value = { conv: { name: '', currNode: 'b' }, messages: [one('a', 'b'), one('b', 'a')] };
	expect(
		readForeign(value)[0]!
			.messages.map(({ text }) => text)
			.sort()
	).toEqual(['a', 'b']);
});
