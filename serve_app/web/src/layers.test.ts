/** Imports go down: Routes -> Components -> Hooks -> Stores -> Services -> Storage; all may use what is pure. */
import { describe, expect, it } from 'vitest';

const LAYERS = ['routes', 'components', 'hooks', 'stores', 'services', 'storage', 'pure', 'types'];
const IMPORT = /\b(?:from|import)\s*\(?\s*'([^']+)'/g;

const sources = import.meta.glob<string>(['./**/*.{ts,svelte}', '!./**/*.test.ts'], {
	query: '?raw',
	import: 'default',
	eager: true
});
const files = Object.entries(sources)
	.map(([name, text]) => ({ name: name.slice(2), text }))
	.filter(({ name }) => layerOf(name) >= 0)
	.map((file) => ({ ...file, imports: importsOf(file.name, file.text) }));
const byName = new Map(files.map((file) => [file.name, file]));

function layerOf(name: string): number {
	const [first = '', second = ''] = name.split('/');
	return LAYERS.indexOf(first === 'lib' ? second.replace(/\.ts$/, '') : first);
}

/** Those of this page's own files, as paths within `src`. */
function importsOf(file: string, text: string): string[] {
	return [...text.matchAll(IMPORT)].flatMap(([, name = '']) => {
		if (name.startsWith('#lib/')) return [name.slice(1)];
		if (!name.startsWith('.')) return [];
		return [new URL(name, `file:///${file}`).pathname.slice(1)];
	});
}

/** `lib/stores/chat.svelte` is `chat.svelte.ts`, `lib/.../Picker.svelte` is itself. */
function find(name: string) {
	return byName.get(name) ?? byName.get(`${name}.ts`);
}

describe('layers', () => {
	it('are all there, and each file of the library is in one', () => {
		expect(new Set(files.map(({ name }) => LAYERS[layerOf(name)]))).toEqual(new Set(LAYERS));
		const strays = Object.keys(sources).filter(
			(name) => name.startsWith('./lib/') && layerOf(name.slice(2)) < 0
		);
		expect(strays).toEqual([]);
	});

	it('import only what lies below them', () => {
		const upwards = files.flatMap(({ name, imports }) =>
			imports
				.filter((other) => layerOf(other) >= 0 && layerOf(other) < layerOf(name))
				.map((other) => `${name} imports ${other}`)
		);
		expect(upwards).toEqual([]);
	});

	it('have no circle of imports', () => {
		const done = new Set<string>();
		const circles: string[] = [];
		const visit = (name: string, path: string[]) => {
			const start = path.indexOf(name);
			if (start >= 0) circles.push([...path.slice(start), name].join(' -> '));
			if (start >= 0 || done.has(name)) return;
			for (const other of byName.get(name)?.imports ?? []) {
				const next = find(other);
				if (next) visit(next.name, [...path, name]);
			}
			done.add(name);
		};
		for (const { name } of files) visit(name, []);
		expect(circles).toEqual([]);
	});

	it('leave requests and databases to services and what lies below', () => {
		const above = files.filter(({ name }) => layerOf(name) < LAYERS.indexOf('services'));
		const direct = above.filter(({ text }) => /\bfetch\(|from 'dexie'|\bindexedDB\b/.test(text));
		expect(direct.map(({ name }) => name)).toEqual([]);
	});
});
