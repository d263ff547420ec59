import { expect, it } from 'vitest';
import { Finder, fold, snippetOf, wordsOf } from './search';

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

it('shows the message that has a word, and the word as it is written there', () => {
	const finder = new Finder('GROSSE tide');
	finder.add('a', 'Große Tide');
	finder.add('b', 'The tide', 'm1');
	finder.add('b', 'is grosse', 'm2');
	expect([...finder.found]).toEqual(['b']);
	expect(finder.hits.get('b')?.message).toBe('m1');
	const text = 'x'.repeat(30) + ' the\nhigh Tíde  comes';
	expect(snippetOf(text, ['tide'])).toEqual({
		...{ before: `…${'x'.repeat(14)} the high `, word: 'Tíde', after: ' comes' }
	});
	expect(snippetOf('\u{1f30a} tide', ['tide'])).toEqual({
		before: '\u{1f30a} ',
		word: 'tide',
		after: ''
	});
	expect(snippetOf('none', ['tide'])).toBeNull();
});
