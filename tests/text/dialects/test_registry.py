"""A chat template tells its dialect, a prompt whether it opens a thought."""

import pytest

from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.registry import DIALECTS, dialect_of
from deployments.text.tool import Tool

TEMPLATES = {
    "{{ bos_token }}{% for message in messages %}{{ message.content }}{% endfor %}": "generic",
    "": "generic",
    # Reasoning alone.
    "{{ '<|im_start|>assistant\\n<think>\\n' }}": "generic",
    # Qwen 3.
    '<tools>{{ tool | tojson }}</tools>\\n\\n<tool_call>\\n{\\"name\\": <function-name>': "hermes",
    # Nemotron 3, which writes as Qwen 3 Coder does.
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>": "qwen3_coder",
    # Llama 3.2: builtin tools have a mark.
    "{{- 'Environment: ipython\\n' }}{{- '<|python_tag|>' + tool_call.name + '.call(' }}"
    "{{- '{\"name\": \"' + tool_call.name + '\", ' }}{{- '\"parameters\": ' }}": "llama3_json",
    "{{- '<|python_start|>' }}{{- '<|python_tag|>' }}": "pythonic",
    "{{- '<|tool_call_start|>[' }}<think>": "pythonic",
    "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS][TOOL_CALLS][THINK]": "mistral",
    "<|start_of_role|>assistant<|end_of_role|>{{ tools }}": "granite",
    # Granite 4.
    "<|start_of_role|>system<|end_of_role|>within <tool_call></tool_call> XML tags": "hermes",
    "<|tool_calls_section_begin|>{{ '<think>' }}": "kimi",
    "{{ '<|channel|>final<|message|>' }}": "harmony",
    "<tool_call>{function-name}\n<arg_key>": "glm",
    "<start_of_turn>user\n{{ message }}<end_of_turn>": "generic",
}


@pytest.mark.parametrize(("template", "name"), TEMPLATES.items())
def test_a_template_tells_its_dialect(template: str, name: str) -> None:
    assert dialect_of(template).name == name


def test_a_model_without_a_template_speaks_the_generic_dialect() -> None:
    assert dialect_of(None).name == "generic"


@pytest.mark.parametrize("dialect_name", DIALECTS)
def test_a_prompt_that_ends_with_the_start_mark_opens_a_thought(dialect_name: str) -> None:
    dialect = DIALECTS[dialect_name]
    if dialect.thought_marks is None:
        assert not dialect.opens_thought("<think>")
        return
    start, end = dialect.thought_marks
    assert dialect.opens_thought(f"user: hi\nassistant: {start}")
    assert dialect.opens_thought(f"assistant: {start}\n\n")
    assert not dialect.opens_thought(f"assistant: {start}\n\n{end}\n\n")
    assert not dialect.opens_thought("assistant: ")


@pytest.mark.parametrize("dialect_name", DIALECTS)
def test_ids_are_unique_within_a_reply(dialect_name: str) -> None:
    dialect = DIALECTS[dialect_name]
    ids = {dialect.call_id(index, "f") for index in range(50)}
    assert len(ids) == 50


@pytest.mark.parametrize("given", [None, "", "call_1", "call_2", "toolu_123456789", "a-b-c-d-e"])
def test_mistrals_ids_are_as_its_templates_want_them(given: str | None) -> None:
    mistral = DIALECTS["mistral"]
    call_id = mistral.call_id(0, "f") if given is None else mistral.template_id(given, "f", 3)
    assert len(call_id) == 9
    assert call_id.isalnum()
    assert call_id.isascii()
    assert mistral.template_id(call_id, "f", 3) == call_id


def test_two_calls_stay_two_for_mistrals_templates() -> None:
    mistral = DIALECTS["mistral"]
    assert len({mistral.template_id(f"call_{index}", "f", index) for index in range(50)}) == 50


def test_kimis_ids_have_the_name_and_the_index() -> None:
    assert DIALECTS["kimi"].call_id(2, "get_weather") == "functions.get_weather:2"


@pytest.mark.parametrize("dialect_name", DIALECTS)
def test_marks_are_kept_for_calls_and_for_thoughts(dialect_name: str) -> None:
    dialect = DIALECTS[dialect_name]
    assert dialect.kept_marks(ReplyContext(tools=(Tool("f"),))) == dialect.marks
    kept = dialect.kept_marks(ReplyContext())
    assert set(kept) <= set(dialect.marks)
    assert all(any(mark in thought for mark in kept) for thought in dialect.thought_marks or ())


def test_a_mark_made_of_several_is_written_as_each_of_them() -> None:
    specials = {"<|channel|>": 5, "<|message|>": 8}

    def mark(text: str) -> str:
        return f"<[{specials[text]}]>" if text in specials else f'"{text}"'

    harmony = DIALECTS["harmony"]
    assert harmony.thought_marks is not None
    assert harmony.written(harmony.thought_marks[0], mark) == '<[5]> "analysis" <[8]>'
    assert DIALECTS["hermes"].written("<think>", mark) == '"<think>"'
