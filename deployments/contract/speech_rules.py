"""How a model that transcribes is asked, as its card says it, and what may follow in a transcript.

Free of torch: ingresses make the prompts, and read times in the answers.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptParams:
    """Keeps a transcript to the form that its model was trained on: times come in pairs, and never
    go back. The ids are of tokens.

    max_first_time: the latest first time, in ticks; None for any.
    banned_first: may not be the first token. All of `banned` may be nowhere.
    """

    first_time: int  # times are the last ids of the vocabulary
    no_times: int
    end: int
    max_first_time: int | None = None
    banned: tuple[int, ...] = ()
    banned_first: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechRules:
    """A prompt is the start, a language and a task where the model has several, and before them
    what was said before.

    window: samples that the model hears at once. tick: of them between two times.
    languages: their codes, with the ids of their tokens; none for a model that knows English only.
    language_names: their codes, and what they are called in English.
    can_align: it tells when each token is heard.
    """

    sampling_rate: int
    window: int
    tick: int
    start: int
    before: int  # begins what was said before
    no_speech: int
    transcript: TranscriptParams
    transcribe: int | None = None
    translate: int | None = None
    languages: tuple[tuple[str, int], ...] = ()
    language_names: tuple[tuple[str, str], ...] = ()
    can_align: bool = False
