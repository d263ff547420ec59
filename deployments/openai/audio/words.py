"""The words of a segment, and when each is heard. The rules are those of transformers.

Languages without spaces have a word for each character.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from string import punctuation

from deployments.contract.speech_rules import SpeechRules
from deployments.openai.audio.segments import Segment, Window, seconds

WITHOUT_SPACES = frozenset({"zh", "ja", "th", "lo", "my", "yue"})
OPENING = "\"'“¡¿([{-"  # belongs to the word behind it
CLOSING = "\"'.。,\uff0c!\uff01?\uff1f:\uff1a”)]}、"  # to the one before it
BROKEN, MAX_CHARACTER_TOKENS = "\ufffd", 4  # a character has up to 4 bytes

Decode = Callable[[Sequence[int]], str]


@dataclass(slots=True)
class Word:
    """start, end: in seconds of the whole sound."""

    text: str
    start: float
    end: float

    def join(self, other: "Word") -> "Word":
        return Word(self.text + other.text, self.start, other.end)


def words_of(
    window: Window, segment: Segment, rules: SpeechRules, language: str | None, decode: Decode
) -> list[Word]:
    """Returns the words of a segment, whose window must be aligned."""
    at = [n for n, id in enumerate(segment.ids, segment.first) if id < rules.transcript.end]
    words: list[Word] = []
    for text, begin, end in _whole_characters([window.ids[n] for n in at], decode):
        first, last = at[begin], at[end - 1]
        # What a token attends to is what the one behind it says.
        start = window.ticks[first - 1] if first else 0.0
        stop = window.ticks[last]
        word = Word(text, seconds(window, start, rules), seconds(window, stop, rules))
        if words and language not in WITHOUT_SPACES and not _begins_word(text):
            words[-1] = words[-1].join(word)
        else:
            words.append(word)
    return _with_punctuation(words)


def _whole_characters(ids: Sequence[int], decode: Decode) -> Iterator[tuple[str, int, int]]:
    """Texts, each with the range of its tokens, which may be parts of a character."""
    begin = 0
    for end in range(1, len(ids) + 1):
        text = decode(ids[begin:end])
        if BROKEN not in text or end - begin >= MAX_CHARACTER_TOKENS or end == len(ids):
            yield text, begin, end
            begin = end


def _begins_word(text: str) -> bool:
    return text.startswith(" ") or text.strip() in punctuation


def _with_punctuation(words: Sequence[Word]) -> list[Word]:
    joined: list[Word] = []
    for word in reversed(words):
        opens = word.text.startswith(" ") and word.text.strip() in OPENING
        if joined and opens:
            joined[-1] = word.join(joined[-1])
        else:
            joined.append(word)
    found: list[Word] = []
    for word in reversed(joined):
        if found and word.text in CLOSING and not found[-1].text.endswith(" "):
            found[-1] = found[-1].join(word)
        else:
            found.append(word)
    return found
