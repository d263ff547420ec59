import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Message } from '#lib/types';
import { firstThatFits, sentPart } from './trimming';

const branch = [...'uauauatau'].map(
	(role, index) =>
		({ id: String(index), role: { u: 'user', a: 'assistant', t: 'tool' }[role] }) as Message
);

it('sends what begins with a message of the branch, and all where that is not in it', () => {
	const ids = (from?: string) =>
		sentPart(branch, from)
			.map(({ id }) => id)
			.join('');
	expect([ids(), ids('0'), ids('4'), ids('other')]).toEqual([
		'012345678',
		'012345678',
		'45678',
		'012345678'
	]);
});

it('finds the longest end that begins with a question and fits', async () => {
	await fc.assert(
		fc.asyncProperty(fc.nat(10), async (least) => {
			const found = await firstThatFits(branch, (start) => Promise.resolve(start >= least));
			const expected = [0, 2, 4, 8].find((start) => start >= least) ?? 8;
			expect(found).toBe(String(expected));
		})
	);
	expect(await firstThatFits([], () => Promise.resolve(true))).toBeNull();
});
