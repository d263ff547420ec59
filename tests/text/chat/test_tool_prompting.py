"""A model is read as it was told to call, whatever its templates know of tools."""

import json
from dataclasses import replace

import pytest

from deployments.contract.model_card import ModelCard
from deployments.text.chat.conversation import Conversation, Thinking, prepare_prompt
from deployments.text.chat.messages import Message
from deployments.text.chat.prompt import ChatPrompt
from deployments.text.chat.tool_injection import attach
from deployments.text.dialects.families.deepseek import CALL, SEPARATOR
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.families.json_lists import CALLS, CALLS_END
from deployments.text.reply import Reply, fold_reply
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.text.cards import card
from tests.text.chat.test_tool_injection import CALLS as MADE
from tests.text.chat.test_tool_injection import RESULTS, USER
from tests.text.constrained import may_say
from tests.text.dialects.transcripts import PARIS, TOOLS, json_call

SAYS = "{% for m in messages %}|{{ m.role }}:{{ m.content }}{% endfor %}"
# As of DeepSeek R1's distilled models: calls of the past, and no tools.
R1 = (
    SAYS + "{% for m in messages %}{% for call in m.tool_calls or [] %}"
    f"{CALL}function{SEPARATOR}{{{{ call.function.name }}}}\n```json\n"
    "{% endfor %}{% endfor %}|assistant:<think>\n"
)
MAGISTRAL = "[SYSTEM_PROMPT]Think like this: [THINK]So.[/THINK]" + SAYS
PHI = (
    "{% for m in messages %}{% if m['role'] == 'system' and 'tools' in m and m['tools'] %}"
    "<|system|>{{ m['content'] }}<|tool|>{{ m['tools'] }}<|/tool|><|end|>{% else %}"
    "<|{{ m['role'] }}|>{{ m['content'] }}<|end|>{% endif %}{% endfor %}<|assistant|>"
)
# As Granite 3.3's, which shows tools, and of a message the role and the text alone.
GRANITE = (
    "{% if tools and not available_tools %}{% set available_tools = tools %}{% endif %}"
    "{{ (available_tools or []) | tojson }}{% for m in messages %}"
    "<|start_of_role|>{{ m['role'] }}<|end_of_role|>{{ m['content'] }}<|end_of_text|>{% endfor %}"
)
# As Gemma 4's first, which know results as a part of the message that called.
GEMMA = (
    "{{ tools | length }}{% for m in messages %}|{{ m['role'] }}"
    "{% for call in m['tool_calls'] %}<|tool_call>{{ call['function']['name'] }}{% endfor %}"
    "{% for one in m['tool_responses'] %}>{{ one['name'] }}={{ one['response'] }}{% endfor %}"
    ":{{ m['content'] }}{% endfor %}"
)
# As its later ones.
GEMMA_LATER = GEMMA + "{% for m in messages %}{% if m['role'] == 'tool' %}{% endif %}{% endfor %}"
HERMES = SAYS + "{% for tool in tools %}<tool_call>{{ tool }}{% endfor %}"
UNKNOWN = SAYS + "Action: {{ (tools or []) | length }}"
WRITTEN = json_call("get_weather", PARIS)
IN_WORDS = f"{OPEN}\n{WRITTEN}\n{CLOSE}"
MARKED = f"{CALLS}[{WRITTEN}]{CALLS_END}"


def prompt(model: ModelCard, *messages: Message, required: bool = False) -> ChatPrompt:
    conversation = Conversation(
        messages=[USER, *messages], tools=TOOLS, choice="required" if required else "auto"
    )
    return prepare_prompt(conversation, model, TextTokenizer(model))


def heard(asked: ChatPrompt, text: str) -> Reply:
    parser = asked.parser()
    return fold_reply([*parser.push(text), *parser.finish()])


@pytest.mark.parametrize(
    ("template", "thought"),
    [(R1, "Hm.\n</think>\n\n"), (MAGISTRAL, "[THINK]Hm.[/THINK]"), (SAYS, "<think>Hm.</think>")],
    ids=["DeepSeek", "Mistral", "none"],
)
def test_who_is_told_in_words_is_read_so_and_thinks_as_ever(template: str, thought: str) -> None:
    model = card(chat_template=template)
    asked, forced = prompt(model), prompt(model, required=True)
    assert IN_WORDS.splitlines()[0] in asked.text
    reply = heard(asked, f"{thought}So:\n{IN_WORDS}")
    assert (reply.thought, reply.content, len(reply.calls)) == ("Hm.", "So:", 1)
    assert may_say(forced, (thought if asked.thinks else "") + IN_WORDS)


def test_calls_of_the_past_are_written_as_they_are_read() -> None:
    for template in (R1, PHI, GRANITE, UNKNOWN):
        asked = prompt(card(chat_template=template), MADE, *RESULTS)
        written = asked.text.split("I'll look.")[1]
        calls = heard(asked, f"</think>{written}" if asked.context.thinking else written).calls
        assert [call.name for call in calls] == ["get_weather", "ping"]


def test_granite_3_2_thinks_behind_a_sentence() -> None:
    start, end = "Here is my thought process:", "Here is my response:"
    model = card(chat_template=f"{GRANITE}{{% if thinking %}}After '{start}'{{% endif %}}")
    asked = Conversation(messages=[USER], thinking=Thinking(enabled=True, budget=5))
    prepared = prepare_prompt(asked, model, TextTokenizer(model))
    assert prepared.text.endswith(f"After '{start}'")
    assert prepared.thinking is not None
    assert prepared.thinking.end_ids == tuple(TextTokenizer(model).encode(end, False))
    reply = heard(prepared, f"{start}\nHm.\n\n{end}\n\nYes.")
    assert (reply.thought, reply.content) == ("Hm.", "Yes.")


