"""Outputs that are free up to the first trigger of their grammar."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tokenizers import Tokenizer

from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.text.grammar.triggers import ScanState, Trigger, TriggerScanner
from deployments.text.tokens.token_bytes import TokenTexts

if TYPE_CHECKING:
    from llguidance import LLTokenizer

MAX_SCANNERS = 16  # of the last triggers; some 4 MB each


class FreeText:
    """An output up to the first trigger of its grammar."""

    def __init__(
        self, scanner: TriggerScanner, leads: Sequence[str], tokenizer: "LLTokenizer"
    ) -> None:
        self._scanner = scanner
        self._leads = leads
        self._tokenizer = tokenizer
        self._state: ScanState = scanner.start

    def read(self, token_ids: Sequence[int]) -> list[int] | None:
        """Reads the next tokens. Returns what the grammar begins with, in any tokens, if a trigger
        is in the first one of them and all others follow; None if there is no trigger in any.
        """
        for index, token_id in enumerate(token_ids):
            found = self._scanner.read(self._state, token_id)
            if isinstance(found, Trigger):
                return [*self._begun(found), *token_ids[index + 1 :]]
            self._state = found
        return None

    def peek(self, token_ids: Sequence[int]) -> list[int] | None:
        """Returns what `read` returns, without reading."""
        state = self._state
        try:
            return self.read(token_ids)
        finally:
            self._state = state

    def _begun(self, trigger: Trigger) -> list[int]:
        text = self._leads[trigger.number] + trigger.rest.decode("utf-8", "replace")
        return self._tokenizer.greedy_tokenize(text)


class FreeTexts:
    """The free texts of one model. It has no lock of its own."""

    def __init__(self, source: Tokenizer, tokenizer: "LLTokenizer") -> None:
        self._texts = TokenTexts(source)
        self._tokenizer = tokenizer
        self._scanners: OrderedDict[GrammarTriggers, TriggerScanner] = OrderedDict()

    def open(self, triggers: GrammarTriggers) -> FreeText:
        """Raises ValueError where they can't spell what a grammar begins with."""
        scanner = self._scanners.get(triggers)
        if scanner is None:
            self._check_spelling(triggers.leads)
            scanner = self._scanners[triggers] = self._scanner(triggers)
        self._scanners.move_to_end(triggers)
        if len(self._scanners) > MAX_SCANNERS:
            self._scanners.popitem(last=False)
        return FreeText(scanner, triggers.leads, self._tokenizer)

    def _check_spelling(self, texts: Sequence[str]) -> None:
        for text in texts:
            spelled = self._tokenizer.decode_bytes(self._tokenizer.greedy_tokenize(text))
            if spelled != text.encode():
                raise ValueError(f"they can't spell {text!r}")

    def _scanner(self, triggers: GrammarTriggers) -> TriggerScanner:
        texts, kept = self._texts, triggers.kept_specials
        skip = triggers.skip_special_tokens
        return TriggerScanner(
            triggers, lambda token_id: texts.text_bytes(token_id, skip and token_id not in kept)
        )
