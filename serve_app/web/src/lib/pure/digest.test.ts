import { afterEach, expect, it, vi } from 'vitest';
import { digestOf, digestOfBytes } from './digest';

const ABC = 'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad';

afterEach(() => vi.unstubAllGlobals());

it('is the SHA-256 of a text', () => {
	expect(digestOf('abc')).toBe(ABC);
});

it('is the same of bytes, in a secure context and without one', async () => {
	const bytes = new TextEncoder().encode('abc');
	expect(await digestOfBytes(bytes)).toBe(ABC);
	vi.stubGlobal('crypto', {});
	expect(await digestOfBytes(bytes)).toBe(ABC);
});
