"""Commands that talk to a server: answers, pipes, slash commands, statuses of errors."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from serve_app.command.client.chat import ChatSession
from serve_app.command.client.connection import Connection, api_key, server_url
from serve_app.command.client.terminal import command, converse
from serve_app.command.errors import CommandError, Exit
from serve_app.command.manta import COMMANDS, manta
from serve_app.command.ports import choose_port
from tests.bench.load.speaker import Speaker, speaking


@pytest.fixture
def speaker() -> Speaker:
    return Speaker()


@pytest.fixture
def url(speaker: Speaker, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("MANTA_HOST", raising=False)
    monkeypatch.delenv("MANTA_API_KEY", raising=False)
    with speaking(speaker) as base:
        yield base


@pytest.fixture
def chat(url: str) -> Iterator[ChatSession]:
    with Connection(server_url(url), None) as connection:
        yield ChatSession(connection, "speaker")


def typed(*args: str, piped: str = "") -> Result:
    return CliRunner().invoke(manta, args, input=piped)


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("box", "http://box:8000"),
        ("box:1234", "http://box:1234"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0:1234", "http://127.0.0.1:1234"),
        ("https://x.example/v1", "https://x.example"),
        ("http://[::1]:8000/below/v1/", "http://[::1]:8000/below"),
        (None, "http://127.0.0.1:8000"),
    ],
)
def test_an_address_is_understood_in_every_form(
    given: str | None, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MANTA_HOST", raising=False)
    assert server_url(given) == address
    if given:
        monkeypatch.setenv("MANTA_HOST", given)
        assert server_url(None) == address


def test_the_key_is_of_the_flag_or_the_first_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MANTA_API_KEY", "a, b")
    assert (api_key(None), api_key("c")) == ("a", "c")


def test_one_question_has_one_answer_and_a_pipe_gets_no_thoughts(url: str) -> None:
    asked = typed("chat", "--url", url, "--system", "Be brief", "-q", "Sum up", piped="a text\n")
    assert (asked.exit_code, asked.output) == (0, "Be brief | Sum up\n\na text\n")
    assert typed("chat", "--url", url, piped="only this").output == "only this\n"
    assert typed("run", "speaker", "two", "words", "--url", url).output == "two words\n"
    verbose = typed("chat", "--url", url, "-q", "Hello", "--verbose").output
    assert verbose.startswith("Hello\n1 tokens in, first after ")
    assert typed("complete", "--url", url, "-q", "Once", "-n", "3").output == " so so so\n"


def test_options_are_fields_of_the_request(url: str, speaker: Speaker) -> None:
    schema = '{"type":"object"}'
    line = ("--temp", "0", "-n", "5", "--seed", "7", "--think", "false", "--format", schema)
    assert typed("chat", "--url", url, "-q", "Hi", *line).exit_code == 0
    (body,) = speaker.bodies
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    said = {name: body[name] for name in ("temperature", "max_tokens", "seed", "reasoning_effort")}
    assert said == {"temperature": 0, "max_tokens": 5, "seed": 7, "reasoning_effort": "none"}


def test_a_conversation_is_remembered_until_it_is_cleared(
    chat: ChatSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = iter(["one", '"""two', 'lines"""', "/set system S", "/clear", "three", "/bye", "four"])
    monkeypatch.setattr("builtins.input", lambda _: next(lines))
    converse(chat, verbose=False)
    said = capsys.readouterr().out.splitlines()
    assert said[1:] == ["one", "one | one | two", "lines", "The system prompt is set.", "S | three"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("/set temperature 0.5", "temperature: 0.5"),
        ("/set temperature hot", "temperature: could not convert string to float: 'hot'"),
        ("/set think true", "reasoning_effort: medium"),
        ("/set think hard", "think: must be true, false, or one of none, minimal, low, medium"),
        ("/set volume 11", "/set takes system, think, format"),
        ("/show", "speaker at http://127.0.0.1"),
        ("/what", "there is no /what; /? lists what there is"),
        ("/?", "/set NAME VALUE"),
    ],
)
def test_a_slash_command_says_what_it_does(
    chat: ChatSession, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(chat, text)
    assert said in capsys.readouterr().out


def test_an_answer_that_fails_was_not_asked_for(chat: ChatSession) -> None:
    chat.model = "nobody"
    with pytest.raises(CommandError, match="no model who") as failure:
        list(chat.ask("Hello"))
    assert (failure.value.exit_code, chat.messages) == (Exit.NO_MODEL, [])


@pytest.mark.parametrize(
    "line",
    [
        ("chat", "-q", "hi"),
        ("complete", "-q", "hi"),
        ("run", "m", "hi"),
        ("ls",),
        ("ps",),
        ("show", "m"),
        ("pull", "a/b"),
        ("stop", "m"),
        ("rm", "m"),
        ("bench", "serve"),
    ],
    ids=" ".join,
)
def test_where_no_server_is_each_command_says_so(line: tuple[str, ...]) -> None:
    with socket.socket() as taken:  # nothing listens on it
        taken.bind(("127.0.0.1", 0))
        result = typed(*line, "--url", f"127.0.0.1:{taken.getsockname()[1]}")
    assert result.exit_code == Exit.NO_SERVER
    assert result.output.startswith(f"manta {line[0]}")
    assert "no server answers at http://127.0.0.1:" in result.output


def test_a_wrong_key_has_a_status_of_its_own(url: str, speaker: Speaker) -> None:
    speaker.key = "right"
    for line in (("chat", "-q", "hi"), ("bench", "serve")):
        assert typed(*line, "--url", url, "--api-key", "wrong").exit_code == Exit.WRONG_KEY
    assert typed("chat", "-q", "hi", "--url", url, "--api-key", "right").exit_code == 0


def test_a_port_that_was_asked_for_is_taken_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"port {port} is taken: process") as refusal:
            choose_port("127.0.0.1", port)
        assert refusal.value.exit_code == Exit.PORT_TAKEN
    assert choose_port("127.0.0.1", port) == port


def test_what_ollama_has_and_a_server_says_here_is_refused_by_name() -> None:
    result = typed("run", "m", "--keepalive", "5m")
    assert result.exit_code == Exit.USAGE
    assert "manta serve --sleep-idle-seconds" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_each_command_fits_a_screen(name: str) -> None:
    line = ("bench", "serve") if name == "bench" else (name,)
    result = typed(*line, "--help")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 40
    assert name in typed("--help").output


def test_a_load_is_measured_by_vllms_names(url: str, tmp_path: Path) -> None:
    size = ("--num-prompts", "6", "--input-len", "8", "--output-len", "5", "--max-concurrency", "2")
    result = typed(
        *("bench", "serve", "--url", url, *size, "--save-result", "--result-dir", str(tmp_path)),
        *("--result-filename", "r.json", "--request-rate", "1e6"),
    )
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "r.json").read_text())
    assert (found["completed"], found["failed"]) == (6, 0)
    assert (found["total_input_tokens"], found["total_output_tokens"]) == (48, 30)
    assert 0 < found["median_ttft_ms"] <= found["p99_ttft_ms"] <= found["p99_e2el_ms"]
    assert found["mean_tpot_ms"] > 0
    failed = typed("bench", "serve", "--url", url, *size, "--model", "nobody")
    assert (failed.exit_code, "who?" in failed.output) == (Exit.FAILED, True)


def line_of(custom_id: str, model: str | None = "speaker") -> str:
    messages = [{"role": "user", "content": f"I am {custom_id}"}]
    body = {"messages": messages, **({"model": model} if model else {})}
    return json.dumps(
        {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}
    )


def test_a_batch_goes_on_where_it_was_interrupted(
    url: str, speaker: Speaker, tmp_path: Path
) -> None:
    asked, answered = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    line = ("run-batch", "-i", str(asked), "-o", str(answered), "--url", url)
    asked.write_text(f"{line_of('a')}\n{line_of('b', 'nobody')}\n\n{line_of('c', None)}\n")
    result = typed(*line, "--model", "speaker")
    assert (result.exit_code, "2 of 3 answered" in result.output) == (Exit.FAILED, True)
    with answered.open("a") as file:
        file.write('{"custom_id": "d", "respo')  # as a process that was killed leaves it
    asked.write_text(f"{line_of('a')}\n{line_of('b')}\n{line_of('c')}\n{line_of('d')}\n")
    assert typed(*line).exit_code == 0
    found = {read["custom_id"]: read for read in map(json.loads, answered.read_text().splitlines())}
    contents = {
        name: read["response"]["body"]["choices"][0]["message"]["content"]
        for name, read in found.items()
    }
    assert contents == {name: f"I am {name}" for name in "abcd"}
    assert len(speaker.bodies) == 3 + 2  # what was answered was not asked for again


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "in.jsonl:1: Expecting"),
        ('{"custom_id": "a"}', "in.jsonl:1: must have custom_id, url and body"),
        (f"{line_of('a')}\n{line_of('a')}", "in.jsonl:2: custom_id a was there before"),
        (line_of("a").replace("/v1/chat", "/v2/chat"), "in.jsonl:1: url must be one of"),
        (line_of("a").replace("POST", "GET"), "in.jsonl:1: method must be POST"),
        (line_of("a").replace('"body": {', '"body": {"stream": true, '), "a batch has no streams"),
    ],
)
def test_a_line_that_is_no_request_is_named_before_any_is_asked(
    text: str, said: str, url: str, speaker: Speaker, tmp_path: Path
) -> None:
    asked = tmp_path / "in.jsonl"
    asked.write_text(text)
    result = typed("run-batch", "-i", str(asked), "-o", str(tmp_path / "out"), "--url", url)
    assert (result.exit_code, said in result.output) == (Exit.FAILED, True), result.output
    assert not speaker.bodies
