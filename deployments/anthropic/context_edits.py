"""What a request leaves out of its own history: the thoughts of older turns."""

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from deployments.ingress.schema import Items, Strict
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import ModelCard

CLEAR_THINKING = "clear_thinking_20251015"


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
    """Of an edit that this server does not have only the type is wrong."""
    if isinstance(edit, dict) and edit.get("type", CLEAR_THINKING) != CLEAR_THINKING:
        return {"type": edit["type"]}
    return edit


def _once(edits: list[ClearThinking]) -> list[ClearThinking]:
    if len(edits) > 1:
        raise ValueError("has an edit more than once")
    return edits


Edit = Annotated[ClearThinking, BeforeValidator(_known)]


class ContextManagement(Strict):
    edits: Annotated[Items[Edit], AfterValidator(_once)] | None = None

    @property
    def kept_turns(self) -> int | None:
        """Turns whose thoughts stay; None for all."""
        if not self.edits:
            return None
        keep = self.edits[0].keep
        if keep is None:
            return 1
        return keep.value if isinstance(keep, ThinkingTurns) else None


def clear_thoughts(messages: Sequence[dict[str, object]], kept: int) -> list[str]:
    """Takes them out of all but the last `kept` turns that have some: a text for each turn.

    A turn goes on over the results of its calls.
    """
    turns: list[list[dict[str, object]]] = [[]]
    for answers, group in groupby(messages, lambda message: message["role"] == "assistant"):
        run = list(group)
        roles = {message["role"] for message in run}
        if answers:
            turns[-1] += [message for message in run if "reasoning_content" in message]
        elif "user" in roles and "tool" not in roles:
            turns.append([])
    older = list(filter(None, turns))[:-kept]
    return ["".join(str(message.pop("reasoning_content")) for message in turn) for turn in older]


def tokens_of(cleared: Sequence[str], card: ModelCard, tokenizer: TextTokenizer) -> int:
    text = "".join(cleared)
    return len(tokenizer.encode(text, add_special_tokens=False, most=card.context_length))


def applied_edits(
    cleared: Sequence[str], card: ModelCard, tokenizer: TextTokenizer
) -> list[dict[str, object]]:
    if not cleared:
        return []
    counts = {
        "cleared_thinking_turns": len(cleared),
        "cleared_input_tokens": tokens_of(cleared, card, tokenizer),
    }
    return [{"type": CLEAR_THINKING, **counts}]
