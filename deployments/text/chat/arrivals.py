"""Finds by rendering what a template leaves out without a word, and rewrites it so that it arrives.

A template that refuses a probe says so for the real messages too, which other forms then mend.
"""

from collections.abc import Callable, Sequence
from itertools import takewhile
from weakref import WeakKeyDictionary

from deployments.contract.errors import Refused
from deployments.text.chat.messages import (
    SYSTEM_ROLES,
    Message,
    with_one_system_message,
    without_system_message,
)
from deployments.text.tokens.tokenizer import TextTokenizer

PROBE = "U-u"
Probes = tuple[tuple[str, str], ...]  # roles and texts
USER, REPLY = ("user", PROBE), ("assistant", "A-a")
TOLD, TOLD_MORE = ("system", "S-s"), ("system", "T-t")
DEVELOPED = ("developer", "D-d")
_known: "WeakKeyDictionary[TextTokenizer, dict[tuple[str, Probes, bool], bool | None]]" = (
    WeakKeyDictionary()
)


class Arrivals:
    """Tells what `template` shows of a conversation."""

    def __init__(self, tokenizer: TextTokenizer, template: str) -> None:
        self._tokenizer, self._template = tokenizer, template
        self._shown = _known.setdefault(tokenizer, {})

    def mended(self, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages, whose instructions have roles in which they arrive."""
        messages = self._with_known_developers(messages)
        if self._are_lost(messages, with_one_system_message, (TOLD, TOLD_MORE, USER)) or (
            self._are_lost(messages, with_one_system_message, (USER, REPLY, TOLD, USER))
        ):
            messages = with_one_system_message(messages)
        if self._are_lost(messages, without_system_message, (TOLD, USER)):
            messages = without_system_message(messages)
        return messages

    def _with_known_developers(self, messages: Sequence[Message]) -> Sequence[Message]:
        if not any(message["role"] == "developer" for message in messages):
            return messages
        n_first = sum(1 for _ in takewhile(_is_told, messages))
        first = self._arrive((DEVELOPED, USER)) is True
        later = self._arrive((USER, REPLY, DEVELOPED, USER)) is True
        return [
            message
            if message["role"] != "developer" or (first if at < n_first else later)
            else {**message, "role": "system"}
            for at, message in enumerate(messages)
        ]

    def _are_lost(
        self,
        messages: Sequence[Message],
        rewrite: Callable[[Sequence[Message]], list[Message]],
        probes: Probes,
    ) -> bool:
        """Whether the template leaves out what `rewrite` would change."""
        is_changed = any(map(_is_told, messages)) and rewrite(messages) != list(messages)
        return is_changed and self._arrive(probes) is False

    def in_parts(self) -> bool:
        """Whether the template shows a text as a part alone."""
        return self._shows((USER,)) is not True and self._shows((USER,), in_parts=True) is True

    def _arrive(self, probes: Probes) -> bool | None:
        """`_shows`, in the form that the template reads."""
        return self._shows(probes, self.in_parts())

    def _shows(self, probes: Probes, in_parts: bool = False) -> bool | None:
        """Whether all texts are in the prompt. None: the template refuses them."""
        key = self._template, probes, in_parts
        if key not in self._shown:
            self._shown[key] = self._rendered(probes, in_parts)
        return self._shown[key]

    def _rendered(self, probes: Probes, in_parts: bool) -> bool | None:
        messages = [
            {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}
            for role, text in probes
        ]
        try:
            prompt = self._tokenizer.render_chat(messages, template=self._template)
        except Refused:
            return None
        return all(text in prompt for _, text in probes)


def _is_told(message: Message) -> bool:
    return message["role"] in SYSTEM_ROLES
