"""The fields of all protocols that take an input, each as a request."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

TEXT, SEES, HEARS = "manta-demo", "manta-demo-vision", "hears"
MOST = 160  # tokens
MESSAGES = [{"role": "user", "content": "Write something."}]
Body = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Door:
    """`said` finds the text of an answer that has to fit a strict schema, None where it was cut."""

    name: str
    path: str
    body: Callable[[Any], Body]
    said: Callable[[Any], str | None] | None = None
    form: bool = False  # a multipart body: `file` and fields


def chat(**fields: Any) -> Body:
    return {"model": TEXT, "messages": MESSAGES, "max_tokens": MOST, "temperature": 1, **fields}


def completion(**fields: Any) -> Body:
    return {"model": TEXT, "prompt": "Write: ", "max_tokens": MOST, "temperature": 1, **fields}


def responses(**fields: Any) -> Body:
    return {"model": TEXT, "input": "Write.", "max_output_tokens": MOST, "store": False, **fields}


def messages(**fields: Any) -> Body:
    return {"model": TEXT, "messages": MESSAGES, "max_tokens": MOST, **fields}


def native(**fields: Any) -> Body:
    return {"model": TEXT, "prompt": "Write: ", "n_predict": MOST, **fields}


def named(schema: Any, strict: bool) -> Body:
    return {"name": "answer", "schema": schema, "strict": strict}


def function(schema: Any, strict: bool = False) -> Body:
    return {"name": "f", "parameters": schema, "strict": strict}


def tools(schema: Any, strict: bool = False) -> list[Body]:
    return [{"type": "function", "function": function(schema, strict)}]


def said_in_chat(answer: Any) -> str | None:
    [choice] = answer["choices"]
    return choice["message"]["content"] if choice["finish_reason"] == "stop" else None


def said_in_completion(answer: Any) -> str | None:
    [choice] = answer["choices"]
    return choice["text"] if choice["finish_reason"] == "stop" else None


def said_in_responses(answer: Any) -> str | None:
    if answer["status"] != "completed":
        return None
    texts = [item["content"][0]["text"] for item in answer["output"] if item["type"] == "message"]
    return texts[0] if texts else None


def said_natively(answer: Any) -> str | None:
    return answer["content"] if answer["stop_type"] == "eos" else None


def data_url(data: bytes, kind: str) -> str:
    return f"data:{kind};base64,{b64encode(data).decode()}"


def of_parts(*parts: Body) -> list[Body]:
    """A conversation of one message."""
    return [{"role": "user", "content": [*parts]}]


def block(data: bytes, name: str, kind: str) -> Body:
    """A part of a message to Anthropic's protocol."""
    source = {"type": "base64", "media_type": kind, "data": b64encode(data).decode()}
    return {"type": name, "source": source}


def sees(**fields: Any) -> Body:
    return {"model": SEES, "max_tokens": 8, **fields}


