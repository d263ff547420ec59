"""llama-server's `completion_probabilities`: logprobs, or probabilities after sampling."""

from collections.abc import Sequence
from math import exp, inf

from deployments.text.stream import LogprobAtOffset
from deployments.text.tokens.tokenizer import TextTokenizer

MIN_LOGPROB = -3.4028234663852886e38  # for minus infinity, which JSON does not have


def completion_probabilities(
    entries: Sequence[LogprobAtOffset], tokenizer: TextTokenizer, *, sampled: bool
) -> list[dict[str, object]]:
    """`sampled`: probabilities after the samplers, without tokens that they removed."""
    alternatives = "top_probs" if sampled else "top_logprobs"

    def scored(token_id: int, logprob: float) -> dict[str, object]:
        raw = tokenizer.token_bytes(token_id)
        token = {"id": token_id, "token": raw.decode("utf-8", "replace"), "bytes": list(raw)}
        score = {"prob": exp(logprob)} if sampled else {"logprob": max(logprob, MIN_LOGPROB)}
        return {**token, **score}

    def tops(top: Sequence[tuple[int, float]]) -> list[dict[str, object]]:
        return [scored(*pair) for pair in top if not sampled or pair[1] > -inf]

    tokens = (entry.token for entry in entries)
    return [
        {**scored(token.token_id, token.logprob), alternatives: tops(token.top)} for token in tokens
    ]
