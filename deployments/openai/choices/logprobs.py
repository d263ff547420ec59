"""Formats log-probabilities: as in chat, as in legacy completions, and as vLLM's of prompts."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from deployments.contract.events import TokenLogprob
from deployments.text.stream import LogprobAtOffset
from deployments.text.tokens.detokenizer import Detokenizer
from deployments.text.tokens.tokenizer import TextTokenizer

MIN_LOGPROB = -9999.0  # OpenAI's number for minus infinity, which JSON does not have
# Of a token: its id, the offset of its text, its logprob if it has one.
TokenAtOffset = tuple[int, int, TokenLogprob | None]
PromptLogprobs = Sequence[TokenLogprob | None]  # one for each token of a prompt


class Logprobs:
    """`as_ids` names tokens by their ids, as vLLM does, so that names are unique. `with_ids` says
    them beside the names, as llama-server does.
    """

    def __init__(self, tokenizer: TextTokenizer, *, as_ids: bool, with_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids
        self._with_ids = with_ids

    def chat(self, entries: Iterable[LogprobAtOffset]) -> object:
        return {"content": [self._entry(entry.token) for entry in entries], "refusal": None}

    def legacy(self, tokens: Sequence[TokenAtOffset]) -> dict[str, list[object]]:
        return {
            "tokens": [self._name(token_id) for token_id, _, _ in tokens],
            "token_logprobs": [token and finite(token.logprob) for _, _, token in tokens],
            "top_logprobs": [token and self._top(token) for _, _, token in tokens],
            "text_offset": [offset for _, offset, _ in tokens],
        }

    def prompt(self, logprobs: PromptLogprobs, alternatives: int) -> list[object]:
        """vLLM's list of one object a token; the first token has none."""
        return [
            token and self._ranked(token) for token in _with_alternatives(logprobs, alternatives)
        ]

    def _entry(self, token: TokenLogprob) -> object:
        top = [self._token(token_id, logprob) for token_id, logprob in token.top]
        return {**self._token(token.token_id, token.logprob), "top_logprobs": top}

    def _token(self, token_id: int, logprob: float) -> dict[str, object]:
        raw = self._tokenizer.token_bytes(token_id)
        token = {"token": self._name(token_id), "logprob": finite(logprob), "bytes": list(raw)}
        return {"id": token_id, **token} if self._with_ids else token

    def _top(self, token: TokenLogprob) -> dict[str, float]:
        """Maps the texts of the alternatives and of the sampled token to log-probabilities.

        Of tokens with the same text the likeliest counts.
        """
        named: dict[str, float] = {}
        for token_id, logprob in (*token.top, (token.token_id, token.logprob)):
            named.setdefault(self._name(token_id), finite(logprob))
        return named

    def _ranked(self, token: TokenLogprob) -> dict[str, object]:
        """Maps the ids of the alternatives and of the prompt's own token to objects.

        The rank of the prompt's own token is known only among the likeliest.
        """
        ranked: dict[str, object] = {}
        for rank, (token_id, logprob) in enumerate(token.top, start=1):
            ranked[str(token_id)] = {**self._decoded(token_id, logprob), "rank": rank}
        ranked.setdefault(str(token.token_id), self._decoded(token.token_id, token.logprob))
        return ranked

    def _decoded(self, token_id: int, logprob: float) -> dict[str, object]:
        return {"logprob": finite(logprob), "decoded_token": self._text(token_id)}

    def _name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else self._text(token_id)

    def _text(self, token_id: int) -> str:
        return self._tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def prompt_tokens_at_offsets(
    tokenizer: TextTokenizer, ids: Sequence[int], logprobs: PromptLogprobs, alternatives: int
) -> list[TokenAtOffset]:
    """The tokens of a prompt with their offsets in its text."""
    detokenizer = Detokenizer(tokenizer, at_start=True)
    found: list[TokenAtOffset] = []
    for token_id, logprob in zip(ids, _with_alternatives(logprobs, alternatives), strict=True):
        found.append((token_id, detokenizer.offset, logprob))
        detokenizer.push((token_id,))
    return found


def _with_alternatives(
    logprobs: PromptLogprobs, alternatives: int
) -> Iterator[TokenLogprob | None]:
    """Yields tokens with as many alternatives as one field requests: another may request more."""
    for token in logprobs:
        yield token and replace(token, top=token.top[:alternatives])


def finite(logprob: float) -> float:
    return max(logprob, MIN_LOGPROB)
