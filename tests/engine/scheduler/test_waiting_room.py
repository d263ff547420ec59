"""Many texts whose answers are vectors hold no more places and pages than a step's worth."""

from tests.encoders import texts, tiny_embedder
from tests.engine.drive import GREEDY, random_ids, request, roomy
from tests.engine.outputs.drive import answers, ask, embedder

LIMITS = roomy(max_batch_tokens=64, max_running=32)
TEXTS = [one for one in texts(400, 30) if len(one) > 20][:40]
MOST = 4  # of so many tokens, to fill a step of 64


def test_as_many_run_as_fill_a_step_and_what_is_behind_them_passes() -> None:
    asked = [ask(f"{n}", one) for n, one in enumerate(TEXTS)]
    chat = request("chat", random_ids(40), GREEDY, max_tokens=4)
    with embedder(tiny_embedder("qwen3"), limits=LIMITS) as running:
        ended = []
        for index, event in running.core.run([*asked, chat]):
            assert running.core.stats().active_requests <= MOST + 1
            if event.finish_reason is not None:
                ended.append(index)
    assert sorted(ended) == list(range(len(asked) + 1))
    assert ended.index(len(asked)) < len(asked) / 2


def test_those_that_wait_can_be_aborted() -> None:
    with embedder(tiny_embedder("qwen3"), limits=LIMITS) as running:
        events = running.core.run(ask(f"{n}", one) for n, one in enumerate(TEXTS))
        next(events)
        events.close()
        answers(running.core, ask("behind them", TEXTS[0]))
        assert running.core.stats().waiting_requests == 0
        running.check_idle()
