"""Tables of all settings for the guides, made from the types that read the settings."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from deployments.engine.loading.gguf.architectures.table import ARCHITECTURES
from deployments.engine.loading.gguf.block_types import BLOCK_TYPES
from deployments.router.presets.keys import KEYS
from deployments.router.presets.option_types import ScalingOptions
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.strict_options import Unset
from serve_app.command.flags.flag import Flag
from serve_app.command.flags.table import flags
from serve_app.ingress_arguments import (
    HttpArguments,
    IngressArguments,
    LlamaArguments,
    OpenAIArguments,
)
from serve_app.router_arguments import RouterArguments, RoutingArguments
from serve_app.web_arguments import WebArguments

MIB = 1 << 20
FOLDER = Path(__file__).parent
SIGNS = {Ge: ("ge", "≥"), Gt: ("gt", ">"), Le: ("le", "≤"), Lt: ("lt", "<")}
# The models of an architecture of GGUF files.
GGUF_MODELS = {
    "bert": "BERT, RoBERTa, XLM-RoBERTa, and what makes vectors with them (BGE, E5, MiniLM)",
    "deepseek2": "DeepSeek V2, V3 and R1, Kimi K2, Moonlight",
    "gemma2": "Gemma 2",
    "gemma3": "Gemma 3, its text",
    "gemma4": "Gemma 4, its text",
    "gpt-oss": "gpt-oss",
    "granite": "Granite 3",
    "lfm2": "LFM2",
    "llama": "Llama 2 and 3, Mistral, Mixtral",
    "nomic-bert": "Nomic Embed",
    "phi3": "Phi 3 and 4",
    "qwen2": "Qwen 2 and 2.5",
    "qwen3": "Qwen 3",
    "qwen35": "Qwen 3.5",
    "qwen35moe": "Qwen 3.5 with experts",
    "qwen3moe": "Qwen 3 with experts",
    "qwen3next": "Qwen 3 Next",
    "smollm3": "SmolLM3",
}

Row = Sequence[str]


def model_options() -> str:
    """Options of a model: keys of a presets file, and arguments of the router."""
    rows = [
        (_keys(option), _code(".".join(option)), *_described(field))
        for option, field in _options(ModelOptions.model_fields)
    ]
    return _table(("key of a presets file", "argument", "default", "allowed", "meaning"), rows)


def fleet_settings() -> str:
    """Arguments of the router that are not options of a model."""
    fields = _without(RouterArguments, ModelOptions)
    return _settings({name: field for name, field in fields.items() if name != "routing"})


def routing_settings() -> str:
    return _settings(RoutingArguments.model_fields)


def ingress_settings() -> str:
    return _settings(IngressArguments.model_fields)


def tool_settings() -> str:
    """Arguments that only the application `llama` has."""
    return _settings(_without(LlamaArguments, OpenAIArguments))


def openai_settings() -> str:
    """Arguments that only the applications `openai` and `llama` have."""
    return _settings(_without(OpenAIArguments, IngressArguments))


def web_settings() -> str:
    """Arguments that only the application `web` has."""
    return _settings(_without(WebArguments, HttpArguments))


def gguf_types() -> str:
    """Types of weights in GGUF files."""
    types = sorted(BLOCK_TYPES.values(), key=lambda kind: kind.n_bytes / kind.n_weights)
    rows = [
        (
            _code(kind.name),
            f"{8 * kind.n_bytes / kind.n_weights:g}",
            str(kind.n_weights),
            "stays quantized" if kind.n_weights > 1 else "becomes the `dtype`",
        )
        for kind in types
    ]
    return _table(("type", "bits a weight", "weights in a block", "in memory"), rows)


def gguf_architectures() -> str:
    rows = [(_code(name), GGUF_MODELS[name]) for name in sorted(ARCHITECTURES)]
    return _table(("architecture", "models"), rows)


def spellings() -> str:
    """Flags of `manta serve` that have other names, too."""
    found = [flag for flag in flags() if not flag.is_without_effect and len(flag.names) > 1]
    rows = [(_code(flag.names[0]), ", ".join(map(_code, flag.names[1:]))) for flag in found]
    return _table(("flag", "also as"), rows)


def accepted_flags() -> str:
    accepted = [flag for flag in flags() if flag.is_without_effect and not flag.is_refused]
    return _flags(accepted, "because")


def refused_flags() -> str:
    return _flags((flag for flag in flags() if flag.is_refused), "what to know")


TABLES = {
    "command.md": {
        "spellings": spellings,
        "accepted flags": accepted_flags,
        "refused flags": refused_flags,
    },
    "gguf.md": {"types of weights": gguf_types, "architectures": gguf_architectures},
    "models.md": {
        "model options": model_options,
        "fleet settings": fleet_settings,
        "routing settings": routing_settings,
    },
    "security.md": {"ingress settings": ingress_settings, "tool settings": tool_settings},
    "storage.md": {"web settings": web_settings},
    "responses.md": {"openai settings": openai_settings},
}


def page(name: str) -> str:
    """A guide's text with its tables as they should be. Raises ValueError if a mark is missing."""
    text = (FOLDER / name).read_text()
    for title, table in TABLES[name].items():
        begin, end = f"<!-- table: {title} -->\n", "<!-- end of table -->"
        before, mark, rest = text.partition(begin)
        _, end_mark, after = rest.partition(end)
        if not mark or not end_mark:
            raise ValueError(f"{name} has no marks for the table {title!r}")
        text = f"{before}{begin}{table()}{end}{after}"
    return text


