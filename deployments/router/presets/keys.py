"""Keys of a presets file: which option each one says, read and written; raises ValueError alone.

No key is dropped: one that is not ours is refused with its reason or with the nearest of ours.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce

from pydantic import BaseModel, ValidationError

from deployments.router.presets.option_types import (
    AdapterOptions,
    ScalingOptions,
    ServedAdapterOptions,
)
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.strict_options import MIN_SIMILARITY, Ini
from deployments.router.presets.values import boolean, hub_file, with_hub_file

SAMPLING = (
    r"top-nsigma|xtc-.*|seed|repeat-last-n|dry-.*|dynatemp-.*|mirostat.*|samplers|sampling-seq|"
    r"sampler-seq|logit-bias|grammar.*|json-schema.*|n-predict|predict|n"
)
# llama-server's options that mean something else than a model here, or nothing at all.
REFUSED = (
    (r"host|port|reuse-port", "the addresses are http_options of serve.yaml"),
    (r"api-key.*", "api_keys and api_key_file are arguments of openai, anthropic and llama"),
    (r"api-prefix", "prefixes are the route_prefix of each application in serve.yaml"),
    (r"ssl-.*", "TLS is the work of a proxy in front"),
    (r"timeout|to", "request_timeout_s is an argument of openai, anthropic and llama"),
    (
        r"(no-)?(models-.*|autoload)|presets|grows|[cg]pu-memory-gib|load-timeout.*|routing",
        "the fleet's options are arguments of router: presets, models_dir, models_max, autoload",
    ),
    (r"name|served-model-name", "the name of its section is the model's; see alias"),
    (r"hf-token|hft", "HF_TOKEN of the environment is the token of the hub"),
    (r"dedup-cache-models", "models of a cache are not listed here"),
    (
        SAMPLING,
        "requests say it",
    ),
    (r"chat-template.*|(no-)?jinja|reasoning-.*", "a model brings its template; see dialect"),
    (
        r".*-draft|.*draft-.*|spec-.*|speculative-.*|num-speculative-.*|mtp(-.*)?",
        "of drafting, spec-type = mtp (the model's own head), model-draft (a draft model or an "
        "EAGLE-3 head), draft-max, draft-min and draft-p-min can be set",
    ),
    (r"lora-init-without-apply", "requests choose; see lora-modules"),
    (
        r"mmproj.*|mm|mmu|no-mmproj.*",
        "for images and sounds name the original model, a directory or a repository of the hub",
    ),
    (r"(cache-type|ct)-?[kv]", "pages are of the model's dtype, or of kv-dtype = fp8"),
    (
        r"cache-ram|cram",
        "prompts stay in the KV cache, of kv-gib; cache-disk keeps them longer, and "
        "ctx-checkpoints-mib is the memory for states of layers that keep one",
    ),
    (r"model-url|mu", "a model is a path or a repository of the hub; see model and hf-repo"),
    (
        r"device|dev|main-gpu|mg|split-mode|sm|tensor-split|ts|(n-)?cpu-moe|n?cmoe|"
        r"override-tensor|ot",
        "a model is on GPUs as a whole; see num-gpus and tensor-parallel",
    ),
    (r"rope-.*|yarn-.*", "the model's config.json says it"),
    (
        r"(no-)?(flash-attn|fa|mmap|mlock|direct-io|dio|numa|repack|fit.*|warmup|cont-batching|cb|"
        r"ubatch-size|ubatch|ub|kv-unified|kvu|kv-offload|kvo|cache-(prompt|reuse)|"
        r"swa-full|context-shift)",
        "the engine sees to it by itself",
    ),
)


@dataclass(frozen=True, slots=True)
class Key:
    """`option` is the path of an option: ("autoscaling", "min_replicas")."""

    option: tuple[str, ...]
    ini: Ini

    @property
    def name(self) -> str:
        return self.ini.names[0]


def _keys(options: type[BaseModel], within: tuple[str, ...] = ()) -> Iterable[Key]:
    for name, field in options.model_fields.items():
        if field.annotation == ScalingOptions | None:
            yield from _keys(ScalingOptions, (name,))
            continue
        inis = [extra for extra in field.metadata if isinstance(extra, Ini)]
        for ini in inis or [Ini((_dashed(name),))]:
            yield Key((*within, name), ini)


def _dashed(name: str) -> str:
    return name.replace("_", "-")


KEYS = tuple(_keys(ModelOptions))
BY_NAME = {_dashed(name): key for key in KEYS for name in key.ini.names}
SHOWN = {key.option: key for key in reversed(KEYS)}  # the first key of each option


def find_key(name: str) -> tuple[Key, bool]:
    """The key, and whether it is said with `no-`."""
    dashed = _dashed(name)
    if dashed in BY_NAME:
        return BY_NAME[dashed], False
    positive = BY_NAME.get(dashed.removeprefix("no-"))
    if positive is not None and positive.ini.read is boolean:
        return positive, True
    raise ValueError(_unknown(name))


def _unknown(name: str) -> str:
    bare = _dashed(name).removeprefix("LLAMA-ARG-").removeprefix("LLAMA-").lower().strip("-")
    for pattern, reason in REFUSED:
        if re.fullmatch(pattern, bare):
            return f"{name} can't be set here: {reason}"
    near = get_close_matches(bare, BY_NAME, n=1, cutoff=MIN_SIMILARITY)
    return f"unknown key {name}" + (f"; did you mean {near[0]}?" if near else "")


def parse_value(key: Key, text: str, inverted: bool) -> object:
    """Reads what a text says of one option, and checks it."""
    if text == key.ini.unset:
        return _at(ModelOptions(), key.option)
    value = key.ini.read(text)
    given = not value if inverted else value
    try:
        return _at(_options({key.option: given}), key.option)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ValueError(reason.replace("Input should", "must")) from error


def build_options(values: Mapping[str, object]) -> ModelOptions:
    """Makes options of all values of one section, which are by the names of their keys."""
    given: dict[tuple[str, ...], object] = {}
    for key in KEYS:
        if key.name in values:
            value = values[key.name]
            given[key.option] = (
                _combined(key, given[key.option], value) if key.option in given else value
            )
    if str(given.get(("model",), "")).startswith(":"):
        raise ValueError("hf-file is a file of hf-repo: say both")
    return _options(given)


def _combined(second: Key, value: object, second_value: object) -> object:
    """Combines the values of two keys that say one option."""
    if second.ini.read is hub_file:
        return with_hub_file(str(value), str(second_value))
    if isinstance(value, tuple) and isinstance(second_value, tuple):
        return (*value, *second_value)
    # A number of GPUs says more than that there are some.
    same = bool(value) == bool(second_value) if second.option == ("num_gpus",) else False
    if same or value == second_value:
        return value
    raise ValueError(f"{SHOWN[second.option].name} and {second.name} contradict each other")


def format_section(name: str, options: ModelOptions) -> str:
    """A section of a presets file that says these options."""
    lines = sorted(
        _format_option(key, _at(options, option))
        for option, key in SHOWN.items()
        if _is_given(options, option)
    )
    return "\n".join([f"[{name}]", *lines, "", ""])


def _format_option(key: Key, value: object) -> str:
    if value is None:
        return f"{key.name} = {key.ini.unset}"
    if isinstance(value, bool):
        return f"{key.name} = {str(value).lower()}"
    if isinstance(value, float):
        return f"{key.name} = {str(value).removesuffix('.0')}"
    if not isinstance(value, tuple):
        return f"{key.name} = {value}"
    scaled = any(isinstance(item, AdapterOptions) and item.scale != 1 for item in value)
    name = "lora-scaled" if scaled else key.name
    items = key.ini.separator.join(_format_item(item, scaled) for item in value)
    return f"{name} = {items}"


def _format_item(one: object, scaled: bool) -> str:
    if isinstance(one, ServedAdapterOptions):
        return f"{one.name}={one.path}:{one.scale}"
    if not isinstance(one, AdapterOptions):
        return str(one)
    return f"{one.path}:{one.scale}" if scaled else one.path


def _options(given: Mapping[tuple[str, ...], object]) -> ModelOptions:
    flat = {option[0]: value for option, value in given.items() if len(option) == 1}
    scaling = {option[1]: value for option, value in given.items() if len(option) == 2}
    return ModelOptions.model_validate(flat | ({"autoscaling": scaling} if scaling else {}))


def _at(options: ModelOptions, option: tuple[str, ...]) -> object:
    return reduce(getattr, option, options)


def _is_given(options: BaseModel, option: tuple[str, ...]) -> bool:
    name, *rest = option
    if name not in options.model_fields_set:
        return False
    within = getattr(options, name)
    return _is_given(within, tuple(rest)) if rest and within is not None else not rest
