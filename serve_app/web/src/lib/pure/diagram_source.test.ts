import { expect, test } from 'vitest';
import { inertDiagram } from './diagram_source';

/** As the reader sees it. */
function shown(source: string): string {
	return inertDiagram(source).replaceAll('ﬂ°lt¶ß', '‹').replaceAll('ﬂ°gt¶ß', '›');
}

test.each([
	['A["<img src=x onerror=f()> a"]', 'A["‹img src=x onerror=f()› a"]'],
	['A["<script>f()</script>"]', 'A["‹script›f()‹/script›"]'],
	['A["<img\nsrc=x onerror=f()>"]', 'A["‹img\nsrc=x onerror=f()>"]'],
	['A["<<img src=x onerror=f()>>"]', 'A["<‹img src=x onerror=f()›>"]'],
	['A["<<img onerror>>"]', 'A["<‹img onerror›>"]'],
	['A["<br onclick=f()>"]', 'A["‹br onclick=f()›"]'],
	['A["<!-- <?x"]', 'A["‹!-- ‹?x"]'],
	['+List<String> xs', '+List‹String› xs'],
	['A -- a <b --> C', 'A -- a ‹b --> C']
])('%j has no tag', (source, expected) => {
	expect(shown(source)).toBe(expected);
});

test.each([
	'A["two<br>lines<br/>three<BR />"]',
	'A <--> B <-.-> C <==> D\nB <-- text --> C',
	'A <|-- B\nC <-- D\nE <|.. F\nG <..> H',
	'class A {\n<<interface>>\n<<abstract class>>\n}\nstate c <<choice>>',
	'A<<->>B: both\nA<<-->>B: dashed',
	'b<["right"]>(right)',
	'r <- copies - e',
	'A["x < y, 3 <4"]'
])('%j stays as it is', (source) => {
	expect(inertDiagram(source)).toBe(source);
});

test.each([
	['sequenceDiagram\nlink A: d @ https://e.example\nA->>B: x', 'sequenceDiagram\n\nA->>B: x'],
	['flowchart\nA@{ img: "https://e.example/x.png", label: "l" }', 'flowchart\nA@{  label: "l" }'],
	['style A fill:url(https://e.example/x)', 'style A fill:url (https://e.example/x)']
])('%j fetches nothing and has no menu', (source, expected) => {
	expect(inertDiagram(source)).toBe(expected);
});
