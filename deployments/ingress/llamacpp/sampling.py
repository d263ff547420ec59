"""DRY and Mirostat as llama-server's fields give them, with its defaults."""

from collections.abc import Sequence
from typing import Literal

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import DryParams, MirostatParams
from deployments.text.tokens.token_search import ids_containing
from deployments.text.tokens.tokenizer import TextTokenizer

DRY_BREAKERS = ("\n", ":", '"', "*")
DRY_BASE, DRY_ALLOWED_LENGTH, DRY_LAST_N = 1.75, 2, 64  # llama-server's own
MIROSTAT_TAU, MIROSTAT_ETA = 5.0, 0.1


def dry_params(
    card: ModelCard,
    tokenizer: TextTokenizer,
    *,
    multiplier: float,
    base: float,
    allowed_length: int,
    last_n: int,
    breakers: Sequence[str] | None,
) -> DryParams | None:
    """None if they have no effect. Without `breakers` llama-server's are used, if tokens contain
    them. Raises Refused.
    """
    if not multiplier or not last_n:
        return None
    ids: set[int] = set()
    for text in DRY_BREAKERS if breakers is None else breakers:
        found = ids_containing(text, card.vocab_size, tokenizer)
        if not found and breakers is not None:
            message = f"`dry_sequence_breakers`: no token of this model contains {text!r}"
            raise refused(message, "dry_sequence_breakers")
        ids |= found
    return DryParams(
        multiplier=multiplier,
        base=base,
        allowed_length=allowed_length,
        last_n=last_n,
        breakers=tuple(sorted(ids)),
    )


def mirostat_params(version: Literal[0, 1, 2], tau: float, eta: float) -> MirostatParams | None:
    return MirostatParams(version=version, tau=tau, eta=eta) if version else None
