"""A prompt: the token ids that a model continues, and how its reply is constrained and parsed."""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.contract.requests import ThinkingBudget
from deployments.media.medium import Medium
from deployments.text.dialects.dialect import Dialect, ReplyContext
from deployments.text.dialects.parsing.pieces import ReplyParser
from kv.content import PlaceholderRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`text` is what `ids` were encoded from, "" where nothing reads it. Guards are in what of it
    spells control tokens and is none.

    `grammar` is llguidance's, "" for any reply, and `grammar_param` the field that it is of. With
    `triggers` the reply is free up to the first of these. `kept_specials` are special tokens that
    stay in the text of the reply when others are skipped. `message_starts` are about the indices of
    the ids that the first message behind the instructions begins with, and the last one; none where
    they are not known, or the model needs none. `warnings` say what of the request is neither in
    the prompt nor in the grammar. `thinks` says whether the model writes thoughts first.
    """

    ids: Sequence[int]
    text: str = ""
    grammar: str = ""
    grammar_param: str = ""
    triggers: GrammarTriggers | None = None
    kept_specials: frozenset[int] = frozenset()
    thinking: ThinkingBudget | None = None
    message_starts: tuple[int, ...] = ()
    media: tuple[Medium, ...] = ()
    placeholder_ranges: tuple[PlaceholderRange, ...] = ()
    warnings: tuple[str, ...] = ()
    thinks: bool = False

    def parser(self) -> ReplyParser | None:
        """A new parser for each choice; None where the reply is plain text."""
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt(Prompt):
    """The prompt of a conversation: `dialect` parses the reply."""

    dialect: Dialect
    context: ReplyContext

    def parser(self) -> ReplyParser:
        return self.dialect.parser(self.context)
