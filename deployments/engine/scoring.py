"""Log-probabilities of tokens that are known already, a few positions at a time."""

from collections.abc import Iterator

from torch import Tensor

from deployments.wire import TokenLogprob

BLOCK = 64  # positions whose distributions are held at once


def score(logits: Tensor, token_ids: Tensor, n_top: int) -> Iterator[TokenLogprob]:
    """For each row of logits [n, vocab] what the token [n] had, and the `n_top` likeliest ones."""
    for start in range(0, len(token_ids), BLOCK):
        ids = token_ids[start : start + BLOCK]
        logprobs = logits[start : start + BLOCK].float().log_softmax(1)
        top = logprobs.topk(min(n_top, logprobs.shape[1]), dim=1)
        columns = (ids, logprobs.gather(1, ids[:, None])[:, 0], top.indices, top.values)
        for token_id, logprob, top_ids, values in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            yield TokenLogprob(token_id, logprob, tuple(zip(top_ids, values, strict=True)))
