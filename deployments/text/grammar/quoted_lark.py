"""Rewrites Lark for texts in JSON strings: Lark of the string of each text that the grammar allows.

A lexeme of llguidance is as long as can be, and one that ends before an escape could go on with it.
So a grammar without recursion becomes one terminal; in others no class has what JSON escapes.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from deployments.text.grammar.quoted_regex import MUST_ESCAPE, NotQuotable, quoted_regex

TOKENS = re.compile(
    r"""(?P<comment>(?:\#|//)[^\n]*|->[ \t]*\w+)
    |(?P<range>"(?P<first>(?:\\.|[^"\\\n])+)"[ \t]*\.\.[ \t]*"(?P<last>(?:\\.|[^"\\\n])+)")
    |(?P<string>"(?:\\.|[^"\\\n])*")(?P<flag>i?)
    |/(?P<regex>(?:\\.|[^/\\])+)/(?P<flags>[a-z]*)
    |%import[ \t]+common[ \t]*(?:\.[ \t]*(?P<import>\w+)(?:[ \t]*->[ \t]*(?P<alias>\w+))?
      |\((?P<imports>[^)]*)\))
    |(?P<defined>[?!]*(?P<rule>[A-Za-z_][\w-]*))(?:\.-?\d+)?[ \t]*:(?!:)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<ignore>%ignore)
    |(?P<other>~[ \t]*\d+(?:[ \t]*\.\.[ \t]*\d+)?|[\s|()\[\]*+?])
    |(?P<unknown>%\w*|<[^<>\s]+>|.)""",
    re.VERBOSE | re.DOTALL,
)
# Those of Lark's common terminals that have characters which JSON escapes, as regular expressions.
COMMON: Mapping[str, str] = MappingProxyType(
    {
        "CR": r"\r",
        "LF": r"\n",
        "NEWLINE": r"(\r?\n)+",
        "WS": r"[ \t\r\n]+",
        "WS_INLINE": r"[ \t]+",
        "ESCAPED_STRING": r'"(\\[^\n]|[^"\\\n])*"',
        "SH_COMMENT": r"#[^\n]*",
        "SQL_COMMENT": r"--[^\n]*",
        "CPP_COMMENT": r"\/\/[^\n]*",
        "C_COMMENT": r"\/\*(?:[^*]|\*+[^*\/])*\*+\/",
    }
)
QUOTE = r'"\""'
START, TEXT = "start", "quoted__text"


def quoted_lark(lark: str) -> str:
    """Raises NotQuotable."""
    tokens = list(TOKENS.finditer(lark))
    can_be_terminal = not _recurs(tokens) and not any(token["ignore"] for token in tokens)
    return "".join(_LarkRewriter(tokens, can_be_terminal).rewritten())


def _recurs(tokens: Sequence[re.Match[str]]) -> bool:
    """Whether a rule refers to itself, or to others that do."""
    uses: dict[str, set[str]] = {}
    rule = ""
    for token in tokens:
        if token["defined"]:
            rule = token["rule"]
        elif token["name"]:
            uses.setdefault(rule, set()).add(token["name"])
    while uses:
        ended = [name for name, used in uses.items() if not used & uses.keys()]
        if not ended:
            return True
        for name in ended:
            del uses[name]
    return False


@dataclass(slots=True)
class _LarkRewriter:
    tokens: Sequence[re.Match[str]]
    is_terminal: bool

    def rewritten(self) -> Iterator[str]:
        if self.is_terminal:
            yield f"start: TEXT\nTEXT: {QUOTE} {self._name(START)} {QUOTE}\n"
        else:
            yield f"start: {QUOTE} {self._name(START)} {QUOTE}\n"
        yield from map(self._token, self.tokens)
        yield "\n"

    def _token(self, token: re.Match[str]) -> str:
        match token.lastgroup:
            case "comment":
                return ""
            case "range" | "last":
                ends = map(_class_end, (token["first"], token["last"]))
                return self._regex(f"[{'-'.join(ends)}]", "")
            case "flag":
                return _string(token["string"], token["flag"])
            case "flags":
                return self._regex(token["regex"], token["flags"])
            case "import" | "alias":
                return self._imported(token["import"], token["alias"] or token["import"])
            case "imports":
                names = (name.strip() for name in token["imports"].split(","))
                return "\n".join(self._imported(name, name) for name in names)
            case "rule" | "defined":
                return f"{self._name(token['rule'])}:"
            case "name":
                return self._name(token["name"])
            case "ignore" | "other":
                return token[0]
        raise NotQuotable(f"{token[0][:40]} can't be used in the grammar of a tool")

    def _name(self, name: str) -> str:
        """A terminal can only have terminals."""
        is_rule = name.lstrip("_")[:1].islower()
        if is_rule and self.is_terminal:
            return f"RULE__{name.replace('-', '__').upper()}"
        return TEXT if name == START else name

    def _regex(self, body: str, flags: str) -> str:
        if set(flags) - set("isu"):
            raise NotQuotable(f"the flags {flags} of a regular expression can't be used here")
        quoted = quoted_regex(
            body,
            dot_all="s" in flags,
            ignores_case="i" in flags,
            with_escapes=self.is_terminal,
        )
        return f"/{quoted}/" + ("i" if "i" in flags else "")

    def _imported(self, name: str, alias: str) -> str:
        if name in COMMON:
            return f"{alias}: {self._regex(COMMON[name], '')}"
        return f"%import common.{name}" + (f" -> {alias}" if alias != name else "")


def quoted_text(text: str) -> str:
    """The text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _string(written: str, flag: str) -> str:
    text = _read(written)
    if flag and any(character in MUST_ESCAPE for character in text):
        raise NotQuotable(f"{written[:40]}i has characters that JSON escapes")
    return json.dumps(quoted_text(text)) + flag


def _read(written: str) -> str:
    try:
        text = json.loads(re.sub(r"\\x([0-9a-fA-F]{2})", r"\\u00\1", written))
    except ValueError as error:
        raise NotQuotable(f"{written[:40]} is no string") from error
    assert isinstance(text, str)
    return text


def _class_end(written: str) -> str:
    """A character as a class of a regular expression has it."""
    character = _read(f'"{written}"')
    if len(character) != 1:
        raise NotQuotable(f'"{written[:40]}" must be one character')
    return f"\\x{{{ord(character):x}}}"
