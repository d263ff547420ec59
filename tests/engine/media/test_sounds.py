"""Models that hear: sounds that come in windows, and sounds that can't be read."""

from dataclasses import replace

from deployments.contract.errors import ErrorKind
from tests.engine.drive import roomy
from tests.engine.media.seeing import noise, picture, seeing, seeing_engine

TEXT = "Before. <image> What is said?"


def test_a_long_sound_is_heard_window_by_window_between_steps() -> None:
    """Each window has more ids than are encoded between two steps."""
    one = seeing("voxtral")
    long, short = noise(1, 900), noise(2)
    with seeing_engine("voxtral", roomy(max_running=4, max_batch_tokens=16)) as running:
        outcomes = running.run_together(
            one.request("long", TEXT, (long,)), one.request("short", TEXT, (short,))
        )
    assert outcomes[0].token_ids == one.expected(TEXT, (long,))
    assert outcomes[1].token_ids == one.expected(TEXT, (short,))


def test_gemma_3n_sees_and_hears_in_one_prompt() -> None:
    one = seeing("gemma3n")
    text, media = "<image> and <audio_soft_token>. Which?", (picture(1), noise(1, 90))
    other = (picture(1), noise(2, 90))
    with seeing_engine("gemma3n", roomy(max_running=4, max_batch_tokens=16)) as running:
        outcomes = running.run_together(
            one.request("one", text, media), one.request("other", text, other)
        )
    assert outcomes[0].token_ids == one.expected(text, media)
    assert outcomes[1].token_ids == one.expected(text, other) != outcomes[0].token_ids


def test_a_sound_that_can_t_be_read_fails_its_request_alone() -> None:
    one = seeing("qwen2_audio")
    good = one.request("good", TEXT, (noise(1),))
    bad = one.request("bad", TEXT, (noise(2),))
    bad = replace(bad, media=(replace(bad.media[0], data=b"no sound"),))
    with seeing_engine("qwen2_audio") as running:
        failed, answered = running.run_together(bad, good)
    assert failed.error is not None
    assert failed.error.kind is ErrorKind.INVALID_REQUEST
    assert "a sound can't be decoded" in failed.error.message
    assert answered.token_ids == one.expected(TEXT, (noise(1),))
