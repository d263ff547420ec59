"""Adapters of presets and of clients: names, ids, scales, folders, what a successor knows."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.contract.errors import ErrorKind, RequestError
from deployments.engine.limits import EngineLimits
from deployments.router.lifecycle.adapter_commands import OFF, AdapterCommands
from deployments.router.lifecycle.adapter_set import AdapterSet
from deployments.router.lifecycle.capacity import Resources
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.router.lifecycle.registry import Registry
from deployments.router.settings import AdapterSettings, NamedAdapter, Preset, RoutingSettings
from tests.adapter_files import save_small_adapter
from tests.router.lifecycle.entries import preset


def named(name: str, scale: float = 1.0) -> NamedAdapter:
    return NamedAdapter(name=name, path=f"/{name}", digest=name.encode(), rank=4, scale=scale)


def with_adapters(model: str, *names: str) -> Preset:
    settings = replace(preset(model).settings, limits=EngineLimits(max_loras=2, max_lora_rank=8))
    return Preset(settings=settings, served_adapters=tuple(map(named, names)))


def ids(adapters: AdapterSet) -> dict[str, int]:
    return {adapter.name: adapter.id for adapter in adapters.table.adapters}


class Notes:
    """Keeps what JSON can keep, as the cluster's memory does."""

    def __init__(self) -> None:
        self.kept: str | None = None

    def remember(self, value: Mapping[str, object]) -> None:
        self.kept = json.dumps(value)

    def recall(self) -> object:
        return None if self.kept is None else json.loads(self.kept)


class Router:
    """Two models that take adapters, `a` with its `own`, and a folder of more."""

    def __init__(self, folder: Path | None, notes: Notes | None = None, limit: int = 2) -> None:
        self.registry = Registry(RoutingSettings())
        self.take(with_adapters("a", "own"), with_adapters("b"))
        self.changed: list[str] = []
        self.notes = notes or Notes()
        settings = None if folder is None else AdapterSettings(folder=str(folder), max_loaded=limit)
        self.commands = AdapterCommands(settings, self.registry, self._changed, self.notes)

    def take(self, *presets: Preset) -> None:
        self.registry.take([(offer, Resources()) for offer in presets])

    def _changed(self, entry: ModelEntry) -> None:
        self.changed.append(entry.name)

    def load(
        self, name: str, path: str, model: str | None = "a", replaces: bool = False
    ) -> RequestError | None:
        return asyncio.run(self.commands.load(name, path, model, replaces))

    def unload(self, name: str) -> RequestError | None:
        return asyncio.run(self.commands.unload(name))

    def names(self, model: str = "a") -> list[str]:
        return [adapter.name for adapter in self.registry[model].adapters.table.adapters]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_small_adapter(tmp_path / "adapters" / "one", seed=1)
    save_small_adapter(tmp_path / "adapters" / "two", seed=2)
    save_small_adapter(tmp_path / "outside", seed=3)
    return tmp_path / "adapters"


def test_an_id_stays_with_its_name_and_is_never_another_ones() -> None:
    adapters = AdapterSet()
    adapters.take([named("a"), named("b")])
    adapters.load(named("c"))
    assert ids(adapters) == {"a": 0, "b": 1, "c": 2}
    adapters.unload("c")
    adapters.take([named("b"), named("d")])
    adapters.load(named("e"))
    assert ids(adapters) == {"b": 1, "d": 3, "e": 4}


def test_default_scales_are_of_the_adapters_named_and_0_of_all_others() -> None:
    adapters = AdapterSet()
    adapters.take([named("a", scale=3.0), named("b")])
    adapters.set_defaults({0: 0.5, 1: 0.0})
    assert [(adapter.scale, adapter.default_scale) for adapter in adapters.table.adapters] == [
        (3, 0.5),
        (1, 0),
    ]
    before = adapters.table.version
    adapters.set_defaults({})
    assert [adapter.default_scale for adapter in adapters.table.adapters] == [0, 0]
    assert adapters.table.version != before


def test_adapters_are_found_by_their_names_beside_those_of_models() -> None:
    registry = Router(None).registry
    for name in ("own", "a:own"):
        found = registry.find_for_request(name)
        assert found is not None
        assert found.name == "a"
        assert registry.find(name) is None  # an adapter's name unloads no model
    assert registry.find_for_request("b:own") is None


def test_an_adapter_is_loaded_and_unloaded_and_everybody_hears_of_it(folder: Path) -> None:
    router = Router(folder)
    assert router.load("x", "one") is None
    assert router.load("y", str(folder / "two"), model="b") is None
    assert (router.names("a"), router.names("b")) == (["own", "x"], ["y"])
    assert router.unload("x") is None
    assert router.names("a") == ["own"]
    assert router.changed == ["a", "b", "a"]
    gone = router.unload("x")
    assert gone is not None
    assert (gone.kind, "'x'" in gone.message) == (ErrorKind.MODEL_NOT_FOUND, True)


def test_an_adapter_is_replaced_where_that_is_asked_for_alone(folder: Path) -> None:
    router = Router(folder)
    router.load("x", "one")
    before = router.registry["a"].adapters.table.adapters[1]
    refusal = router.load("x", "two")
    assert refusal is not None
    assert refusal.param == "lora_name"
    assert router.load("x", "two", replaces=True) is None
    after = router.registry["a"].adapters.table.adapters[1]
    assert after.id == before.id
    assert after.digest != before.digest


