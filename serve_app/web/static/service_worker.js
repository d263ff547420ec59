// Keeps the files of the page, so that it opens where no server can be reached. Nothing of a person is
// among them: chats are in the browser's database, and answers of the API are never kept.
const CACHE = 'manta-page';
const PAGE = new URL('./', location.href).href;
const API = new URL('./api/', location.href).href;
/** Their names change with their contents. */
const IMMUTABLE = new URL('./_app/immutable/', location.href).href;
/** Files of some earlier builds; older ones go. */
const MOST = 400;

self.addEventListener('install', () => self.skipWaiting());
self.addEventListener('activate', (event) => event.waitUntil(self.clients.claim()));

self.addEventListener('message', (event) => {
	const files = event.data?.files;
	if (Array.isArray(files)) event.waitUntil(keep([PAGE, ...files.filter(isOfPage)]));
});

self.addEventListener('fetch', (event) => {
	const { request } = event;
	if (request.method !== 'GET' || !isOfPage(request.url)) return;
	const isNew = !request.url.startsWith(IMMUTABLE);
	event.respondWith(isNew ? fromServer(request) : fromCache(request));
});

function isOfPage(address) {
	return address.startsWith(PAGE) && !address.startsWith(API);
}

/** Addresses without what is asked by `?q=`: the page is the same. */
function keyOf(request) {
	const address = new URL(request.url);
	address.search = address.hash = '';
	return address.href;
}

async function fromServer(request) {
	try {
		const answer = await fetch(request);
		if (answer.status === 200) await put(keyOf(request), answer.clone());
		return answer;
	} catch (error) {
		const kept = await caches.match(keyOf(request));
		if (kept) return kept;
		throw error;
	}
}

async function fromCache(request) {
	const kept = await caches.match(keyOf(request));
	if (kept) return kept;
	const answer = await fetch(request);
	if (answer.status === 200) await put(keyOf(request), answer.clone());
	return answer;
}

/** What the page loaded before this worker was there. */
async function keep(addresses) {
	for (const address of addresses) {
		const request = new Request(address);
		if (address !== PAGE && (await caches.match(keyOf(request)))) continue;
		const answer = await fetch(request).catch(() => null);
		if (answer?.status === 200) await put(keyOf(request), answer);
	}
	const cache = await caches.open(CACHE);
	const kept = await cache.keys(); // the oldest first
	for (const old of kept.slice(0, Math.max(0, kept.length - MOST))) await cache.delete(old);
}

async function put(key, answer) {
	const cache = await caches.open(CACHE);
	await cache.put(key, answer).catch(() => undefined); // A full storage.
}
