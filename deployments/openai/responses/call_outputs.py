"""Output items that are calls: of functions, of custom tools, and of the client's search for tools.

A call whose arguments are cut off is incomplete, whatever ended the answer.
"""

from pydantic_core import from_json

from deployments.ingress.http.sse import encode
from deployments.openai.fields.custom_tools import CalledText
from deployments.openai.responses.events import Events
from deployments.openai.responses.items import Json, Status
from deployments.openai.responses.offered_tools import OfferedTool
from deployments.openai.responses.output_item import OutputItem
from deployments.openai.responses.tools import ResponsesCustomTool, ResponsesToolSearch
from deployments.text.reply import is_json_object


class CallOutput(OutputItem):
    def __init__(self, index: int, events: Events, call_id: str, tool: OfferedTool) -> None:
        super().__init__(index, events)
        self._call_id = call_id
        self._tool = tool

    def _head(self, kind: str) -> Json:
        return {"id": self.id, "type": kind, "status": self.status, "call_id": self._call_id}


class FunctionCallOutput(CallOutput):
    prefix = "fc"
    delta = "response.function_call_arguments.delta"

    def end(self, status: Status) -> bytes:
        arguments = self.text
        status = "completed" if is_json_object(arguments) else "incomplete"
        whole = {"name": self._tool.name, "arguments": arguments}
        kind = "response.function_call_arguments.done"
        return self._events.event(kind, {**self._position(), **whole}) + super().end(status)

    def value(self) -> Json:
        return {**self._head("function_call"), **self._tool.called, "arguments": self.text}


class CustomCallOutput(CallOutput):
    prefix = "ctc"
    delta = "response.custom_tool_call_input.delta"

    def __init__(self, index: int, events: Events, call_id: str, tool: OfferedTool) -> None:
        super().__init__(index, events, call_id, tool)
        self._called = CalledText()

    def add(self, text: str) -> bytes:
        read = self._called.push(text)
        return super().add(read) if read else b""

    def end(self, status: Status) -> bytes:
        rest = self._called.finish()
        status = "completed" if self._called.is_complete else "incomplete"
        last = super().add(rest) if rest else b""
        kind = "response.custom_tool_call_input.done"
        done = self._events.event(kind, {**self._position(), "input": self.text})
        return last + done + super().end(status)

    def value(self) -> Json:
        return {**self._head("custom_tool_call"), **self._tool.called, "input": self.text}


class SearchCallOutput(CallOutput):
    """Its arguments come whole: there is no event for a part of them."""

    prefix = "tsc"
    delta = ""

    def add(self, text: str) -> bytes:
        self._texts.append(text)
        return b""

    def end(self, status: Status) -> bytes:
        return super().end("completed" if is_json_object(self.text) else "incomplete")

    def value(self) -> Json:
        head = self._head("tool_search_call")
        return {**head, "execution": "client", "arguments": _arguments(self.text)}


def call_output(index: int, events: Events, call_id: str, tool: OfferedTool) -> CallOutput:
    kinds: dict[type, type[CallOutput]] = {
        ResponsesCustomTool: CustomCallOutput,
        ResponsesToolSearch: SearchCallOutput,
    }
    kind = kinds.get(type(tool.given), FunctionCallOutput)
    return kind(index, events, call_id, tool)


def _arguments(text: str) -> object:
    """The object, of arguments that are cut off as far as they go."""
    try:
        found = from_json(text, allow_partial=True, allow_inf_nan=False)
        encode(found)
    except ValueError:  # nothing yet, or surrogates
        return {}
    return found if isinstance(found, dict) else {}
