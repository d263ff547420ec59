import { expect, test } from 'vitest';
import {
	cleanName,
	decodeText,
	describeBytes,
	fittingSize,
	freshName,
	HEAD_BYTES,
	MAX_PICTURE_BYTES,
	sizeError,
	sniff,
	whyUnread
} from './attachments';

const bytes = (text: string) => Uint8Array.from(text, (letter) => letter.charCodeAt(0));
const utf8 = (text: string) => new TextEncoder().encode(text);
const PNG = bytes('\x89PNG\r\n\x1a\n....');

test.each([
	['a.png', PNG, 'image', 'image/png'],
	['notes.txt', PNG, 'image', 'image/png'],
	['a.jpg', bytes('\xff\xd8\xff\xe0'), 'image', 'image/jpeg'],
	['a', bytes('RIFF....WEBP'), 'image', 'image/webp'],
	['a.wav', bytes('RIFF....WAVE'), 'audio', 'audio/wav'],
	['a.mp3', bytes('\xff\xfb\x90\x64'), 'audio', 'audio/mpeg'],
	['a.mp3', bytes('ID3\x04'), 'audio', 'audio/mpeg'],
	['paper.pdf', bytes('%PDF-1.7'), 'pdf', 'application/pdf'],
	['a.py', utf8('print("ß")'), 'text', 'text/plain'],
	['a.html', utf8('<script>'), 'text', 'text/plain'],
	['BMX.md', utf8('BM is no bitmap'), 'text', 'text/plain'],
	['a.svg', utf8('<?xml version="1.0"?>\n<svg xmlns="x">'), 'text', 'image/svg+xml'],
	['wide.txt', bytes('\xff\xfea\0b\0'), 'text', 'text/plain']
])('%s is what its content says', (name, head, kind, type) => {
	expect(sniff(head, name, 'text/html')).toEqual({ kind, type });
});

test.each([
	['a.png', utf8('hello'), 'not a picture'],
	['a.pdf', utf8('hello'), 'not a PDF'],
	['a.docx', bytes('PK\x03\x04'), 'an archive or an Office document'],
	['a.txt', bytes('a\0b'), 'neither a text'],
	['a.txt', bytes('a\xffb'), 'neither a text'],
	['a.txt', new Uint8Array(), 'empty']
])('%s is refused, and why', (name, head, why) => {
	expect(sniff(head, name)).toContain(why);
});

test('a letter that is cut at the end of the head does no harm', () => {
	const head = utf8('a' + 'ß'.repeat(HEAD_BYTES)).subarray(0, HEAD_BYTES);
	expect(sniff(head, 'a.txt')).toMatchObject({ kind: 'text' });
});

test('a text is decoded whole or not at all', () => {
	expect(decodeText(utf8('\ufeffhé'))).toBe('hé');
	expect(decodeText(bytes('\xff\xfea\0'))).toBe('a');
	expect(decodeText(bytes('a\xff'))).toBeNull();
	expect(decodeText(bytes('a\0'))).toBeNull();
});

test('what is too large is refused with both sizes', () => {
	expect(sizeError('a.png', 'image', MAX_PICTURE_BYTES)).toBe('');
	expect(sizeError('a.png', 'image', 30 * 2 ** 20)).toBe(
		'a.png has 30 MB; a picture may have 25 MB.'
	);
	expect(sizeError('a.png', 'image', 3000, 2000)).toBe('a.png has 3 kB; a picture may have 2 kB.');
});

test('a picture keeps its form', () => {
	expect(fittingSize(8192, 4096)).toEqual({ width: 4096, height: 2048 });
	expect(fittingSize(100, 50)).toEqual({ width: 100, height: 50 });
	expect(fittingSize(100_000, 1)).toEqual({ width: 4096, height: 1 });
});

test('what a model does not read is said, what is not known is not', () => {
	const photo = { name: 'a.png', type: 'image/png', as: 'raw' } as const;
	const text = { image: false, audio: false };
	expect(whyUnread(photo, 'tiny', text)).toBe('a.png is a picture, and tiny reads text only.');
	expect(whyUnread(photo, 'tiny', { image: true, audio: false })).toBe('');
	expect(whyUnread(photo, 'tiny', undefined)).toBe('');
	const pdf = { name: 'a.pdf', type: 'application/pdf' };
	expect(whyUnread({ ...pdf, as: 'text' }, 'tiny', text)).toBe('');
	expect(whyUnread({ ...pdf, as: 'images' }, 'tiny', text)).toContain('pictures of its pages');
	const sound = { name: 'a.wav', type: 'audio/wav', as: 'raw' } as const;
	expect(whyUnread(sound, 'eye', { image: true, audio: false })).toBe(
		'a.wav is a sound, and eye reads text and pictures only.'
	);
	expect(whyUnread({ name: 'a.svg', type: 'image/svg+xml', as: 'text' }, 'tiny', text)).toBe('');
});

test('names', () => {
	expect(freshName('a.png', ['a.png', 'a (2).png'])).toBe('a (3).png');
	expect(freshName('.env', ['.env'])).toBe('.env (2)');
	expect(cleanName('\u202egnp.exe\n')).toBe('gnp.exe');
	expect(describeBytes(12)).toBe('12 B');
	expect(describeBytes(1.5 * 2 ** 20)).toBe('1.5 MB');
});
