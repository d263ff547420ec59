"""One conversation, whatever roles a model's template knows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import pytest

from deployments.contract.errors import Refused
from deployments.text.chat.conversation import Conversation, Thinking, prepare_prompt
from deployments.text.grammar.grammar import from_choice
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool
from tests.text.cards import card
from tests.text.constrained import allows

SAYS = (
    "{% for m in messages %}|{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{% endfor %}{% endfor %}"
)
FIRST_ALONE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}"
)
IN_TURNS = (
    "{% for m in messages[1:] %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
)
# As Gemma 2's.
NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
)
# As Llama 3's.
ONE_CALL = (
    "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length != 1 %}"
    "{{ raise_exception('This model only supports single tool-calls at once!') }}"
    "{% endif %}{% endfor %}"
)
# As gpt-oss's.
ONE_TEXT = (
    "{% for m in messages %}{% if m.tool_calls and m.content and m.thinking %}"
    "{{ raise_exception('Cannot pass both content and thinking') }}{% endif %}{% endfor %}"
)
SPOKEN = [
    {"role": "system", "content": "A"},
    {"role": "system", "content": "B"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
    {"role": "system", "content": "E"},
    {"role": "user", "content": "f"},
]


# As Mistral's, whose marks name the dialect.
PARTICULAR = """[TOOL_CALLS]{% for m in messages %}{% for c in m.tool_calls or [] %}
{% if c.id | length != 9 %}{{ raise_exception('Tool call IDs should have length 9!') }}{% endif %}
|{{ c.id }}|{% endfor %}{% if m.role == 'tool' %}|{{ m.tool_call_id }}|{% endif %}
{% endfor %}{{ tools }}"""
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {}}}
CALLED: list[dict[str, object]] = [
    {"role": "user", "content": "a"},
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "content": "b", "tool_call_id": "call_1", "name": "f"},
]


def prompt(
    template: str, messages: Sequence[Mapping[str, object]] = SPOKEN, tools: tuple[Tool, ...] = ()
) -> str:
    model = card(chat_template=template)
    conversation = Conversation(messages=messages, tools=tools)
    return prepare_prompt(conversation, model, TextTokenizer(model)).text


@pytest.mark.parametrize("rule", [FIRST_ALONE, FIRST_ALONE + IN_TURNS])
def test_instructions_stand_where_a_strict_template_has_room_for_them(rule: str) -> None:
    assert prompt(rule + SAYS) == "|system:A\nB|user:c|assistant:d|user:E\nf"


def test_where_a_template_takes_them_they_stay_as_they_are() -> None:
    assert prompt(SAYS).count("|system:") == 3


def test_where_a_template_takes_no_instructions_they_begin_the_users_words() -> None:
    assert prompt(NO_SYSTEM + SAYS) == "|user:A\nB\n\nc|assistant:d|user:E\nf"
    alone, answer = SPOKEN[:1], SPOKEN[3]
    assert prompt(NO_SYSTEM + SAYS, alone) == "|user:A"
    assert prompt(NO_SYSTEM + SAYS, [*alone, answer]) == "|user:A|assistant:d"


def test_a_model_that_takes_no_instructions_is_told_of_its_tools() -> None:
    told = prompt(NO_SYSTEM + SAYS, SPOKEN[2:3], (Tool("ping"),))
    assert told.startswith("|user:You can call")
    assert told.endswith("\n\nc")


def calls(*ids: str) -> list[dict[str, object]]:
    return [
        {"id": call_id, "function": {"name": f"f{call_id}", "arguments": {}}} for call_id in ids
    ]


def test_where_a_template_takes_one_call_a_message_each_has_its_own() -> None:
    messages: list[Mapping[str, object]] = [
        SPOKEN[2],
        {"role": "assistant", "content": "d", "tool_calls": calls("1", "2")},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        SPOKEN[2],
        {"role": "assistant", "content": "", "tool_calls": calls("1")},
        {"role": "tool", "tool_call_id": "1", "content": "uno"},
        {"role": "tool", "tool_call_id": "9", "content": "lost"},
    ]
    told = prompt(ONE_CALL + SAYS + "{{ tools }}", messages)
    assert told.removesuffix("None").split("|")[1:] == [
        "user:c", "assistant:df1", "tool:one", "assistant:f2", "tool:two",
        "user:c", "assistant:f1", "tool:uno", "tool:lost",
    ]  # fmt: skip


# As gpt-oss's, which refuses nothing: of the calls of a message it knows the first, and takes every
# result for that of the call before.
FIRST_CALL = (
    "{# <|channel|><|message|> #}{% set last = namespace(name=none) %}{% for m in messages %}"
    "{% if 'tool_calls' in m %}{% set last.name = m.tool_calls[0].function.name %}"
    "|{{ m.content }}:{{ last.name }}"
    "{% elif m.role == 'tool' %}|{{ last.name }}={{ m.content }}{% endif %}{% endfor %}{{ tools }}"
)


def test_where_a_template_shows_one_call_a_message_none_is_lost() -> None:
    messages: list[Mapping[str, object]] = [
        SPOKEN[2],
        {"role": "assistant", "content": "d", "tool_calls": calls("1", "2")},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": "two"},
    ]
    assert prompt(FIRST_CALL, messages) == "|d:f1|f1=one|:f2|f2=twoNone"


def test_where_a_template_takes_one_text_before_a_call_it_is_the_thought() -> None:
    answer = {"role": "assistant", "content": "d", "reasoning_content": "Hm."}
    template = ONE_TEXT + SAYS + "{% for m in messages %}{{ m.thinking }}{% endfor %}{{ tools }}"
    told = prompt(template, [*SPOKEN[1:3], {**answer, "tool_calls": calls("1")}])
    assert told == "|system:B|user:c|assistant:f1Hm.\n\ndNone"
    assert prompt(template, [answer]) == "|assistant:dHm.None"


# As Functionary's, which joins texts, as Apriel's, and as such that take either.
ARGUMENTS = {
    "{% set shown = '<' + c.function.arguments + '>' %}{{ shown }}": '<{"a": "é"}>',
    "{{ '<' + c['function']['arguments']|string + '>' }}": '<{"a": "é"}>',
    "<{{ c.function['arguments'] }}>": '<{"a": "é"}>',
    "{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
    "{{ c.function.arguments.a }}{% endif %}": "é",
    "{{ c.function.arguments | tojson }}": '{"a": "é"}',
}


@pytest.mark.parametrize(("shows", "shown"), ARGUMENTS.items())
def test_arguments_are_an_object_or_json_as_a_template_takes_them(shows: str, shown: str) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": {"a": "é"}}}
    template = f"{{% for m in messages %}}{{% for c in m.tool_calls %}}{shows}{{% endfor %}}"
    messages: list[Mapping[str, object]] = [
        SPOKEN[2],
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]
    assert (
        prompt(template + "{% endfor %}{{ tools and '' }}", messages).removesuffix("None") == shown
    )


def test_what_no_order_of_roles_mends_is_refused_for_what_it_was() -> None:
    counts = "{{ raise_exception('never ' + messages | length | string) }}"
    with pytest.raises(Refused, match="never 6"):
        prompt(counts)


def test_a_call_that_another_model_made_is_named_as_this_ones_template_has_it() -> None:
    called, result = re.findall(r"\|(\w+)\|", prompt(PARTICULAR, CALLED))
    assert called == result


# As Kimi K2's, which shows the ids of calls and of results alone.
BY_ID = (
    "{# <|tool_calls_section_begin|> #}{% for m in messages %}"
    "{% for c in m.tool_calls or [] %}|{{ c.id }}{% endfor %}"
    "{% if m.role == 'tool' %}|{{ m.tool_call_id }}{% endif %}{% endfor %}|{{ tools }}"
)


def test_where_a_template_shows_ids_alone_they_name_the_function() -> None:
    own, odd = {**CALL, "id": "functions.f:1"}, {**CALL, "id": "functions.g:1"}
    again = {"role": "tool", "tool_call_id": "call_1", "content": "c"}
    messages: list[Mapping[str, object]] = [
        *CALLED,
        {"role": "assistant", "content": "", "tool_calls": [own, odd, CALL]},
        *({**again, "tool_call_id": call["id"]} for call in (own, odd, CALL)),
    ]
    first, *later = ["functions.f:0", "functions.f:1", "functions.f:2", "functions.f:3"]
    assert prompt(BY_ID, messages).split("|")[1:-1] == [first, first, *later, *later]


@pytest.mark.parametrize("last", ["why  is it so?", " Ä, and a second question\n", "said before"])
def test_where_messages_begin_is_known_for_models_with_states(last: str) -> None:
    """About: what is before it must be the same with any other last message."""
    said = [
        {"role": "user", "content": "said before"},
        {"role": "assistant", "content": "yes"},
    ]

    def begun(
        *said: Mapping[str, object], keeps_states: bool = True
    ) -> tuple[list[int], tuple[int, ...]]:
        of = replace(card(chat_template=SAYS), keeps_states=keeps_states)
        made = prepare_prompt(Conversation(messages=said), of, TextTokenizer(of))
        return [*made.ids], made.message_starts

    def assert_common(ids: list[int], others: list[int], at: int, within: int = 4) -> None:
        assert ids[:at] == others[:at]
        n_common = next(n for n, (a, b) in enumerate(zip(ids, others, strict=False)) if a != b)
        assert n_common - within <= at

    asked, told = {"role": "user", "content": last}, {"role": "system", "content": "Be brief."}
    another = {"role": "user", "content": "another question"}
    ids, (*_, at) = begun(*said, asked)
    assert_common(ids, begun(*said, another)[0], at)
    assert begun(*said, asked, keeps_states=False) == (ids, ())
    ids, (behind, at) = begun(told, *said, asked)
    assert_common(ids, begun(told, another)[0], behind, within=len("user: "))
    assert_common(ids, begun(told, *said, another)[0], at)


OPENS = "{% if enable_thinking is defined and enable_thinking %}<think>\n{% endif %}"
CLOSES = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>{% endif %}"
ALONE = "{# <think> #}"  # a model that begins its thoughts itself
THOUGHT = "<think>Hm.</think>\n"


@pytest.mark.parametrize(
    ("ending", "kwargs", "thinking", "thought"),
    [
        (OPENS, {}, None, ""),
        (OPENS, {"enable_thinking": False}, None, ""),
        (OPENS, {"enable_thinking": True}, None, "Hm.</think>\n"),
        (OPENS, {}, True, "Hm.</think>\n"),
        (CLOSES, {}, None, THOUGHT),
        (CLOSES, {"enable_thinking": False}, None, ""),
        (CLOSES, {}, False, ""),
        (ALONE, {}, None, THOUGHT),
        (ALONE, {"thinking": False}, None, ""),
        (ALONE, {}, False, ""),
    ],
)
def test_an_answer_in_a_form_follows_a_thought_where_thinking_is_on(
    ending: str, kwargs: dict[str, object], thinking: bool | None, thought: str
) -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    choices: tuple[tuple[str, Literal["none", "required"]], ...] = (
        ("yes", "none"),
        (call, "required"),
    )
    for said, choice in choices:
        model = replace(card(chat_template=SAYS + ending), dialect="hermes")
        conversation = Conversation(
            messages=[{"role": "user", "content": "x"}],
            answer=from_choice(["yes"], "p") if choice == "none" else "",
            tools=(Tool("f", "", {"properties": {}}),),
            choice=choice,
            template_kwargs=kwargs,
            thinking=Thinking(enabled=thinking),
        )
        grammar = prepare_prompt(conversation, model, TextTokenizer(model)).grammar
        assert allows(grammar, thought + said)
        assert allows(grammar, said) is (thought in ("", THOUGHT))
        assert allows(grammar, THOUGHT + said) is (thought != "")
