/** A chat is a tree of messages; what is seen of it is the path from a root to the chat's leaf. */
import type { Message } from '#lib/types';

type Node = Pick<Message, 'id' | 'parent' | 'created_at'>;
export type Tree<T extends Node = Message> = ReadonlyMap<string, T>;

/** From the root to `leaf`; what hangs on a parent that is not there starts at the child. */
export function pathTo<T extends Node>(messages: Tree<T>, leaf: string | null): T[] {
	const path: T[] = [];
	const seen = new Set<string>();
	for (let id = leaf; id !== null && !seen.has(id);) {
		const message = messages.get(id);
		if (!message) break;
		seen.add(id);
		path.push(message);
		id = message.parent;
	}
	return path.reverse();
}

/** Children by parent, each in the order of their making; under null are the roots. */
export function childrenOf<T extends Node>(messages: Tree<T>): Map<string | null, T[]> {
	const children = new Map<string | null, T[]>();
	for (const message of messages.values()) {
		const among = children.get(message.parent);
		if (among) among.push(message);
		else children.set(message.parent, [message]);
	}
	for (const among of children.values()) among.sort(byAge);
	return children;
}

export function byAge(a: Node, b: Node): number {
	return a.created_at - b.created_at || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}

/** `id` and those that share its parent, in the order of their making. */
export function siblings<T extends Node>(messages: Tree<T>, id: string): T[] {
	const parent = messages.get(id)?.parent;
	if (parent === undefined) return [];
	return [...messages.values()].filter((message) => message.parent === parent).sort(byAge);
}

/** The end of the branch below `id` that was written last; `id` itself where nothing is below. */
export function newestLeafBelow(messages: Tree<Node>, id: string): string {
	const children = childrenOf(messages);
	let newest = messages.get(id);
	const open = [...(children.get(id) ?? [])];
	let leaf: Node | undefined;
	for (let message = open.pop(); message; message = open.pop()) {
		const below = children.get(message.id);
		if (below) open.push(...below);
		else if (!leaf || byAge(leaf, message) < 0) leaf = message;
	}
	newest = leaf ?? newest;
	return newest?.id ?? id;
}

/** `id` and all below it. */
export function withAllBelow(messages: Tree<Node>, id: string): Set<string> {
	const children = childrenOf(messages);
	const found = new Set<string>([id]);
	for (const one of found) for (const child of children.get(one) ?? []) found.add(child.id);
	return found;
}

/**
 * The leaf once `deleted` (whole subtrees) are gone: `leaf` if it stays, else the newest leaf of the
 * nearest sibling of what was deleted, else the parent. `messages` still has the deleted ones.
 */
export function leafAfterDelete(
	messages: Tree<Node>,
	leaf: string | null,
	deleted: ReadonlySet<string>
): string | null {
	if (leaf === null || !deleted.has(leaf)) return leaf;
	const top = pathTo(messages, leaf).find((message) => deleted.has(message.id));
	if (!top) return null;
	const among = siblings(messages, top.id);
	const index = among.findIndex((message) => message.id === top.id);
	const left = among.filter((message) => !deleted.has(message.id));
	const nearest =
		among
			.slice(0, index)
			.reverse()
			.find((message) => left.includes(message)) ?? left[0];
	if (!nearest) return top.parent;
	const rest = new Map([...messages].filter(([id]) => !deleted.has(id)));
	return newestLeafBelow(rest, nearest.id);
}
