"""How fast a completion was, in llama-server's words; every number is finite and not negative."""

from deployments.llama.completion_text import CompletionText
from deployments.text.stream import TextDelta


def timings(text: CompletionText, delta: TextDelta, prompt_tokens: int) -> dict[str, float]:
    """Up to `delta`. The prompt's time includes waiting; the first token belongs to it."""
    computed = max(prompt_tokens - delta.cached_tokens, 0)
    steps = max(delta.output_tokens - 1, 0)
    prompt_ms = 1000 * (text.first - text.started)
    predicted_ms = 1000 * (text.last - text.first)
    return {
        "cache_n": delta.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, computed),
        "prompt_per_second": _ratio(1000 * computed, prompt_ms),
        "predicted_n": delta.output_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _ratio(predicted_ms, steps),
        "predicted_per_second": _ratio(1000 * steps, predicted_ms),
    }


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0
