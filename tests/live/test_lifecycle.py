"""Models come and go on a real Ray cluster, by the real router."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import ray

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from deployments.router.lifecycle.applications import read_applications
from deployments.router.presets.sources import Sources
from deployments.router.settings import CapacitySettings, Preset
from tests.checkpoints import save_checkpoint
from tests.live.fleet import (
    PATIENCE_S,
    Fleet,
    Recorder,
    deploy_router,
    read_card,
    running,
    settings,
)

TWO = "replicas = 2"
WAITS = "waits for a loaded model to become idle"
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("models") / "tiny", context=100_000)


def alone(path: Path, name: str = "a") -> Sources:
    return Sources(argument=Preset(settings=settings(path, name), aliases=("other",)))


def presets(file: Path, checkpoint: Path, **sections: str) -> Sources:
    """An INI file of models that share one checkpoint; a section may add lines of its own."""
    common = "num-cpus = 1\nn-pages = 4096\ndtype = float32\nstop-timeout = 5\n"
    text = f"[*]\nmodel = {checkpoint}\n{common}"
    file.write_text(text + "".join(f"[{name}]\n{lines}\n" for name, lines in sections.items()))
    return Sources(presets=str(file))


def test_many_who_want_a_model_cost_one_load_and_all_see_its_states(checkpoint: Path) -> None:
    with running(alone(checkpoint)) as fleet, Recorder(fleet, "a") as recorder:
        names: list[str | None] = [None, "a", "other", "a"] * 5
        with ThreadPoolExecutor(len(names)) as pool:
            answers = list(pool.map(fleet.want, names, [f"client-{n}" for n in range(len(names))]))
        assert all(isinstance(a, ModelStatus) and a.name == "a" for a in answers)
        assert fleet.count("manta_router_loads", "a") == 1
        fleet.until(lambda: fleet.choose("a", "r").replica_id is not None, "a replica reports")
        assert fleet.choose("a", "r").replica_id in fleet.replicas("a")
        version = read_card(fleet.model("a"))
        assert fleet.choose("a", "r").version == fleet.models()["a"].version == version
        assert fleet.call("unload", "a") is None
        assert not fleet.choose("a", "r").is_up
        fleet.until_state("a", ModelState.UNLOADED)
    assert recorder.states == [
        ModelState.UNLOADED,
        ModelState.LOADING,
        ModelState.READY,
        ModelState.UNLOADING,
        ModelState.UNLOADED,
    ]


def test_the_least_recently_used_idle_model_goes_and_a_busy_one_never(
    checkpoint: Path, tmp_path: Path
) -> None:
    sources = presets(tmp_path / "models.ini", checkpoint, a="", b="", c="")
    with running(sources, CapacitySettings(models_max=2)) as fleet:
        fleet.want("a")
        fleet.want("b")
        fleet.choose("a", "later")  # so that b is the one not used for longest
        fleet.want("c")
        assert [fleet.state(name) for name in "abc"] == ["ready", "unloaded", "ready"]
        with fleet.stream("a", "on-a"), Recorder(fleet, "a") as recorder:
            fleet.choose("c", "elsewhere")
            fleet.want("b")
            assert [fleet.state(name) for name in "abc"] == ["ready", "ready", "unloaded"]
            with fleet.stream("b", "on-b"):
                refused = fleet.call("load", "c")
                assert refused is not None
                assert refused.kind is ErrorKind.OVERLOADED
                waiting = fleet.router.ensure_loaded.remote("c", "me", 60.0)
                fleet.until(lambda: fleet.models()["c"].message == WAITS, "c waits")
                waiting.cancel()
                fleet.until(lambda: not fleet.models()["c"].message, "who left waits not", 30)
        assert recorder.states == [ModelState.READY]


def test_a_model_that_fails_says_why_and_holds_nothing(checkpoint: Path, tmp_path: Path) -> None:
    broken = Path(shutil.copytree(checkpoint, tmp_path / "broken"))
    (broken / "model.safetensors").unlink()
    with running(alone(broken), CapacitySettings(models_max=1)) as fleet:
        failed = fleet.want("a")
        assert isinstance(failed, ModelStatus)
        assert failed.state is ModelState.FAILED
        assert "model.safetensors" in failed.message
        again = fleet.want("a")
        assert again == failed
        fleet.until(lambda: not fleet.replicas("a"), "nothing is left of it")
        assert fleet.count("manta_router_load_failures", "a") == 1
        unknown = fleet.want("b")
        assert isinstance(unknown, RequestError)
        assert unknown.kind is ErrorKind.MODEL_NOT_FOUND
        assert unknown.param == "model"


def test_a_model_fails_when_its_lost_replica_has_no_successor(
    checkpoint: Path, tmp_path: Path
) -> None:
    own = Path(shutil.copytree(checkpoint, tmp_path / "own"))
    with running(alone(own)) as fleet:
        fleet.want("a")
        away = own.rename(tmp_path / "away")
        (replica,) = fleet.replicas("a")
        actor = f"SERVE_REPLICA::{application_name('a')}#{MODEL_DEPLOYMENT}#{replica}"
        ray.kill(ray.get_actor(actor, namespace="serve"), no_restart=True)
        fleet.until_state("a", ModelState.FAILED, 3 * PATIENCE_S)
        assert str(own) in fleet.models()["a"].message
        fleet.until(lambda: not read_applications(), "nothing is left of it")
        away.rename(own)
        fleet.until(lambda: is_up(fleet.want("a")), "it is loaded again")


def is_up(answer: ModelStatus | RequestError) -> bool:
    return isinstance(answer, ModelStatus) and answer.state is ModelState.READY


def test_a_load_is_cancelled_by_an_unload(checkpoint: Path) -> None:
    with running(alone(checkpoint)) as fleet, Recorder(fleet, "a") as recorder:
        waiting = fleet.router.ensure_loaded.remote("a", "me", 60.0)
        fleet.until_state("a", ModelState.LOADING)
        assert fleet.call("unload", "a") is None
        answer = waiting.result(timeout_s=60)
        assert isinstance(answer, RequestError)
        assert answer.kind is ErrorKind.UNAVAILABLE
        fleet.until_state("a", ModelState.UNLOADED)
        assert fleet.choose("a", "r").unloads == 1
        late = fleet.router.ensure_loaded.remote("a", "me", 0.0, 0).result(timeout_s=60)
        assert late == answer
        assert fleet.state("a") is ModelState.UNLOADED
    assert ModelState.READY not in recorder.states


def test_an_edited_preset_touches_only_what_it_changes_and_the_next_router_finds_what_runs(
    checkpoint: Path, tmp_path: Path
) -> None:
    file = tmp_path / "models.ini"
    sources = presets(file, checkpoint, a="", b="", gone="")
    with running(sources) as fleet:
        for name in ("a", "b"):
            fleet.want(name)
        before = {name: fleet.replicas(name) for name in "ab"}
        presets(file, checkpoint, a=TWO, b="", new="")
        fleet.until(lambda: "gone" not in fleet.models(), "a model that no section names is gone")
        fleet.until(lambda: len(fleet.replicas("a")) == 2, "a has another replica")
        assert before["a"] < fleet.replicas("a")
        assert before["b"] == fleet.replicas("b")
        assert fleet.state("new") is ModelState.UNLOADED
        file.write_text("[a]\nnum-cpuz = 1\n")
        refused = fleet.call("reload")
        assert refused is not None
        assert refused.kind is ErrorKind.INVALID_REQUEST
        assert f"{file}:2" in refused.message
        assert list(fleet.models()) == ["a", "b", "new"]
        presets(file, checkpoint, a=TWO, b="", new="")
        _replace_router(fleet, presets(tmp_path / "others.ini", checkpoint, a=TWO, c=""))


def _replace_router(fleet: Fleet, others: Sources) -> None:
    """First by another one with the same models, while `new` loads; then by one of `others`."""
    replicas = fleet.replicas("a")
    fleet.call("load", "new")
    fleet.until(lambda: "model-new" in read_applications(), "Serve knows of the load")
    fleet.kill_router()
    assert fleet.state("a") is ModelState.READY
    assert fleet.state("new") in (ModelState.LOADING, ModelState.READY)
    fleet.until_state("new", ModelState.READY)
    fleet.until(lambda: fleet.choose("a", "r").replica_id in replicas, "a reports again")
    assert fleet.replicas("a") == replicas
    assert fleet.count("manta_router_loads", "new") == 0
    deploy_router(others)
    fleet.until(lambda: list(fleet.models()) == ["a", "c"], "the router has other models")
    fleet.until(lambda: not fleet.replicas("new"), "what it has no section of is gone")
    assert fleet.replicas("a") == replicas


def test_a_router_that_ends_leaves_the_models_of_the_next_one_alone(checkpoint: Path) -> None:
    with running(alone(checkpoint, "a")) as fleet:
        version, _ = fleet.router.changes.remote(0, 1.0).result(timeout_s=60)
        watching = fleet.router.changes.remote(version, 8.0)  # which keeps it from ending
        deploy_router(alone(checkpoint, "b"), wait=False)
        fleet.until(lambda: list(fleet.models()) == ["b"], "the next router answers")
        fleet.want("b")
        watching.result(timeout_s=60)
        assert fleet.state("b") is ModelState.READY
        assert fleet.count("manta_router_loads", "b") == 1
