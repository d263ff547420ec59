"""The segments between the times in a window's tokens, and the start of the next window.

The rules are those of Whisper's own decoder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from zlib import compress

from deployments.contract.speech_rules import SpeechRules

MAX_COMPRESSION = 2.4  # a text that can be made shorter repeats itself
MIN_LOGPROB = -1.0
WINDOWS_AT_ONCE = 30  # the most that a part of the sound may be in
MAX_SILENCE = 0.6  # probability that nobody speaks, where the text is unlikely, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """start, end: in seconds of the whole sound. ids: of its text, with its times. first: of them,
    where it is in its window's."""

    start: float
    end: float
    ids: tuple[int, ...]
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The transcript of one window.

    n_samples: the number of samples of sound that it had.
    ticks: the tick at which each id is heard, where that is asked for.
    """

    first: int  # sample of the sound
    n_samples: int
    ids: tuple[int, ...]
    logprob: float  # of a token, on average
    temperature: float
    no_speech: float
    text: str
    ticks: tuple[float, ...] = ()

    @property
    def compression(self) -> float:
        data = self.text.encode()
        return len(data) / len(compress(data)) if data else 0.0

    @property
    def is_silent(self) -> bool:
        return self.no_speech > MAX_SILENCE and self.logprob < MIN_LOGPROB

    @property
    def is_good(self) -> bool:
        is_likely = self.logprob >= MIN_LOGPROB and self.compression <= MAX_COMPRESSION
        return is_likely or self.is_silent


def seconds(window: Window, tick: float, rules: SpeechRules) -> float:
    """Returns the time of a tick in the whole sound, at most the window's end."""
    at = window.first + min(tick * rules.tick, window.n_samples)
    return at / rules.sampling_rate


def cut(window: Window, rules: SpeechRules) -> tuple[list[Segment], int]:
    """The segments of a window, and how many of its samples they are all of."""
    if window.is_silent:
        return [], window.n_samples
    ids, first_time = window.ids, rules.transcript.first_time
    is_time = [id >= first_time for id in ids]
    pairs = [n for n in range(1, len(ids)) if is_time[n - 1] and is_time[n]]

    def time(id: int) -> float:
        return seconds(window, id - first_time, rules)

    if not pairs:
        times = [id for id in ids if id > first_time]
        end = time(times[-1]) if times else seconds(window, inf, rules)
        begin = time(ids[0] if is_time[:1] == [True] else first_time)
        whole = Segment(start=min(begin, end), end=end, ids=ids)
        return [whole], window.n_samples
    has_open_end = is_time[-2:] == [False, True]
    borders = [*pairs, len(ids)] if has_open_end else pairs
    segments = [
        Segment(
            start=min(time(ids[a]), time(ids[b - 1])), end=time(ids[b - 1]), ids=ids[a:b], first=a
        )
        for a, b in zip([0, *borders], borders, strict=False)
    ]
    if has_open_end:
        return segments, window.n_samples
    n_samples = (ids[pairs[-1] - 1] - first_time) * rules.tick
    # A model that says nothing but early times would be asked without end.
    is_enough = n_samples >= rules.window // WINDOWS_AT_ONCE
    return segments, min(n_samples, window.n_samples) if is_enough else window.n_samples


def text_ids(ids: Sequence[int], rules: SpeechRules) -> list[int]:
    return [id for id in ids if id < rules.transcript.end]
