"""The messages of a prompt, collected from the items of a conversation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deployments.contract.errors import refused
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.openai.fields.custom_tools import arguments_of
from deployments.openai.fields.tool_arguments import arguments_object
from deployments.openai.responses.items import (
    CallItem,
    CustomCallItem,
    HostedItem,
    Item,
    MessageItem,
    NamedCallItem,
    ReasoningItem,
    ResultItem,
    SearchCallItem,
    SearchOutputItem,
)
from deployments.openai.responses.offered_tools import ToolsWithPath, each_tool
from deployments.openai.responses.tools import SEARCH

Message = dict[str, object]
ItemWithPath = tuple[str, Item]  # with the path that errors name
ShownName = Callable[[str | None, str], str]  # of a namespace and a tool's own name


@dataclass(slots=True)
class CollectedMessage:
    """One message of the prompt. Several items of an assistant make one message: its thoughts, its
    text and its calls.
    """

    role: str
    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    calls: list[Message] = field(default_factory=list)
    call_id: str = ""
    name: str = ""

    def accepts_more(self) -> bool:
        """Whether the next item of the assistant belongs to this message, too. Text after text does
        not; text before and after a call does.
        """
        return self.role == "assistant" and (bool(self.calls) or not self.texts)

    def as_dict(self) -> Message:
        message: Message = {"role": self.role, "content": "\n".join(self.texts)}
        if self.thoughts:
            message["reasoning_content"] = "\n".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = self.calls
        if self.role == "tool":
            message |= {"tool_call_id": self.call_id, "name": self.name}
        return message


def collect_messages(
    items: Sequence[ItemWithPath], shown: ShownName, media: PromptMedia = NO_MEDIA
) -> list[CollectedMessage]:
    """`shown` has the names of tools that the model knows. Raises Refused."""
    found: list[CollectedMessage] = []
    names: dict[str, str] = {}  # of the tools called, by the call's id
    passed = hosted_calls(items)
    for path, item in items:
        match item:
            case MessageItem(role="assistant"):
                _open_assistant_message(found).texts += filter(None, [item.text(media)])
            case MessageItem():
                found.append(CollectedMessage(item.role, [item.text(media)]))
            case ReasoningItem():
                _open_assistant_message(found).thoughts += filter(None, [item.text])
            case CallItem() | CustomCallItem():
                names[item.call_id] = shown(item.namespace, item.name)
                call = _call(item.call_id, names[item.call_id], _arguments(item))
                _last_assistant_message(found).calls.append(call)
            case SearchCallItem(call_id=str(call_id), execution="client"):
                names[call_id] = shown(None, SEARCH)
                call = _call(call_id, names[call_id], item.arguments)
                _last_assistant_message(found).calls.append(call)
            case ResultItem() if item.call_id not in passed:
                found.append(_result(path, item, names, media))
            case SearchOutputItem(call_id=str(call_id)) if call_id in names:
                text = _found(item, shown)
                name = names[call_id]
                found.append(CollectedMessage("tool", [text], call_id=call_id, name=name))
    return found


def hosted_calls(items: Sequence[ItemWithPath]) -> set[object]:
    """The ids of calls that pass over. So do their results: an agent answers another server's call
    of its shell as it answers that of a function.
    """
    hosted = {item.call_id for _, item in items if isinstance(item, HostedItem)}
    return hosted - {item.call_id for _, item in items if isinstance(item, NamedCallItem)}


def _last_assistant_message(found: list[CollectedMessage]) -> CollectedMessage:
    """The assistant's message that the next call belongs to, even after text."""
    if found and found[-1].role == "assistant":
        return found[-1]
    return _open_assistant_message(found)


def _open_assistant_message(found: list[CollectedMessage]) -> CollectedMessage:
    """The assistant's message that the next text or thought belongs to."""
    if not found or not found[-1].accepts_more():
        found.append(CollectedMessage("assistant"))
    return found[-1]


def _call(call_id: str, name: str, arguments: Mapping[str, object]) -> Message:
    function = {"name": name, "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


def _arguments(item: CallItem | CustomCallItem) -> Mapping[str, object]:
    if isinstance(item, CallItem):
        return arguments_object(item.arguments)
    return arguments_of(item.input)


def _found(item: SearchOutputItem, shown: ShownName) -> str:
    """Names the tools that a search has found. The prompt has the tools themselves, too."""
    names = [
        shown(tool.namespace, tool.name)
        for tool in each_tool(ToolsWithPath("tools", item.tools, is_found=True))
    ]
    return f"Found tools: {', '.join(names)}" if names else "Found no tools."


def _result(
    path: str, item: ResultItem, names: Mapping[str, str], media: PromptMedia
) -> CollectedMessage:
    if item.call_id not in names:
        param = f"{path}.call_id"
        raise refused(f"`{param}`: no earlier item is the call {item.call_id!r}", param)
    text, name = item.text(media), names[item.call_id]
    return CollectedMessage("tool", [text], call_id=item.call_id, name=name)
