"""Closed knowledge: topics with many phrasings of the question and one or two answers."""

from dataclasses import dataclass

from serve_app.demo.training.corpus.chat import Exchange, Expect
from serve_app.demo.training.corpus.phrases import expand, listed, rows
from serve_app.demo.training.corpus.split import SeededDraw


@dataclass(frozen=True)
class Topic:
    """`says` are the words that tell a right answer; any of them, where `any_of` is set."""

    asks: tuple[str, ...]
    answers: tuple[str, ...]
    says: tuple[str, ...]
    any_of: bool = False

    def exchange(self, draw: SeededDraw) -> Exchange:
        expect = Expect(any_of=self.says) if self.any_of else Expect(says=self.says)
        return Exchange(draw.ask(self.asks), draw.choice(self.answers), expect)


def topics(text: str) -> list[Topic]:
    """Blocks of lines: `?` a pattern of questions, `=` an answer, `!` or `~` all or any words."""
    return [_topic(rows(block)) for block in text.strip().split("\n\n")]


def _topic(lines: list[str]) -> Topic:
    def marked(mark: str) -> list[str]:
        return [line[1:].strip() for line in lines if line[0] == mark]

    asks = tuple(phrase for pattern in marked("?") for phrase in expand(pattern))
    says = [word for words in marked("!") + marked("~") for word in listed(words)]
    assert all((asks, marked("="), says)), lines
    topic = Topic(asks, tuple(marked("=")), tuple(says), any_of=bool(marked("~")))
    low = [answer.casefold() for answer in topic.answers]
    some = any if topic.any_of else all
    assert all(some(word.casefold() in answer for word in says) for answer in low), lines
    return topic
