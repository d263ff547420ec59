"""Rewrites regular expressions for texts inside a JSON string, where some characters are escaped.

Each character or class becomes one of the same texts, escaped as JSON's shortest form has them.
Control characters but tab and the ends of lines are left out of classes.
"""

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

MUST_ESCAPE = frozenset('"\\' + "".join(map(chr, range(0x20))))
SHORT: Mapping[str, str] = MappingProxyType(
    {'"': '"', "\\": r"\\", "\n": "n", "\r": "r", "\t": "t"}
)  # what follows the backslash, as a class has it
PLAIN = r'[^"\\\x00-\x1F]'
NAMED = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "a": "\a"}
ATOMS = re.compile(
    r"""\\(?:[xu](?:\{(?P<braced>[0-9a-fA-F]{1,6})\}|(?P<hex>(?<=x)[0-9a-fA-F]{2}|
          (?<=u)[0-9a-fA-F]{4}))
        |(?P<letters>[dw]|p\{?[LMN]\w*\}?)|(?P<set>[sDSW])|(?P<escaped>.))
    |(?P<class>\[\^?\]?(?:\\.|[^\\\]])*\])
    |(?P<flags>\(\?(?P<on>[is]*)(?:-(?P<off>[is]+))?(?P<opens>[:)]))
    |(?P<named>\(\?P?<\w+>)
    |(?P<open>\()|(?P<close>\))|(?P<dot>\.)|(?P<plain>.)""",
    re.VERBOSE | re.DOTALL,
)
NESTED = re.compile(r"(?<!\\)(?:\[|&&|--|~~|\|\|)|\\[pPbB]")
BRACED = re.compile(r"\\[xu]\{([0-9a-fA-F]{1,6})\}")


class NotQuotable(ValueError):
    """A part of a grammar can't be rewritten."""


def quoted_regex(
    body: str, *, dot_all: bool = False, ignores_case: bool = False, with_escapes: bool = True
) -> str:
    """Rewrites a regular expression for texts inside a JSON string. Raises NotQuotable.

    Without `with_escapes` no class has a character that must be escaped.
    """
    return "".join(_RegexRewriter(dot_all, ignores_case, with_escapes).rewritten(body))


class _RegexRewriter:
    def __init__(self, dot_all: bool, ignores_case: bool, with_escapes: bool) -> None:
        self._dot_all = [dot_all]  # one a group that is open
        self._ignores_case = ignores_case
        self._with_escapes = with_escapes

    def rewritten(self, body: str) -> Iterator[str]:
        for atom in ATOMS.finditer(body):
            yield self._atom(atom)

    def _atom(self, atom: re.Match[str]) -> str:
        match atom.lastgroup:
            case "braced" | "hex":
                return self._character(chr(int(atom["braced"] or atom["hex"], 16)), atom[0])
            case "set":
                return self._class(f"[{atom[0]}]")
            case "escaped":
                return self._escaped(atom["escaped"])
            case "class":
                return self._class(atom["class"])
            case "dot":
                return self._class(r"[\s\S]" if self._dot_all[-1] else r"[^\n]")
            case "opens":
                return self._flags(atom)
            case "open" | "named":
                self._dot_all.append(self._dot_all[-1])
                return "(" if atom.lastgroup == "open" else "(?:"
            case "close":
                if len(self._dot_all) > 1:
                    self._dot_all.pop()
                return ")"
            case "plain":
                return self._character(atom[0], atom[0])
        return atom[0]

    def _escaped(self, character: str) -> str:
        if character in NAMED:
            return self._character(NAMED[character], f"\\{character}")
        if character.isalnum():
            raise NotQuotable(f"\\{character} can't be used in the grammar of a tool")
        return self._character(character, f"\\{character}")

    def _character(self, character: str, written: str) -> str:
        if character not in MUST_ESCAPE:
            return written
        if character not in SHORT:
            raise NotQuotable(f"the control character {ord(character)} can't be used here")
        return self._escapes([character])

    def _class(self, written: str) -> str:
        """The class, without what must be escaped, or an escape."""
        special = [character for character in MUST_ESCAPE if _has(written, character)]
        if not special:
            return written
        short = [character for character in SHORT if character in special]
        escapes = self._escapes(short if self._with_escapes or len(short) == 1 else [])
        plain = f"[{written}&&{PLAIN}]"
        return f"(?:{plain}|{escapes})" if escapes else plain

    def _escapes(self, characters: list[str]) -> str:
        if not characters:
            return ""
        escape = rf"\\[{''.join(SHORT[character] for character in characters)}]"
        return f"(?-i:{escape})" if self._ignores_case else f"(?:{escape})"

    def _flags(self, atom: re.Match[str]) -> str:
        on, off = atom["on"], atom["off"] or ""
        dot_all = "s" in on or (self._dot_all[-1] and "s" not in off)
        if "i" in on:
            self._ignores_case = True
        if atom["opens"] == ":":
            self._dot_all.append(dot_all)
        else:
            self._dot_all[-1] = dot_all
        kept = on.replace("s", "") + ("-i" if "i" in off else "")
        return f"(?{kept}{atom['opens']}" if kept or atom["opens"] == ":" else ""


def _has(written: str, character: str) -> bool:
    """Whether a class has the character."""
    inner = written[1:-1]
    if NESTED.search(inner):
        raise NotQuotable(f"the class {written[:40]} can't be used in the grammar of a tool")
    plain = BRACED.sub(lambda code: rf"\U{int(code[1], 16):08x}", written)
    try:
        return re.fullmatch(plain, character) is not None
    except re.error as error:
        raise NotQuotable(f"the class {written[:40]}: {error}") from error
