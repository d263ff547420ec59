"""The words of vLLM, SGLang and llama-server for Manta's settings, and what they say that has no
setting here: what is so anyway is accepted, and all else is refused with what to use.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from serve_app.command.flags.flag import MODEL, Flag, Said, accepted, refused

GIB = 1 << 30
SUFFIXES = {"k": 1e3, "m": 1e6, "g": 1e9, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}  # vLLM's
UNSET = ""  # a word for leaving the choice to Manta
# Formats that the files of a model say by themselves.
OF_FILES = (
    *("auto", "awq", "awq_marlin", "gptq", "gptq_marlin", "compressed-tensors", "bitsandbytes"),
    *("mxfp4", "modelopt", "modelopt_fp4", "auto-round", "gguf"),
)
# vLLM's and SGLang's parsers of tool calls, by the dialect that reads the same.
PARSERS = {
    "auto": UNSET,
    "deepseek_v3": "deepseek",
    "deepseekv3": "deepseek",
    "deepseekv31": "deepseek_v31",
    "functiongemma": "gemma",
    "glm45": "glm",
    "glm47": "glm",
    "gpt-oss": "harmony",
    "hunyuan_a13b": "hunyuan",
    "kimi_k2": "kimi",
    "llama3": "llama3_json",
    "llama4_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "minimax_m2": "minimax",
    "openai": "harmony",
    "phi4_mini_json": "phi4",
    "qwen25": "hermes",
    "qwen3_xml": "qwen3_coder",
    "seed_oss": "seed",
}


def tokens(text: str) -> str:
    """Reads vLLM's short forms of numbers: 8k is 8000, 8K is 8192."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG])", text)
    return str(round(float(found[1]) * SUFFIXES[found[2]])) if found else text


def modules(text: str) -> str:
    """Reads vLLM's JSON of an adapter."""
    if not text.startswith("{"):
        return text
    try:
        read = json.loads(text)
        return f"{read['name']}={read['path']}"
    except (ValueError, KeyError) as error:
        raise ValueError('must be NAME=FOLDER, or {"name": ..., "path": ...}') from error


def words(known: Mapping[str, str]) -> Callable[[str], str]:
    return lambda text: known.get(text, text)


@dataclass(frozen=True, slots=True)
class Spelling:
    """Other servers' flags for an option, and `read` for their words of its values."""

    names: tuple[str, ...] = ()
    read: Callable[[str], str] = field(default=str)


# By keys of a presets file, which have llama-server's long names already.
MODEL_SPELLINGS: Mapping[str, Spelling] = {
    "model": Spelling(("--model-path",)),
    "num-replicas": Spelling(("--data-parallel-size", "--dp-size", "--dp", "-dp")),
    "tensor-parallel": Spelling(("--tensor-parallel-size", "--tp-size", "--tp", "-tp")),
    "dtype": Spelling(
        read=words({"auto": UNSET, "half": "float16", "float": "float32", "bf16": "bfloat16"})
    ),
    "quantization": Spelling(("-q",), words(dict.fromkeys(OF_FILES, UNSET))),
    "dialect": Spelling(("--tool-call-parser",), words(PARSERS)),
    "lora-modules": Spelling(("--lora-paths",), modules),
    "max-loras": Spelling(("--max-loras-per-batch",)),
    "ctx-size": Spelling(
        ("--max-model-len",), lambda text: UNSET if text in ("auto", "-1") else tokens(text)
    ),
    "parallel": Spelling(("--max-num-seqs", "--max-running-requests")),
    "batch-size": Spelling(("--max-num-batched-tokens", "--chunked-prefill-size"), tokens),
    "page-size": Spelling(("--block-size",)),
    "n-pages": Spelling(("--num-gpu-blocks-override",)),
    "kv-dtype": Spelling(
        ("--kv-cache-dtype", "--cache-type-k", "-ctk", "--cache-type-v", "-ctv"),
        words({"fp8_e4m3": "fp8"} | dict.fromkeys(("f16", "bf16", "bfloat16", "f32"), UNSET)),
    ),
    "gpu-memory-utilization": Spelling(("--mem-fraction-static",)),
    "model-draft": Spelling(("--speculative-draft-model-path",)),
    "draft-tokens": Spelling(("--speculative-num-draft-tokens",)),
    "max-stuck-s": Spelling(("--watchdog-timeout",)),
}
# By fields of the router's arguments and the ingresses': all names, the first one Manta's.
FIELD_NAMES: Mapping[str, tuple[str, ...]] = {
    "name": ("--name", "--served-model-name"),
    "presets": ("--presets", "--models-preset"),
    "autoload": ("--autoload", "--models-autoload"),
    "downloads_dir": ("--downloads-dir", "--download-dir"),
    "api_keys": ("--api-key",),
    "cors_origins": ("--cors-origins", "--allowed-origins"),
    "request_timeout_s": ("--request-timeout-s", "--timeout", "-to"),
    "media_folder": ("--media-folder", "--media-path", "--allowed-local-media-path"),
    "media_hosts": ("--media-hosts", "--allowed-media-domains"),
    "max_body_bytes": ("--max-body-bytes",),
}


