"""GBNF means here what it means in llama.cpp: characters, and every way to read them."""

import tracemalloc
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.text.grammar.character_grammar import (
    Alternation,
    Concatenation,
    Expression,
    Literal,
    Ranges,
    Repetition,
    RuleReference,
)
from deployments.text.grammar.gbnf import lark_of
from deployments.text.grammar.grammar import from_gbnf
from tests.text.constrained import allows

JSON = r"""
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
"""
ARITHMETIC = r"""
root  ::= (expr "=" ws term "\n")+
expr  ::= term ([-+*/] term)*
term  ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num   ::= [0-9]+ ws
ws    ::= [ \t\n]*
"""
LIST = r"""
root ::= item+
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n"
"""
CHESS = r"""
root    ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move    ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn    ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle  ::= "O-O" "-O"?
"""
JAPANESE = r"""
root        ::= jp-char+ ([ \t\n] jp-char+)*
jp-char     ::= hiragana | katakana | punctuation | cjk
hiragana    ::= [\u3041-\u309f]
katakana    ::= [\u30a1-\u30ff]
punctuation ::= [\u3001-\u303e]
cjk         ::= [\u4e00-\u9fff]
"""


@pytest.mark.parametrize(
    ("gbnf", "inside", "outside"),
    [
        (JSON, '{"a": [1, 2.5e3, {"b\\n": null}],\n\t"\u00e9": "\U0001f642"}', '{"a": [1, ]}'),
        (JSON, "{}", "[]"),
        (ARITHMETIC, "1+2 = 3\n(a*b)=c\n", "1+2 = 3"),
        (LIST, "- ab\n- \u00e9 - c\n", "- ab\n-\n"),
        (CHESS, "1. e4 Nf6\n2. Nbxd7+ O-O\n10. O-O-O exd8=Q#\n", "1. e4 Nf6\n"),
        (JAPANESE, "\u65e5\u672c\u8a9e\u306e \u30c6\u30ad\u30b9\u30c8\u3002", "\u65e5 "),
        ('root ::= "a" ws "\\n" "b"\nws ::= [ \\t\\n]*', "a\n \nb", "ab"),
        (
            'root ::= a "</think>" b?\na ::= [^\\x00]*\nb ::= "yes"',
            "<a> </b></think>yes",
            "</think",
        ),
        ('root ::= a root | b\na ::= [^x]*\nb ::= "</t>"', "<a</b></t>", "<a</b>"),
        ('root ::= a b\na ::= [0-9]+\nb ::= "5"', "155", "16"),
        ('root ::= "true" | [a-z]+ "!" root?', "trust!true", "true!tru"),
        ("root ::= .*", "a\n\u00e9\x00", None),
        ('root ::= "a" . "." [.]', "a\n..", "a\nb."),
        ('root ::= (""){2} "a" root?', "aa", ""),
        ('root ::= start\nstart ::= "a"', "a", "start"),
        ('root ::= Item item\nItem ::= "a"\nitem ::= "b"', "ab", "aa"),
        ('root ::= aB a-b a_b\naB ::= "1"\na-b ::= "2"\na_b ::= "3"', "123", "111"),
        (r"root ::= [a-c-] [-x] [x^] [+--] [&&~~/\]\[]+", "--^,&~/][", "d-^,&"),
        (r"root ::= [^-a-c\n]{2}", "d\u00e9", "d-"),
        (r"root ::= [\u005ea]+ [a\u002dz]+", "a^a-z", "ab"),
        (r'root ::= "\u0022" [\u005d\U0000005c]+', r'"]\]', '"'),
        (r"root ::= [ac-bb] [^c-a]", "bc", "cc"),
        ('root ::= "\\"\\\\/\\t" "//" [/]', '"\\/\t///', '"\\/\t//'),
        ('root ::= "" | "a"? [b]{0,2} "c"{2}', "abcc", "abc"),
        ('root ::= "" | "a"? [b]{0,2} "c"{2}', "", "abbbcc"),
        (
            'root ::= ("\u00e9" | "\u00e8" "x")* "\u00ea" root?',
            "\u00e9\u00e8x\u00ea",
            "\u00e8\u00ea",
        ),
    ],
)
def test_a_grammar_is_one_of_characters(gbnf: str, inside: str, outside: str | None) -> None:
    grammar = from_gbnf(gbnf, "field")
    assert allows(grammar, inside)
    assert outside is None or not allows(grammar, outside)


EXAMPLE = """
root   ::= number unit root?
number ::= [0-9]+
unit   ::= {unit} | "m"
"""


@pytest.mark.parametrize(("unit", "terminals"), [('"0x"', {"unit"}), ('"km"', {"number", "unit"})])
def test_the_example_of_the_lexer_is_true(unit: str, terminals: set[str]) -> None:
    gbnf = EXAMPLE.format(unit=unit)
    lark = lark_of(gbnf)
    written = {f"R{at}" for at, name in enumerate(["root", "number", "unit"]) if name in terminals}
    assert {line.split(":")[0] for line in lark.splitlines() if line.startswith("R")} == written
    assert allows(from_gbnf(gbnf, "field"), f"1{unit[1:-1]}2m")


NAMES = "root ::= " + " | ".join(f'"{n * 104_729:011d}"' for n in range(4000))


def test_what_no_text_can_be_mistaken_for_is_a_terminal() -> None:
    """A mask takes fifty times as long without terminals."""
    terminals = [line for line in lark_of(JSON).splitlines() if line.startswith("R")]
    assert len(terminals) == len(("string", "number", "ws"))
    assert "\nR0: " in lark_of(NAMES)


