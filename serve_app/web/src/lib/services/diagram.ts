import DOMPurify from 'dompurify';
import { inertDiagram } from '#lib/pure/diagram_source';

/** Those of the page, as `rgb(...)`: mermaid calculates others from them. */
export interface DiagramColours {
	page: string;
	sunken: string;
	line: string;
	ink: string;
	inkSoft: string;
	accent: string;
	accentSoft: string;
	onAccent: string;
	isDark: boolean;
}

/** Eight that can be told apart, on which the page's ink can be read: slices, sections, branches. */
const LIGHT = '#b9e0e8 #f5d9a8 #cfe3b4 #e6cdea #f3c4bd #c9d6f2 #d9d2c0 #bfe3d0'.split(' ');
const DARK = '#1d5563 #6b4a16 #3f5a24 #5b3a63 #6e372f #33477a #4f4a3c #23584a'.split(' ');

let diagrams = 0;

/** A diagram as SVG: nothing within it can run or be clicked. Throws where it is none. */
export async function renderDiagram(source: string, colours: DiagramColours): Promise<string> {
	const { default: mermaid } = await import('mermaid');
	mermaid.initialize({
		startOnLoad: false,
		securityLevel: 'strict',
		theme: 'base',
		themeVariables: variables(colours),
		layout: 'dagre',
		look: 'classic',
		htmlLabels: false,
		flowchart: { htmlLabels: false },
		suppressErrorRendering: true
	});
	const { svg } = await mermaid.render(`diagram-${++diagrams}`, inertDiagram(source));
	return DOMPurify.sanitize(svg, {
		USE_PROFILES: { svg: true, svgFilters: true },
		FORBID_TAGS: ['a', 'image', 'foreignObject', 'script'],
		FORBID_ATTR: ['href', 'xlink:href'],
		ADD_TAGS: ['style']
	});
}

function variables(colours: DiagramColours): Record<string, unknown> {
	const { page, sunken, line, ink, inkSoft, accent, accentSoft, onAccent, isDark } = colours;
	const fills = isDark ? DARK : LIGHT;
	const numbered = (name: string, from: number) =>
		Object.fromEntries(fills.map((fill, at) => [`${name}${at + from}`, fill]));
	const inks = (name: string) => Object.fromEntries(fills.map((_, at) => [`${name}${at}`, ink]));
	return {
		darkMode: isDark,
		fontFamily: 'inherit',
		fontSize: '15px',
		background: page,
		primaryColor: accentSoft,
		primaryTextColor: ink,
		primaryBorderColor: accent,
		secondaryColor: sunken,
		secondaryTextColor: ink,
		secondaryBorderColor: line,
		tertiaryColor: page,
		tertiaryTextColor: ink,
		tertiaryBorderColor: line,
		lineColor: inkSoft,
		textColor: ink,
		titleColor: ink,
		edgeLabelBackground: page,
		clusterBkg: sunken,
		clusterBorder: line,
		noteBkgColor: fills[1],
		noteTextColor: ink,
		noteBorderColor: line,
		actorLineColor: inkSoft,
		activationBkgColor: accentSoft,
		activeTaskBkgColor: accent,
		taskTextDarkColor: ink,
		taskTextOutsideColor: ink,
		taskTextLightColor: ink,
		activeTaskBorderColor: accent,
		todayLineColor: accent,
		sectionBkgColor: sunken,
		altSectionBkgColor: page,
		gridColor: line,
		pieTitleTextColor: ink,
		pieSectionTextColor: ink,
		pieLegendTextColor: ink,
		pieStrokeColor: page,
		pieOuterStrokeColor: line,
		pieOpacity: '1',
		signalColor: inkSoft,
		signalTextColor: ink,
		sequenceNumberColor: onAccent,
		labelColor: ink,
		...numbered('pie', 1),
		...numbered('cScale', 0),
		...inks('cScaleLabel'),
		...numbered('git', 0),
		...inks('gitBranchLabel'),
		...numbered('fillType', 0)
	};
}
