"""The comparison of two servers: its order, its arithmetic, and that it counts what really came."""

import asyncio
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig

from serve_app.command.bench.client import Server, TimedAnswer, complete
from serve_app.command.bench.words import Words, percentile
from tests.bench import compare, shapes
from tests.bench.load.plot import can_draw
from tests.bench.load.results import Pair, failures, row
from tests.bench.load.speaker import Speaker, speaking
from tests.bench.load.workloads import (
    CACHED,
    FINISHED,
    ITL,
    SPEED,
    TTFT,
    Arrivals,
    Burst,
    Distinct,
    Prefix,
    Run,
    meanwhile,
)

ONE_EACH = Words(1.0)  # token a word, as the speaker counts


@pytest.fixture
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture
def server(speaker: Speaker) -> Iterator[Server]:
    with speaking(speaker) as url:
        yield Server("S", url, "speaker")


def pair(a: list[float], b: list[float]) -> Pair:
    runs = [[Run({SPEED: value}, ()) for value in values] for values in (a, b)]
    return Pair("distinct", 8, (runs[0], runs[1]))


def test_every_second_round_begins_with_the_other_server() -> None:
    schedule = compare.turns([Distinct(clients=(1, 8))], 3)
    order = [(turn.load, turn.round, turn.server) for turn in schedule]
    one_load = [(0, 0), (0, 1), (1, 1), (1, 0), (2, 0), (2, 1)]
    assert order == [(load, *which) for load in (1, 8) for which in one_load]


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_of_their_medians() -> None:
    assert row(pair([10, 20, 90], [10, 40, 30]), SPEED) == ["20.0", "30.0", "1.00", "0.50", "3.00"]


def test_a_round_without_a_figure_leaves_the_others_theirs() -> None:
    found = row(pair([math.nan, 20, 30], [10, 10, 0]), SPEED)
    assert found == ["25.0", "10.0", "2.00", "2.00", "2.00"]
    assert row(pair([30], [0]), SPEED) == ["30.0", "0.0", "-", "-", "-"]


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_measured(share: float, value: int) -> None:
    assert percentile(range(100, 0, -1), share) == value
    assert math.isnan(percentile([], share))


def test_a_chunk_of_several_tokens_has_their_gap_each() -> None:
    sample = TimedAnswer(10.0, asyncio.Event(), tokens=6, chunks=[11.0, 12.0, 14.0])
    assert sample.first == 1.0
    assert sample.gaps() == [(12.0, 0.5), (14.0, 1.0)]


@pytest.mark.parametrize("usage_apart", [True, False])
def test_tokens_are_counted_by_the_server_and_not_by_chunks(usage_apart: bool) -> None:
    with speaking(Speaker(per_chunk=3, usage_apart=usage_apart)) as url:
        sample = asyncio.run(complete(Server("S", url, "speaker"), "one two three", 10))
    assert (sample.error, sample.tokens, sample.prompt_tokens) == ("", 10, 3)
    assert len(sample.chunks) == 4
    assert sample.sent < sample.chunks[0] <= sample.chunks[-1] <= sample.ended


def test_an_answer_that_breaks_off_is_none(speaker: Speaker, server: Server) -> None:
    speaker.stops_at = 5
    sample = asyncio.run(complete(server, "one", 10))
    assert sample.error == "EOFError: the stream ended without [DONE]"
    assert len(sample.chunks) == 5


def test_a_refusal_is_told_in_the_servers_words(server: Server) -> None:
    sample = asyncio.run(complete(Server("S", server.url, "nobody"), "one", 10))
    assert sample.error == 'ValueError: HTTP/1.1 404 Not Found {"error":{"message":"who?"}}'


def test_a_server_that_is_not_there_fails_the_comparison(server: Server) -> None:
    nowhere = Server("N", "http://127.0.0.1:9/v1", "speaker")
    with pytest.raises(RuntimeError, match=r"N, http://127.0.0.1:9/v1: .*refused|Errno"):
        asyncio.run(compare.compare((server, nowhere), [], 0, str))


def test_both_servers_get_the_same_prompts_and_each_round_new_ones() -> None:
    first, second = Speaker(), Speaker(usage_apart=False)
    schedule = list(compare.turns([Distinct(prompt=20, out=3, clients=(2,))], 2))
    with speaking(first) as a, speaking(second) as b:
        servers = (Server("A", a, "speaker"), Server("B", b, "speaker"))
        (found,) = asyncio.run(compare.compare(servers, schedule, 7, str))
    assert sorted(first.prompts) == sorted(second.prompts)
    asked = [prompt for prompt in first.prompts if len(prompt.split()) == 20]
    assert len(asked) == len(set(asked)) == 2 * 2 * 4
    assert [len(runs) for runs in found.runs] == [2, 2]
    assert all(ratio > 0 for ratio in found.ratios(SPEED))
    assert not list(failures([found], ("A", "B")))


