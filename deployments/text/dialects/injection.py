"""Tools for chat templates that are given none: told in the system message, spoken of in text.

What is injected has the roles system, user and assistant alone, strings for contents, and no two
turns of one speaker in a row, which templates of this kind often refuse.
"""

from collections.abc import Iterator, Mapping, Sequence

from deployments.text.dialects.dialect import Tool
from deployments.text.dialects.hermes import CLOSE, OPEN
from deployments.text.dialects.literals import to_json
from deployments.text.dialects.phi4 import CALLS, CALLS_END
from deployments.text.messages import Message, calls_of, function_of

RESULT_OPEN, RESULT_CLOSE = "<tool_response>", "</tool_response>"
INTRODUCTION = """You can call these tools, given as JSON, one a line:

{tools}

To call a tool, write this and nothing else, once for each call:
<tool_call>
{{"name": "the tool's name", "arguments": {{"parameter": "value"}}}}
</tool_call>
What the tools answer then comes between <tool_response> and </tool_response>."""
ASSISTANT = "You are a helpful assistant with some tools."
OPTIONAL = "Call a tool only when it helps to answer; otherwise answer in plain text."
REQUIRED = "You must answer with a call of a tool."


def instructions(tools: Sequence[Tool], required: bool) -> str:
    """What a model must know to call the tools in the generic dialect."""
    listed = "\n".join(map(_described, tools))
    return "\n".join([INTRODUCTION.format(tools=listed), REQUIRED if required else OPTIONAL])


def inject(
    messages: Sequence[Message], tools: Sequence[Tool], required: bool
) -> list[dict[str, object]]:
    """Messages, as templates take them, for a template that knows nothing of tools."""
    names = dict(named for message in messages for named in _called(message))
    plain = list(_merged(_plain(message, names) for message in messages))
    if not tools:
        return plain
    told = instructions(tools, required)
    if plain and plain[0]["role"] == "system":
        first = {**plain[0], "content": f"{plain[0]['content']}\n\n{told}"}
        return [first, *plain[1:]]
    return [{"role": "system", "content": told}, *plain]


def attach(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Messages for templates as Phi 4 mini's, which have tools in the system message, as JSON, and
    else the role and the text of a message alone.
    """
    marked = list(map(_marked, messages))
    if not tools:
        return marked
    listed = {"tools": f"[{', '.join(map(_described, tools))}]"}
    if marked and marked[0]["role"] == "system":
        return [{**marked[0], **listed}, *marked[1:]]
    return [{"role": "system", "content": ASSISTANT, **listed}, *marked]


def _marked(message: Message) -> Message:
    content = message.get("content") or ""
    if message["role"] == "tool":
        return {"role": "tool_response", "content": content}
    calls = ", ".join(map(_written, calls_of(message)))
    return {**message, "content": f"{content}{CALLS}[{calls}]{CALLS_END}"} if calls else message


def _described(tool: Tool) -> str:
    described: dict[str, object] = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    return to_json({**described, "parameters": dict(tool.parameters)})


def _called(message: Message) -> Iterator[tuple[object, object]]:
    """The id and the name of each call in a message."""
    for call in calls_of(message):
        yield call.get("id"), function_of(call)["name"]


def _plain(message: Message, names: Mapping[object, object]) -> dict[str, object]:
    """The message as one of a conversation that only has text; `names` are of calls, by id."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    match message["role"]:
        case "tool":
            return {
                "role": "user",
                "content": _result(text, names.get(message.get("tool_call_id"))),
            }
        case "assistant":
            parts = [text, *map(_call, calls_of(message))]
            return {"role": "assistant", "content": "\n".join(filter(None, parts))}
        case role:
            return {"role": role, "content": text}


def _result(text: str, name: object) -> str:
    answer = text if name is None else to_json({"name": name, "content": text})
    return f"{RESULT_OPEN}\n{answer}\n{RESULT_CLOSE}"


def _call(call: Message) -> str:
    return f"{OPEN}\n{_written(call)}\n{CLOSE}"


def _written(call: Message) -> str:
    function = function_of(call)
    return to_json({"name": function["name"], "arguments": function.get("arguments") or {}})


def _merged(messages: Iterator[dict[str, object]]) -> Iterator[dict[str, object]]:
    last: dict[str, object] | None = None
    for message in messages:
        if last is not None and last["role"] == message["role"] != "system":
            last = {**last, "content": f"{last['content']}\n{message['content']}"}
            continue
        if last is not None:
            yield last
        last = message
    if last is not None:
        yield last
