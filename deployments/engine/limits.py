"""The sizes of an engine that an operator may set. Free of torch: routers read them too."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """None leaves the choice to the engine.

    n_pages: KV pages in all; else `kv_gib` of memory, but no more than could ever be used.
    context_length: longest sequence, prompt and output; else what the model was made for.
    max_batch_tokens: tokens computed in one step, at least max_running.
    max_waiting: accepted requests that have no pages yet; more are refused as overload.
        One client's are at most 8 times the places that are left free.
    max_stuck_s: a step longer than this fails the health check.
    """

    page_size: int = 16
    n_pages: int | None = None
    kv_gib: float = 1.0
    context_length: int | None = None
    max_running: int = 64
    max_batch_tokens: int = 512
    max_waiting: int = 1024
    max_stuck_s: float = 120.0
