"""The variables that a chat template takes are told from the words that it only says."""

import pytest

from deployments.text.chat.templates import has_tools_in_messages, knows_tools, variables


@pytest.mark.parametrize(
    ("template", "knows"),
    [
        ("{% if tools %}{{ tools | tojson }}{% endif %}", True),
        ("{%- if not tools is defined %}{%- set tools = none %}{%- endif %}{{ tools }}", True),
        ("{% generation %}{{ tools }}{% endgeneration %}", True),
        ("{% for m in messages %}{% if m.bad %}{% break %}{% endif %}{% endfor %}", False),
        ("{% for m in messages %}{{ m.tools }}{{ m['tools'] }} about tools{% endfor %}", False),
        ("{% macro shown(tools) %}{{ tools }}{% endmacro %}{{ shown([]) }}", False),
        ("", False),
    ],
)
def test_a_template_knows_tools_when_it_reads_them(template: str, knows: bool) -> None:
    assert knows_tools(template) is knows


@pytest.mark.parametrize(
    ("template", "taken"),
    [
        ("{% if thinking is defined and thinking %}<think>{% endif %}", {"thinking"}),
        ("{% set thinking = thinking | default(true) %}{{ thinking }}", {"thinking"}),
        ("{% set thinking = true %}{{ thinking }}", set()),
        ("{{ 'Cannot pass both content and thinking' }} Draft your thinking process.", set()),
        ("{# thinking #}{{ {'thinking': 1} }}", set()),
        ("{% if thinking", set()),
    ],
)
def test_a_template_takes_the_variables_that_it_reads(template: str, taken: set[str]) -> None:
    assert variables(template) == taken


@pytest.mark.parametrize(
    ("template", "has"),
    [
        ("{% for m in messages %}{{ m['tools'] }}{% endfor %}", True),
        ("{% for m in messages %}{{ m.tools }}{% endfor %}", True),
        ("{% for m in messages %}{{ m.tools or tools }}{% endfor %}", False),
        ("{% for m in messages %}{{ m.content }}{{ 'tools' }}{% endfor %}", False),
        ("{% for m in", False),
    ],
)
def test_tools_in_messages_are_told_from_tools_of_their_own(template: str, has: bool) -> None:
    assert has_tools_in_messages(template) is has
