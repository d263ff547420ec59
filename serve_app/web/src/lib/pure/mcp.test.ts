import { expect, test } from 'vitest';
import {
	mayConnect,
	promptText,
	readAddress,
	readContents,
	readPrompts,
	readResources,
	readToolResult,
	readTools
} from './mcp';

const BASE = 'https://manta.example/ui/';

test('addresses', () => {
	expect(String(readAddress('/mcp', BASE))).toBe('https://manta.example/mcp');
	expect(String(readAddress(' https://tools.example:1/x ', BASE))).toBe(
		'https://tools.example:1/x'
	);
	expect(readAddress('javascript:alert(1)', BASE)).toContain('must start with');
	expect(readAddress('https://u:p@tools.example', BASE)).toContain('password');
	expect(readAddress('http://', BASE)).toBe('This is not an address.');
});

test('the policy says whom the page may ask', () => {
	const own = 'https://manta.example';
	const policy = "default-src 'none'; connect-src 'self' https://tools.example";
	expect(mayConnect(policy, new URL('https://tools.example/mcp'), own)).toBe(true);
	expect(mayConnect(policy, new URL('https://manta.example/mcp'), own)).toBe(true);
	expect(mayConnect(policy, new URL('https://tools.example.evil/mcp'), own)).toBe(false);
	expect(mayConnect("default-src 'none'", new URL(own), own)).toBe(false);
	expect(mayConnect(null, new URL('http://127.0.0.1:1/'), own)).toBe(true);
});

test('tools get names that models can write, and what is not said to read writes', () => {
	const list = [
		{ name: 'get.time', annotations: { readOnlyHint: true }, inputSchema: { type: 'object' } },
		{ name: 'get/time', title: 'Time' },
		{ title: 'no name' },
		null
	];
	expect(readTools(list, 'id', 'clock', new Set(['clock_get_time']))).toEqual([
		{
			...{ name: 'clock_get_time_2', title: 'get.time', description: '', of: 'id' },
			...{ parameters: { type: 'object' }, writes: false, own_name: 'get.time' }
		},
		{
			...{ name: 'clock_get_time_3', title: 'Time', description: '', of: 'id' },
			...{ parameters: { type: 'object', properties: {} }, writes: true, own_name: 'get/time' }
		}
	]);
});

test('results are text', () => {
	const content = [
		{ type: 'text', text: 'a' },
		{ type: 'image', mimeType: 'image/png', data: '...' },
		{ type: 'resource', resource: { uri: 'file:///x', text: 'b' } },
		7
	];
	expect(readToolResult({ content })).toBe('a\n\n[image of type image/png, not shown]\n\nb');
	expect(readToolResult({ content: [{ type: 'text', text: 'no' }], isError: true })).toBe(
		'{"error":"no"}'
	);
	expect(readToolResult({ structuredContent: { a: 1 } })).toBe('{"a":1}');
	expect(readToolResult(null)).toContain('error');
});

test('resources and prompts', () => {
	expect(readResources([{ uri: 'file:///a', name: 'a', mimeType: 'text/plain' }, {}])).toEqual([
		{ uri: 'file:///a', name: 'a', title: 'a', description: '', type: 'text/plain' }
	]);
	const contents = [{ text: 'é' }, { blob: 'AQI=', mimeType: 'image/png' }, { blob: '!' }];
	expect(readContents({ contents }).map(({ bytes, type }) => [[...bytes], type])).toEqual([
		[[0xc3, 0xa9], 'text/plain'],
		[[1, 2], 'image/png']
	]);
	expect(readPrompts([{ name: 'p', arguments: [{ name: 'x', required: true }] }])).toEqual([
		{
			...{ name: 'p', title: 'p', description: '' },
			arguments: [{ name: 'x', description: '', required: true }]
		}
	]);
	const messages = [{ role: 'user', content: { type: 'text', text: 'Review it' } }];
	expect(promptText({ messages })).toBe('Review it');
	expect(promptText({})).toBe('');
});
