"""A flag of `manta serve`: its names, its words, and what it says of the settings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Setting = tuple[str, str]
Said = Mapping[Setting, object]

# Where a setting belongs: to a model, by its key in a presets file; to the router; to every
# application that has it; to `http_options`; to the command itself.
MODEL, ROUTER, INGRESS, HTTP, COMMAND = "model", "router", "ingress", "http", "command"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """names: as they are typed, Manta's own first, then those of other servers.
    read: says the settings of a value. Raises ValueError with what is wrong about it.
    metavar: a word for its value; "" for a switch, which is read as "true" or "false".
    is_negatable: a switch that may be said with `--no-`.
    is_list: it may be said several times.
    is_without_effect: it is accepted and says nothing, or it is refused.
    variables: of the environment, beside the one of its first name.
    """

    names: tuple[str, ...]
    help: str
    read: Callable[[str], Said]
    metavar: str = ""
    is_negatable: bool = False
    is_list: bool = False
    is_without_effect: bool = False
    is_refused: bool = False
    variables: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its first name in letters that Python and YAML take: `ctx_size`."""
        return self.names[0].lstrip("-").replace("-", "_")


def accepted(*names: str, metavar: str = "", why: str = "always so") -> Flag:
    """Returns a flag for what other servers have to be told, and is so here."""
    return Flag(names=names, help=why, read=lambda _: {}, metavar=metavar, is_without_effect=True)


def refused(*names: str, why: str) -> Flag:
    def read(_: str) -> Said:
        raise ValueError(why)

    return Flag(names=names, help=why, read=read, is_without_effect=True, is_refused=True)
