"""The router's arguments in `serve.yaml`: its models, their options, how much of them at once."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from deployments.contract.outputs import ModelTask, Pooling
from deployments.engine.limits import EngineLimits
from deployments.model.settings import Autoscaling, MergedAdapter, ModelSettings, SamplingDefaults
from deployments.router.presets.ini_file import PresetError
from deployments.router.presets.option_types import ServedAdapterOptions
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.served_adapters import read_adapter
from deployments.router.settings import (
    AdapterSettings,
    CapacitySettings,
    Preset,
    RoutingSettings,
)
from serve_app.router_arguments import (
    DEMO_MODEL,
    DEMO_STARTERS,
    SEEING_DEMO_KV_GIB,
    SEEING_DEMO_MODEL,
    RouterArguments,
    RoutingArguments,
)
from tests.adapter_files import save_small_adapter

SEEING = ModelSettings(
    name="manta-demo-vision",
    path=str(SEEING_DEMO_MODEL),
    limits=EngineLimits(kv_gib=SEEING_DEMO_KV_GIB),
)
# For each option of a model, a value that is not its default.
SAID: dict[str, Any] = {
    "aliases": ["a", "b"],
    "tags": ["t"],
    "starters": ["Who?"],
    "load_on_startup": False,
    "pinned": False,
    "stop_timeout_s": 3.0,
    "sleep_idle_s": 4.0,
    "autoscaling": {"min_replicas": 0, "max_replicas": 5, "target_usage": 0.5},
    "num_cpus": 2.0,
    "num_gpus": 0.75,
    "dtype": "float16",
    "dialect": "hermes",
    "parse_special_in_messages": True,
    "unseen_media": "describe",
}
# Of which one model can't have all.
LIMITS_ALONE: dict[str, Any] = {"max_loras": 6, "draft_min": 2, "draft_p_min": 0.25}
ALONE: dict[str, Any] = {
    "quantization": "int8",
    "sleep_weights": "host",
    "draft_model": "owner/draft",
    "task": ModelTask.EMBED,
    "pooling": Pooling.MEAN,
}
SHARED: dict[str, Any] = {"tensor_parallel": 2}
HEADED: dict[str, Any] = {"spec_type": "mtp"}
ON_A_CPU: dict[str, Any] = {
    "cache_disk": "/kept",
    "pull_prefixes": True,
    "slot_save_path": "/slots",
}
LIMITS: dict[str, Any] = {
    "page_size": 8,
    "n_pages": 100,
    "kv_gib": 2.5,
    "kv_dtype": "fp8",
    "gpu_memory_utilization": 0.5,
    "ctx_checkpoints": 7,
    "ctx_checkpoints_mib": -1,
    "checkpoint_min_step": 256,
    "cache_disk_mib": 77,
    "cache_disk_write_mib": 5,
    "slot_save_mib": 9,
    "context_length": 512,
    "max_running": 3,
    "max_batch_tokens": 64,
    "target_itl_ms": 75.0,
    "max_waiting": 5,
    "max_stuck_s": 9.0,
    "async_scheduling": False,
    "draft_tokens": 4,
    "max_lora_rank": 64,
    "lora_cache_mib": 99,
    "media_cache_mib": 33,
}
SAMPLING: dict[str, Any] = {
    "temperature": 0.5,
    "top_k": 9,
    "top_p": 0.75,
    "min_p": 0.125,
    "typical_p": 0.25,
    "repetition_penalty": 1.5,
    "presence_penalty": -1.0,
    "frequency_penalty": 0.5,
}


def models(**said: object) -> list[Preset]:
    return RouterArguments.model_validate(said).checked_sources().read()


def directory(path: Path, file: str = "config.json") -> Path:
    path.mkdir(parents=True)
    (path / file).write_text("{}")
    return path


def test_without_arguments_the_demo_model_is_served_with_the_engines_own_limits() -> None:
    settings = ModelSettings(name="manta-demo", path=str(DEMO_MODEL))
    assert models() == [
        Preset(settings=settings, load_on_startup=True, pinned=True, starters=DEMO_STARTERS),
        Preset(settings=SEEING, source="demo"),
    ]
    assert models(model=None) == models()


def test_the_demo_model_can_have_options_and_another_name() -> None:
    found, seeing = models(name="x", num_replicas=2, aliases=["y"], page_size=8, task="embed")
    assert found.settings == ModelSettings(
        name="x",
        path=str(DEMO_MODEL),
        num_replicas=2,
        limits=EngineLimits(page_size=8),
        task=ModelTask.EMBED,
    )
    assert found.aliases == ("y",)
    assert seeing.settings == SEEING
    assert len(models(aliases=["manta-demo-vision"])) == 1


@pytest.mark.parametrize("said", [ALONE, SHARED, HEADED])
def test_every_option_of_a_model_can_be_an_argument(tmp_path: Path, said: dict[str, Any]) -> None:
    adapters = [str(directory(tmp_path / name, "adapter_config.json")) for name in "ab"]
    limits = LIMITS | (LIMITS_ALONE if said is ALONE else {})
    listed = [adapters[0], {"path": adapters[1], "scale": 0.5}]
    chosen = save_small_adapter(tmp_path / "c")
    served = read_adapter(ServedAdapterOptions(name="polite", path=str(chosen), scale=0.5))
    modules = [f"polite={chosen}:0.5"] if said is ALONE else []
    (found,) = models(
        model="owner/name",
        adapters=listed,
        lora_modules=modules,
        **SAID,
        **limits,
        **SAMPLING,
        **said,
    )
    settings = ModelSettings(
        name="owner/name",
        path="owner/name",
        autoscaling=Autoscaling(min_replicas=0, max_replicas=5, target_usage=0.5),
        num_cpus=2.0,
        num_gpus=0.75,
        dtype="float16",
        dialect="hermes",
        parse_special_in_messages=True,
        unseen_media="describe",
        adapters=(MergedAdapter(path=adapters[0]), MergedAdapter(path=adapters[1], scale=0.5)),
        sampling=SamplingDefaults(**SAMPLING),
        sleep_idle_s=4.0,
        stop_timeout_s=3.0,
        limits=EngineLimits(**limits),
    )
    settings = replace(settings, **said)
    assert found == Preset(
        settings=settings,
        aliases=("a", "b"),
        tags=("t",),
        starters=("Who?",),
        served_adapters=(served,) if said is ALONE else (),
    )
    tried = {"model", "adapters", "lora_modules", "num_replicas"}.union(
        SAID, LIMITS, LIMITS_ALONE, SAMPLING, ALONE, SHARED, HEADED, ON_A_CPU
    )
    (on_a_cpu,) = models(model="owner/name", **ON_A_CPU)
    assert on_a_cpu.settings.limits == EngineLimits(**ON_A_CPU)
    assert tried == set(ModelOptions.model_fields)


def test_the_defaults_are_those_of_the_settings() -> None:
    settings = ModelOptions(model="owner/name").preset("x", source="preset").settings
    assert settings == ModelSettings(name="x", path="owner/name")
    arguments = RouterArguments()
    assert arguments.capacity_settings() == CapacitySettings()
    assert arguments.routing_settings() == RoutingSettings()


def test_everything_of_capacity_and_routing_can_be_set() -> None:
    capacity: dict[str, Any] = {
        "models_max": 0,
        "cpu_memory_gib": 1.5,
        "gpu_memory_gib": 2.5,
        "grows": True,
        "autoload": False,
        "load_timeout_s": 3.5,
    }
    costs = [f.name for f in fields(RoutingSettings) if f.name != "any_model_name"]
    routing: dict[str, Any] = {name: n + 10 for n, name in enumerate(costs)}
    names: dict[str, Any] = {"any_model_name": True}
    arguments = RouterArguments.model_validate({**capacity, **names, "routing": routing})
    assert arguments.capacity_settings() == CapacitySettings(**capacity)
    assert arguments.routing_settings() == RoutingSettings(**routing, **names)
    assert capacity.keys() == {f.name for f in fields(CapacitySettings)}
    assert RoutingArguments.model_fields.keys() == routing.keys()


def test_a_directory_is_known_by_its_name_and_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory(tmp_path / "small")
    monkeypatch.chdir(tmp_path)
    settings = models(model="small")[0].settings
    assert (settings.name, settings.path) == ("small", str(tmp_path / "small"))


def test_a_hub_id_is_its_own_name() -> None:
    settings = models(model="Qwen/Qwen3-0.6B")[0].settings
    assert (settings.name, settings.path) == ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B")
    assert settings.application == "model-Qwen_Qwen3-0.6B"


def test_files_and_folders_are_found_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory(tmp_path / "models" / "b")
    (tmp_path / "a.ini").write_text("[a]\nmodel = models/b\n")
    monkeypatch.chdir(tmp_path)
    sources = RouterArguments(presets="a.ini", models_dir="models", num_cpus=2).sources()
    monkeypatch.chdir("/")
    found = sources.read()
    assert [preset.settings.name for preset in found] == ["a", "b"]
    assert {preset.settings.num_cpus for preset in found} == {2}
    assert not any(preset.pinned or preset.load_on_startup for preset in found)


def test_a_model_beside_a_file_is_the_first_of_all(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("[a]\nmodel = owner/a\n")
    found = models(model="owner/b", presets=str(tmp_path / "a.ini"), aliases=["b"], kv_gib=2)
    assert [(preset.settings.name, preset.aliases, preset.pinned) for preset in found] == [
        ("owner/b", ("b",), True),
        ("a", (), False),
    ]
    assert {preset.settings.limits.kv_gib for preset in found} == {2}


@pytest.mark.parametrize(
    "said", [{"name": "x"}, {"aliases": ["x"]}, {"tags": ["x"]}, {"adapters": ["x"]}]
)
def test_what_one_model_alone_can_have_needs_that_model(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    directory(tmp_path / "models" / "b")
    with pytest.raises(PresetError, match=f"{next(iter(said))}: it is of one model"):
        models(models_dir=str(tmp_path / "models"), **said)


def test_more_models_on_start_up_than_may_be_loaded_are_an_error(tmp_path: Path) -> None:
    for name in "abc":
        directory(tmp_path / name)
    said = {"models_dir": str(tmp_path), "load_on_startup": True}
    with pytest.raises(PresetError, match=r"3 models .* models_max is 2"):
        models(models_max=2, **said)
    assert len(models(models_max=3, **said)) == len(models(models_max=0, **said)) == 3


@pytest.mark.parametrize("model", ["./nowhere", "/nowhere", "~/nowhere", "a/b/c"])
def test_a_directory_that_is_not_there_is_an_error(model: str) -> None:
    with pytest.raises(ValueError, match="there is no directory"):
        models(model=model)


def test_a_directory_without_a_model_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config\.json"):
        models(model=str(tmp_path))


def test_a_mistake_in_the_file_is_an_error_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "a.ini").write_text("[a]\nmodel = owner/a\nctx-sise = 3\n")
    with pytest.raises(PresetError, match=r"a\.ini:3: unknown key ctx-sise; did you mean ctx-size"):
        models(presets=str(tmp_path / "a.ini"))


@pytest.mark.parametrize(
    "arguments",
    [
        {"modell": "x"},
        {"num_replicas": 0},
        {"dtype": "int3"},
        {"quantization": "int3"},
        {"kv_dtype": "fp16"},
        {"gpu_memory_utilization": 1.5},
        {"page_size": -1},
        {"kv_gib": float("inf")},
        {"models_max": -1},
        {"load_timeout_s": 0},
        {"autoscaling": {"replicas": 1}},
        {"adapters": [{"file": "x"}]},
        {"routing": {"wait": 1}},
        {"routing": {"temperature": -1}},
        {"presets": ""},
        {"models_dir": ""},
        {"name": ""},
        {"aliases": ["a\n"]},
    ],
)
def test_a_setting_that_is_unknown_or_out_of_range_is_an_error(
    arguments: dict[str, object],
) -> None:
    with pytest.raises(ValidationError, match=next(iter(arguments))):
        RouterArguments.model_validate(arguments)


@pytest.mark.parametrize(
    ("arguments", "help"),
    [
        ({"modle": "x"}, r"unknown setting modle; did you mean model\?"),
        ({"ctx-size": 9}, r"unknown setting ctx-size; did you mean context_length\?"),
        ({"autoscaling": {"replicas_max": 2}}, r"unknown setting replicas_max"),
        ({"max-replicas": 2}, r"did you mean autoscaling: \{max_replicas\}\?"),
        ({"balanse": 2}, r"did you mean routing: \{balance\}\?"),
        ({"zzz": 1}, r"unknown setting zzz \["),
        ({"aliases": "gpt"}, "aliases: must be a list"),
        ({"adapters": "/a"}, "adapters: must be a list"),
    ],
)
def test_a_setting_that_is_said_wrongly_is_told_of_the_right_one(
    arguments: dict[str, object], help: str
) -> None:
    with pytest.raises(ValidationError, match=help):
        RouterArguments.model_validate(arguments)


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        ("https://huggingface.co/Qwen/Qwen3-0.6B", "OWNER/NAME is how a model of the hub is named"),
        ("qwen3:8b", "OWNER/NAME:TAG is how a GGUF file of the hub is named"),
        ('"Qwen/Qwen3-0.6B"', "a value has no quotes around it"),
    ],
)
def test_a_model_that_is_named_as_elsewhere_is_told_how_here(model: str, hint: str) -> None:
    with pytest.raises(ValueError, match=f"there is no directory .*; {hint}"):
        models(model=model)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_replicas": 2, "autoscaling": {"max_replicas": 3}},
        {"autoscaling": {"min_replicas": 3, "max_replicas": 2}},
        {"autoscaling": {"target_tokens": 4096}},
        {"sleep_weights": "host"},
        {"kv_dtype": "fp8"},
        {"async_scheduling": True, "draft_tokens": 2},
        {"draft_model": "owner/d", "draft_tokens": 0},
        {"draft_model": "owner/d", "tensor_parallel": 2},
        {"draft_model": "owner/d", "draft_min": 9},
        {"draft_model": "owner/d", "spec_type": "mtp"},
        {"spec_type": "mtp", "tensor_parallel": 2},
        {"spec_type": "mtp", "model": "a/b:Q4_K_M"},
        {"draft_tokens": 4, "draft_min": 1},
        {"draft_tokens": 4, "draft_p_min": 0.5},
        {"num_gpus": 2},
        {"num_gpus": 0.5, "tensor_parallel": 2},
        {"context_length": 65, "n_pages": 4},
        {"quantization": "int8", "model": "a/b:Q4_K_M"},
        {"sleep_weights": "host", "num_gpus": 1, "tensor_parallel": 2},
    ],
)
def test_options_that_contradict_each_other_are_an_error(arguments: dict[str, object]) -> None:
    with pytest.raises(
        ValueError,
        match=r"num_replicas|min_replicas|max_replicas|sleep_weights|quantization|kv_dtype|async|"
        r"num_gpus is|num_gpus: ranks|context_length: 65|draft|spec-type: (ranks|MTP)",
    ):
        models(**arguments)


def test_adapters_are_loaded_from_a_folder_that_exists(tmp_path: Path) -> None:
    def said(**args: object) -> AdapterSettings | None:
        return RouterArguments.model_validate(args).adapter_settings()

    assert said() is None
    found = said(adapters_dir=str(tmp_path), adapters_max=3)
    assert found == AdapterSettings(folder=str(tmp_path), max_loaded=3)
    with pytest.raises(ValueError, match="no directory"):
        said(adapters_dir=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="adapters_dir"):
        said(adapters_max=3)
