"""Reads what the files of a LoRA adapter in PEFT's form say of it, and refuses what we can't serve.

Free of torch: ingresses and routers read adapters, too. Matrices are read by replicas alone.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from kv.content import DIGEST_BYTES

CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
MATRIX_NAME = re.compile(r"base_model\.model\.(.+)\.lora_([AB])\.weight")
# The last parts of the names of layers that adapters may change.
ADAPTED = frozenset(
    {
        *("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "qkv_proj"),
        *("gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2"),
        *("query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"),
    }
)
EXPERTS = "experts"  # a part of the names of their layers, each of which has some of the tokens
DIGEST = b"manta adapter"  # keeps digests of adapters apart from other hashes
MAX_CONFIG_BYTES = 1 << 20
MAX_HEADER_BYTES = 16 << 20  # of the file with the matrices
READ_BYTES = 1 << 20
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})  # by safetensors' names
# Fields about the adapter's origin or training. They do not change what it computes.
IGNORED_FIELDS = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "exclude_modules",
        "inference_mode",
        "layers_pattern",
        "layers_to_transform",
        "lora_dropout",
        "megatron_core",
        "peft_version",
        "qalora_group_size",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
    }
)
SUPPORTED_FIELDS = frozenset(
    {
        "alpha_pattern",
        "bias",
        "init_lora_weights",
        "lora_alpha",
        "peft_type",
        "r",
        "rank_pattern",
        "use_rslora",
    }
)
# Other initialisations change the base weights too. Their adapters need that change.
SUPPORTED_INITS = (True, False, None, "gaussian", "eva", "orthogonal")
PATTERN_FIELDS = {"r": "rank_pattern", "lora_alpha": "alpha_pattern"}

Config = Mapping[str, object]


class AdapterError(ValueError):
    """The adapter can't be read, or not served with this model. The message names it."""


@dataclass(frozen=True, slots=True)
class LoraModule:
    """The matrices of one module, which add scaling * lora_b @ lora_a to its weight.

    lora_a: [rank, n_in]; lora_b: [n_out, rank].
    """

    rank: int
    n_in: int
    n_out: int
    scaling: float


@dataclass(frozen=True, slots=True)
class AdapterInfo:
    """digest: of both files. rank: the largest of a module. alpha: `lora_alpha` of the config.
    targets: the last parts of the modules' names, such as q_proj. base_model: its name in the
    config, "" without one. n_bytes: of the file with the matrices. modules: by their names."""

    digest: bytes
    rank: int
    alpha: float
    targets: tuple[str, ...]
    base_model: str
    n_bytes: int
    modules: Mapping[str, LoraModule]


def read_adapter_info(path: str) -> AdapterInfo:
    """Returns what the files in the folder `path` say. Reads all of them, for the digest.

    Raises AdapterError, a ValueError that names the folder and what is wrong in it.
    """
    folder = Path(path)
    config = _read_config_bytes(folder)
    try:
        with (folder / WEIGHTS_FILE).open("rb") as file:
            header = _read_header(folder, file)
            file.seek(0)
            digest = adapter_digest(config, iter(lambda: file.read(READ_BYTES), b""))
            n_bytes = file.tell()
    except OSError as error:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} can't be read: {error}") from error
    return _info(folder, config, header, digest, n_bytes)


def read_adapter_files(path: str, max_bytes: int | None = None) -> tuple[AdapterInfo, bytes]:
    """Returns what `read_adapter_info` does, and the bytes of the file with the matrices.

    The info is about these bytes. Raises AdapterError, also for a file of more than `max_bytes`.
    """
    folder = Path(path)
    config = _read_config_bytes(folder)
    try:
        n_bytes = (folder / WEIGHTS_FILE).stat().st_size
        if max_bytes is not None and n_bytes > max_bytes:
            raise AdapterError(
                f"{folder}: {WEIGHTS_FILE} has {n_bytes} bytes, and the cache for adapters "
                f"{max_bytes}"
            )
        weights = (folder / WEIGHTS_FILE).read_bytes()
    except OSError as error:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} can't be read: {error}") from error
    header = _read_header(folder, BytesIO(weights))
    digest = adapter_digest(config, (weights,))
    return _info(folder, config, header, digest, len(weights)), weights


def adapter_digest(config: bytes, weights: Iterable[bytes]) -> bytes:
    """Returns the digest of both files' content; that of the second one may come in parts."""
    hasher = blake2b(digest_size=DIGEST_BYTES, person=DIGEST)
    hasher.update(len(config).to_bytes(8, "little") + config)
    for part in weights:
        hasher.update(part)
    return hasher.digest()


def _read_config_bytes(folder: Path) -> bytes:
    try:
        with (folder / CONFIG_FILE).open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except OSError as error:
        raise AdapterError(f"{folder}: {CONFIG_FILE} can't be read: {error}") from error
    if len(content) > MAX_CONFIG_BYTES:
        raise AdapterError(f"{folder}: {CONFIG_FILE} has more than {MAX_CONFIG_BYTES} bytes")
    return content


