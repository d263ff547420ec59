"""All models that can be served: from arguments, a presets file, a folder; and who counts more."""

import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from deployments.adapter_files import read_adapter_info
from deployments.engine.limits import ON_CPU, ON_GPU
from deployments.model.settings import Autoscaling, MergedAdapter
from deployments.router.presets.hub_names import SEPARATOR
from deployments.router.presets.ini_file import PresetError, parse_presets
from deployments.router.presets.option_types import ScalingOptions
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.sources import Sources
from deployments.router.settings import Preset
from tests.adapter_files import save_small_adapter


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A folder with two models, an adapter, and a folder of two models in it."""
    for name in ("one", "two", "models/apple", "models/pear"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    for name in ("adapter", "models/empty", "models/.cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "models" / ".cache" / "config.json").write_text("{}")
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    return tmp_path


def sources(base: Path, text: str = "", *, folder: bool = False, **said: object) -> Sources:
    (base / "models.ini").write_text(text)
    return Sources(
        overrides=ModelOptions.model_validate(said),
        presets=str(base / "models.ini") if text else None,
        folder=str(base / "models") if folder else None,
    )


def read(base: Path, text: str = "", *, folder: bool = False, **said: object) -> dict[str, Preset]:
    found = sources(base, text, folder=folder, **said).read()
    return {preset.settings.name: preset for preset in found}


def argument(name: str, **said: object) -> Preset:
    options = ModelOptions.model_validate({"model": "hub/model", **said})
    return options.preset(name, source="argument")


def test_sections_are_models_in_their_order_and_paths_start_at_the_file(base: Path) -> None:
    found = read(
        base, "[b]\nmodel = two\nlora = adapter\n[a]\nmodel = ./one\n[c]\nmodel = hub/id\n"
    )
    assert list(found) == ["b", "a", "c"]
    paths = [preset.settings.path for preset in found.values()]
    assert paths == [str(base / "two"), str(base / "one"), "hub/id"]
    assert found["b"].settings.adapters == (MergedAdapter(path=str(base / "adapter")),)
    assert {preset.source for preset in found.values()} == {"preset"}
    assert not any(preset.load_on_startup or preset.pinned for preset in found.values())


def test_a_sections_words_count_more_than_those_for_all_models(base: Path) -> None:
    found = read(
        base,
        "[a]\nmodel = one\nc = 64\nalias = x, a, x\nload-on-startup = on\n"
        "[*]\nc = 512\nnp = 2\ntags = t\nmodel = two\n[b]\npinned = on\n",
    )
    a, b = found["a"], found["b"]
    assert (a.settings.limits.context_length, b.settings.limits.context_length) == (64, 512)
    assert a.settings.limits.max_running == b.settings.limits.max_running == 2
    assert (a.settings.path, b.settings.path) == (str(base / "one"), str(base / "two"))
    assert (a.aliases, a.tags, a.load_on_startup, a.pinned) == (("x",), ("t",), True, False)
    assert (b.aliases, b.tags, b.load_on_startup, b.pinned) == ((), ("t",), False, True)


def test_a_gpu_is_given_more_at_once(base: Path) -> None:
    found = read(
        base, "[a]\nmodel = one\n[b]\nmodel = two\nngl = 1\n[c]\nngl = 1\nb = 9\nm = one\n"
    )
    assert found["a"].settings.limits == ON_CPU
    assert found["b"].settings.limits == ON_GPU
    assert found["c"].settings.limits == replace(ON_GPU, max_batch_tokens=9)


def test_arguments_count_more_than_the_file(base: Path) -> None:
    text = "[*]\nc = 512\nb = 99\n[a]\nmodel = one\nc = 64\nnp = 3\nsleep-idle-seconds = 5\n"
    limits = read(base, text, context_length=128)["a"].settings.limits
    assert (limits.context_length, limits.max_running, limits.max_batch_tokens) == (128, 3, 99)
    assert read(base, text)["a"].settings.sleep_idle_s == 5
    assert read(base, text, sleep_idle_s=None)["a"].settings.sleep_idle_s is None


def test_every_folder_with_a_configuration_is_a_model(base: Path) -> None:
    found = read(base, folder=True, num_cpus=3)
    assert list(found) == ["apple", "pear"]
    assert found["apple"].settings.path == str(base / "models" / "apple")
    assert {preset.settings.num_cpus for preset in found.values()} == {3}
    assert {(preset.source, preset.text) for preset in found.values()} == {("folder", "")}


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_gguf_files_of_a_folder_are_models_as_of_llama_servers(
    base: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = base / "models"
    touch(
        *(models / f"split-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)),
        *(models / name for name in ("plum-Q4_K_M.gguf", "mmproj-plum.gguf", ".hidden.gguf")),
        *(models / "fig" / name for name in ("a-Q8_0.gguf", "mmproj-F16.gguf")),
        *(models / "kiwi" / name for name in ("x.F16.gguf", "x.Q4_K_M.gguf")),
        *(models / "lime" / f"y-0000{n}-of-00003.gguf" for n in (2, 3)),
        *(models / "apple" / name for name in ("model.safetensors", "x.gguf")),
        *(models / "pear" / name for name in ("x.gguf",)),
        *(models / "only" / name for name in ("mmproj.gguf",)),
    )
    with caplog.at_level("INFO", "ray.serve"):
        found = {name: preset.settings.path for name, preset in read(base, folder=True).items()}
    assert found == {
        "apple": str(models / "apple"),
        "fig": str(models / "fig" / "a-Q8_0.gguf"),
        "kiwi": str(models / "kiwi" / "x.Q4_K_M.gguf"),
        "lime": str(models / "lime" / "y-00001-of-00003.gguf"),  # its load says what is missing
        "pear": str(models / "pear" / "x.gguf"),  # whose config.json has no other weights
        "plum-Q4_K_M": str(models / "plum-Q4_K_M.gguf"),
        "split-Q8_0": str(models / "split-Q8_0-00001-of-00002.gguf"),
    }
    assert list(found) == sorted(found)
    assert f"{models / 'mmproj-plum.gguf'} is no model" in caplog.text
    assert f"{models / 'kiwi'} x.Q4_K_M.gguf is served" in caplog.text


def test_a_file_and_a_folder_can_not_have_one_name(base: Path) -> None:
    touch(base / "models" / "pear.gguf")
    with pytest.raises(PresetError, match=r"models_dir: .* are two models of the name pear"):
        read(base, folder=True)


def test_a_gguf_model_is_named_by_its_file_any_part_or_its_folder(base: Path) -> None:
    parts = [base / "gg" / f"m-Q8_0-0000{n}-of-00002.gguf" for n in (1, 2)]
    touch(*parts, base / "gg" / "mmproj.gguf", base / "blob")
    (base / "link-00001-of-00002.gguf").symlink_to(base / "blob")  # as in a hub's cache
    names = ("gg/m-Q8_0-00002-of-00002.gguf", "gg", f"{base}/gg/../gg/{parts[0].name}")
    text = "".join(f"[{n}]\nmodel = {name}\n" for n, name in enumerate(names))
    paths = [preset.settings.path for preset in read(base, text).values()]
    assert paths == [str(parts[0])] * 3
    linked = read(base, "[a]\nmodel = link-00002-of-00002.gguf\nmd = gg\n")["a"].settings
    assert linked.path == str(base / "link-00001-of-00002.gguf")
    assert linked.draft_model == str(parts[0])
    with pytest.raises(PresetError, match="the projector of pictures or sounds"):
        read(base, "[a]\nmodel = gg/mmproj.gguf\n")


def test_presets_are_laid_over_the_models_of_a_folder(base: Path) -> None:
    text = "[*]\nc = 512\n[pear]\nnp = 2\n[apple2]\nmodel = models/apple\n"
    found = read(base, text, folder=True)
    assert [(name, preset.source) for name, preset in found.items()] == [
        ("pear", "preset"),
        ("apple2", "preset"),
        ("apple", "folder"),
    ]
    assert found["pear"].settings.path == str(base / "models" / "pear")
    assert {preset.settings.limits.context_length for preset in found.values()} == {512}
    assert found["apple"].text == "[apple]\nctx-size = 512\n\n"
    elsewhere = read(base, "[pear]\nmodel = one\n", folder=True)
    assert elsewhere["pear"].settings.path == str(base / "one")


def test_a_presets_text_is_its_section_completed_from_that_of_all(base: Path) -> None:
    found = read(base, "[*]\nnp = 1\nc = 512 ; of all\n[small]\nmodel=one\nc=64\n", num_cpus=3)
    text = found["small"].text
    assert text == f"[small]\nctx-size = 64\nmodel = {base / 'one'}\nparallel = 1\n\n"
    assert parse_presets(text, base)["small"].options.model == str(base / "one")


def test_the_number_of_replicas_and_autoscaling_take_each_others_place(base: Path) -> None:
    text = "[*]\nreplicas = 2\n[a]\nmodel = one\nmax-replicas = 4\n[b]\nmodel = one\n"
    found = read(base, text)
    assert found["a"].settings.autoscaling == Autoscaling(max_replicas=4)
    assert (found["b"].settings.autoscaling, found["b"].settings.num_replicas) == (None, 2)
    fixed = read(base, text, num_replicas=3)["a"].settings
    assert (fixed.autoscaling, fixed.num_replicas) == (None, 3)
    scaling = ScalingOptions(min_replicas=2)
    found = read(base, text.replace("replicas = 2", "max-replicas = 3"), autoscaling=scaling)
    scaled = [preset.settings.autoscaling for preset in found.values()]
    assert scaled == [Autoscaling(min_replicas=2, max_replicas=m) for m in (4, 3)]


def test_the_argument_model_comes_first_and_takes_no_part_in_the_file(base: Path) -> None:
    given = sources(base, "[*]\nc = 512\n[a]\nmodel = one\n")
    found = Sources(argument=argument("x"), presets=given.presets).read()
    assert [preset.settings.name for preset in found] == ["x", "a"]
    assert found[0] == argument("x")


def test_a_section_sets_options_of_a_downloaded_model(base: Path) -> None:
    (base / "downloads" / f"owner{SEPARATOR}name").mkdir(parents=True)
    (base / "downloads" / f"owner{SEPARATOR}name" / "config.json").write_text("{}")
    given = sources(base, "[owner/name]\nc = 512\n")
    touch(base / "downloads" / f"a{SEPARATOR}b:Q8_0" / "m-Q8_0.gguf", base / "downloads" / "c.gguf")
    found, packed = replace(given, downloads=str(base / "downloads")).read()
    assert (packed.settings.name, packed.source) == ("a/b:Q8_0", "download")
    assert packed.settings.path == str(base / "downloads" / f"a{SEPARATOR}b:Q8_0" / "m-Q8_0.gguf")
    assert found.source == "download"
    assert found.settings.limits.context_length == 512
    assert found.settings.path == str(base / "downloads" / f"owner{SEPARATOR}name")


def test_sources_travel_and_are_read_again(base: Path) -> None:
    text = "[a]\nmodel = one\n"
    there: Sources = pickle.loads(pickle.dumps(sources(base, text, folder=True, num_cpus=2)))
    assert there == sources(base, text, folder=True, num_cpus=2)
    assert [preset.settings.name for preset in there.read()] == ["a", "apple", "pear"]
    (base / "models.ini").write_text("[b]\nmodel = two\n")
    (base / "models" / "pear" / "config.json").unlink()
    assert [preset.settings.name for preset in there.read()] == ["b", "apple"]


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("\n[a]\nnp = 1\n", 2, r"\[a\] needs model = PATH or hf-repo = OWNER/NAME"),
        ("[a]\nmodel = ./none\n", 1, r"\[a\] there is no directory .*none"),
        ("[a]\nmodel = some/long/path\n", 1, "there is no directory .*some/long/path"),
        ("[a]\nmodel = ~no-such-user/m\n", 1, "home"),
        (f"[a]\nmodel = {'x' * 999}\n", 1, "too long"),
        ("[a\x07]\nmodel = one\n", 1, "marks in it"),
        ("[a]\nmodel = adapter\n", 1, r"adapter has no config\.json and no GGUF file"),
        ("[a]\nmodel = none.gguf\n", 1, r"there is no file .*none\.gguf"),
        ("[a]\nmodel = hub/none.gguf\n", 1, r"there is no file .*none\.gguf"),
        ("[a]\nmodel = hub/id:mmproj-f16.gguf\n", 1, "for these name the original model"),
        ("[a]\nmodel = hub/id:Q4_0\nquantization = int8\n", 1, "are quantized already"),
        ("[a]\nmodel = llama3:8b\n", 1, "OWNER/NAME:TAG is how a GGUF file of the hub is named"),
        ("[a]\nmodel = one/config.json\n", 1, "is a file"),
        ("[a]\nmodel = one\nlora = two\n", 1, r"two is no adapter: .* adapter_config\.json"),
        ("[a]\nmodel = one\nmin-replicas = 2\n", 1, r"min_replicas \(2\) is over max_replicas"),
        ("[a]\nmodel = one\nnp = 2\nreplicas = 2\nmax-replicas = 2\n", 1, "one of the two"),
        ("[a]\nmodel = one\nsleep-weights = host\n", 1, "needs num_gpus"),
        ("[a]\nmodel = one\n[b]\nmodel = one\nalias = x,a\n", 3, r"name a of \[b\] .* by \[a\]"),
        ("[a]\nmodel = one\nalias=x\n[b]\nmodel = one\nalias = x\n", 4, "name x .* by .*ini:1"),
        ("[a/b]\nmodel = one\n[a_b]\nmodel = one\n", 3, "a/b and a_b differ"),
    ],
)
def test_a_section_that_can_not_be_served_is_an_error_with_its_place(
    base: Path, text: str, line: int, reason: str
) -> None:
    with pytest.raises(PresetError, match=reason) as wrong:
        read(base, text)
    assert str(wrong.value).startswith(f"{base / 'models.ini'}:{line}: ")


def test_a_section_of_no_folder_is_told_of_the_nearest(base: Path) -> None:
    with pytest.raises(PresetError, match=r"ini:1: \[appel\] needs .* did you mean \[apple\]\?"):
        read(base, "[appel]\nnp = 1\n", folder=True)


def test_names_of_arguments_files_and_folders_are_all_different(base: Path) -> None:
    given = sources(base, "[a]\nmodel = one\nalias = x\n", folder=True)
    for first in (argument("x"), argument("y", aliases=("apple",))):
        with pytest.raises(PresetError, match="is taken by"):
            Sources(argument=first, presets=given.presets, folder=given.folder).read()


def test_without_a_single_model_there_is_nothing_to_serve(base: Path) -> None:
    with pytest.raises(PresetError, match=r"there is no model in .*ini"):
        read(base, "[*]\nc = 512\n")
    with pytest.raises(PresetError, match=r"there is no model in .*empty"):
        Sources(folder=str(base / "models" / "empty")).read()
    with pytest.raises(PresetError, match="models_dir: there is no directory"):
        Sources(folder=str(base / "none")).read()


def test_adapters_that_requests_choose_are_read_and_replicas_are_not_told(base: Path) -> None:
    first = save_small_adapter(base / "served")
    (found,) = read(base, "[a]\nmodel = one\nlora-modules = x=served:2,y=./served\n").values()
    assert [(adapter.name, adapter.path, adapter.scale) for adapter in found.served_adapters] == [
        ("x", str(first), 2.0),
        ("y", str(first), 1.0),
    ]
    assert {adapter.digest for adapter in found.served_adapters} == {
        read_adapter_info(str(first)).digest
    }
    assert found.settings.adapters == ()
    assert parse_presets(found.text, base)["a"].options.lora_modules[0].scale == 2


def test_a_model_has_room_for_the_adapters_that_it_lists(base: Path) -> None:
    save_small_adapter(base / "served", rank=24)
    limits = [
        read(base, f"[a]\nmodel = one\n{line}\n")["a"].settings.limits
        for line in ("", "lora-modules = x=served", "max-loras = 3", "max-lora-rank = 64")
    ]
    assert [(limit.max_loras, limit.max_lora_rank) for limit in limits] == [
        (0, 16),
        (8, 24),
        (3, 16),
        (0, 64),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[a]\nmodel = one\nlora-modules = x=served\nmax-loras = 0\n", "max-loras = 0"),
        ("[a]\nmodel = one\nlora-modules = x=served\nmax-lora-rank = 2\n", "rank 4 is over"),
        ("[a]\nmodel = one\nlora-modules = x=served,x=served\n", "x is the name of two adapters"),
        ("[a]\nmodel = one\nlora-modules = x=two\n", "two is no adapter"),
        ("[a]\nmodel = one\nlora-modules = x=adapter\n", "can't be read"),
        ("[a]\nmodel = one\nlora-modules = a=served\n", "the name a of .* is taken"),
        ("[a]\nmodel = one\nalias = x\nlora-modules = x=served\n", "the name x of"),
        ("[*]\nmodel = one\nlora-modules = x=served\n[a]\n[b]\n", "is taken by .a:x."),
        ("[*]\nmodel = one\n[a]\nlora-modules = x=served\n[a:x]\n", "the name a:x of"),
    ],
)
def test_a_name_of_an_adapter_means_one_thing(base: Path, text: str, reason: str) -> None:
    save_small_adapter(base / "served")
    with pytest.raises(PresetError, match=reason):
        read(base, text)
