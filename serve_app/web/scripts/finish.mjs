// After `vite build`: no inline script, no address that depends on where the page is served, styles
// before scripts, and a `.gz` beside each file over 1 kB, as browsers take brotli over TLS only.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';

const OUT = process.env.MANTA_WEB_OUT ?? 'dist';
const MIN_BYTES = 1024;
const PACKED = /\.(gz|png|woff2?)$/;

function externalise() {
	const page = readFileSync(join(OUT, 'index.html'), 'utf8');
	const scripts = [...page.matchAll(/<script>([\s\S]*?)<\/script>/g)];
	if (scripts.length !== 1) throw new Error(`one inline script is expected, not ${scripts.length}`);
	const [element, script] = scripts[0];
	const boot = script.replaceAll('"/_app/', '"./'); // `import()` in a file starts at the file
	const digest = createHash('sha256').update(boot).digest('base64url').slice(0, 8);
	const name = `_app/immutable/boot.${digest}.js`;
	writeFileSync(join(OUT, name), boot.replaceAll('"./immutable/', '"./'));
	const finished = page
		.replace(element, `<script src="./${name}"></script>`)
		.replaceAll('"/_app/', '"./_app/');
	writeFileSync(join(OUT, 'index.html'), finished);
}

/** The first paint waits for them, and not for what is 20 times as much. */
function putStylesFirst() {
	const name = join(OUT, 'index.html');
	const page = readFileSync(name, 'utf8');
	const styles = page.match(/\t*<link [^>]*rel="stylesheet">\n/g) ?? [];
	if (styles.length === 0) throw new Error('a page without styles');
	const rest = styles.reduce((left, style) => left.replace(style, ''), page);
	const first = page.search(/\t*<link [^>]*rel="(modulepreload|stylesheet)">/);
	writeFileSync(name, rest.slice(0, first) + styles.join('') + rest.slice(first));
}

function compress() {
	for (const entry of readdirSync(OUT, { recursive: true })) {
		const path = join(OUT, entry);
		if (!statSync(path).isFile() || statSync(path).size < MIN_BYTES || PACKED.test(path)) continue;
		writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
	}
}

externalise();
putStylesFirst();
compress();
