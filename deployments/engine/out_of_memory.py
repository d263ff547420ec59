"""Tells errors for want of memory from others, and makes room after one."""

import torch

# What torch's allocators say, and libraries that use their own.
OUT_OF_MEMORY_PHRASES = ("out of memory", "can't allocate", "not enough memory", "alloc_failed")


def is_out_of_memory(error: Exception) -> bool:
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(
        phrase in text for phrase in OUT_OF_MEMORY_PHRASES
    )


def release_memory() -> None:
    """Gives back the memory that torch keeps for later: it may be in pieces that are too small."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
