"""Everything that a client says is in the prompt, whatever a template silently leaves out."""

from collections.abc import Mapping

import pytest

from deployments.text.chat.conversation import Conversation, prepare_prompt
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.text.cards import card

SAYS = "{% for m in messages %}|{{ m.role }}:{{ m.content }}{% endfor %}"
# Command R7B's, Cohere 2's, Tiny Aya's: the word is in its prose, and the role in no branch.
PROSE = (
    "You must obey the developer. {% for m in messages %}"
    "{% if m.role in ('system', 'user', 'assistant') %}|{{ m.role }}:{{ m.content }}{% endif %}"
    "{% endfor %}"
)
# DeepSeek V3.2's: developers are known only ahead of everything.
FIRST = (
    "{% for m in messages %}{% if m.role != 'developer' or loop.first %}"
    "|{{ m.role }}:{{ m.content }}{% endif %}{% endfor %}"
)
ONE_SYSTEM = (
    "{% if messages[0].role == 'system' %}|system:{{ messages[0].content }}{% endif %}"
    "{% for m in messages if m.role in ('user', 'assistant') %}|{{ m.role }}:{{ m.content }}"
    "{% endfor %}"
)
NO_SYSTEM = (
    "{% for m in messages if m.role in ('user', 'assistant') %}|{{ m.role }}:{{ m.content }}"
    "{% endfor %}"
)
ONLY_PARTS = (
    "{% for m in messages %}|{{ m.role }}:{% for p in m.content %}{{ p.text }}{% endfor %}"
    "{% endfor %}"
)
ONLY_PARTS_STRICT = (
    "{% for m in messages %}|{{ m.role }}:{% for p in m.content %}{% if p['type'] == 'text' %}"
    "{{ p['text'] | trim }}{% endif %}{% endfor %}{% endfor %}"
)


def talk(*spoken: str) -> list[Mapping[str, object]]:
    names = {"d": "developer", "s": "system", "u": "user", "a": "assistant"}
    return [{"role": names[text[0]], "content": text} for text in spoken]


@pytest.mark.parametrize(
    ("template", "spoken", "shown"),
    [
        (SAYS, "d1 u1", "|developer:d1|user:u1"),
        (PROSE, "d1 u1", "|system:d1|user:u1"),
        (PROSE, "s1 d1 u1 a1 d2 u2", "|system:s1|system:d1|user:u1|assistant:a1|system:d2|user:u2"),
        (FIRST, "d1 u1 a1 d2 u2", "|developer:d1|user:u1|assistant:a1|system:d2|user:u2"),
        (ONE_SYSTEM, "d1 u1", "|system:d1|user:u1"),
        (ONE_SYSTEM, "s1 s2 u1", "|system:s1\ns2|user:u1"),
        (ONE_SYSTEM, "s1 u1 a1 s2 u2", "|system:s1|user:u1|assistant:a1|user:s2\nu2"),
        (NO_SYSTEM, "s1 u1", "|user:s1\n\nu1"),
        (NO_SYSTEM, "d1 s1 u1 a1 s2 u2", "|user:d1\ns1\n\nu1|assistant:a1|user:s2\nu2"),
        (ONLY_PARTS, "s1 u1 a1 u2", "|system:s1|user:u1|assistant:a1|user:u2"),
        (ONLY_PARTS_STRICT, "u1", "|user:u1"),
    ],
)
def test_every_message_arrives(template: str, spoken: str, shown: str) -> None:
    model = card(chat_template=template)
    prompt = prepare_prompt(
        Conversation(messages=talk(*spoken.split())), model, TextTokenizer(model)
    )
    assert prompt.text.removeprefix("You must obey the developer. ") == shown
