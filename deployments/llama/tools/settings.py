"""The settings of the built-in tools."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSettings:
    """folder: the folder that the tools may read and write.
    hosts: host names of this server, beside localhost and IP addresses. Requests to other names are
    refused, because another page's name could be made to resolve to this server.
    """

    folder: str
    hosts: tuple[str, ...] = ()
