"""Context management: removes the thinking of older turns from the prompt."""

from collections.abc import Sequence
from itertools import chain, groupby
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from deployments.ingress.http.schema import Items, Strict

CLEAR_THINKING = "clear_thinking_20251015"
REASONING_FIELD = "reasoning_content"  # its name in templates
Fields = dict[str, object]


class ThinkingTurns(Strict):
    type: Literal["thinking_turns"]
    value: Annotated[int, Field(ge=1)]


class AllTurns(Strict):
    type: Literal["all"]


class ClearThinking(Strict):
    type: Literal["clear_thinking_20251015"]
    keep: (
        Literal["all"] | Annotated[ThinkingTurns | AllTurns, Field(discriminator="type")] | None
    ) = None


def _known(edit: object) -> object:
    """Errors of unknown edits name only the type."""
    if isinstance(edit, dict) and edit.get("type", CLEAR_THINKING) != CLEAR_THINKING:
        return {"type": edit["type"]}
    return edit


def _once(edits: list[ClearThinking]) -> list[ClearThinking]:
    if len(edits) > 1:
        raise ValueError("must not list the same edit twice")
    return edits


Edit = Annotated[ClearThinking, BeforeValidator(_known)]


class ContextManagement(Strict):
    edits: Annotated[Items[Edit], AfterValidator(_once)] | None = None

    @property
    def kept_turns(self) -> int | None:
        """The number of turns whose thinking stays; None for all."""
        if not self.edits:
            return None
        keep = self.edits[0].keep
        if keep is None:
            return 1
        return keep.value if isinstance(keep, ThinkingTurns) else None


def clear_thoughts(messages: Sequence[Fields], kept: int) -> tuple[list[Fields], int]:
    """The messages with the thinking of only the last `kept` turns that have any, and the number of
    turns that were cleared.

    A turn continues over the results of its calls.
    """
    turns: list[list[int]] = [[]]  # the indices of their messages with thoughts
    for is_assistant, group in groupby(enumerate(messages), _is_answer):
        run = list(group)
        roles = {message["role"] for _, message in run}
        if is_assistant:
            turns[-1] += [index for index, message in run if REASONING_FIELD in message]
        elif "user" in roles and "tool" not in roles:
            turns.append([])
    older = list(filter(None, turns))[:-kept]
    cleared = set(chain.from_iterable(older))
    left = [_without_thoughts(one) if at in cleared else one for at, one in enumerate(messages)]
    return left, len(older)


def _is_answer(numbered: tuple[int, Fields]) -> bool:
    return numbered[1]["role"] == "assistant"


def _without_thoughts(message: Fields) -> Fields:
    return {name: value for name, value in message.items() if name != REASONING_FIELD}


def applied_edits(turns: int, tokens: int) -> list[dict[str, object]]:
    """The report of an edit that removed the thinking of `turns` turns, of `tokens` tokens."""
    if not turns:
        return []
    counts = {"cleared_thinking_turns": turns, "cleared_input_tokens": tokens}
    return [{"type": CLEAR_THINKING, **counts}]
