"""The command `manta` beside a server that runs: its tables and answers are the server's."""

import pytest
from click.testing import CliRunner

from serve_app.command.errors import Exit
from serve_app.command.manta import manta
from serve_app.router_arguments import DEMO_NAME
from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import LISTED

pytestmark = THROUGHPUT  # tests/serve_app/command has all that no model has a part in


def typed(server: Server, *line: str, piped: str = "", status: Exit | None = None) -> str:
    result = CliRunner().invoke(manta, [*line, "--url", server.url], input=piped)
    assert result.exit_code == (status or 0), result.output
    return result.output


def test_the_models_are_listed_shown_and_asked(server: Server) -> None:
    table = typed(server, "ls").splitlines()
    assert [line.split()[0] for line in table] == ["NAME", *LISTED]
    question = ("chat", DEMO_NAME, "--temp", "0", "-q", "What is the capital of France?")
    assert "Paris" in typed(server, *question)
    assert "Paris" in typed(server, "run", DEMO_NAME, "--temp", "0", piped=question[-1])
    running = {line.split()[0]: line.split() for line in typed(server, "ps").splitlines()[1:]}
    assert running[DEMO_NAME][1:3] == ["ready", "1/1"]
    said = [line.split() for line in typed(server, "show", DEMO_NAME).splitlines()]
    assert ["family", "llama"] in said
    assert ["state", "ready"] in said
    assert "<|im_start|>" in typed(server, "show", DEMO_NAME, "--template")
    assert typed(server, "complete", "tiny", "-q", "abc", "-n", "4", "--temp", "0").strip()
    size = ("--num-prompts", "2", "--input-len", "8", "--output-len", "4")
    assert "Time to first token (TTFT)" in typed(server, "bench", "serve", "-m", "tiny", *size)


@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("run nobody hi", Exit.NO_MODEL, "has no model nobody: `manta ls` lists those"),
        ("chat nobody -q hi", Exit.NO_MODEL, "The model 'nobody' does not exist"),
        ("show nobody", Exit.NO_MODEL, "has no model nobody"),
        ("stop nobody", Exit.NO_MODEL, "The model 'nobody' does not exist"),
        ("pull a/b", Exit.FAILED, "Downloads are off"),
        ("rm tiny", Exit.FAILED, "Downloads are off"),
    ],
)
def test_what_a_server_has_not_is_said_in_its_words(
    server: Server, line: str, status: Exit, said: str
) -> None:
    assert said in typed(server, *line.split(), status=status)
