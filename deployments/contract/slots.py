"""llama-server's slots, as an ingress and a replica speak of them: an owner's sequences by number.

A sequence is the last one that a request with this `id_slot` has left behind.
"""

from dataclasses import dataclass
from enum import StrEnum

MAX_SLOTS = 256  # of an owner: numbers are from 0 on and below


class SlotVerb(StrEnum):
    SAVE = "save"
    RESTORE = "restore"
    ERASE = "erase"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAction:
    """filename: of the file that is written or read, in the owner's folder; "" where there is
    none."""

    verb: SlotVerb
    owner: str
    id_slot: int
    filename: str = ""


@dataclass(frozen=True, slots=True)
class SlotReport:
    """n_tokens: that were saved, restored or erased. n_bytes: of the file. ms: that it took."""

    n_tokens: int
    n_bytes: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class SlotStatus:
    """n_tokens: of the sequence. used_at: when it was left or restored, in Unix seconds."""

    n_tokens: int
    used_at: float
