import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { forgetKey, keepKey } from '#lib/storage/secret';
import { api, listeners, post, uiUrl } from './api';

const BUSY = { error: { message: 'No room', code: 'overloaded' } };
const heard: string[] = [];

beforeEach(() => {
	heard.length = 0;
	listeners.reached = () => void heard.push('reached');
	listeners.lost = () => void heard.push('lost');
	listeners.signedOut = () => void heard.push('signed out');
});
afterEach(() => vi.unstubAllGlobals());

function serve(answer: Response): void {
	vi.stubGlobal('fetch', () => Promise.resolve(answer));
}

test.each([502, 503, 504])("a proxy's %d means that nobody answers", async (status) => {
	serve(new Response('<h1>Bad gateway</h1>', { status }));
	await expect(api.json('v1/models')).rejects.toMatchObject({ status: 0 });
	expect(heard).toEqual(['lost']);
});

test("a proxy's refusal says nothing of the rest of the server", async () => {
	serve(new Response('', { status: 503 }));
	await expect(api.json(uiUrl('api/me'))).rejects.toMatchObject({ status: 503 });
	serve(new Response('', { status: 504 }));
	await expect(api.stream('tools', post({}))).rejects.toMatchObject({ status: 504 });
	expect(heard).toEqual([]);
});

test('what the server itself refuses has its words', async () => {
	serve(Response.json(BUSY, { status: 503, headers: { 'retry-after': '2' } }));
	const refused = { status: 503, message: 'No room', code: 'overloaded', retry_after_ms: 2000 };
	await expect(api.json('v1/models')).rejects.toMatchObject(refused);
	serve(Response.json(BUSY, { status: 401 }));
	await expect(api.json('v1/models')).rejects.toMatchObject({ status: 401 });
	expect(heard).toEqual(['reached', 'reached', 'signed out']);
});

test('a refusal of a key that is no more in use signs nobody out', async () => {
	vi.stubGlobal('fetch', () => {
		keepKey('of who is there now', false);
		return Promise.resolve(Response.json(BUSY, { status: 401 }));
	});
	await expect(api.json('v1/models')).rejects.toMatchObject({ status: 401 });
	forgetKey();
	expect(heard).toEqual(['reached']);
});

test('an answer that is no JSON, or that breaks off, is an error as all others', async () => {
	serve(new Response('<!doctype html>'));
	await expect(api.json('v1/models')).rejects.toMatchObject({ name: 'ApiError', status: 200 });
	const broken = new ReadableStream({ pull: (body) => body.error(new TypeError('network error')) });
	serve(new Response(broken));
	await expect(api.json('v1/models')).rejects.toMatchObject({ name: 'ApiError', status: 0 });
	expect(heard).toEqual(['reached', 'reached', 'lost']);
});
