import hljs from 'highlight.js/lib/core';

type Loader = () => Promise<{ default: Parameters<typeof hljs.registerLanguage>[1] }>;

const LOADERS: Record<string, Loader> = {
	bash: () => import('highlight.js/lib/languages/bash'),
	c: () => import('highlight.js/lib/languages/c'),
	cpp: () => import('highlight.js/lib/languages/cpp'),
	csharp: () => import('highlight.js/lib/languages/csharp'),
	css: () => import('highlight.js/lib/languages/css'),
	diff: () => import('highlight.js/lib/languages/diff'),
	dockerfile: () => import('highlight.js/lib/languages/dockerfile'),
	go: () => import('highlight.js/lib/languages/go'),
	ini: () => import('highlight.js/lib/languages/ini'),
	java: () => import('highlight.js/lib/languages/java'),
	javascript: () => import('highlight.js/lib/languages/javascript'),
	json: () => import('highlight.js/lib/languages/json'),
	kotlin: () => import('highlight.js/lib/languages/kotlin'),
	latex: () => import('highlight.js/lib/languages/latex'),
	lua: () => import('highlight.js/lib/languages/lua'),
	makefile: () => import('highlight.js/lib/languages/makefile'),
	markdown: () => import('highlight.js/lib/languages/markdown'),
	php: () => import('highlight.js/lib/languages/php'),
	powershell: () => import('highlight.js/lib/languages/powershell'),
	python: () => import('highlight.js/lib/languages/python'),
	r: () => import('highlight.js/lib/languages/r'),
	ruby: () => import('highlight.js/lib/languages/ruby'),
	rust: () => import('highlight.js/lib/languages/rust'),
	scala: () => import('highlight.js/lib/languages/scala'),
	sql: () => import('highlight.js/lib/languages/sql'),
	swift: () => import('highlight.js/lib/languages/swift'),
	typescript: () => import('highlight.js/lib/languages/typescript'),
	xml: () => import('highlight.js/lib/languages/xml'),
	yaml: () => import('highlight.js/lib/languages/yaml')
};
const ALIASES: Record<string, string> = {
	sh: 'bash',
	shell: 'bash',
	zsh: 'bash',
	console: 'bash',
	h: 'c',
	'c++': 'cpp',
	cc: 'cpp',
	hpp: 'cpp',
	cs: 'csharp',
	'c#': 'csharp',
	docker: 'dockerfile',
	golang: 'go',
	toml: 'ini',
	js: 'javascript',
	jsx: 'javascript',
	mjs: 'javascript',
	kt: 'kotlin',
	tex: 'latex',
	make: 'makefile',
	md: 'markdown',
	ps1: 'powershell',
	py: 'python',
	python3: 'python',
	rb: 'ruby',
	rs: 'rust',
	ts: 'typescript',
	tsx: 'typescript',
	html: 'xml',
	svg: 'xml',
	vue: 'xml',
	svelte: 'xml',
	yml: 'yaml'
};
/** Longer code stays plain: colouring it would hold the page up. */
const MAX_CHARACTERS = 100_000;

/** Code as HTML of `span`s; null where the language is not known. */
export async function highlight(code: string, lang: string): Promise<string | null> {
	const name = lang.toLowerCase();
	const language = ALIASES[name] ?? name;
	if (code.length > MAX_CHARACTERS || !Object.hasOwn(LOADERS, language)) return null;
	if (!hljs.getLanguage(language))
		hljs.registerLanguage(language, (await LOADERS[language]!()).default);
	return hljs.highlight(code, { language, ignoreIllegals: true }).value;
}
