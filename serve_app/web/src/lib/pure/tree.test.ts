import fc from 'fast-check';
import { expect, test } from 'vitest';
import { leafAfterDelete, newestLeafBelow, pathTo, siblings, withAllBelow } from './tree';

interface Node {
	id: string;
	parent: string | null;
	created_at: number;
}

function tree(...lines: string[]): Map<string, Node> {
	return new Map(
		lines.map((line, created_at) => {
			const [id, parent = null] = line.split(' < ');
			return [id!, { id: id!, parent, created_at }];
		})
	);
}
const ids = (nodes: Node[]) => nodes.map((node) => node.id).join(' ');

// q1 - a1 - q2 - a2
//    \ b1 - q3
const TREE = tree('q1', 'a1 < q1', 'q2 < a1', 'a2 < q2', 'b1 < q1', 'q3 < b1');

test('a path leads from the root to the leaf', () => {
	expect(ids(pathTo(TREE, 'a2'))).toBe('q1 a1 q2 a2');
	expect(pathTo(TREE, null)).toEqual([]);
	expect(ids(pathTo(tree('b < gone'), 'b'))).toBe('b');
	expect(ids(pathTo(tree('a < b', 'b < a'), 'a'))).toBe('b a');
});

test('siblings share a parent, the oldest first', () => {
	expect(ids(siblings(TREE, 'b1'))).toBe('a1 b1');
	expect(siblings(TREE, 'nobody')).toEqual([]);
});

test('a branch is gone to at its newest end', () => {
	expect(newestLeafBelow(TREE, 'q1')).toBe('q3');
	expect(newestLeafBelow(TREE, 'a1')).toBe('a2');
	expect(newestLeafBelow(TREE, 'q3')).toBe('q3');
});

test('deleting takes all below along, and the leaf goes to the nearest sibling, else to the parent', () => {
	expect([...withAllBelow(TREE, 'b1')]).toEqual(['b1', 'q3']);
	expect(leafAfterDelete(TREE, 'q3', withAllBelow(TREE, 'b1'))).toBe('a2');
	expect(leafAfterDelete(TREE, 'q3', withAllBelow(TREE, 'q3'))).toBe('b1');
	expect(leafAfterDelete(TREE, 'a2', withAllBelow(TREE, 'b1'))).toBe('a2');
	expect(leafAfterDelete(TREE, 'a2', withAllBelow(TREE, 'q1'))).toBeNull();
});

test('whatever is added, chosen and deleted, it stays a tree and the leaf one of its ends', () => {
	const step = fc.record({
		kind: fc.constantFrom('answer', 'sibling', 'choose', 'delete'),
		at: fc.nat(1000)
	});
	fc.assert(
		fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
			const nodes = new Map<string, Node>();
			let leaf: string | null = null;
			steps.forEach(({ kind, at }, created_at) => {
				const some = [...nodes.keys()][at % Math.max(nodes.size, 1)];
				const id = String(created_at);
				if (kind === 'answer' || some === undefined) {
					nodes.set(id, { id, parent: leaf, created_at });
					leaf = id;
				} else if (kind === 'sibling') {
					nodes.set(id, { id, parent: nodes.get(some)!.parent, created_at });
					leaf = id;
				} else if (kind === 'choose') leaf = newestLeafBelow(nodes, some);
				else {
					const gone = withAllBelow(nodes, some);
					leaf = leafAfterDelete(nodes, leaf, gone);
					for (const one of gone) nodes.delete(one);
				}
				for (const { parent } of nodes.values())
					expect(parent === null || nodes.has(parent)).toBe(true);
				expect(leaf === null || nodes.has(leaf)).toBe(true);
				const path = pathTo(nodes, leaf);
				expect(path.length === 0 || path[0]!.parent === null).toBe(true);
			});
		})
	);
});
