"""Each flag of `manta serve` says what it is to say, or is refused with what to use."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner, Result
from ray.serve.schema import ServeDeploySchema

from deployments.router.presets.keys import KEYS
from deployments.router.presets.options import ModelOptions
from serve_app.command.config_check import check_settings
from serve_app.command.errors import Exit
from serve_app.command.flags.flag import Flag, Said
from serve_app.command.flags.parameters import said
from serve_app.command.flags.table import NO_FLAGS, flags
from serve_app.command.serving import settings
from serve_app.command.serving.commands import config
from serve_app.ingress_arguments import LlamaArguments
from serve_app.router_arguments import DEMO_MODEL, RouterArguments
from serve_app.web_arguments import WebArguments

WITH_SETTING = [flag for flag in flags() if not flag.is_without_effect]
ACCEPTED = [flag for flag in flags() if flag.is_without_effect and not flag.is_refused]
REFUSED = [flag for flag in flags() if flag.is_refused]
DEMO = str(DEMO_MODEL)
ROUTER, HTTP, LLAMA = "router", "http_options", "llama"
# What people type, by the words of vLLM, SGLang, llama-server and our own; and what it sets.
SAID: Mapping[str, tuple[str, str, Any]] = {
    DEMO: (ROUTER, "model", DEMO),
    f"-m {DEMO}": (ROUTER, "model", DEMO),
    f"--model-path {DEMO}": (ROUTER, "model", DEMO),
    "-hf a/b:Q4_K_M": (ROUTER, "model", "a/b:Q4_K_M"),
    "-hf a/b -hff c.gguf": (ROUTER, "model", "a/b:c.gguf"),
    "--host 0.0.0.0": (HTTP, "host", "0.0.0.0"),
    "--port 8123": (HTTP, "port", 8123),
    f"{DEMO} --served-model-name m": (ROUTER, "name", "m"),
    f"{DEMO} -a x,y": (ROUTER, "aliases", ["x", "y"]),
    "--api-key k --api-key l": (LLAMA, "api_keys", ["k", "l"]),
    "--max-model-len 8k": (ROUTER, "context_length", 8000),
    "-c 8K": (ROUTER, "context_length", 8192),
    "--context-length 4096": (ROUTER, "context_length", 4096),
    "--max-num-seqs 3": (ROUTER, "max_running", 3),
    "-np 3": (ROUTER, "max_running", 3),
    "--max-running-requests 3": (ROUTER, "max_running", 3),
    "--max-num-batched-tokens 512": (ROUTER, "max_batch_tokens", 512),
    "-b 512": (ROUTER, "max_batch_tokens", 512),
    "--chunked-prefill-size 512": (ROUTER, "max_batch_tokens", 512),
    "--gpu-memory-utilization 0.5": (ROUTER, "gpu_memory_utilization", 0.5),
    "--mem-fraction-static 0.5": (ROUTER, "gpu_memory_utilization", 0.5),
    "--tensor-parallel-size 2 -ngl 99": (ROUTER, "tensor_parallel", 2),
    "-tp 2 --num-gpus 1": (ROUTER, "tensor_parallel", 2),
    "-dp 2": (ROUTER, "num_replicas", 2),
    "--data-parallel-size 2": (ROUTER, "num_replicas", 2),
    "-ngl 0": (ROUTER, "num_gpus", 0),
    "-ngl all": (ROUTER, "num_gpus", 1),
    "-t 2": (ROUTER, "num_cpus", 2),
    "--kv-cache-dtype fp8_e4m3 --num-gpus 1": (ROUTER, "kv_dtype", "fp8"),
    "-ctk auto": (ROUTER, "kv_dtype", "auto"),
    "--block-size 32": (ROUTER, "page_size", 32),
    "--num-gpu-blocks-override 99": (ROUTER, "n_pages", 99),
    "--kv-cache-memory-bytes 1073741824": (ROUTER, "kv_gib", 1),
    "--mm-processor-cache-gb 2": (ROUTER, "media_cache_mib", 2048),
    "--dtype half": (ROUTER, "dtype", "float16"),
    "-q int8": (ROUTER, "quantization", "int8"),
    "--max-loras-per-batch 2": (ROUTER, "max_loras", 2),
    "--tool-call-parser glm45": (ROUTER, "dialect", "glm"),
    f"-md {DEMO} --draft-max 4": (ROUTER, "draft_model", DEMO),
    '--speculative-config {"method":"mtp","num_speculative_tokens":2}': (ROUTER, "draft_tokens", 2),
    '--speculative-config {"method":"mtp"}': (ROUTER, "spec_type", "mtp"),
    f'--speculative-config {{"model":"{DEMO}"}}': (ROUTER, "draft_model", DEMO),
    "--sleep-idle-seconds 60": (ROUTER, "sleep_idle_s", 60),
    "--watchdog-timeout 60": (ROUTER, "max_stuck_s", 60),
    "--temp 0.5": (ROUTER, "temperature", 0.5),
    "--models-max 2": (ROUTER, "models_max", 2),
    "--no-models-autoload": (ROUTER, "autoload", False),
    "--download-dir ~/x": (ROUTER, "downloads_dir", str(Path.home() / "x")),
    "--downloads-dir off": (ROUTER, "downloads_dir", None),
    '--allowed-origins ["*"]': (LLAMA, "cors_origins", ["*"]),
    "-to 30": (LLAMA, "request_timeout_s", 30),
    "--stop-timeout 3": (LLAMA, "stop_timeout_s", 3),
    "--load-timeout-s 30": (LLAMA, "load_timeout_s", 30),
    "--max-chats 3": ("web", "max_chats", 3),
    "--embeddings": (ROUTER, "task", "embed"),
    "--embedding": (ROUTER, "task", "embed"),
    "--no-async-scheduling": (ROUTER, "async_scheduling", False),
}
# What has no place of its own in a config: a file that must exist, and words without effect.
WRONG = {
    "--dtype int3": "--dtype: must be 'bfloat16', 'float16' or 'float32'",
    "--kv-cache-dtype q8_0": "--kv-cache-dtype: must be 'auto' or 'fp8'",
    "--max-num-seqs 0": "--max-num-seqs: must be greater than or equal to 1",
    "--port 99999": "--port: must be a port",
    "--max-inflight no": "--max-inflight: must be a valid integer",
    "--rope-scale 2": "--rope-scale: the model's config.json says it",
    "--no-such-flag": "No such option '--no-such-flag'",
    "a/b --model c/d": "a/b and --model c/d: one of the two is served",
    "--speculative-config {}": "--speculative-config: must be of the method mtp",
    "--lora-modules polite": "--lora-modules: must be NAME=FOLDER",
}


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No setting of whoever runs the test counts, and no GPU of the machine."""
    monkeypatch.setattr(settings, "DEVICES", tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path


def typed(line: str) -> Said:
    return said(config.make_context("serve", line.split()))


def run(line: str) -> Result:
    return CliRunner().invoke(config, line.split())


def printed(line: str) -> dict[str, Any]:
    """The settings of each application, and http_options."""
    result = run(line)
    assert result.exit_code == 0, result.output
    read = ServeDeploySchema.model_validate(yaml.safe_load(result.output))
    check_settings(read.applications)
    return {HTTP: read.http_options.model_dump()} | {a.name: a.args for a in read.applications}


@pytest.mark.parametrize("line", SAID)
def test_what_people_type_sets_what_it_says(line: str) -> None:
    application, name, value = SAID[line]
    assert printed(line)[application][name] == value


@pytest.mark.parametrize("flag", ACCEPTED, ids=lambda flag: flag.names[0])
def test_what_is_so_anyway_is_accepted(flag: Flag) -> None:
    for name in flag.names:
        assert typed(f"{name} x" if flag.metavar else name) == {}


@pytest.mark.parametrize("flag", REFUSED, ids=lambda flag: flag.names[0])
def test_what_has_no_setting_is_refused_by_the_name_that_was_typed(flag: Flag) -> None:
    for name in flag.names:
        with pytest.raises(click.UsageError) as refusal:
            typed(f"{name} x")
        assert refusal.value.message == f"{name}: {flag.help}"


@pytest.mark.parametrize("line", WRONG)
def test_what_is_wrong_is_named(line: str) -> None:
    result = run(line)
    assert result.exit_code == Exit.USAGE
    assert WRONG[line] in result.output


def test_every_setting_has_a_flag_and_every_name_is_of_one() -> None:
    keys = {key.name for key in KEYS}
    fields = {
        name
        for arguments in (RouterArguments, LlamaArguments, WebArguments)
        for name in arguments.model_fields
        if name not in NO_FLAGS and name not in ModelOptions.model_fields
    }
    names = [name for flag in flags() for name in flag.names]
    dashed = {name.removeprefix("--") for name in names}
    missing = {name for name in fields if name.replace("_", "-") not in dashed} - {"api_keys"}
    assert not missing
    assert keys <= dashed
    assert len(names) == len(set(names))
    assert len({flag.name for flag in flags()}) == len(flags())


def test_a_flag_counts_more_than_a_variable_and_that_more_than_the_file(
    own_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = own_home / "manta" / "manta.yaml"
    file.parent.mkdir()
    file.write_text("ctx-size: 1000\nparallel: 5\nmodel: a/b\nautoload: false\nalias: [x, y]\n")
    monkeypatch.setenv("MANTA_CTX_SIZE", "2000")
    monkeypatch.setenv("LLAMA_ARG_N_PARALLEL", "6")
    router = printed("--max-model-len 3000 -hf c/d")[ROUTER]
    assert (router["context_length"], router["max_running"], router["model"]) == (3000, 6, "c/d")
    assert (router["autoload"], router["aliases"]) == (False, ["x", "y"])
    assert printed("")[ROUTER]["context_length"] == 2000
    monkeypatch.setenv("MANTA_CTX_SIZE", "many")
    assert "MANTA_CTX_SIZE: must be a valid integer" in run("").output
    file.write_text("ctxsize: 1")
    assert f"{file}: unknown setting ctxsize; did you mean ctx_size?" in run("").output


def test_a_model_that_is_none_ends_with_a_status_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("not a model")
    for line, why in {
        "/nowhere/a.gguf": "there is no file /nowhere/a.gguf",
        str(
            Path(__file__)
        ): "is a file: a model is a directory with a config.json, or a file .gguf",
        str(tmp_path / "notes.gguf"): "is no GGUF file: it does not begin with GGUF",
    }.items():
        result = run(line)
        assert (result.exit_code, why in result.output) == (Exit.NO_MODEL, True), result.output


def test_what_is_not_said_is_safe_and_plain(own_home: Path) -> None:
    """Only a server that nobody else reaches downloads unasked. A GPU that is there is used."""
    alone, open_to_all = printed(DEMO), printed("--host 0.0.0.0")
    assert alone[HTTP]["host"] == "127.0.0.1"
    assert alone[ROUTER]["downloads_dir"] == str(own_home / "manta" / "models")
    assert "num_gpus" not in alone[ROUTER]
    assert "downloads_dir" not in open_to_all[ROUTER]
    assert open_to_all[ROUTER]["kv_gib"] == 0.25  # as `serve.yaml` has it for its model
    (own_home / "nvidia0").touch()
    assert printed(DEMO)[ROUTER]["num_gpus"] == 1
    assert printed(f"{DEMO} -ngl 0")[ROUTER]["num_gpus"] == 0
    assert "web" not in printed("--no-webui")
