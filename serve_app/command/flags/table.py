"""All flags of `manta serve`: one for each setting, made from the types that read the settings, and
those of other servers.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from deployments.router.presets.keys import KEYS, Key, parse_value
from deployments.router.presets.options import ModelOptions
from deployments.router.presets.values import BOOLEAN_WORDS, boolean, embed_only, rerank_only
from serve_app.command.flags.flag import (
    COMMAND,
    HTTP,
    INGRESS,
    MODEL,
    ROUTER,
    Flag,
    Said,
)
from serve_app.command.flags.peers import (
    ACCEPTED,
    CONVERTED,
    FIELD_NAMES,
    MODEL_SPELLINGS,
    REFUSED,
    Spelling,
)
from serve_app.ingress_arguments import LlamaArguments
from serve_app.router_arguments import RouterArguments
from serve_app.web_arguments import WebArguments

SWITCHES = (boolean, embed_only, rerank_only)
# Of arguments: those that have no form as text, and one that is an option of models, too.
NO_FLAGS = {"routing", "defaults", "stop_timeout_s"}
STOP_TIMEOUT = "stop-timeout"
# llama-server's names with one dash.
SHORT = {"m", "a", "t", "c", "b", "hf", "hfr", "hff", "ngl", "np", "md", "hfd", "hfrd"}
SHORT |= {"cms", "cram", "ctxcp"}
OFF = "off"  # a word for what a setting without a value is
METAVARS = {int: "N", float: "X"}
PREFIX = "MANTA_"


@cache
def flags() -> tuple[Flag, ...]:
    """Returns each flag once: no two have a name in common."""
    own = [*(_of_key(key) for key in KEYS), *_of_fields(RouterArguments, ROUTER)]
    own += [*_of_fields(LlamaArguments, INGRESS), *_of_fields(WebArguments, INGRESS)]
    listed = [*OF_COMMAND, *own, *CONVERTED, *ACCEPTED, *REFUSED]
    return tuple({flag.names[0]: flag for flag in reversed(listed)}.values())[::-1]


def _of_key(key: Key) -> Flag:
    spelling = MODEL_SPELLINGS.get(key.name, Spelling())
    own = (name for name in key.ini.names if not name.isupper())
    names = (*(f"-{name}" if name in SHORT else f"--{name}" for name in own), *spelling.names)
    is_switch = key.ini.read in SWITCHES
    field = _field(key)
    return Flag(
        names=names,
        help=_plain(field.description or ""),
        read=partial(_read_key, key, spelling),
        metavar="" if is_switch else _metavar(field),
        is_negatable=key.ini.read is boolean,
        is_list=get_origin(field.annotation) is tuple,
        variables=(_variable(names[0]), *(name for name in key.ini.names if name.isupper())),
    )


def _field(key: Key) -> FieldInfo:
    fields = ModelOptions.model_fields
    for name in key.option[:-1]:
        inner = next(kind for kind in get_args(fields[name].annotation) if kind is not type(None))
        fields = inner.model_fields
    return fields[key.option[-1]]


def _read_key(key: Key, spelling: Spelling, text: str) -> Said:
    word = spelling.read(text)
    if not word and text:
        return {}
    said: dict[tuple[str, str], object] = {(MODEL, key.name): parse_value(key, word, False)}
    if key.name == STOP_TIMEOUT:
        said[INGRESS, "stop_timeout_s"] = float(word)
    return said


def _of_fields(arguments: type[BaseModel], place: str) -> Iterator[Flag]:
    for name, field in arguments.model_fields.items():
        if name in ModelOptions.model_fields or name in NO_FLAGS:
            continue
        names = FIELD_NAMES.get(name, (f"--{name.replace('_', '-')}",))
        is_list = get_origin(field.annotation) is tuple
        yield Flag(
            names=names,
            help=_plain(field.description or ""),
            read=partial(_read_field, arguments, place, name, is_list),
            metavar="" if field.annotation is bool else _metavar(field),
            is_negatable=field.annotation is bool,
            is_list=is_list,
            # The server reads this variable by itself, so that no config has the keys.
            variables=() if name == "api_keys" else (_variable(names[0]),),
        )


def _read_field(
    arguments: type[BaseModel], place: str, name: str, is_list: bool, text: str
) -> Said:
    value: object = _listed(text) if is_list else text
    if text == OFF and type(None) in get_args(arguments.model_fields[name].annotation):
        value = None
    if arguments.model_fields[name].annotation is bool:
        value = BOOLEAN_WORDS.get(text, text)
    try:
        read = arguments.model_validate({name: value})
    except ValidationError as error:
        message = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ValueError(
            message.removeprefix(f"{name}: ").replace("Input should", "must")
        ) from error
    said: dict[tuple[str, str], object] = {(place, name): _plain_value(getattr(read, name))}
    if name in LlamaArguments.model_fields and name in RouterArguments.model_fields:
        said[INGRESS, name] = said[place, name]
    return said


def _plain_value(value: object) -> object:
    """Makes a value one of JSON's; secrets as they are, because the config has to work."""
    if isinstance(value, tuple):
        return [_plain_value(item) for item in value]
    secret: Callable[[], object] | None = getattr(value, "get_secret_value", None)
    return value if secret is None else secret()


def _listed(text: str) -> list[str]:
    if text.startswith("["):
        read = json.loads(text)
        return [str(item) for item in read]
    return [part.strip() for part in text.split(",") if part.strip()]


def _metavar(field: FieldInfo) -> str:
    kinds = {field.annotation, *get_args(field.annotation)}
    return next((word for kind, word in METAVARS.items() if kind in kinds), "TEXT")


def _plain(description: str) -> str:
    """Makes plain text of a guide's words."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", description).replace("`", "")


def _variable(name: str) -> str:
    return PREFIX + name.lstrip("-").replace("-", "_").upper()


def _of_command(
    place: str, name: str, read: Callable[[str], object] = str
) -> Callable[[str], Said]:
    return lambda text: {(place, name): read(text)}


def _port(text: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text) or not 0 < int(text) < 1 << 16:
        raise ValueError("must be a port: 1 to 65535")
    return int(text)


OF_COMMAND = (
    Flag(
        names=("--host",),
        metavar="ADDRESS",
        read=_of_command(HTTP, "host"),
        help="Address to listen on. 0.0.0.0 is all of the machine's",
    ),
    Flag(
        names=("--port",),
        metavar="N",
        read=_of_command(HTTP, "port", _port),
        variables=("MANTA_PORT", "LLAMA_ARG_PORT"),
        help="Port to listen on. Without it 8000, or the next free one",
    ),
    Flag(
        names=("--address",),
        metavar="ADDRESS",
        read=_of_command(COMMAND, "address"),
        help="A running Ray cluster to serve on: HOST:PORT, or auto. Without it Manta starts its "
        "own",
    ),
    Flag(
        names=("--webui", "--ui"),
        is_negatable=True,
        read=_of_command(COMMAND, "webui", boolean),
        variables=("MANTA_WEBUI",),
        help="Serve the chat page",
    ),
)
