"""Transcripts in the forms that requests ask for: JSON, text, subtitles, events."""

from collections.abc import Callable, Mapping, Sequence

from deployments.ingress.http.openapi import EVENTS
from deployments.ingress.http.sse import data, encode
from deployments.openai.audio.segments import Segment
from deployments.openai.audio.transcriber import Heard, Transcriber

JSON, TEXT = b"application/json", b"text/plain; charset=utf-8"
TYPES = {"json": JSON, "verbose_json": JSON, "text": TEXT, "srt": TEXT}
TYPES["vtt"] = b"text/vtt; charset=utf-8"


def media_types(*, streams: bool) -> Sequence[str]:
    """Returns the media types of all answers. `streams` adds that of events."""
    names = (kind.decode().partition(";")[0] for kind in TYPES.values())
    return [*dict.fromkeys(names), *([EVENTS] if streams else [])]


def format_body(transcriber: Transcriber, heard: Sequence[Heard]) -> bytes:
    match transcriber.asked.response_format:
        case "json":
            return encode({"text": whole_text(heard), "usage": _usage(transcriber)})
        case "verbose_json":
            return encode(_verbose(transcriber, heard))
        case "text":
            return f"{whole_text(heard)}\n".encode()
        case "srt":
            return "".join(_subtitles(heard, ",", numbered=True)).encode()
        case "vtt":
            return ("WEBVTT\n\n" + "".join(_subtitles(heard, ".", numbered=False))).encode()


def whole_text(heard: Sequence[Heard]) -> str:
    return "".join(text for entry in heard for _, text in entry.segments).strip()


def format_delta(heard: Heard, *, is_first: bool) -> bytes:
    """The events of a window."""
    texts = [text for _, text in heard.segments]
    if is_first and texts:
        texts[0] = texts[0].lstrip()
    events = ({"type": "transcript.text.delta", "delta": text} for text in texts if text)
    return b"".join(data(encode(event)) for event in events)


def format_done(transcriber: Transcriber, text: str) -> bytes:
    n_in, n_out = transcriber.prompt_tokens, transcriber.output_tokens
    done = {"type": "transcript.text.done", "text": text, "usage": token_usage(n_in, n_out)}
    return data(encode(done))


def _usage(transcriber: Transcriber) -> Mapping[str, object]:
    return {"type": "duration", "seconds": round(transcriber.seconds, 2)}


def token_usage(n_in: int, n_out: int) -> Mapping[str, object]:
    return {
        "type": "tokens",
        "input_tokens": n_in,
        "output_tokens": n_out,
        "total_tokens": n_in + n_out,
    }


def _verbose(transcriber: Transcriber, heard: Sequence[Heard]) -> Mapping[str, object]:
    asked = transcriber.asked
    segments = {"segments": _segments(transcriber, heard)} if asked.has_segments else {}
    words = {"words": _words(heard)} if asked.has_words else {}
    return {
        "task": "translate" if asked.is_translation else "transcribe",
        "language": transcriber.language_name,
        "duration": round(transcriber.seconds, 2),
        "text": whole_text(heard),
        **segments,
        **words,
        "usage": _usage(transcriber),
    }


def _segments(transcriber: Transcriber, heard: Sequence[Heard]) -> Sequence[object]:
    every = [(entry, *part) for entry in heard for part in entry.segments]
    rate = transcriber.rules.sampling_rate
    return [
        {
            "id": number,
            "seek": entry.window.first * 100 // rate,
            "start": round(segment.start, 2),
            "end": round(segment.end, 2),
            "text": text,
            "tokens": [*segment.ids],
            "temperature": entry.window.temperature,
            "avg_logprob": entry.window.logprob,
            "compression_ratio": entry.window.compression,
            "no_speech_prob": entry.window.no_speech,
        }
        for number, (entry, segment, text) in enumerate(every)
    ]


def _words(heard: Sequence[Heard]) -> Sequence[object]:
    return [
        {"word": word.text.strip(), "start": round(word.start, 2), "end": round(word.end, 2)}
        for entry in heard
        for word in entry.words
        if word.text.strip()
    ]


def _subtitles(heard: Sequence[Heard], point: str, *, numbered: bool) -> list[str]:
    every = [part for entry in heard for part in entry.segments]
    clock = _clock(point)
    return [
        (f"{number}\n" if numbered else "") + f"{_span(segment, clock)}\n{_cue(text)}\n\n"
        for number, (segment, text) in enumerate(every, start=1)
    ]


def _cue(text: str) -> str:
    """An arrow would be read as times, and an empty line as the end."""
    return " ".join(text.split()).replace("-->", "->")


def _span(segment: Segment, clock: Callable[[float], str]) -> str:
    return f"{clock(segment.start)} --> {clock(segment.end)}"


def _clock(point: str) -> Callable[[float], str]:
    def written(seconds: float) -> str:
        ms = round(seconds * 1000)
        hours, minutes = ms // 3_600_000, ms // 60_000 % 60
        return f"{hours:02}:{minutes:02}:{ms // 1000 % 60:02}{point}{ms % 1000:03}"

    return written
