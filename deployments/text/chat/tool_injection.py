"""Rewrites tools, calls and results for chat templates that do not read them as messages have them.

For templates that read none, tools are described in the system message, and calls and results are
text. The messages then have only the roles system, user and assistant, their contents are strings,
and no two messages of one role are adjacent, because such templates often refuse that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from deployments.text.chat.messages import Message, calls_of, function_of, joined
from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.families.hermes import marked_text
from deployments.text.dialects.parsing.literals import to_json
from deployments.text.tool import Tool

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
JOINED_ROLES = ("user", "assistant")


def instructions(tools: Sequence[Tool], required: bool) -> str:
    """The description of the tools and of the calls of the generic dialect."""
    listed = "\n".join(map(_described, tools))
    return "\n".join([INTRODUCTION.format(tools=listed), REQUIRED if required else OPTIONAL])


def inject(messages: Sequence[Message], tools: Sequence[Tool], required: bool) -> list[Message]:
    """Messages for a template that does not read tools."""
    names = _names(messages)
    plain = joined((_plain(message, names) for message in messages), JOINED_ROLES)
    if not tools:
        return plain
    text = instructions(tools, required)
    if plain and plain[0]["role"] == "system":
        first = {**plain[0], "content": f"{plain[0]['content']}\n\n{text}"}
        return [first, *plain[1:]]
    return [{"role": "system", "content": text}, *plain]


def attach(messages: Sequence[Message], tools: Sequence[Tool]) -> list[Message]:
    """Messages for templates such as Phi 4 mini's, which read tools as JSON from the system
    message, and only the role and the text of other messages.
    """
    plain = [_response(message) if message["role"] == "tool" else message for message in messages]
    if not tools:
        return plain
    listed = {"tools": f"[{', '.join(map(_described, tools))}]"}
    if plain and plain[0]["role"] == "system":
        return [{**plain[0], **listed}, *plain[1:]]
    return [{"role": "system", "content": ASSISTANT, **listed}, *plain]


def _response(result: Message) -> Message:
    return {"role": "tool_response", "content": result.get("content") or ""}


def with_calls_in_text(messages: Sequence[Message], dialect: Dialect) -> list[Message]:
    """Messages for templates that show the text of a message but not its calls."""
    return [
        _with_calls_in_text(message, dialect) if calls_of(message) else message
        for message in messages
    ]


def _with_calls_in_text(message: Message, dialect: Dialect) -> Message:
    rest = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**rest, "content": _text_with_calls(message, dialect.as_text)}


def _text_with_calls(message: Message, as_text: Callable[[Sequence[str]], str]) -> str:
    calls = [_call_json(call) for call in calls_of(message)]
    return "\n".join(filter(None, [str(message.get("content") or ""), as_text(calls)]))


def _call_json(call: Message) -> str:
    """A call as the JSON object that dialects read."""
    function = function_of(call)
    return to_json({"name": function["name"], "arguments": function.get("arguments") or {}})


def with_results_in_text(messages: Sequence[Message]) -> list[Message]:
    """Messages for templates that leave out results: the user says them."""
    names = _names(messages)
    told = (_plain(message, names) if _is_result(message) else message for message in messages)
    return joined(told, ("user",))


def _is_result(message: Message) -> bool:
    return message["role"] == "tool"


def with_results_in_calls(messages: Sequence[Message]) -> list[Message]:
    """Messages for templates such as Gemma 4's first, which read the results from the message with
    the calls, and the answer that ends the turn as the content of that message.
    """
    rewritten: list[Message] = []
    responses: list[Message] = []  # of the last rewritten message
    for message in messages:
        before: Message = rewritten[-1] if rewritten else {}
        if message["role"] == "tool" and calls_of(before):
            if not responses:
                rewritten[-1] = {**before, "tool_responses": responses}
            responses.append({"name": message.get("name"), "response": message["content"]})
            continue
        calls, is_answer = calls_of(message), message["role"] == "assistant"
        if is_answer and responses and not calls and not before.get("content"):
            rewritten[-1] = {**before, "content": message["content"]}
            continue
        if calls and message["content"]:
            rewritten.append({"role": "assistant", "content": message["content"]})
        rewritten.append({**message, "content": ""} if calls else message)
        responses = []
    return rewritten


def _described(tool: Tool) -> str:
    described: dict[str, object] = {"name": tool.name}
    if tool.description:
        described["description"] = tool.description
    return to_json({**described, "parameters": dict(tool.parameters)})


def _names(messages: Sequence[Message]) -> dict[object, object]:
    """The functions of calls, by the call's id."""
    return dict(call for message in messages for call in _called(message))


def _called(message: Message) -> Iterator[tuple[object, object]]:
    """The id and the name of each call in a message."""
    for call in calls_of(message):
        yield call.get("id"), function_of(call)["name"]


def _plain(message: Message, names: Mapping[object, object]) -> dict[str, object]:
    """The message as text only. `names` are the functions of calls, by the call's id."""
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    match message["role"]:
        case "tool":
            return {
                "role": "user",
                "content": _result(text, names.get(message.get("tool_call_id"))),
            }
        case "assistant":
            return {"role": "assistant", "content": _text_with_calls(message, marked_text)}
        case role:
            return {"role": role, "content": text}


def _result(text: str, name: object) -> str:
    answer = text if name is None else to_json({"name": name, "content": text})
    return f"{RESULT_OPEN}\n{answer}\n{RESULT_CLOSE}"
