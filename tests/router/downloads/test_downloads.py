"""Models come from a hub: whole or not at all, safe files alone, within what the operator set."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.model_status import ModelState
from deployments.router.downloads.downloads import MAX_AT_ONCE, PARTIAL, Downloads
from deployments.router.downloads.fetch import FetchError, wanted_files
from deployments.router.lifecycle.change_feed import ChangeFeed
from deployments.router.presets.hub_names import refuse_name
from deployments.router.presets.sources import Sources
from deployments.router.settings import DownloadSettings
from tests.router.downloads.hub import Hub, serving

WEIGHTS = bytes(range(256)) * 4096
WHOLE = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "modeling_own.py": b"code",
    "README.md": b"",
}
PACKED = {
    "config.json": b"{}",
    "mmproj-F16.gguf": b"p",
    "m-Q4_K_M.gguf": WEIGHTS[:999],
    "m-Q6_K-00001-of-00002.gguf": b"half",
    "Q8_0/m-Q8_0-00001-of-00002.gguf": WEIGHTS[:1000],
    "Q8_0/m-Q8_0-00002-of-00002.gguf": WEIGHTS[:500],
}
MODELS = {
    "org/whole": WHOLE,
    "org/pickled": {"config.json": b"{}", "pytorch_model.bin": b"p"},
    "org/packed": PACKED,
}


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving(Hub(MODELS)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield hub


class Folder:
    """The downloads of a router that lists what is there."""

    def __init__(self, path: Path, max_gib: float = 1.0) -> None:
        self.path = path
        self.changes = ChangeFeed()
        settings = DownloadSettings(folder=str(path), max_gib=max_gib)
        self.downloads = Downloads(settings, self.changes, self.reload)
        self.refusal: RequestError | None = None

    async def reload(self) -> RequestError | None:
        return self.refusal

    @property
    def listed(self) -> dict[str, str]:
        """Names of models and their paths, as the sources of a router that starts now have them."""
        if not any([*self.path.glob("*/config.json"), *self.path.glob("*/*.gguf")]):
            return {}
        presets = Sources(downloads=str(self.path)).read()
        assert {preset.source for preset in presets} == {"download"}
        return {preset.settings.name: preset.settings.path for preset in presets}

    @property
    def states(self) -> dict[str, ModelState]:
        return {status.name: status.state for status in self.downloads.statuses}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                await self.changes.wait(self.changes.version, 0.05)

    async def settled(self) -> None:
        """Waits until no download runs, and nothing of one is left."""
        left = self.path / PARTIAL
        await self.until(lambda: ModelState.DOWNLOADING not in self.states.values())
        await self.until(lambda: not left.exists() or not any(left.iterdir()))


def play(folder: Folder, story: Callable[[Folder], Awaitable[None]]) -> None:
    async def run() -> None:
        await folder.downloads.clean()
        await story(folder)

    asyncio.run(run())


def test_a_model_is_there_when_all_of_it_is_and_goes_when_it_is_deleted(
    hub: Hub, tmp_path: Path
) -> None:
    async def story(folder: Folder) -> None:
        hub.halting = "model.safetensors"
        assert folder.downloads.start("org/whole", "main") is None
        assert folder.downloads.start("org/whole", None) is not None  # once at a time
        await folder.until(lambda: _progress(folder) > 0)
        assert folder.listed == {}
        hub.go_on.set()
        await folder.settled()
        [(name, path)] = folder.listed.items()
        assert name == "org/whole"
        files = {file.name: file.read_bytes() for file in await asyncio.to_thread(_within, path)}
        assert files == {
            name: WHOLE[name] for name in ("config.json", "tokenizer.json", "model.safetensors")
        }
        assert folder.states == {}
        await folder.downloads.delete(path)
        assert folder.listed == {}
        assert not any((tmp_path / PARTIAL).iterdir())

    play(Folder(tmp_path), story)


@pytest.mark.parametrize(
    ("model", "names"),
    [
        ("org/packed", ["m-Q4_K_M.gguf"]),
        ("org/packed:q4_k_m", ["m-Q4_K_M.gguf"]),
        ("org/packed:m-Q4_K_M.gguf", ["m-Q4_K_M.gguf"]),
        ("org/packed:Q8_0", [f"Q8_0/m-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]),
    ],
)
def test_of_gguf_files_the_chosen_one_comes_and_nothing_beside_it(
    hub: Hub, tmp_path: Path, model: str, names: list[str]
) -> None:
    async def story(folder: Folder) -> None:
        hub.halting = names[0]
        assert folder.downloads.start(model, None) is None
        await folder.until(lambda: _progress(folder) > 0)
        hub.go_on.set()
        await folder.settled()
        [(name, path)] = folder.listed.items()
        assert name == model
        files = {
            file.name: file.read_bytes()
            for file in await asyncio.to_thread(_within, str(Path(path).parent))
        }
        assert files == {Path(name).name: PACKED[name] for name in names}
        assert Path(path).name == Path(names[0]).name
        await folder.downloads.delete(path)
        assert folder.listed == {}
        assert not any((tmp_path / PARTIAL).iterdir())

    play(Folder(tmp_path), story)


def _within(path: str) -> list[Path]:
    return list(Path(path).iterdir())


def _progress(folder: Folder) -> float:
    progress = [status.progress for status in folder.downloads.statuses]
    return sum(entry.value for entry in progress if entry is not None)


def test_a_cancelled_download_leaves_nothing(hub: Hub, tmp_path: Path) -> None:
    async def story(folder: Folder) -> None:
        hub.halting = "model.safetensors"
        assert folder.downloads.start("org/whole", None) is None
        await folder.until(lambda: _progress(folder) > 0)
        assert folder.downloads.cancel("org/whole")
        assert not folder.downloads.cancel("org/whole")
        await folder.settled()
        assert (folder.states, folder.listed) == ({}, {})

    play(Folder(tmp_path), story)


@pytest.mark.parametrize(("model", "revision", "max_gib", "why"), [
    ("org/nowhere", None, 1.0, "the hub has no such model"),
    ("org/whole", "gone", 1.0, "the hub has no revision 'gone'"),
    ("org/pickled", None, 1.0, "it has no weights as safetensors"),
    ("org/packed:Q5_0", None, 1.0, "it has no GGUF model Q5_0; it has Q8_0/m-Q8_0-00001"),
    ("org/packed:Q6_K", None, 1.0, "it has no GGUF model Q6_K"),
    ("org/packed:mmproj-F16.gguf", None, 1.0, "it has no GGUF model mmproj-F16.gguf"),
    ("org/whole:Q4_0", None, 1.0, "it has no GGUF model Q4_0"),
    ("org/whole", None, 0.0001, "downloads_max_gib leaves 0.0 GiB"),
])  # fmt: skip
def test_what_can_not_be_downloaded_says_why(
    hub: Hub, tmp_path: Path, model: str, revision: str | None, max_gib: float, why: str
) -> None:
    async def story(folder: Folder) -> None:
        assert folder.downloads.start(model, revision) is None
        await folder.settled()
        [status] = folder.downloads.statuses
        assert status.state is ModelState.FAILED
        assert why in status.message
        assert folder.listed == {}

    play(Folder(tmp_path, max_gib), story)


def test_few_models_are_downloaded_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")

    async def story(folder: Folder) -> None:
        answers = [folder.downloads.start(f"org/m{n}", None) for n in range(MAX_AT_ONCE + 1)]
        assert answers[:-1] == [None] * MAX_AT_ONCE
        assert answers[-1] is not None
        assert answers[-1].kind is ErrorKind.OVERLOADED
        for n in range(MAX_AT_ONCE):
            folder.downloads.cancel(f"org/m{n}")
        await folder.settled()

    play(Folder(tmp_path), story)


def test_a_router_that_starts_removes_what_is_not_whole(tmp_path: Path) -> None:
    for name in (f"{PARTIAL}/org--half-1", "org--whole", "mine"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")

    async def story(folder: Folder) -> None:
        assert set(folder.listed) == {"org/whole"}

    play(Folder(tmp_path), story)
    assert not (tmp_path / PARTIAL).exists()
    assert (tmp_path / "mine").exists()  # not a name of ours


@pytest.mark.parametrize("model", [
    "name", "a/b/c", "/a", "a/", "../b", "a/..", "a/.b", "a/b--c", "a\\b/c", "a/b:",
    "a/b:../c.gguf", "a/b:/c.gguf", "a/b:c:d", "a/b:c--d", "a/b:" + "c" * 200,
    "a/b\n", "", "a" * 97 + "/b",
])  # fmt: skip
def test_no_path_is_a_name(model: str) -> None:
    refusal = refuse_name(model, None)
    assert refusal is not None
    assert refusal.param == "model"


def test_names_of_the_hub_are_names() -> None:
    for model in ("Qwen/Qwen3-0.6B", "org/a_b.c-d", "a/b", "a/b:Q4_K_M", "a/b:c/d-1.gguf"):
        assert refuse_name(model, "refs/pr/1") is None
    for revision in ("", "../x", "-x", "a b"):
        assert refuse_name("a/b", revision) is not None


def test_only_weights_and_text_are_wanted() -> None:
    names = [
        "config.json",
        "model-00001-of-00002.safetensors",
        "consolidated.safetensors",
        "merges.txt",
        "tokenizer.model",
        "chat_template.jinja",
    ]
    unsafe = ["a.py", "x.bin", "x.pt", "x.pkl", ".env", "notes.txt", "../config.json", "sub/a.json"]
    found = wanted_files(dict.fromkeys([*names, *unsafe], 1))
    assert found.keys() == set(names) - {"consolidated.safetensors"}
    for lacks in ("config.json", "x.safetensors"):
        with pytest.raises(FetchError):
            wanted_files({name: 1 for name in ("config.json", "x.safetensors") if name != lacks})
