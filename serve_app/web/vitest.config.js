import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vitest/config';

const PURE = 'src/lib/pure/**/*.test.ts';

export default defineConfig({
	plugins: [svelte()],
	resolve: { conditions: ['browser'] },
	test: {
		setupFiles: ['src/same_seed.ts'],
		environment: 'node',
		testTimeout: 60_000,
		projects: [
			// What keeps no state needs no process for each file: to start one takes longer than the tests.
			{ extends: true, test: { name: 'pure', include: [PURE], isolate: false } },
			{ extends: true, test: { name: 'others', include: ['src/**/*.test.ts'], exclude: [PURE] } }
		]
	}
});
