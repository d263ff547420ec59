"""When a reply is right: plain rules, without mercy and without a judge."""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from deployments.text.reply import Reply
from serve_app.demo.training.corpus import Case
from serve_app.demo.training.corpus.chat import Expect

SENTENCE_END = re.compile(r"[.!?](?=\s|$)")


@dataclass(frozen=True)
class AnsweredCase:
    case: Case
    reply: Reply

    @property
    def calls_rightly(self) -> bool:
        """Whether it was right to call, or not to, whatever the call."""
        return bool(self.reply.calls) == bool(self.case.calls)

    @property
    def is_right(self) -> bool:
        if self.case.calls:
            return made_calls(self.reply) == expected_calls(self.case)
        return not self.reply.calls and fits(self.case.expect, self.reply)


@dataclass(frozen=True)
class SkillScore:
    skill: str
    right: int
    total: int

    @property
    def share(self) -> float:
        return self.right / self.total if self.total else 0.0


def expected_calls(case: Case) -> list[str]:
    return sorted(_key(call.name, dict(call.arguments)) for call in case.calls or ())


def made_calls(reply: Reply) -> list[str]:
    """Returns the calls of a reply. One whose arguments are no JSON is never right."""
    made: list[str] = []
    for call in reply.calls:
        try:
            made.append(_key(call.name, json.loads(call.arguments)))
        except ValueError:
            made.append(f"{call.name}: malformed")
    return sorted(made)


def _key(name: str, arguments: object) -> str:
    return f"{name} {json.dumps(arguments, sort_keys=True, ensure_ascii=False)}"


def fits(expect: Expect, reply: Reply) -> bool:
    text = reply.content.strip()
    return all(
        (
            bool(reply.thought.strip()) == expect.thinks,
            not expect.exactly or text == expect.exactly,
            all(has(text, word) for word in expect.says),
            not expect.any_of or sum(has(text, word) for word in expect.any_of) >= expect.least,
            not expect.sentences or len(SENTENCE_END.findall(text)) == expect.sentences,
            not expect.words or len(text.split()) <= expect.words,
        )
    )


def has(text: str, words: str) -> bool:
    """Tells whether the text has the words as whole words, in any case."""
    plain = " ".join(words.casefold().split())
    found = rf"(?<!\w){re.escape(plain)}(?!\w)"
    return re.search(found, " ".join(text.casefold().split())) is not None


def scores(answered: Iterable[AnsweredCase]) -> list[SkillScore]:
    """One a skill, in the order in which they come, and one for the decisions whether to call."""
    right: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for each in answered:
        asked = [(each.case.skill, each.is_right)]
        if each.case.calls is not None and each.case.strict:
            asked.append(("decisions whether to call", each.calls_rightly))
        for skill, good in asked:
            total[skill] += 1
            right[skill] += good
    return [SkillScore(skill, right[skill], count) for skill, count in total.items()]
