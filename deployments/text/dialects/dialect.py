"""What a dialect says of itself: how a family of models writes thoughts and calls of tools."""

import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from deployments.text.dialects.parsing.pieces import ReplyParser
from deployments.text.tool import Tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """What a parser must know of its request.

    Without tools nothing is a call. `thinking` says that the prompt has opened a thought already;
    with `split_thoughts` off thoughts stay in the content, marks and all. With `marked` a reply
    has calls only where it begins with the mark that opens them, thoughts aside.
    """

    tools: Sequence[Tool] = ()
    thinking: bool = False
    split_thoughts: bool = True
    marked: bool = False


# How Lark, as llguidance reads it, writes a mark: as its special token, or else as its text.
Mark = Callable[[str], str]


class Dialect(ABC):
    """`thought_marks` open and close a thought; `marks` are all texts that structure a reply and
    may be special tokens, which then stay in the text for the parser. `breaks` end a thought too.
    Where calls are `unmarked`, a reply may begin with one as if it were text. With `one_call_each`
    the family's templates show but the first call of a message, and take its name for that of all
    results behind it.
    """

    name: ClassVar[str]
    marks: tuple[str, ...] = ()
    thought_marks: tuple[str, str] | None = None
    breaks: ClassVar[tuple[str, ...]] = ()
    unmarked: ClassVar[bool] = False
    one_call_each: ClassVar[bool] = False

    @classmethod
    @abstractmethod
    def is_spoken_by(cls, template: str) -> bool:
        """Whether a model with this chat template speaks it."""

    @abstractmethod
    def parser(self, listening: Listening) -> ReplyParser: ...

    @abstractmethod
    def calls(self, tools: Sequence[Tool], parallel: bool, mark: Mark, marked: bool = False) -> str:
        """Lark whose rule `calls` is one call of one of the tools, or with `parallel` several.

        Whatever it matches, this dialect's parser reads as calls whose arguments fit the schemas.
        With `marked` a mark opens them whether or not the dialect needs one.
        """

    @abstractmethod
    def reply(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        """Lark whose rule `reply` is text, such calls, or such calls behind text.

        The parser hears no call but those: text is all that it does not take for one.
        """

    def as_text(self, calls: Sequence[str]) -> str:
        """Calls of the past as text, for templates that show none.

        Each is a JSON object of a name and arguments.
        """
        return "\n".join(calls)

    def kept_marks(self, listening: Listening) -> tuple[str, ...]:
        """The marks that must stay in the text for its parser to hear what it should."""
        return self.marks if listening.tools else self.thought_marks or ()

    def written(self, text: str, mark: Mark) -> str:
        """Lark of a text that is made of marks and what stands between them."""
        known = sorted(self.marks, key=len, reverse=True)
        parts = re.split(f"({'|'.join(map(re.escape, known))})", text) if known else [text]
        return " ".join(mark(part) for part in parts if part)

    def opens_thought(self, prompt: str) -> bool:
        """Whether the reply to a rendered prompt begins inside of a thought."""
        return self.thought_marks is not None and prompt.rstrip().endswith(self.thought_marks[0])

    def call_id(self, index: int, name: str) -> str:
        """An id that the dialect's chat templates take back."""
        return f"call_{uuid.uuid4().hex[:24]}"

    def template_id(self, call_id: str, name: str, index: int) -> str:
        """The id of a call, whoever made it, in a form that the dialect's chat templates take.

        `name` is the function's, `index` the call's among all of the conversation.
        """
        return call_id
