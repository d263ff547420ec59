"""Keeps text that spells a control token apart from the control tokens that a template writes.

What fills a template is guarded before it is rendered: GUARD stands before each control token that
it spells. Whatever is rendered without a guard is the template's own.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from tokenizers import AddedToken, Tokenizer

# The last variation selector: nothing is drawn with it, and Python's `repr`, which templates print
# objects by, leaves it as it is. A text that has it loses it beside a spelled control token.
GUARD = "\U000e01ef"
ESCAPED_GUARD = r"\udb40\uddef"  # in JSON that is ASCII
MARK = "\ufdd2"  # a noncharacter
NONE: frozenset[str] = frozenset()
# Vocabularies such as Gemma's have these as tokens of their own, which are no more than text.
HTML = re.compile(
    r"</?(a|b|blockquote|br|caption|code|div|em|h[1-6]|hr|i|li|ol|p|pre|s|span|strong|su[bp]|table"
    r"|tbody|td|tfoot|th|thead|tr|u|ul)>"
)
BRACKETS = (("<", ">"), ("</", ">"), ("<|", "|>"), ("[", "]"))
Trie = dict[str, "Trie"]
END = ""  # in a trie, the end of a text


class ControlTokens:
    """The tokens of a vocabulary that structure prompts: all special ones, and others whose text
    is in angle brackets or in the model's templates.
    """

    def __init__(self, tokenizer: Tokenizer, templates: str) -> None:
        added = tokenizer.get_added_tokens_decoder()
        self._ids = {
            token.content: token_id
            for token_id, token in added.items()
            if _is_control(token, templates)
        }
        self._pattern = _pattern(self._ids)
        self._escapes = "ensure_ascii" in templates
        self._tokenizer = tokenizer

    @cached_property
    def _spelled(self) -> re.Pattern[str]:
        return re.compile(self._pattern)

    @cached_property
    def _guarded(self) -> re.Pattern[str]:
        return re.compile(f"{GUARD}+({self._pattern})")

    @cached_property
    def _unmarked(self) -> re.Pattern[str]:
        return re.compile(f"[{GUARD}{MARK}]|({self._pattern})")

    def is_spelled(self, text: str) -> bool:
        return self._spelled.search(text) is not None

    def guard(self, value: object) -> object:
        """Strings, and those in lists and objects, with a guard before each control token that they
        spell.
        """
        match value:
            case str():
                return self.guard_text(value)
            case Mapping():
                return {self.guard_name(key): self._field(key, item) for key, item in value.items()}
            case list() | tuple():
                return [self.guard(item) for item in value]
        return value

    def _field(self, key: str, value: object) -> object:
        is_name = key == "name" and isinstance(value, str)
        return self.guard_name(str(value)) if is_name else self.guard(value)

    def guard_text(self, text: str, written: Collection[str] = NONE) -> str:
        """Control tokens in `written` get no guard."""
        if not self.is_spelled(text):
            return text
        return self._spelled.sub(
            lambda found: found[0] if found[0] in written else GUARD + found[0], text
        )

    def guard_name(self, name: str) -> str:
        """Templates write names in brackets, which may make a control token of a word."""
        if any(self.is_spelled(before + name + behind) for before, behind in BRACKETS):
            return GUARD + self.guard_text(name) + GUARD
        return name

    def hide(self, rendered: str) -> str:
        """A rendered prompt in which nothing that was guarded reads as a control token: the guard
        stands within it.
        """
        if self._escapes:
            rendered = rendered.replace(ESCAPED_GUARD, GUARD)
        if GUARD not in rendered:
            return rendered
        return self._guarded.sub(lambda found: f"{found[1][0]}{GUARD}{found[1][1:]}", rendered)

    def marked(self, hidden: str) -> str:
        """The text for `literal_tokenizer`: the mark stands before each control token that has no
        guard, and nowhere else.
        """
        return self._unmarked.sub(lambda found: MARK + found[1] if found[1] else "", hidden)

    def literal_tokenizer(self) -> Tokenizer:
        """A tokenizer with the same ids that reads a control token only behind a mark."""
        state = json.loads(self._tokenizer.to_str())
        renamed = {text: MARK + text for text in self._ids}
        for token in state["added_tokens"]:
            token["content"] = renamed.get(token["content"], token["content"])
        _rename_pieces(state["model"], renamed)
        literal = Tokenizer.from_str(json.dumps(state))
        assert all(
            literal.token_to_id(renamed[text]) == token_id for text, token_id in self._ids.items()
        )
        return literal


def unguarded(text: str) -> str:
    return text.replace(GUARD, "")


def unmarked(text: str) -> str:
    return text.replace(MARK, "")


def _is_control(token: AddedToken, templates: str) -> bool:
    text = token.content.strip()
    if len(text) < 2:
        return False  # a guard has no room within it
    if token.special:
        return True
    if text[0] == "<" and text[-1] == ">":
        return not HTML.fullmatch(text)
    return not text.replace("_", "").isalnum() and text in templates


def _pattern(texts: Iterable[str]) -> str:
    """A regular expression of all texts, of which the longest matches."""
    trie: Trie = {}
    for text in texts:
        node = trie
        for character in text:
            node = node.setdefault(character, {})
        node[END] = {}
    return _branches(trie) if trie else "(?!)"


def _branches(trie: Trie) -> str:
    rests = [
        re.escape(character) + _branches(rest)
        for character, rest in trie.items()
        if character != END
    ]
    if not rests:
        return ""
    found = rests[0] if len(rests) == 1 and END not in trie else f"(?:{'|'.join(rests)})"
    return f"{found}?" if END in trie else found


def _rename_pieces(model: dict[str, object], renamed: Mapping[str, str]) -> None:
    """Renames pieces of the trained vocabulary, so that no text comes to them by itself."""
    match model["vocab"]:
        case dict(vocab):
            model["vocab"] = {renamed.get(text, text): token_id for text, token_id in vocab.items()}
        case list(vocab):
            model["vocab"] = [[renamed.get(text, text), score] for text, score in vocab]
    if (unknown := model.get("unk_token")) in renamed:
        model["unk_token"] = renamed[str(unknown)]
    match model.get("merges"):
        case list(merges):
            model["merges"] = [pair for pair in merges if renamed.keys().isdisjoint(_merged(pair))]


def _merged(merge: str | list[str]) -> tuple[str, str, str]:
    """Both pieces of a merge, and what it makes."""
    first, second = merge.split(" ") if isinstance(merge, str) else merge
    return first, second, first + second