def test_results_stand_where_the_template_looks_for_them() -> None:
    names = {"1": "get_weather", "2": "ping"}
    results = [{**result, "name": names[str(result["tool_call_id"])]} for result in RESULTS]
    calls = "|assistant<|tool_call>get_weather<|tool_call>ping"
    said, shown = "|assistant:I'll look.", calls + '>ping=pong>get_weather="20 °C":'
    turns: list[tuple[list[Message], str]] = [
        ([], said + shown),
        ([{"role": "assistant", "content": "Yes."}], f"{said}{shown}Yes."),
        ([{"role": "assistant", "content": c} for c in "AB"], f"{said}{shown}A|assistant:B"),
        ([{**MADE, "content": ""}], f"{said}{shown}{calls}:"),
    ]
    for later, expected in turns:
        asked = prompt(card(chat_template=GEMMA), MADE, *results, *later)
        assert asked.text == f"{len(TOOLS)}|user:{USER['content']}{expected}"
    assert "|tool:pong" in prompt(card(chat_template=GEMMA_LATER), MADE, *results).text


def test_phi_4_mini_finds_its_tools_in_the_system_message() -> None:
    model = card(chat_template=PHI)
    asked = prompt(model, MADE, *RESULTS)
    listed = asked.text.split("<|tool|>")[1].split("<|/tool|>")[0]
    assert [tool["name"] for tool in json.loads(listed)] == [tool.name for tool in TOOLS]
    assert "<|tool_response|>pong<|end|>" in asked.text
    for text in (MARKED, f"functools[{WRITTEN}]"):
        assert [call.name for call in heard(asked, text).calls] == ["get_weather"]
    briefed = prompt(model, {"role": "system", "content": "Be brief."})
    assert briefed.text.count("<|tool|>") == 1


def test_a_system_message_gets_its_tools_beside_its_text() -> None:
    first, second = attach([{"role": "system", "content": "Be brief."}, USER], TOOLS)
    assert first["content"] == "Be brief."
    assert "get_weather" in str(first["tools"])
    assert second == USER
    assert attach([USER], ()) == [USER]


def test_what_an_operator_sets_is_spoken_but_where_calls_are_told_in_words() -> None:
    written = f"[TOOL_CALLS][{WRITTEN}]"
    for template, call in ((SAYS, IN_WORDS), (SAYS + "{{ tools | length }}", written)):
        asked = prompt(replace(card(chat_template=template), dialect="mistral"))
        reply = heard(asked, f"[THINK]Hm.[/THINK]{call}")
        assert (reply.thought, reply.content, len(reply.calls)) == ("Hm.", "", 1)


@pytest.mark.parametrize(
    ("own", "operator", "used"),
    [(HERMES, "", True), (UNKNOWN, "", False), (UNKNOWN, "hermes", True)],
)
def test_a_template_for_tools_is_used_where_its_calls_can_be_read(
    own: str, operator: str, used: bool
) -> None:
    model = replace(card(chat_template=SAYS), tool_template=own, dialect=operator)
    asked = prompt(model)
    assert ("You can call these tools" not in asked.text) is used
    assert asked.dialect.name == ("hermes" if used else "generic")
    without = prepare_prompt(Conversation(messages=[USER]), model, TextTokenizer(model))
    assert without.text == f"|user:{USER['content']}"


TOOLED = (
    "{% for t in tools or [] %}({{ t.function.name }}){% endfor %}{% for m in messages %}"
    "|{{ m.role }}:{{ m.content }}{% for c in m.tool_calls or [] %}@{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}|assistant:{% endif %}"
)


@pytest.mark.parametrize(
    ("written", "is_used"),
    [
        ('{"name": "NAME", "arguments": {{ c.function.arguments | tojson }}}', True),
        ("<invoke NAME>{{ c.function.arguments | tojson }}</invoke>", False),
        ("[NAME({{ c.function.arguments }})]", False),
        ("", False),
    ],
)
def test_a_template_that_no_family_has_describes_tools_where_its_calls_are_read(
    written: str, is_used: bool
) -> None:
    call = written.replace("NAME", "{{ c.function.name }}")
    model = card(chat_template=TOOLED.replace("@", call))
    asked = prompt(model, MADE)
    assert asked.dialect.name == "generic"
    assert ("You can call these tools" not in asked.text) is is_used
    assert [call.name for call in heard(asked, IN_WORDS).calls] == ["get_weather"]


def test_a_result_that_a_template_leaves_out_is_said_by_the_user() -> None:
    spoken = "{% if m.role != 'tool' %}|{{ m.role }}:{{ m.content }}{% endif %}"
    calls = "{% for c in m.tool_calls or [] %}<tool_call>{{ c | tojson }}</tool_call>{% endfor %}"
    template = f"{{% for m in messages %}}{spoken}{calls}{{% endfor %}}{{{{ tools | length }}}}"
    asked = prompt(card(chat_template=template), MADE, *RESULTS)
    results = asked.text.split("|user:")[2]
    assert results.count("<tool_response>") == len(RESULTS)
    assert '{"name": "ping", "content": "pong"}' in results
    assert "tool_response" not in prompt(card(chat_template=HERMES), MADE, *RESULTS).text
