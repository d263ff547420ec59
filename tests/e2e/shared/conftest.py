"""One server a mode, which all tests of this folder share: each asks for the model that it needs.

In throughput mode the server also logs in JSON and traces all requests.
"""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from tests.e2e.server import MODES, THROUGHPUT_MODE, Server
from tests.e2e.shared.models import LOADABLE, LOADED_AT_ONCE, save_models
from tests.e2e.shared.said import PAIR, both_serve

WATCHED = {
    "logging_config": {"encoding": "JSON"},
    "tracing_config": {"enabled": True, "sampling_ratio": 1.0},
}
TURNS = {"test_operate.py": -1, "test_chaos.py": 1, "test_adapters.py": 1}
AT_ONCE = {
    "RAY_SERVE_REQUEST_PATH_LOG_BUFFER_SIZE": "1",  # else logs come by the thousand lines
    # Else metrics come every ten seconds. Ray forgets a gauge after two intervals without news of
    # it: one shorter than half of ours would lose some all the time.
    "RAY_metrics_report_interval_ms": "3000",
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sorts the tests of each mode.

    First come those that read all that was logged so far, last those that kill replicas.
    """
    here = Path(__file__).parent
    own = [at for at, item in enumerate(items) if here in item.path.parents]
    kept = iter(sorted((items[at] for at in own), key=_turn))
    for at in own:
        items[at] = next(kept)


def _turn(item: pytest.Item) -> tuple[int, int]:
    mode: str = item.callspec.params["server"]  # type: ignore[attr-defined]
    return MODES.index(mode), TURNS.get(item.path.name, 0)


@pytest.fixture(scope="package")
def presets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(
    scope="package",
    params=[pytest.param("default", marks=pytest.mark.exhaustive), "throughput"],
)
def server(
    request: pytest.FixtureRequest,
    presets: Path,
    ending: list[Server],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    """Random models in float32, behind Serve's Python proxy and behind HAProxy."""
    folder = tmp_path_factory.mktemp(request.param)
    router = {
        "presets": str(presets),
        "models_max": LOADED_AT_ONCE,
        "adapters_dir": str(presets.with_name(LOADABLE)),
    }
    throughput = request.param == "throughput"
    environment, config = (THROUGHPUT_MODE | AT_ONCE, WATCHED) if throughput else ({}, {})
    with Server(folder, router, environment, config).ending_later(ending) as running:
        yield running


@pytest.fixture
def pair(server: Server) -> Server:
    """The server, when its model `pair` has both of its replicas."""
    body = {"model": PAIR, "prompt": "abc", "max_tokens": 1}
    server.http.post("/v1/completions", json=body).raise_for_status()
    server.eventually(lambda: both_serve(server))
    return server


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk
