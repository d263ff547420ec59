"""One conversation, whatever roles a model's template knows."""

import pytest

from deployments.ingress.conversation import Conversation, prepare_prompt
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import Refused
from tests.text.cards import card

SAYS = "{% for m in messages %}|{{ m.role }}:{{ m.content }}{% endfor %}"
FIRST_ALONE = (
    "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}{% endfor %}"
)
IN_TURNS = (
    "{% for m in messages[1:] %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}"
)
SPOKEN = [
    {"role": "system", "content": "A"},
    {"role": "system", "content": "B"},
    {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d"},
    {"role": "system", "content": "E"},
    {"role": "user", "content": "f"},
]


def prompt(template: str) -> str:
    model = card(chat_template=template)
    return prepare_prompt(Conversation(messages=SPOKEN), model, TextTokenizer(model)).text


@pytest.mark.parametrize("rule", [FIRST_ALONE, FIRST_ALONE + IN_TURNS])
def test_instructions_stand_where_a_strict_template_has_room_for_them(rule: str) -> None:
    assert prompt(rule + SAYS) == "|system:A\nB|user:c|assistant:d|user:E\nf"


def test_where_a_template_takes_them_they_stay_as_they_are() -> None:
    assert prompt(SAYS).count("|system:") == 3


def test_what_no_order_of_roles_mends_is_refused() -> None:
    with pytest.raises(Refused, match="never"):
        prompt("{{ raise_exception('never') }}")
