"""What an operator says to switch the built-in tools on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """folder: all that the tools may read and write.
    hosts: names by which this server is asked, beside localhost and addresses: a page of another
    name could have had its name resolved to this server.
    """

    folder: str
    hosts: tuple[str, ...] = ()