def _read_header(folder: Path, file: BinaryIO) -> dict[str, object]:
    """The header of a file of safetensors: its length in 8 bytes, then an object in JSON."""
    n_bytes = int.from_bytes(file.read(8), "little")
    if not 0 < n_bytes <= MAX_HEADER_BYTES:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} can't be read: it has no valid header")
    return _parse_object(folder, WEIGHTS_FILE, file.read(n_bytes))


def _parse_object(folder: Path, name: str, content: bytes) -> dict[str, object]:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AdapterError(f"{folder}: {name} can't be read: {error}") from error
    if not isinstance(parsed, dict):
        raise AdapterError(f"{folder}: {name} must be an object")
    return parsed


def _info(
    folder: Path, config_bytes: bytes, header: Mapping[str, object], digest: bytes, n_bytes: int
) -> AdapterInfo:
    config = _parse_object(folder, CONFIG_FILE, config_bytes)
    _check_config(folder, config)
    modules = dict(_modules(folder, config, header))
    if not modules:
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} is empty")
    base = config.get("base_model_name_or_path")
    return AdapterInfo(
        digest=digest,
        rank=max(module.rank for module in modules.values()),
        alpha=_positive_number(folder, "lora_alpha", config.get("lora_alpha")),
        targets=tuple(sorted({name.rpartition(".")[2] for name in modules})),
        base_model=base if isinstance(base, str) else "",
        n_bytes=n_bytes,
        modules=modules,
    )


def _check_config(folder: Path, config: Config) -> None:
    """Raises AdapterError for a field that can't be honoured."""
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"{folder}: peft_type {config.get('peft_type')} is not LORA")
    if config.get("bias", "none") != "none":
        raise AdapterError(f"{folder}: bias {config['bias']}: biases can't be adapted")
    if (init := config.get("init_lora_weights")) not in SUPPORTED_INITS:
        raise AdapterError(f"{folder}: init_lora_weights {init} changes the base weights too")
    for key in sorted(config.keys() - IGNORED_FIELDS - SUPPORTED_FIELDS):
        if config[key]:
            raise AdapterError(f"{folder}: {key} is not supported")


def _modules(
    folder: Path, config: Config, header: Mapping[str, object]
) -> Iterator[tuple[str, LoraModule]]:
    shapes: dict[str, dict[str, tuple[int, int]]] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = _matrix_shape(folder, name, entry)
        match = MATRIX_NAME.fullmatch(name)
        if match is None or shape is None:
            raise AdapterError(f"{folder}: {name}: only lora_A and lora_B of layers are served")
        shapes.setdefault(match[1], {})[match[2]] = shape
    for name, found in shapes.items():
        if found.keys() != {"A", "B"}:
            raise AdapterError(f"{folder}: {name}: one of lora_A and lora_B is missing")
        yield name, _module(folder, name, config, found["A"], found["B"])


def _matrix_shape(folder: Path, name: str, entry: object) -> tuple[int, int] | None:
    """None for what is no matrix."""
    if not isinstance(entry, dict) or not isinstance(shape := entry.get("shape"), list):
        raise AdapterError(f"{folder}: {WEIGHTS_FILE} can't be read: {name} has no shape")
    if entry.get("dtype") not in FLOATS:
        raise AdapterError(f"{folder}: {name}: numbers of type {entry.get('dtype')} can't be used")
    if len(shape) != 2 or not all(type(size) is int and size > 0 for size in shape):
        return None
    return shape[0], shape[1]


def _module(
    folder: Path, name: str, config: Config, a: tuple[int, int], b: tuple[int, int]
) -> LoraModule:
    rank = _value_for(folder, config, "r", name)
    alpha = _value_for(folder, config, "lora_alpha", name)
    if not a[0] == b[1] == rank:
        raise AdapterError(
            f"{folder}: {name}: its matrices have ranks {a[0]} and {b[1]}, {CONFIG_FILE} {rank:g}"
        )
    scaling = alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return LoraModule(a[0], a[1], b[0], scaling)


def _value_for(folder: Path, config: Config, key: str, module: str) -> float:
    """The config's value for one module: of the first pattern that matches the end of the module's
    name, or else the value for all modules."""
    patterns = config.get(PATTERN_FIELDS[key]) or {}
    value = config.get(key)
    if not isinstance(patterns, dict):
        raise AdapterError(f"{folder}: {PATTERN_FIELDS[key]} of {CONFIG_FILE} must be an object")
    try:
        matching = (patterns[p] for p in patterns if re.fullmatch(rf"(.*\.)?({p})", module))
        value = next(matching, value)
    except re.error as error:
        raise AdapterError(f"{folder}: {PATTERN_FIELDS[key]}: {error}") from error
    return _positive_number(folder, key, value)


def _positive_number(folder: Path, key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise AdapterError(f"{folder}: {key} of {CONFIG_FILE} must be a number over 0")
    return float(value)
