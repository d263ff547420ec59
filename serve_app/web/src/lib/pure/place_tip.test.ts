import { expect, test } from 'vitest';
import { placeTip } from './place_tip';

const view = { width: 400, height: 300 };
const tip = { width: 100, height: 20 };

test('lies below and centred where there is room', () => {
	const target = { left: 200, top: 50, bottom: 70, width: 40 };
	expect(placeTip(target, tip, view)).toEqual({ left: 170, top: 76 });
});

test('lies above at the lower edge, and within the window at its sides', () => {
	const target = { left: 390, top: 270, bottom: 295, width: 10 };
	expect(placeTip(target, tip, view)).toEqual({ left: 294, top: 244 });
});
