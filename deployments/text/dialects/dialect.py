"""The interface of a dialect: how a family of models writes thoughts and tool calls."""

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from deployments.contract.grammar_triggers import TriggerMode
from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.tool import Tool


@dataclass(frozen=True, slots=True)
class Opening:
    """A mark that opens a call in free text, and the Lark rule of what follows it.

    `lead` is the beginning of the rule's text that the mark says already. `compact`: it opens calls
    only where a block may begin; it has no whitespace, and that of the text is left out outside of
    double quotes.
    """

    mark: str
    rule: str
    lead: str = ""
    compact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyContext:
    """The facts about a request that the parser of its reply must know."""

    tools: Sequence[Tool] = ()  # without any, nothing is a call
    thinking: bool = False  # the prompt has opened a thought already
    split_thoughts: bool = True  # if not, thoughts stay in the content, with their marks
    marked: bool = (
        False  # only a reply that begins with the opening mark, thoughts aside, has calls
    )
    # A grammar begins at each of these, and nothing else opens a call. None: there is no such
    # grammar, and whatever can be read as a call is one.
    openings: tuple[Opening, ...] | None = None


# Writes a mark in llguidance's Lark: as its special token if there is one, else as a string.
WriteMark = Callable[[str], str]


class Dialect(ABC):
    """How one family of models writes. A mark is a text that structures a reply: `<tool_call>`."""

    name: ClassVar[str]
    # All marks. Those that are special tokens stay in the text for the parser.
    marks: tuple[str, ...] = ()
    thought_marks: tuple[str, str] | None = None  # they open and close a thought
    thought_breaks: ClassVar[tuple[str, ...]] = ()  # they end a thought too
    unmarked_calls: ClassVar[bool] = False  # a reply may begin with a call without a mark
    # The templates show only the first call of a message, and name all results behind it by it.
    one_call_per_message: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def matches_template(cls, template: str) -> bool:
        """Whether a model with this chat template writes this dialect."""

    @abstractmethod
    def parser(self, context: ReplyContext) -> ReplyParser: ...

    @abstractmethod
    def calls_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark, marked: bool = False
    ) -> str:
        """Lark whose rule `calls` is one call of one of the tools, or with `parallel` several.

        The parser of the dialect reads every text that it matches as calls whose arguments fit the
        schemas. With `marked` a mark opens the calls even if the dialect needs none.
        """

    @abstractmethod
    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        """All that opens a call in free text, and Lark with their rules, up to the reply's end.

        The parser reads a call whose arguments fit the schemas in all that a rule matches behind
        its opening, or with `parallel` several.
        """

    @abstractmethod
    def trigger_modes(self, context: ReplyContext) -> tuple[TriggerMode, ...]:
        """Returns the modes of a search that finds a reply's openings where the parser does.

        Trigger i is opening i of the context.
        """

    def framed_answer(self, answer: str, context: ReplyContext, mark: WriteMark) -> str:
        """Lark of an answer with what a model may write around it, which its parser leaves out.
        `answer` is Lark of the answer itself."""
        return answer

    def as_text(self, calls: Sequence[str]) -> str:
        """Earlier calls as text, for templates that do not show calls.

        Each of `calls` is a JSON object of a name and arguments.
        """
        return "\n".join(calls)

    def kept_marks(self, context: ReplyContext) -> tuple[str, ...]:
        """The marks that the parser needs in the text."""
        return self.marks if context.tools else self.thought_marks or ()

    def written(self, text: str, mark: WriteMark) -> str:
        """Lark of a text that consists of marks and other text."""
        known = sorted(self.marks, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
        return " ".join(mark(part) for part in parts if part)

    def opens_thought(self, prompt: str) -> bool:
        """Whether the reply to a rendered prompt begins inside a thought."""
        return self.thought_marks is not None and prompt.rstrip().endswith(self.thought_marks[0])

    def closes_thought(self, prompt: str) -> bool:
        """Whether the reply to a rendered prompt begins behind a thought."""
        return self.thought_marks is not None and prompt.rstrip().endswith(self.thought_marks[1])

    def call_id(self, index: int, name: str) -> str:
        """A new id for a call, in a form that the dialect's chat templates accept."""
        return f"call_{uuid.uuid4().hex[:24]}"

    def template_id(self, call_id: str, name: str, index: int) -> str:
        """An id that any model or client made, in a form that the dialect's templates accept.

        `name` is the function's. `index` counts the calls of the whole conversation.
        """
        return call_id
