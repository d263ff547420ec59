"""The presets file: llama-server's grammar, our keys, and an error with its place for all else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.router.presets.ini_file import PresetError, parse_presets, read_presets
from deployments.router.presets.keys import BY_NAME, KEYS, format_section
from deployments.router.presets.option_types import AdapterOptions, ScalingOptions
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.strict_options import Ini

FILE = Path("/etc/manta/models.ini")


def options(lines: str) -> ModelOptions:
    return parse_presets(f"[m]\n{lines}", FILE)["m"].options


def given_in(lines: str) -> dict[str, object]:
    return options(lines).given()


def test_a_file_is_read_as_llama_server_reads_it() -> None:
    text = """version = 1

[*]                       ; merged under every model
c = 512
np = 1

[user/small:Q8]           # a new name
model = some/file
alias = tb,sm
tags = chat, test
starters = Who, or what? | Why?
load-on-startup = true
stop-timeout = 2
sleep-idle-seconds = 3    ; seconds
"""
    sections = parse_presets(text, FILE)
    assert [(section.name, section.line) for section in sections.values()] == [
        ("*", 3),
        ("user/small:Q8", 7),
    ]
    assert sections["*"].options.given() == {"context_length": 512, "max_running": 1}
    assert sections["user/small:Q8"].options.given() == {
        "model": "some/file",
        "aliases": ("tb", "sm"),
        "tags": ("chat", "test"),
        "starters": ("Who, or what?", "Why?"),
        "load_on_startup": True,
        "stop_timeout_s": 2,
        "sleep_idle_s": 3,
    }


def test_a_file_of_another_editor_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "models.ini"
    file.write_bytes("\ufeffversion = 1\r\n[m]\r\nnp = 3\r\n".encode())
    assert read_presets(file)["m"].options.given() == {"max_running": 3}


def test_lines_before_any_section_are_of_the_model_default() -> None:
    sections = parse_presets("c = 512\n[a]\n", FILE)
    assert sections["default"].options.given() == {"context_length": 512}
    assert sections["a"].options.given() == {}


def test_sections_of_one_name_are_one() -> None:
    both = parse_presets("[a]\nc = 9\n[b]\n[a]\nnp = 2\n", FILE)
    assert both["a"].options.given() == {"max_running": 2, "context_length": 9}


@pytest.mark.parametrize("text", ["[a]\nnp = 1\n\nparallel = 2\n", "[a]\nnp = 1\n[a]\nnp = 1\n"])
def test_a_key_that_a_section_says_twice_is_an_error(text: str) -> None:
    with pytest.raises(PresetError, match=r"models\.ini:4: .*: parallel is said in line 2 too"):
        parse_presets(text, FILE)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *((word, True) for word in ("on", "enabled", "true", "1")),
        *((word, False) for word in ("off", "disabled", "false", "0")),
    ],
)
def test_a_switch_knows_four_words_for_each_side(word: str, value: bool) -> None:
    assert given_in(f"load-on-startup = {word}") == {"load_on_startup": value}
    assert given_in(f"no-load-on-startup = {word}") == {"load_on_startup": not value}


@pytest.mark.parametrize(
    ("line", "option", "value"),
    [
        ("ctx-size = 4096", "context_length", 4096),
        ("ctx_size = 4096", "context_length", 4096),
        ("LLAMA_ARG_CTX_SIZE = 4096", "context_length", 4096),
        ("ctx-size = 0", "context_length", None),
        ("LLAMA_ARG_N_PARALLEL = 4", "max_running", 4),
        ("np = -1", "max_running", None),
        ("b = 2048", "max_batch_tokens", 2048),
        ("t = 8", "num_cpus", 8),
        ("threads = -1", "num_cpus", None),
        ("num-cpus = 0.5", "num_cpus", 0.5),
        ("hf = Qwen/Qwen3-0.6B", "model", "Qwen/Qwen3-0.6B"),
        ("hf = a/b-GGUF:Q4_K_M", "model", "a/b-GGUF:Q4_K_M"),
        ("hf = a/b\nhff = sub/m.gguf", "model", "a/b:sub/m.gguf"),
        ("hf-file = m.gguf\nhf-repo = a/b:Q8_0", "model", "a/b:m.gguf"),
        ("m = models/x.gguf", "model", "models/x.gguf"),
        ("hfd = a/b:Q8_0", "draft_model", "a/b:Q8_0"),
        ("a = x", "aliases", ("x",)),
        ("sleep-idle-seconds = -1", "sleep_idle_s", None),
        ("sleep-weights = drop", "sleep_weights", "drop"),
        ("ngl = 0", "num_gpus", 0),
        ("ngl = 99", "num_gpus", 1),
        ("n-gpu-layers = auto", "num_gpus", 1),
        ("ngl = all\nnum-gpus = 2", "num_gpus", 2),
        ("num-gpus = 0.25\nngl = -1", "num_gpus", 0.25),
        ("replicas = 3", "num_replicas", 3),
        ("temp = 0.5", "temperature", 0.5),
        ("top_k = 0", "top_k", 0),
        ("repeat-penalty = 1.1", "repetition_penalty", 1.1),
        ("dialect = hermes", "dialect", "hermes"),
        ("parse-special-in-messages = on", "parse_special_in_messages", True),
        ("kv-gib = 1.5", "kv_gib", 1.5),
        ("kv-gib = auto", "kv_gib", None),
        ("kv-dtype = fp8", "kv_dtype", "fp8"),
        ("md = owner/small", "draft_model", "owner/small"),
        ("hfd = owner/small", "draft_model", "owner/small"),
        ("spec-type = mtp", "spec_type", "mtp"),
        ("LLAMA_ARG_SPEC_TYPE = draft-mtp", "spec_type", "mtp"),
        ("spec-type = none", "spec_type", None),
        ("LLAMA_ARG_DRAFT_MAX = 3", "draft_tokens", 3),
        ("draft-min = 2", "draft_min", 2),
        ("draft-p-min = 0.5", "draft_p_min", 0.5),
        ("async-scheduling = off", "async_scheduling", False),
        ("no-async-scheduling = 0", "async_scheduling", True),
        ("async-scheduling = auto", "async_scheduling", None),
        ("gpu-memory-utilization = 0.5", "gpu_memory_utilization", 0.5),
        ("quantization = int8", "quantization", "int8"),
        ("embeddings = on", "task", "embed"),
        ("reranking = true", "task", "score"),
        ("rerank = off", "task", None),
        ("pooling = none", "pooling", "none"),
        ("lora = a, b", "adapters", ({"path": "a", "scale": 1}, {"path": "b", "scale": 1})),
        ("lora-scaled = a:0.5,c:/b:-2", "adapters", (
            {"path": "a", "scale": 0.5}, {"path": "c:/b", "scale": -2})),
        ("lora-scaled = b:0.5\nlora = a", "adapters", (
            {"path": "a", "scale": 1}, {"path": "b", "scale": 0.5})),
        ("lora-modules = a=x/a, b = /y/b:0.5,c=z:1a", "lora_modules", (
            {"name": "a", "path": "x/a"}, {"name": "b", "path": "/y/b", "scale": 0.5},
            {"name": "c", "path": "z:1a"})),
        ("min-replicas = 0\nmax-replicas = 4\nupscale-delay = 1.5", "autoscaling",
            {"min_replicas": 0, "max_replicas": 4, "upscale_delay_s": 1.5}),
    ],
)  # fmt: skip
def test_a_key_says_one_option(line: str, option: str, value: object) -> None:
    assert given_in(line) == {option: value}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ctx-sise = 4", "unknown key ctx-sise; did you mean ctx-size?"),
        ("--ctx-size = 4", "unknown key --ctx-size; did you mean ctx-size?"),
        ("LLAMA_ARG_CTX_SIZES = 4", "did you mean ctx-size?"),
        ("max_replica = 4", "unknown key max_replica; did you mean max-replicas?"),
        ("xyzzy = 1", "unknown key xyzzy"),
        ("no-ctx-size = 1", "unknown key no-ctx-size"),
        ("host = 0.0.0.0", "host can't be set here: the addresses are http_options"),
        ("LLAMA_ARG_PORT = 80", "LLAMA_ARG_PORT can't be set here"),
        ("cram = 8192", "cram can't be set here: prompts stay in the KV cache, of kv-gib"),
        ("api-key = x", "arguments of openai, anthropic and llama"),
        ("LLAMA_API_KEY = x", "arguments of openai, anthropic and llama"),
        ("ssl-key-file = x", "proxy"),
        ("models-max = 2", "arguments of router"),
        ("no-models-autoload = 1", "arguments of router"),
        ("temp = 2.5", "must be less than or equal to 2"),
        ("autoload = 1", "arguments of router"),
        ("served-model-name = x", "the name of its section is the model's"),
        ("hf-token = x", "HF_TOKEN of the environment"),
        ("seed = 1", "requests say it"),
        ("mmproj = x", "for images and sounds name the original model"),
        ("no-mmproj = true", "for images and sounds name the original model"),
        ("spec-type = draft-eagle3", "draft-eagle3 is none: mtp has the head in the model's own"),
        ("mtp = on", "spec-type = mtp (the model's own head)"),
        ("speculative_config = {}", "model-draft (a draft model or an EAGLE-3 head)"),
        ("num-speculative-tokens = 3", "draft-max"),
        ("ctk = q8_0", "dtype"),
        ("LLAMA_ARG_FLASH_ATTN = on", "the engine sees to it by itself"),
        ("no-mmap = on", "the engine sees to it by itself"),
        ("n-cpu-moe = 4", "see num-gpus and tensor-parallel"),
        ("rope-scaling = yarn", "config.json"),
        ("pooling = rank", "must be 'last', 'cls', 'mean' or 'none'"),
        ("task = dream", "must be 'generate', 'embed', 'score' or 'classify'"),
        ("c = many", "c = many: must be a valid integer"),
        ("c = 1", "c = 1: must be greater than or equal to 2"),
        ("np =", "np = : must be a valid integer"),
        ("load-on-startup = yes", "must be one of on, enabled, true, 1, off, disabled, false, 0"),
        ("sleep-idle-seconds = 0", "must be greater than 0"),
        ("target-usage = 1.5", "must be less than or equal to 1"),
        ("kv-gib = inf", "must be a finite number"),
        ("dtype = int3", "must be 'bfloat16', 'float16' or 'float32'"),
        ("quantization = q4_0", "must be 'none', 'int8', 'int4' or 'fp8'"),
        ("gpu-memory-utilization = 90", "must be less than or equal to 1"),
        ("sleep-weights = disk", "must be 'host' or 'drop'"),
        ("dialect = klingon", "must be one of command, deepseek"),
        ("ngl = some", "must be a number of layers, auto or all"),
        ("hf-repo = a/b:", "owner/name:Q4_K_M"),
        ("hf-file = x.bin", "must be the name of a GGUF file"),
        ("hf-file = ../x.gguf", "must be the name of a GGUF file"),
        ("mu = https://x/y.gguf", "see model and hf-repo"),
        ("hf-repo = b", "owner/name"),
        ("hf-repo = https://huggingface.co/a/b", "owner/name"),
        ("model =", "at least 1 character"),
        ("lora-scaled = a", "must be FOLDER:SCALE"),
        ("lora-scaled = a:b", "must be a valid number"),
        ("lora-modules = a", "must be NAME=FOLDER"),
        ("lora-modules = a:b=x", "is no name of an adapter"),
        ("lora-modules = a=x:101", "must be less than or equal to 100"),
        ("lora-init-without-apply = 1", "see lora-modules"),
        ("version = 2", "must be 1"),
        ("just words", "must be [section] or key = value"),
        ("= 3", "must be [section] or key = value"),
        ("[open", "must be [section] or key = value"),
        ("[]", "a section needs a name"),
    ],
)
def test_a_line_that_says_nothing_we_know_is_an_error_with_its_place(
    line: str, reason: str
) -> None:
    with pytest.raises(PresetError) as wrong:
        parse_presets(f"[m]\n\npage-size = 2 ; two\n{line}\nb = 3\n", FILE)
    assert str(wrong.value).startswith(f"{FILE}:4: ")
    assert reason in str(wrong.value)


@pytest.mark.parametrize("key", ["tp", "max-model-len", "keep"])
def test_a_key_is_not_told_of_what_it_can_not_mean(key: str) -> None:
    with pytest.raises(PresetError, match=rf": unknown key {key}$"):
        options(f"{key} = 2")


@pytest.mark.parametrize(
    ("lines", "pair"),
    [
        ("model = a\nhf = b/c", "model and hf-repo"),
        ("model = /a/b.gguf\nhf = b/c:Q4_0", "model and hf-repo"),
        ("ngl = 0\nnum-gpus = 1", "num-gpus and n-gpu-layers"),
        ("num-gpus = 0\nngl = 9", "num-gpus and n-gpu-layers"),
    ],
)
def test_two_keys_of_one_section_must_not_contradict_each_other(lines: str, pair: str) -> None:
    with pytest.raises(PresetError, match=f"models.ini:2: {pair} contradict each other"):
        parse_presets(f"\n[m]\n{lines}\n", FILE)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [("hff = c.gguf", "say both"), ("model = /a\nhff = c.gguf", "model is a path")],
)
def test_a_file_of_the_hub_is_named_beside_its_repository(lines: str, reason: str) -> None:
    with pytest.raises(PresetError, match=rf"models.ini:2: hf-file .*{reason}"):
        parse_presets(f"\n[m]\n{lines}\n", FILE)


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "models.ini"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(PresetError, match=rf"{file} can't be read"):
        read_presets(file)


def test_every_option_has_a_key_of_its_own_and_every_key_means_one() -> None:
    options = {key.option[0] for key in KEYS}
    assert options == set(ModelOptions.model_fields)
    assert {key.option[-1] for key in KEYS if len(key.option) > 1} == set(
        ScalingOptions.model_fields
    )
    assert len(BY_NAME) == sum(len(key.ini.names) for key in KEYS)


def test_every_option_says_what_it_is() -> None:
    for table in (ModelOptions, ScalingOptions):
        for name, field in table.model_fields.items():
            assert field.description, name
            assert all(isinstance(item, Ini) for item in field.metadata if hasattr(item, "names"))


WORD = st.text("abcdefgh0123456789-_./", min_size=1, max_size=12)
POSITIVE = st.floats(min_value=0.001, max_value=1e6)
ANY_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "model": WORD,
        "aliases": st.lists(WORD).map(tuple),
        "tags": st.lists(WORD).map(tuple),
        "load_on_startup": st.booleans(),
        "pinned": st.booleans(),
        "stop_timeout_s": POSITIVE,
        "sleep_idle_s": POSITIVE | st.none(),
        "sleep_weights": st.sampled_from(["host", "drop"]),
        "num_replicas": st.integers(1, 99),
        "autoscaling": st.fixed_dictionaries(
            {},
            optional={
                "min_replicas": st.integers(0, 9),
                "target_usage": st.floats(0.01, 1),
                "downscale_delay_s": POSITIVE,
            },
        ).filter(bool),
        "num_cpus": POSITIVE | st.none(),
        "num_gpus": st.floats(0, 8),
        "tensor_parallel": st.integers(1, 8),
        "dtype": st.sampled_from(["bfloat16", "float16", "float32"]),
        "dialect": st.sampled_from(["hermes", "glm"]),
        "adapters": st.lists(
            st.builds(AdapterOptions, path=WORD, scale=st.floats(-2, 2) | st.just(1.0)), min_size=1
        ).map(tuple),
        "context_length": st.integers(2, 10**6) | st.none(),
        "max_running": st.integers(1, 999),
        "n_pages": st.integers(2, 10**6),
        "kv_gib": POSITIVE | st.none(),
        "kv_dtype": st.sampled_from(["auto", "fp8"]),
        "async_scheduling": st.booleans() | st.none(),
        "gpu_memory_utilization": st.floats(0.01, 1),
        "quantization": st.sampled_from(["none", "int8", "int4", "fp8"]),
    },
)


@given(
    name=st.text(
        st.characters(exclude_characters="[];#", exclude_categories=["C", "Z"]), min_size=1
    ),
    given_options=ANY_OPTIONS,
)
def test_a_written_preset_reads_back(name: str, given_options: dict[str, object]) -> None:
    options = ModelOptions.model_validate(given_options)
    sections = parse_presets(format_section(name, options), FILE)
    assert list(sections) == [name]
    assert sections[name].options == options
    assert sections[name].options.given() == options.given()


@given(st.text("[]=;# \n\r\tcnp*m-_.1a\u2028", max_size=60))
def test_any_text_is_read_or_refused_with_its_line(text: str) -> None:
    try:
        sections = parse_presets(text, FILE)
    except PresetError as error:
        line = str(error).removeprefix(f"{FILE}:").partition(":")[0]
        assert 1 <= int(line) <= text.count("\n") + 1
    else:
        assert all(1 <= section.line <= text.count("\n") + 1 for section in sections.values())
