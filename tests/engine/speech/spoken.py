"""Sentences as espeak-ng speaks them, from the package espeakng-loader."""

import ctypes
from functools import cache
from typing import Any

import espeakng_loader
import numpy as np
from numpy.typing import NDArray

from tests.media.files import sound

RETRIEVAL, UTF8 = 1, 1
SENTENCES = (
    "The weather is nice today, and we are going for a walk in the park.",
    "Please open the window, because it is very warm in this room.",
    "My brother bought seven apples and two bottles of milk at the market.",
    "The train to the city leaves at nine o'clock in the morning.",
    "She reads a long book about the history of music.",
    "We should meet on Friday to talk about the new house.",
)
Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p
)


@cache
def _library() -> tuple[Any, int, list[NDArray[np.int16]], Any]:
    """The library, its rate, what it has spoken, and the callback that it goes on to use: begun a
    second time in one process, it waits for ever."""
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    data_path = espeakng_loader.get_data_path().encode()
    rate = library.espeak_Initialize(RETRIEVAL, 0, data_path, 0)
    parts: list[NDArray[np.int16]] = []

    def take(samples: Any, n: int, _: object) -> int:
        if samples and n:
            parts.append(np.ctypeslib.as_array(samples, (n,)).copy())
        return 0

    callback = Callback(take)
    library.espeak_SetSynthCallback(callback)
    library.espeak_SetVoiceByName(b"en-us")
    library.espeak_SetParameter(1, 140, 0)  # words a minute
    return library, rate, parts, callback


def speak(texts: tuple[str, ...] = SENTENCES) -> tuple[NDArray[np.int16], int]:
    """Samples, and their rate."""
    library, rate, parts, _ = _library()
    parts.clear()
    for text in texts:
        data = text.encode()
        library.espeak_Synth(data, len(data) + 1, 0, 0, 0, UTF8, None, None)
        library.espeak_Synchronize()
        parts.append(np.zeros(rate // 2, dtype=np.int16))
    return np.concatenate(parts), rate


def wav(samples: NDArray[np.int16], rate: int) -> bytes:
    return sound(samples, rate)
