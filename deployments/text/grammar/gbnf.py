"""GBNF, llama.cpp's notation, as Lark that llguidance reads as llama.cpp reads the original.

There a grammar is one of characters. Here what can be is a terminal, as those are much faster, and
all else is written character by character.
"""

import json
import re

from llguidance.gbnf_to_lark import (
    AlternativeNode,
    ASTNode,
    GrammarParser,
    LiteralNode,
    RegexNode,
    RepetitionNode,
    RuleRefNode,
    SequenceNode,
)

from deployments.text.grammar.greedy_lexer import (
    Either,
    Part,
    Ranges,
    Repeated,
    Row,
    Rule,
    Rules,
    Text,
    Whole,
    taken_whole,
    used_by,
)

START = "root"
HIGHEST = 0x10FFFF
CHARACTER = re.compile(r"\\x[0-9a-fA-F]{2}|\\?.", re.DOTALL)
CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
UNICODE_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def lark_of(gbnf: str) -> str:
    """Raises ValueError, and what llguidance's parser does."""
    parsed = GrammarParser().parse(UNICODE_ESCAPE.sub(_plain, gbnf))
    rules = {name: _part(rule.alternatives) for name, rule in parsed.items()}
    for name in sorted({START}.union(*map(used_by, rules.values())) - rules.keys()):
        raise ValueError(f"there is no rule {name}")
    return Writer(rules, taken_whole(rules, START)).write()


def _plain(escape: re.Match[str]) -> str:
    """The character of a Unicode escape, which llguidance's parser garbles."""
    digits = escape[1] or escape[2]
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    return f"\\x{code:02x}" if code < 0x80 else chr(code)  # no character of ASCII is syntax then


def _part(node: ASTNode) -> Part:
    match node:
        case LiteralNode(value):
            codes = map(_code, CHARACTER.findall(value))
            return Text(tuple(((code, code),) for code in codes))
        case RegexNode(rx):
            return Text((((0, HIGHEST),) if rx == "." else _class(CHARACTER.findall(rx[1:-1])),))
        case RuleRefNode(name):
            return Rule(name)
        case RepetitionNode(inner, least, most):
            return Repeated(_part(inner), least, most)
        case SequenceNode(nodes):
            return _part(nodes[0]) if len(nodes) == 1 else Row(tuple(map(_part, nodes)))
        case AlternativeNode(nodes):
            return _part(nodes[0]) if len(nodes) == 1 else Either(tuple(map(_part, nodes)))
    raise ValueError(f"{type(node).__name__} is not known")


def _code(character: str) -> int:
    if character.startswith("\\x"):
        return int(character[2:], 16)
    return ord(CONTROLS.get(character[1:], character[-1]))


def _class(characters: list[str]) -> Ranges:
    """A `-` that stands first or last is one; so is a `^` that does not stand first."""
    negated = characters[:1] == ["^"]
    ranges: list[tuple[int, int]] = []
    rest = characters[::-1][: -1 if negated else None]
    while rest:
        low = high = _code(rest.pop())
        if len(rest) > 1 and rest[-1] == "-":
            rest.pop()
            high = _code(rest.pop())
        ranges.append((low, high))
    found = _others(ranges) if negated else _merged(ranges)
    if not ranges or not found:
        raise ValueError("a class has no characters")
    return found


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(one for one in ranges if one[0] <= one[1]):
        if merged and low <= merged[-1][1] + 1:
            start, end = merged.pop()
            merged.append((start, max(end, high)))
        else:
            merged.append((low, high))
    return tuple(merged)


def _others(ranges: list[tuple[int, int]]) -> Ranges:
    others, end = [], 0
    for low, high in _merged(ranges):
        if low:
            others.append((end, low - 1))
        end = high + 1
    return (*others, (end, HIGHEST)) if end <= HIGHEST else tuple(others)


class Writer:
    """Writes each character that no terminal holds by a name: so most take two bytes, not six."""

    def __init__(self, rules: Rules, whole: Whole) -> None:
        self._rules = rules
        self._whole = whole
        self._names = {
            name: f"R{number}" if name in whole else f"r{number}"
            for number, name in enumerate(rules)
        }
        self._characters: dict[Ranges, str] = {}

    def write(self) -> str:
        lines = [f"start: {self._names[START]}"]
        for name, rule in self._rules.items():
            lines.append(f"{self._names[name]}: {self._lark(rule, name in self._whole)}")
        for ranges, name in self._characters.items():
            lines.append(f"{name}: {_character(ranges)}")
        return "\n".join(lines) + "\n"

    def _lark(self, part: Part, in_terminal: bool) -> str:
        match part:
            case Text(characters):
                if in_terminal or part in self._whole or not characters:
                    return _string(characters)
                return " ".join(map(self._named, characters))
            case Rule(name):
                return self._names[name]
            case Repeated(inner, least, most):
                times = f"{{{least},{'' if most is None else most}}}"
                return f"({self._lark(inner, in_terminal)}){times}"
            case Row(parts):
                return " ".join(self._lark(one, in_terminal) for one in parts) or '""'
            case Either(parts):
                return f"({' | '.join(self._lark(one, in_terminal) for one in parts)})"

    def _named(self, ranges: Ranges) -> str:
        return self._characters.setdefault(ranges, _letters(len(self._characters)))


def _letters(number: int) -> str:
    """A to Z, BA to BZ, and so on."""
    more, last = divmod(number, 26)
    return (_letters(more) if more else "") + chr(ord("A") + last)


def _string(characters: tuple[Ranges, ...]) -> str:
    if len(characters) == 1:
        return _character(characters[0])
    return json.dumps("".join(chr(low) for ((low, _),) in characters))


def _character(ranges: Ranges) -> str:
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return json.dumps(chr(ranges[0][0]))
    return f"/[{''.join(map(_range, ranges))}]/"


def _range(ends: tuple[int, int]) -> str:
    return "-".join(f"\\x{{{end:x}}}" for end in sorted(set(ends)))