SCHEMA = (
    Door(
        "chat, strict",
        "/v1/chat/completions",
        lambda schema: chat(
            response_format={"type": "json_schema", "json_schema": named(schema, True)}
        ),
        said_in_chat,
    ),
    Door(
        "chat",
        "/v1/chat/completions",
        lambda schema: chat(
            response_format={"type": "json_schema", "json_schema": named(schema, False)}
        ),
    ),
    Door(
        "chat, structured_outputs",
        "/chat/completions",
        lambda schema: chat(structured_outputs={"json": schema}),
        said_in_chat,
    ),
    Door("chat, tools", "/v1/chat/completions", lambda schema: chat(tools=tools(schema))),
    Door(
        "chat, strict tools",
        "/v1/chat/completions",
        lambda schema: chat(tools=tools(schema, True), tool_choice="required"),
    ),
    Door(
        "completions",
        "/v1/completions",
        lambda schema: completion(structured_outputs={"json": schema}),
        said_in_completion,
    ),
    Door(
        "completions, guided_json",
        "/v1/completions",
        lambda schema: completion(guided_json=json.dumps(schema)),
        said_in_completion,
    ),
    Door(
        "completions, %json",
        "/v1/completions",
        lambda schema: completion(
            structured_outputs={"grammar": f"start: %json {json.dumps(schema)}"}
        ),
    ),
    Door(
        "responses, strict",
        "/v1/responses",
        lambda schema: responses(text={"format": {"type": "json_schema", **named(schema, True)}}),
        said_in_responses,
    ),
    Door(
        "responses",
        "/v1/responses",
        lambda schema: responses(text={"format": {"type": "json_schema", **named(schema, False)}}),
    ),
    Door(
        "responses, tools",
        "/v1/responses",
        lambda schema: responses(tools=[{"type": "function", **function(schema)}]),
    ),
    Door(
        "messages, tools",
        "/v1/messages",
        lambda schema: messages(tools=[{"name": "f", "input_schema": schema}]),
    ),
    Door(
        "messages, any tool",
        "/v1/messages",
        lambda schema: messages(
            tools=[{"name": "f", "input_schema": schema}], tool_choice={"type": "any"}
        ),
    ),
    Door(
        "messages, format",
        "/v1/messages",
        lambda schema: messages(
            output_config={"format": {"type": "json_schema", "schema": schema}}
        ),
    ),
    Door(
        "count_tokens",
        "/v1/messages/count_tokens",
        lambda schema: {
            "model": TEXT,
            "messages": MESSAGES,
            "tools": [{"name": "f", "input_schema": schema}],
        },
    ),
    Door("/completion", "/completion", lambda schema: native(json_schema=schema), said_natively),
)
LARK = (
    Door(
        "completions",
        "/v1/completions",
        lambda text: completion(structured_outputs={"grammar": text}),
    ),
    Door("chat", "/v1/chat/completions", lambda text: chat(structured_outputs={"grammar": text})),
    Door("chat, guided_grammar", "/chat/completions", lambda text: chat(guided_grammar=text)),
)
REGEX = (
    Door(
        "completions",
        "/v1/completions",
        lambda text: completion(structured_outputs={"regex": text}),
    ),
    Door("chat", "/v1/chat/completions", lambda text: chat(structured_outputs={"regex": text})),
    Door("chat, guided_regex", "/chat/completions", lambda text: chat(guided_regex=text)),
    Door(
        "chat, pattern",
        "/v1/chat/completions",
        lambda text: chat(
            response_format={
                "type": "json_schema",
                "json_schema": named({"type": "string", "pattern": text}, False),
            }
        ),
    ),
)
GBNF = (
    Door(
        "completions",
        "/v1/completions",
        lambda text: completion(structured_outputs={"grammar": text}),
    ),
    Door("/completion", "/completion", lambda text: native(grammar=text)),
)
IMAGE = (
    Door(
        "chat",
        "/v1/chat/completions",
        lambda data: sees(
            messages=of_parts(
                {"type": "image_url", "image_url": {"url": data_url(data, "image/png")}}
            )
        ),
    ),
    Door(
        "responses",
        "/v1/responses",
        lambda data: responses(
            model=SEES,
            max_output_tokens=8,
            input=of_parts({"type": "input_image", "image_url": data_url(data, "image/png")}),
        ),
    ),
    Door(
        "messages",
        "/v1/messages",
        lambda data: sees(messages=of_parts(block(data, "image", "image/png"))),
    ),
)
SOUND = (
    Door(
        "transcriptions",
        "/v1/audio/transcriptions",
        lambda data: {"file": data, "model": HEARS},
        form=True,
    ),
    Door(
        "chat",
        "/v1/chat/completions",
        lambda data: chat(
            messages=of_parts(
                {
                    "type": "input_audio",
                    "input_audio": {"data": b64encode(data).decode(), "format": "wav"},
                }
            )
        ),
    ),
)
DOCUMENT = (
    Door(
        "chat",
        "/v1/chat/completions",
        lambda data: sees(
            messages=of_parts(
                {
                    "type": "file",
                    "file": {"filename": "a.pdf", "file_data": data_url(data, "application/pdf")},
                }
            )
        ),
    ),
    Door(
        "messages",
        "/v1/messages",
        lambda data: messages(
            max_tokens=8, messages=of_parts(block(data, "document", "application/pdf"))
        ),
    ),
)
DOORS: Mapping[str, Sequence[Door]] = {
    "schema": SCHEMA,
    "lark": LARK,
    "regex": REGEX,
    "gbnf": GBNF,
    "image": IMAGE,
    "sound": SOUND,
    "document": DOCUMENT,
}
