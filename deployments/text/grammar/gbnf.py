"""Translates GBNF, llama.cpp's notation, to Lark that allows the same texts in llguidance.

In GBNF each character is a terminal. Here rules become terminals where that changes nothing,
because llguidance is much faster with them. All other rules are written character by character.
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

from deployments.text.grammar.character_grammar import (
    Alternation,
    Concatenation,
    Expression,
    Literal,
    Ranges,
    Repetition,
    RuleReference,
    Rules,
    referenced_rules,
)
from deployments.text.grammar.greedy_lexer import Terminals, greedy_terminals

START = "root"
MAX_CODE_POINT = 0x10FFFF
ANY_CHARACTER: Ranges = ((0, MAX_CODE_POINT),)
CHARACTER = re.compile(r"\\x[0-9a-fA-F]{2}|\\?.", re.DOTALL)
CONTROLS = {"n": "\n", "r": "\r", "t": "\t"}
UNICODE_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def lark_of(gbnf: str) -> str:
    """Raises ValueError, and any exception of llguidance's parser."""
    parsed = GrammarParser().parse(UNICODE_ESCAPE.sub(_plain, gbnf))
    rules = {name: _expression(rule.alternatives) for name, rule in parsed.items()}
    for name in sorted({START}.union(*map(referenced_rules, rules.values())) - rules.keys()):
        raise ValueError(f"there is no rule {name}")
    return Writer(rules, greedy_terminals(rules, START)).write()


def _plain(escape: re.Match[str]) -> str:
    """The character of a Unicode escape, which llguidance's parser reads wrong."""
    digits = escape[1] or escape[2]
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    return (
        f"\\x{code:02x}" if code < 0x80 else chr(code)
    )  # escaped, so that it is not read as syntax


def _expression(node: ASTNode) -> Expression:
    match node:
        case LiteralNode(value):
            codes = map(_code, CHARACTER.findall(value))
            return Literal(tuple(((code, code),) for code in codes))
        case RegexNode(rx):
            return Literal((ANY_CHARACTER if rx == "." else _class(CHARACTER.findall(rx[1:-1])),))
        case RuleRefNode(name):
            return RuleReference(name)
        case RepetitionNode(inner, minimum, maximum):
            return Repetition(_expression(inner), minimum, maximum)
        case SequenceNode(nodes):
            parts = tuple(map(_expression, nodes))
            return parts[0] if len(parts) == 1 else Concatenation(parts)
        case AlternativeNode(nodes):
            parts = tuple(map(_expression, nodes))
            return parts[0] if len(parts) == 1 else Alternation(parts)
    raise ValueError(f"{type(node).__name__} is not known")


def _code(character: str) -> int:
    if character.startswith("\\x"):
        return int(character[2:], 16)
    return ord(CONTROLS.get(character[1:], character[-1]))


def _class(characters: list[str]) -> Ranges:
    """A `-` that is first or last is a character, and so is a `^` that is not first."""
    negated = characters[:1] == ["^"]
    ranges: list[tuple[int, int]] = []
    rest = characters[::-1][: -1 if negated else None]
    while rest:
        low = high = _code(rest.pop())
        if len(rest) > 1 and rest[-1] == "-":
            rest.pop()
            high = _code(rest.pop())
        ranges.append((low, high))
    found = _complement(ranges) if negated else _merged(ranges)
    if not ranges or not found:
        raise ValueError("a class has no characters")
    return found


def _merged(ranges: list[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(pair for pair in ranges if pair[0] <= pair[1]):
        if merged and low <= merged[-1][1] + 1:
            start, end = merged.pop()
            merged.append((start, max(end, high)))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: list[tuple[int, int]]) -> Ranges:
    gaps, end = [], 0
    for low, high in _merged(ranges):
        if low:
            gaps.append((end, low - 1))
        end = high + 1
    return (*gaps, (end, MAX_CODE_POINT)) if end <= MAX_CODE_POINT else tuple(gaps)


class Writer:
    """Writes the rules in Lark. Character classes outside terminals get names, which are short."""

    def __init__(self, rules: Rules, terminals: Terminals) -> None:
        self._rules = rules
        self._terminals = terminals
        self._rule_names = {
            name: f"R{number}" if name in terminals else f"r{number}"
            for number, name in enumerate(rules)
        }
        self._class_names: dict[Ranges, str] = {}

    def write(self) -> str:
        lines = [f"start: {self._rule_names[START]}"]
        for name, rule in self._rules.items():
            lines.append(f"{self._rule_names[name]}: {self._lark(rule, name in self._terminals)}")
        for ranges, name in self._class_names.items():
            lines.append(f"{name}: {_character(ranges)}")
        return "\n".join(lines) + "\n"

    def _lark(self, expression: Expression, in_terminal: bool) -> str:
        match expression:
            case Literal(characters):
                if in_terminal or expression in self._terminals or not characters:
                    return _string(characters)
                return " ".join(map(self._class_name, characters))
            case RuleReference(name):
                return self._rule_names[name]
            case Repetition(inner, minimum, maximum):
                times = f"{{{minimum},{'' if maximum is None else maximum}}}"
                return f"({self._lark(inner, in_terminal)}){times}"
            case Concatenation(parts):
                return " ".join(self._lark(part, in_terminal) for part in parts) or '""'
            case Alternation(parts):
                return f"({' | '.join(self._lark(part, in_terminal) for part in parts)})"

    def _class_name(self, ranges: Ranges) -> str:
        return self._class_names.setdefault(ranges, _letters(len(self._class_names)))


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
