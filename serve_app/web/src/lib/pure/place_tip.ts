interface Box {
	left: number;
	top: number;
	bottom: number;
	width: number;
}
interface Size {
	width: number;
	height: number;
}

const GAP = 6;

/** Where a tooltip lies: below `target` and centred, above where the window ends. Pixels of the window. */
export function placeTip(target: Box, tip: Size, view: Size): { left: number; top: number } {
	const below = target.bottom + GAP;
	const fits = below + tip.height + GAP <= view.height;
	const centred = target.left + (target.width - tip.width) / 2;
	return {
		left: Math.max(GAP, Math.min(centred, view.width - tip.width - GAP)),
		top: fits ? below : Math.max(GAP, target.top - GAP - tip.height)
	};
}
