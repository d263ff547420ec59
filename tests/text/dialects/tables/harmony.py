"""Transcripts of gpt-oss."""

from tests.text.dialects.transcripts import PARIS, Calls, Table, Transcript, compact

NEXT = "<|start|>assistant"
FINAL = "<|channel|>final<|message|>"
ANALYSIS = "<|channel|>analysis<|message|>"


def write(calls: Calls) -> str:
    return NEXT.join(one(*call) for call in calls)


def one(name: str, arguments: dict[str, object]) -> str:
    header = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>"
    return f"{header}{compact(arguments)}<|call|>"


CALL = write([("get_weather", PARIS)])
PARIS_CALL = (("get_weather", PARIS),)
THOUGHT = f"{ANALYSIS}Hm, {{x}}.\n\nSo<|end|>"
ROWS = [
    Transcript(
        label="a transcript of gpt-oss",
        text="<|channel|>analysis<|message|>Need to use function get_weather.<|end|><|start|>"
        "assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
        '{"city":"San Francisco"}<|call|>',
        thought="Need to use function get_weather.",
        calls=(("get_weather", '{"city":"San Francisco"}'),),
    ),
    Transcript(
        label="recipient first",
        text=' to=functions.get_weather<|channel|>commentary json<|message|>{"city": "a"}<|call|>',
        calls=(("get_weather", '{"city": "a"}'),),
    ),
    Transcript(
        label="thought, answer",
        text=f"{THOUGHT}{NEXT}{FINAL}Yes.\n<|return|>",
        thought="Hm, {x}.\n\nSo",
        content="Yes.\n",
    ),
    Transcript(
        label="thought, preamble, call",
        text=f"{THOUGHT}{NEXT}<|channel|>commentary<|message|>I'll look.<|end|>{NEXT}{CALL}",
        thought="Hm, {x}.\n\nSo",
        content="I'll look.",
        calls=PARIS_CALL,
    ),
    Transcript(
        label="thought opened by the prompt",
        text=f"Hm<|end|>{NEXT}{FINAL}Yes",
        thought="Hm",
        content="Yes",
        thinking=True,
    ),
    Transcript(label="thought without end", text=f"{ANALYSIS}Hm\n", thought="Hm\n"),
    Transcript(
        label="no end before the next message",
        text=f"{ANALYSIS}Hm{FINAL}Yes",
        thought="Hm",
        content="Yes",
    ),
    Transcript(label="no marks at all", text="Yes <b>.", content="Yes <b>."),
    Transcript(
        label="thoughts only",
        text=f"{THOUGHT}{NEXT}{FINAL}b",
        thought="Hm, {x}.\n\nSo",
        content="b",
        tools=(),
    ),
    *(
        Transcript(
            label=f"not split, {len(tools)} tools",
            text=f"{THOUGHT}\n{NEXT}{FINAL}Yes.\n<|return|>",
            content=f"{THOUGHT}\n{NEXT}{FINAL}Yes.\n<|return|>",
            tools=tools,
            split_thoughts=False,
        )
        for tools in ((), Transcript(label="", text="").tools)
    ),
    Transcript(
        label="a tool of its own",
        text="<|channel|>analysis to=python code<|message|>print(1)<|call|>",
        content="<|channel|>analysis to=python code<|message|>print(1)<|call|>",
    ),
    Transcript(
        label="broken within the arguments",
        text='<|channel|>commentary to=functions.ping<|message|>{"a": oops}<|call|>',
        content="oops}<|call|>",
        calls=(("ping", '{"a": '),),
    ),
    *(
        Transcript(label=f"malformed {text}", text=text, content=text)
        for text in [
            "<|channel|>",
            "<|channel|>final",
            "<|channel|>commentary to=functions.ping<|message|>[1]<|call|>",
            "<|start|>assistant" + "a" * 600,
            " to",
            " to=functions.ping",
            "a<|end|>b<|message|>",
        ]
    ),
]
TABLE = Table(
    dialect="harmony",
    template='{{- "<|start|>assistant<|channel|>analysis<|message|>" + message.thinking }}',
    write=write,
    rows=ROWS,
    text=lambda text: FINAL + text,
    starts_only=True,
)
