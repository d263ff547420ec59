import adapter from '@sveltejs/adapter-static';
import { sveltekit } from '@sveltejs/kit/vite';
import tailwindcss from '@tailwindcss/vite';
import { defineConfig } from 'vite';

const out = process.env.MANTA_WEB_OUT ?? 'dist';
const target = process.env.MANTA_URL ?? 'http://127.0.0.1:8000';
// The page is served at `/ui/` and asks for `../v1` and so on. `npm run dev` serves it at `/`.
const asked = ['/v1', '/models', '/props', '/slots', '/tools', '/fleet', '/health', '/stats'];
const proxied = [...asked, '/metrics', '/tokenize', '/apply-template', '/docs'];

export default defineConfig({
	plugins: [
		inEnglish(),
		withoutOldFonts(),
		tailwindcss(),
		sveltekit({
			adapter: adapter({ pages: out, assets: out }),
			paths: { relative: true },
			router: { type: 'hash' }
		})
	],
	resolve: {
		// A layout engine that nothing here asks for; its licence does not allow to ship it.
		alias: [{ find: /^elkjs(\/.*)?$/, replacement: stub('elk') }]
	},
	optimizeDeps: { exclude: ['uplot'] },
	// Of all that is bundled: most licences ask for their text beside each copy.
	build: {
		target: 'es2022',
		license: { fileName: 'licences.txt' },
		// The page's policy allows fonts of the server alone.
		assetsInlineLimit: (file) => (file.endsWith('.woff2') ? false : undefined)
	},
	server: {
		proxy: {
			...Object.fromEntries(proxied.map((path) => [path, { target }])),
			'/api': { target, rewrite: (path) => `/ui${path}` }
		}
	}
});

function stub(name) {
	return new URL(`./stubs/${name}/index.js`, import.meta.url).pathname;
}

// uPlot writes numbers in the browser's language, and fails where that is no tag that `Intl` knows,
// such as `en-US@posix`. The page is in English.
function inEnglish() {
	return {
		name: 'uplot-in-english',
		transform: {
			filter: { id: /uPlot\.esm\.js/ },
			handler: (code) => code.replace('nav.language', "'en'")
		}
	};
}

// KaTeX has its fonts in three forms; every browser that this page runs in reads the first.
function withoutOldFonts() {
	return {
		name: 'katex-woff2-alone',
		enforce: 'pre',
		transform: {
			filter: { id: /katex\.min\.css/ },
			handler: (code) => code.replace(/,url\([^)]*\.(?:woff|ttf)\) format\("\w+"\)/g, '')
		}
	};
}
