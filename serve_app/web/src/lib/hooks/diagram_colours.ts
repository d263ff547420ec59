import type { DiagramColours } from '#lib/services/diagram';

/** The page's colours as they are now: its tokens may be written in any form that CSS knows. */
export function diagramColours(isDark: boolean): DiagramColours {
	const probe = document.createElement('span');
	document.body.append(probe);
	const of = (token: string) => {
		probe.style.color = `var(--${token})`;
		return getComputedStyle(probe).color;
	};
	const colours = {
		page: of('page'),
		sunken: of('sunken'),
		line: of('line-strong'),
		ink: of('ink'),
		inkSoft: of('ink-soft'),
		accent: of('accent'),
		accentSoft: of('accent-soft'),
		onAccent: of('on-accent'),
		isDark
	};
	probe.remove();
	return colours;
}