def _speculative(text: str) -> Said:
    try:
        read = json.loads(text)
    except ValueError as error:
        raise ValueError('must be JSON, such as {"method": "mtp"}') from error
    known = {"method", "model", "num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min"}
    if not isinstance(read, dict) or not read.keys() <= known:
        raise ValueError(f"must be JSON with some of {', '.join(sorted(known))}")
    method = read.get("method", "draft_model")
    found: dict[tuple[str, str], object] = {}
    if "num_speculative_tokens" in read:
        found[MODEL, "draft-tokens"] = str(read["num_speculative_tokens"])
    if str(method).endswith("mtp"):
        return {**found, (MODEL, "spec-type"): "mtp"}
    if method in ("draft_model", "eagle3") and read.get("model"):
        return {**found, (MODEL, "model-draft"): str(read["model"])}
    if method == "ngram" and found:
        return found
    raise ValueError(
        "must be of the method mtp, of draft_model or eagle3 with a model, or of ngram with "
        "num_speculative_tokens"
    )


def _scaled(key: str, factor: float) -> Callable[[str], Said]:
    def read(text: str) -> Said:
        try:
            return {(MODEL, key): f"{float(text) * factor:g}"}
        except ValueError as error:
            raise ValueError("must be a number") from error

    return read


CONVERTED = (
    Flag(
        names=("--speculative-config",),
        metavar="JSON",
        read=_speculative,
        help="vLLM's form of spec-type, model-draft and draft-tokens",
    ),
    Flag(
        names=("--kv-cache-memory-bytes",),
        metavar="BYTES",
        read=_scaled("kv-gib", 1 / GIB),
        help="vLLM's form of kv-gib",
    ),
    Flag(
        names=("--mm-processor-cache-gb",),
        metavar="GIB",
        read=_scaled("media-cache-mib", 1024),
        help="vLLM's form of media-cache-mib",
    ),
)

ACCEPTED = (
    accepted("--enable-auto-tool-choice"),
    accepted("--enable-prefix-caching", "--cache-prompt"),
    accepted("--enable-chunked-prefill"),
    accepted("--enable-lora", why="with --lora-modules"),
    accepted("--enable-prompt-tokens-details", "--enable-cache-report"),
    accepted("--enable-metrics", "--metrics", "--slots", "--props"),
    accepted("--enable-sleep-mode", why="see --sleep-idle-seconds"),
    accepted("--jinja"),
    accepted("--flash-attn", "-fa", metavar="WORD", why="the engine chooses its kernels"),
    accepted("--cont-batching", "-cb"),
    accepted("--kv-unified", "-kvu"),
    accepted("--no-mmap", "--mmap", "--mlock", why="files are read as suits the machine"),
    accepted("--warmup", "--no-warmup", why="the engine sees to it by itself"),
    accepted("--no-context-shift"),
    accepted("--reasoning-parser", metavar="NAME", why="a dialect reads thoughts, too"),
    accepted("--threads-http", "--api-server-count", metavar="N", why="an ingress is asynchronous"),
    accepted(
        *("--disable-log-requests", "--no-enable-log-requests"), why="prompts are never logged"
    ),
)

