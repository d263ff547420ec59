import { expect, it } from 'vitest';
import { Finder, fold, wordsOf } from './search';

it('folds case, accents and width', () => {
	expect(fold('Ångström ＡＢ straße')).toBe('angstrom ab straße');
	expect(wordsOf('  Größe   größe x ')).toEqual(['große', 'x']);
	expect(wordsOf(' \n')).toEqual([]);
});

it('finds a chat that has each word somewhere', () => {
	const finder = new Finder('page TABLE');
	finder.add('a', 'A page');
	expect([...finder.found]).toEqual([]);
	finder.add('b', 'tables of pages');
	finder.add('a', 'and its tables');
	finder.add('c', 'table');
	expect([...finder.found].sort()).toEqual(['a', 'b']);
});