@pytest.mark.parametrize(
    "path",
    ["..", "../outside", "/", "/etc", "../adapters/../outside", "link", "files", "\0", "x" * 5000],
)
def test_nothing_outside_the_folder_is_read(folder: Path, path: str) -> None:
    (folder / "link").symlink_to(folder.parent / "outside")
    (folder / "files").mkdir()
    for file in ("adapter_config.json", "adapter_model.safetensors"):
        (folder / "files" / file).symlink_to(folder.parent / "outside" / file)
    refusal = Router(folder).load("x", path)
    assert refusal is not None
    assert (refusal.kind, refusal.param) == (ErrorKind.INVALID_REQUEST, "lora_path")


def test_links_within_the_folder_are_followed(folder: Path) -> None:
    (folder / "link").symlink_to(folder / "one")
    assert Router(folder).load("x", "link") is None


@pytest.mark.parametrize(
    ("name", "model", "param"),
    [
        ("a", "a", "lora_name"),  # a model
        ("own", "b", "lora_name"),  # another one's adapter
        ("x:y", "a", "lora_name"),
        ("x y", "a", "lora_name"),
        ("x", None, "base_model_name"),  # there are two
        ("x", "c", "base_model_name"),
        ("x", "own", "base_model_name"),
    ],
)
def test_a_name_shadows_nothing(folder: Path, name: str, model: str | None, param: str) -> None:
    refusal = Router(folder).load(name, "one", model)
    assert refusal is not None
    assert refusal.param == param


def test_a_model_gets_no_adapter_that_it_has_no_room_for(folder: Path) -> None:
    router = Router(folder)
    save_small_adapter(folder / "large", rank=9)
    refusal = router.load("x", "large")
    assert refusal is not None
    assert (refusal.param, "max-lora-rank" in refusal.message) == ("lora_path", True)
    router.take(preset("a"))
    refusal = router.load("x", "one")
    assert refusal is not None
    assert "max-loras" in refusal.message


def test_no_more_are_loaded_than_the_operator_allows(folder: Path) -> None:
    router = Router(folder, limit=1)
    router.load("x", "one")
    refusal = router.load("y", "two")
    assert refusal is not None
    assert refusal.kind is ErrorKind.OVERLOADED
    assert router.load("x", "two", replaces=True) is None


def test_without_a_folder_nothing_is_loaded_or_unloaded(folder: Path) -> None:
    router = Router(None)
    assert (router.load("x", "one"), router.unload("own")) == (OFF, OFF)


def test_what_the_presets_have_is_not_unloaded(folder: Path) -> None:
    refusal = Router(folder).unload("own")
    assert refusal is not None
    assert refusal.kind is ErrorKind.INVALID_REQUEST


def test_a_presets_file_takes_a_name_from_what_was_loaded(folder: Path) -> None:
    router = Router(folder)
    router.load("x", "one")
    router.load("y", "two")
    router.take(with_adapters("a", "own"), with_adapters("b", "x"), preset("y"))
    assert (router.names("a"), router.names("b")) == (["own"], ["x"])


def test_a_successor_knows_what_was_loaded_and_set(folder: Path) -> None:
    first = Router(folder)
    first.load("x", "one")
    first.load("y", "two")
    first.unload("x")
    asyncio.run(first.commands.scale(first.registry["a"], [(0, 0.5), (2, 2.0)]))
    second = Router(folder, first.notes)
    asyncio.run(second.commands.restore())
    assert second.registry["a"].adapters.table == first.registry["a"].adapters.table
    second.load("z", "one")
    assert ids(second.registry["a"].adapters) == {"own": 0, "y": 2, "z": 3}


def test_a_successor_with_another_folder_forgets_what_is_not_in_it(folder: Path) -> None:
    first = Router(folder)
    first.load("x", "one")
    for successor in (Router(folder / "two", first.notes), Router(None, first.notes)):
        asyncio.run(successor.commands.restore())
        assert successor.names("a") == ["own"]


def test_a_scale_of_no_adapter_is_refused(folder: Path) -> None:
    router = Router(folder)
    refusal = asyncio.run(router.commands.scale(router.registry["a"], [(0, 1.0), (7, 1.0)]))
    assert refusal is not None
    assert refusal.param == "[1].id"
    assert router.registry["a"].adapters.table.adapters[0].default_scale == 0


def test_scales_are_refused_with_which_every_plain_request_would_be(folder: Path) -> None:
    router = Router(folder)
    save_small_adapter(folder / "wide", rank=6)
    router.load("x", "one")
    router.load("y", "two")
    both, all_three = [(0, 1.0), (1, 1.0)], [(0, 1.0), (1, 1.0), (2, 1.0)]
    refusal = asyncio.run(router.commands.scale(router.registry["a"], all_three))
    assert refusal is not None
    assert "rank 12 together, and `max-lora-rank` is 8" in refusal.message
    assert asyncio.run(router.commands.scale(router.registry["a"], both)) is None
    refusal = router.load("x", "wide", replaces=True)
    assert refusal is not None
    assert refusal.param == "lora_path"
    assert router.load("y", "wide", replaces=True) is None