TEMPLATE = "a model brings its template; another one is a chat_template.jinja in a copy of it"
TLS = "TLS is the work of a proxy in front"
WHOLE_MODELS = "a model is on its GPUs as a whole: see --num-gpus and --tensor-parallel"
SAMPLING = "requests say it; --temp, --top-k, --top-p and --min-p set what others get"
REFUSED_NAMES: Mapping[str, tuple[str, ...]] = {
    TEMPLATE: ("--chat-template", "--chat-template-file", "--chat-template-content-format"),
    "code that comes with a model is never run": ("--trust-remote-code",),
    "the newest revision is served; download another one and name its directory": (
        *("--revision", "--code-revision", "--tokenizer-revision"),
    ),
    TLS: (
        *("--ssl-keyfile", "--ssl-certfile", "--ssl-ca-certs", "--ssl-cert-reqs"),
        *("--ssl-key-file", "--ssl-cert-file"),
    ),
    "a proxy in front may add a prefix": ("--root-path", "--api-prefix"),
    "a model brings its tokenizer": ("--tokenizer", "--tokenizer-path", "--tokenizer-mode"),
    "the config.json of a model says it": (
        *("--rope-scaling", "--rope-theta", "--hf-overrides", "--hf-config-path"),
        *("--rope-freq-base", "--rope-freq-scale", "--override-kv"),
    ),
    WHOLE_MODELS: (
        *("--pipeline-parallel-size", "-pp", "--pp", "--cpu-offload-gb", "--split-mode", "-sm"),
        *("--tensor-split", "-ts", "--main-gpu", "-mg", "--device", "-dev", "--n-cpu-moe"),
    ),
    "a replica that needs several nodes is not served: see serve_app/guides/cluster.md": (
        *("--nnodes", "--node-rank", "--dist-init-addr", "--headless"),
    ),
    "more replicas share experts less well than --tensor-parallel does": (
        *("--enable-expert-parallel", "--ep-size"),
    ),
    "HF_TOKEN of the environment is the token of the hub": ("--hf-token", "-hft"),
    SAMPLING: (
        *("--generation-config", "--override-generation-config", "--seed", "-s"),
        *("--n-predict", "-n", "--grammar", "--json-schema"),
    ),
    "name the original model, a directory or a repository of the hub": ("--mmproj", "-mm"),
    "see --max-media": ("--limit-mm-per-prompt",),
    "--kv-gib and --n-pages say how much the cache holds": ("--max-total-tokens", "--swap-space"),
    "prefixes are always cached; `cache_salt` of a request keeps its own apart": (
        *("--no-enable-prefix-caching", "--disable-radix-cache"),
    ),
    "see --speculative-config, --spec-type and --model-draft": (
        *("--speculative-algorithm", "--speculative-num-steps", "--speculative-eagle-topk"),
    ),
    "the engine chooses its kernels": (
        *("--attention-backend", "--load-format", "--model-impl", "--enforce-eager"),
        *("--disable-cuda-graph", "--enable-torch-compile", "--compilation-config"),
    ),
    "the order of requests is fair between keys; `priority` of a request orders a key's own": (
        *("--scheduling-policy", "--schedule-policy"),
    ),
    "llguidance reads grammars and schemas": (
        *("--guided-decoding-backend", "--structured-outputs-config", "--grammar-backend"),
    ),
    "Ray Serve logs and traces: see serve_app/guides/monitoring.md": (
        *("--uvicorn-log-level", "--log-level", "--log-file", "--log-disable"),
        "--otlp-traces-endpoint",
    ),
    "~/.config/manta/manta.yaml holds settings; see also --presets": ("--config",),
}
REFUSED = tuple(refused(*names, why=why) for why, names in REFUSED_NAMES.items())