def _without(settings: type[BaseModel], other: type[BaseModel]) -> dict[str, FieldInfo]:
    fields = settings.model_fields.items()
    return {name: field for name, field in fields if name not in other.model_fields}


def _options(
    fields: Mapping[str, FieldInfo], within: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], FieldInfo]]:
    for name, field in fields.items():
        if field.annotation == ScalingOptions | None:
            yield from _options(ScalingOptions.model_fields, (name,))
        else:
            yield (*within, name), field


def _keys(option: tuple[str, ...]) -> str:
    """The keys of an option, each with its short forms; names of environment variables left out."""
    found = []
    for key in KEYS:
        if key.option == option:
            first, *others = [name for name in key.ini.names if not name.isupper()]
            short = ", ".join(_code(name) for name in others)
            found.append(_code(first) + (f" ({short})" if short else ""))
    return ", ".join(found)


def _settings(fields: Mapping[str, FieldInfo]) -> str:
    rows = [(_code(name), *_described(field)) for name, field in fields.items()]
    return _table(("setting", "default", "allowed", "meaning"), rows)


def _flags(found: Iterable[Flag], why: str) -> str:
    rows = [(", ".join(map(_code, flag.names)), flag.help) for flag in found]
    return _table(("flag", why), rows)


def _described(field: FieldInfo) -> Row:
    return _default(field), _allowed(field), field.description or ""


def _default(field: FieldInfo) -> str:
    for extra in field.metadata:
        if isinstance(extra, Unset):
            return extra.text
    value = field.default
    if value is None:
        return "from the model's `generation_config.json`"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, int) and value >= MIB and value % MIB == 0:
        return f"{value // MIB} MiB"
    if isinstance(value, (tuple, str)):
        return _code(value) if value and isinstance(value, str) else "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _allowed(field: FieldInfo) -> str:
    """The values of a Literal, or the limits of a number."""
    kinds = [field.annotation, *get_args(field.annotation)]
    if choices := [
        choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)
    ]:
        return ", ".join(_code(choice) for choice in dict.fromkeys(choices))
    return ", ".join(
        f"{sign} {getattr(limit, attribute):g}"
        for limit in field.metadata
        for kind, (attribute, sign) in SIGNS.items()
        if isinstance(limit, kind)
    )


def _table(head: Row, rows: Iterable[Row]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(text: object) -> str:
    return f"`{text}`"