@pytest.mark.parametrize(
    "gbnf",
    [
        "root ::= " + " | ".join(f'"number {n}"' for n in range(2000)),
        "root ::= (" + " | ".join(f'"{n}"' for n in range(2000)) + ") root?",
        "root ::= (" + "[a-z]? " * 2000 + "root)?",
        "root ::= (" + " | ".join(f"[a-{chr(0x4E00 + n)}]" for n in range(2000)) + ") root?",
        NAMES,
        NAMES.replace("::= ", "::= (") + ") root?",
        'root ::= "' + "a" * 100_000 + '"',
        "root ::= [" + "a" * 100_000 + "] [^" + "b" * 100_000 + "]",
        "root ::= [" + "".join(chr(n) for n in range(0x3400, 0xD400, 2)) + "]",
        "root ::= n0\n"
        + "".join(f'n{n} ::= "a"? n{n + 1} "a"?\n' for n in range(300))
        + "".join(f'n{n} ::= "a"\n' for n in range(300, 10_000)),
        'root ::= r0\nr2000 ::= "c"\n' + "\n".join(f'r{n} ::= r{n + 1} "a"?' for n in range(2000)),
    ],
)  # fmt: skip
def test_a_large_grammar_is_read_too(gbnf: str) -> None:
    assert from_gbnf(gbnf, "field")


def test_the_memory_that_a_grammar_takes_is_no_square_of_its_length() -> None:
    tracemalloc.start()
    try:
        lark_of('root ::= "' + "a" * 20_000 + '"')
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


ANY: Ranges = ((0, 0x10FFFF),)
LETTERS = "ab\u00e9"


def literal(text: str) -> Literal:
    return Literal(tuple(((ord(letter), ord(letter)),) for letter in text))


LEAVES = st.one_of(
    st.text(LETTERS, min_size=1, max_size=3).map(literal),
    st.sampled_from([ANY, ((97, 98),), ((97, 97), (233, 233)), ((98, 0x10FFFF),)]).map(
        lambda ranges: Literal((ranges,))
    ),
)


def expressions(*names: str) -> st.SearchStrategy[Expression]:
    leaves = st.one_of(LEAVES, *(st.just(RuleReference(name)) for name in names))

    def of(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        times = st.sampled_from([(0, None), (1, None), (0, 1), (1, 2), (2, 2)])
        repeated = st.builds(lambda inner, time: Repetition(inner, *time), inner, times)
        return st.one_of(several.map(Concatenation), several.map(Alternation), repeated)

    return st.recursive(leaves, of, max_leaves=6)


@st.composite
def grammars(draw: st.DrawFn) -> dict[str, Expression]:
    """Rules that use those behind them, and two that may use themselves after a letter."""
    rules = {
        "root": draw(expressions("x", "y")),
        "x": draw(expressions("y")),
        "y": draw(expressions()),
    }
    for name in ("root", "x"):
        if draw(st.booleans()):
            again = Concatenation((draw(LEAVES), RuleReference(name), draw(expressions("y"))))
            rules[name] = Alternation((rules[name], again))
    return rules


def written(expression: Expression) -> str:
    match expression:
        case RuleReference(name):
            return name
        case Literal(characters):
            classes = (
                "".join(f"\\U{low:08x}-\\U{high:08x}" for low, high in ranges)
                for ranges in characters
            )
            if len(characters) == 1:
                return f"[{next(classes)}]"
            return '"' + "".join(f"\\U{low:08x}" for ((low, _),) in characters) + '"'
        case Repetition(inner, minimum, maximum):
            return f"({written(inner)}){{{minimum},{'' if maximum is None else maximum}}}"
        case Concatenation(inner):
            return f"({' '.join(map(written, inner))})"
        case Alternation(inner):
            return f"({' | '.join(map(written, inner))})"


def ends(
    expression: Expression, rules: dict[str, Expression], text: str, starts: set[int]
) -> set[int]:
    """Returns the positions where an expression that begins at one of `starts` may end."""
    match expression:
        case RuleReference(name):
            return ends(rules[name], rules, text, starts) if starts else set()
        case Literal(characters):
            for ranges in characters:
                starts = {
                    at + 1
                    for at in starts
                    if at < len(text) and any(low <= ord(text[at]) <= high for low, high in ranges)
                }
            return starts
        case Repetition(inner, minimum, maximum):
            found = set(starts) if minimum == 0 else set()
            for times in range(1, (len(text) + minimum if maximum is None else maximum) + 1):
                starts = ends(inner, rules, text, starts)
                found |= starts if times >= minimum else set()
            return found
        case Concatenation(inner):
            for part in inner:
                starts = ends(part, rules, text, starts)
            return starts
        case Alternation(inner):
            return set().union(*(ends(part, rules, text, starts) for part in inner))


@settings(max_examples=50, deadline=None)
@given(grammars())
def test_any_grammar_allows_what_reading_it_by_the_character_allows(
    rules: dict[str, Expression],
) -> None:
    gbnf = "\n".join(f"{name} ::= {written(expression)}" for name, expression in rules.items())
    grammar = from_gbnf(gbnf, "field")
    for length in range(4):
        for text in map("".join, product(LETTERS, repeat=length)):
            assert allows(grammar, text) == (length in ends(rules["root"], rules, text, {0})), text
