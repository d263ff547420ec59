// @vitest-environment jsdom
import { expect, it } from 'vitest';
import { keepKey, readKey } from '#lib/storage/secret';
import { serverStore } from './server_store.svelte';

it('signs out, and says so, where the chats can not be deleted', async () => {
	keepKey('mine', true);
	serverStore.onsignout = () => Promise.reject(new Error('the disk is broken'));
	await serverStore.signOut();
	expect(readKey()).toBeNull();
	expect(serverStore.needsKey).toBe(true);
	expect(serverStore.leftBehind).toContain('the disk is broken');
});