def test_prompts_of_the_prefix_workload_begin_alike_for_one_round(
    speaker: Speaker, server: Server
) -> None:
    workload = Prefix(prefix=50, tail=5, out=2, clients=(2,), requests=2)
    for seed in ("one", "two"):
        run = asyncio.run(workload.run(server, ONE_EACH, 2, seed))
        assert set(run.figures) == {SPEED, CACHED, *TTFT, *ITL}
    beginnings = [tuple(prompt.split()[:50]) for prompt in speaker.prompts]
    assert len(set(beginnings)) == 2
    assert len(set(speaker.prompts)) == 8


def test_long_prompts_arrive_while_streams_run(speaker: Speaker, server: Server) -> None:
    workload = Arrivals(streams=2, out=20, long_prompts=2, long_prompt=300)
    speaker.waits_at, speaker.for_prompts = 10, 4
    run = asyncio.run(workload.run(server, ONE_EACH, 2, "seed"))
    assert run.errors == ()
    assert [len(prompt.split()) for prompt in speaker.prompts] == [64, 64, 300, 300]
    assert all(run.figures[name] > 0 for name in TTFT)


def test_gaps_count_while_a_long_prompt_is_there_and_all_streams_run() -> None:
    chunks = [2.0, 2.5, 4.0, 8.0, 13.0]
    streams = [
        TimedAnswer(1.0, asyncio.Event(), tokens=5, chunks=chunks, ended=14.0),
        TimedAnswer(1.0, asyncio.Event(), tokens=2, chunks=[2.0, 9.0], ended=9.0),
    ]
    arrived = [
        TimedAnswer(3.0, asyncio.Event(), tokens=1, chunks=[5.0], ended=5.0),
        TimedAnswer(5.0, asyncio.Event(), tokens=1, chunks=[9.5], ended=10.0),
    ]
    found = meanwhile(streams, arrived).figures  # gaps of 1.5, 4 and 7 s; not 0.5, not 5
    assert [found[name] for name in (*TTFT, *ITL)] == [2000, 4500, 4000, 7000]
    assert all(math.isnan(value) for value in meanwhile(streams, []).figures.values())


def test_a_burst_counts_those_that_finish(speaker: Speaker, server: Server) -> None:
    workload = Burst(prompt=8, out=4, requests=16)
    run = asyncio.run(workload.run(server, ONE_EACH, 16, "seed"))
    assert (run.figures[FINISHED], run.errors) == (16, ())
    speaker.stops_at = 2
    run = asyncio.run(workload.run(server, ONE_EACH, 16, "seed"))
    assert run.figures[FINISHED] == run.figures[SPEED] == 0
    assert len(run.errors) == 16
    assert math.isnan(run.figures[TTFT[0]])
    said = list(failures([Pair("burst", 16, ([run], [run]))], ("A", "B")))
    assert said[0] == "A, burst 16: 16 times EOFError: the stream ended without [DONE]"


def test_the_command_prints_a_table_and_draws_a_plot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plot = tmp_path / "latency.png"
    options = "--a-name mine --workload distinct burst --rounds 2 --distinct-clients 1 2"
    sizes = "--distinct-out 3 --burst-requests 4 --burst-out 3"
    with speaking(Speaker()) as a, speaking(Speaker(per_chunk=2)) as b:
        command = ["compare", "--a", a, "--b", f"{b}/", *options.split(), *sizes.split()]
        drawing = ["--plot", str(plot)] if can_draw() else []
        monkeypatch.setattr(sys, "argv", [*command, *drawing])
        asyncio.run(compare.main(compare.read_arguments()))
    lines = capsys.readouterr().out.splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if "|" in line]
    for load in ("1", "2"):
        assert [row[2] for row in rows if row[:2] == ["distinct", load]] == [SPEED, *TTFT, *ITL]
    assert ["burst", "4", FINISHED] in rows
    assert plot.read_bytes().startswith(b"\x89PNG") if can_draw() else not plot.exists()


def test_a_plot_without_matplotlib_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compare, "can_draw", lambda: False)
    monkeypatch.setattr(sys, "argv", ["compare", "--a", "x", "--b", "y", "--plot", "z.png"])
    with pytest.raises(SystemExit):
        compare.read_arguments()
    assert "pip install matplotlib" in capsys.readouterr().err


def test_a_shape_is_a_checkpoint_with_a_tokenizer_of_its_own(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        bos_token_id=0,
        eos_token_id=0,
    )
    text = "the quick brown fox jumps over the lazy dog and then over the whole hedge"
    shapes.save(tmp_path, config, iter([text] * 3))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    assert AutoModelForCausalLM.from_pretrained(tmp_path).config.vocab_size == len(tokenizer)
