"""Context management: removes the thinking and the tool results of older turns from the prompt.

The server is stateless: every request has its whole conversation, and is edited anew.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby
from typing import Annotated, Literal, cast

from pydantic import AfterValidator, Field

from deployments.ingress.http.schema import Items, Strict

REASONING_FIELD = "reasoning_content"  # its name in templates
CLEARED_RESULT = "[Old tool result content cleared]"
# Anthropic's defaults
TRIGGER_TOKENS = 100_000
KEPT_TOOL_USES = 3
Fields = dict[str, object]
Counter = Callable[[Sequence[Fields]], int]  # of the tokens of a prompt with these messages


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

    @property
    def kept_turns(self) -> int | None:
        """The number of turns whose thinking stays; None for all."""
        if self.keep is None:
            return 1
        return self.keep.value if isinstance(self.keep, ThinkingTurns) else None

    def apply(self, messages: Sequence[Fields], count: Counter) -> tuple[Sequence[Fields], int]:
        kept = self.kept_turns
        return (messages, 0) if kept is None else clear_thoughts(messages, kept)

    def report(self, turns: int, tokens: int) -> Fields:
        counts = {"cleared_thinking_turns": turns, "cleared_input_tokens": tokens}
        return {"type": self.type, **counts}


class TokensTrigger(Strict):
    type: Literal["input_tokens"]
    value: Annotated[int, Field(ge=1)]


class ToolUsesTrigger(Strict):
    type: Literal["tool_uses"]
    value: Annotated[int, Field(ge=1)]


class KeptToolUses(Strict):
    type: Literal["tool_uses"]
    value: Annotated[int, Field(ge=0)]


class LeastTokens(Strict):
    type: Literal["input_tokens"]
    value: Annotated[int, Field(ge=0)]


class ClearToolUses(Strict):
    """`clear_tool_inputs`: of all tools or of these, beside the results. With `clear_at_least` the
    edit is left out if it would save fewer tokens.
    """

    type: Literal["clear_tool_uses_20250919"]
    trigger: Annotated[TokensTrigger | ToolUsesTrigger, Field(discriminator="type")] | None = None
    keep: KeptToolUses | None = None
    clear_at_least: LeastTokens | None = None
    exclude_tools: Items[str] | None = None
    clear_tool_inputs: bool | Items[str] | None = None

    def apply(self, messages: Sequence[Fields], count: Counter) -> tuple[Sequence[Fields], int]:
        uses = [index for index, message in enumerate(messages) if message["role"] == "tool"]
        kept = KEPT_TOOL_USES if self.keep is None else self.keep.value
        excluded = frozenset(self.exclude_tools or ())
        older = uses[: max(len(uses) - kept, 0)]
        cleared = {index for index in older if messages[index]["name"] not in excluded}
        if not cleared or not self._is_triggered(messages, len(uses), count):
            return messages, 0
        left = self._without(messages, cleared)
        least = max(1, 0 if self.clear_at_least is None else self.clear_at_least.value)
        if count(messages) - count(left) < least:
            return messages, 0
        return left, len(cleared)

    def report(self, uses: int, tokens: int) -> Fields:
        counts = {"cleared_tool_uses": uses, "cleared_input_tokens": tokens}
        return {"type": self.type, **counts}

    def _is_triggered(self, messages: Sequence[Fields], uses: int, count: Counter) -> bool:
        if isinstance(self.trigger, ToolUsesTrigger):
            return uses > self.trigger.value
        return count(messages) > (TRIGGER_TOKENS if self.trigger is None else self.trigger.value)

    def _without(self, messages: Sequence[Fields], cleared: Collection[int]) -> list[Fields]:
        left = [
            {**message, "content": CLEARED_RESULT} if index in cleared else message
            for index, message in enumerate(messages)
        ]
        calls: dict[int, set[int]] = {}  # whose input goes, too, by their messages
        for result, (caller, call) in _callers(messages) if self.clear_tool_inputs else ():
            if result in cleared and self._clears_input(messages[result]["name"]):
                calls.setdefault(caller, set()).add(call)
        for caller, numbers in calls.items():
            left[caller] = _without_inputs(left[caller], numbers)
        return left

    def _clears_input(self, name: object) -> bool:
        return self.clear_tool_inputs is True or name in self._cleared_inputs

    @cached_property
    def _cleared_inputs(self) -> frozenset[object]:
        which = self.clear_tool_inputs
        return frozenset(which if isinstance(which, list) else ())


def _once(edits: list[ClearThinking | ClearToolUses]) -> list[ClearThinking | ClearToolUses]:
    if len({edit.type for edit in edits}) < len(edits):
        raise ValueError("must not list the same edit twice")
    return edits


Edit = Annotated[ClearThinking | ClearToolUses, Field(discriminator="type")]


class ContextManagement(Strict):
    edits: Annotated[Items[Edit], AfterValidator(_once)] | None = None

    def edited(
        self, messages: Sequence[Fields], count: Counter
    ) -> tuple[Sequence[Fields], list[Fields]]:
        """The messages after all edits in their order, and the reports of those that removed
        something.
        """
        reports = []
        for edit in self.edits or ():
            left, removed = edit.apply(messages, count)
            if removed:
                reports.append(edit.report(removed, count(messages) - count(left)))
                messages = left
        return messages, reports


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
    left = [
        _without_thoughts(original) if at in cleared else original
        for at, original in enumerate(messages)
    ]
    return left, len(older)


def _is_answer(numbered: tuple[int, Fields]) -> bool:
    return numbered[1]["role"] == "assistant"


def _without_thoughts(message: Fields) -> Fields:
    return {name: value for name, value in message.items() if name != REASONING_FIELD}


def _callers(messages: Sequence[Fields]) -> Iterator[tuple[int, tuple[int, int]]]:
    """The index of each result, with the index of the message that called and that of the call in
    it.
    """
    called: dict[object, tuple[int, int]] = {}
    for index, message in enumerate(messages):
        for number, call in enumerate(_calls(message)):
            called[call["id"]] = index, number
        if message["role"] == "tool":
            yield index, called[message["tool_call_id"]]


def _calls(message: Fields) -> Sequence[Mapping[str, object]]:
    return cast(Sequence[Mapping[str, object]], message.get("tool_calls", ()))


def _without_inputs(message: Fields, numbers: Collection[int]) -> Fields:
    calls = [
        _without_input(call) if number in numbers else call
        for number, call in enumerate(_calls(message))
    ]
    return {**message, "tool_calls": calls}


def _without_input(call: Mapping[str, object]) -> Mapping[str, object]:
    function = cast(Mapping[str, object], call["function"])
    return {**call, "function": {**function, "arguments": {}}}
