"""Reads what a GGUF file says of its model beside the weights.

Nothing of it is passed over in silence: what nobody asks for can be listed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deployments.contract.outputs import Pooling
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.reader import GGUF
from deployments.engine.loading.gguf.stored_tensor import dequantize

T = TypeVar("T")
ARCHITECTURE = "general.architecture"
DRAFTING = "nextn_predict_layers"
# Keys of an architecture that change nothing of a model: the size of its vocabulary is that of its
# embeddings.
MEANINGLESS = frozenset({"vocab_size", "tensor_data_layout"})
# By the numbers that files have for them. The next one ranks documents, with a head.
POOLINGS = (Pooling.TOKEN, Pooling.MEAN, Pooling.CLS, Pooling.LAST)


class GGUFFacts:
    """The metadata of a file's architecture, and the tensors that are no weights.

    Names of keys are without that of the architecture. Each method raises GGUFError for a value
    that is missing, or of another kind.
    """

    def __init__(self, gguf: GGUF) -> None:
        self._gguf = gguf
        self._asked_keys: set[str] = set()
        self._asked_tensors: set[str] = set()
        architecture = gguf.metadata.get(ARCHITECTURE)
        if not isinstance(architecture, str):
            raise GGUFError(f"{gguf.files[0]}: key {ARCHITECTURE!r}: it is missing, or no text")
        self.architecture = architecture

    def size(self, name: str) -> int:
        """A number from 1 on that all layers have in common."""
        found = self.optional_whole(name)
        if not found:
            raise self._missing(name)
        return found

    def optional_whole(self, name: str) -> int | None:
        """A number from 0 on that all layers have in common."""
        value = self._value(name)
        if isinstance(value, np.ndarray):  # one for each layer
            if value.size == 0 or (value != value[0]).any():
                raise self.error(name, "it differs between layers, which is not supported")
            value = value[0].item()
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(name, f"{value!r:.50} is no whole number from 0 on")
        return value

    def integers(self, name: str) -> list[int]:
        """Some numbers from 0 on."""
        value = self._value(name)
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or (value < 0).any():
            raise self.error(name, "it is no list of whole numbers from 0 on")
        return [int(number) for number in value]

    def by_layer(self, name: str) -> list[int]:
        """A number from 0 on for each layer. Files may have a single one for all."""
        n_layers = self.n_layers()
        if not isinstance(self._value(name), np.ndarray):
            return [self.size(name)] * n_layers
        found = self.integers(name)
        if len(found) != n_layers:
            raise self.error(name, f"it has {len(found)} numbers for {n_layers} layers")
        return found

    def flags_by_layer(self, name: str) -> list[bool]:
        """A truth value for each layer."""
        value, n_layers = self._value(name), self.n_layers()
        if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or len(value) != n_layers:
            raise self.error(name, f"it has no truth values for {n_layers} layers")
        return [bool(flag) for flag in value]

    def pooling(self) -> Pooling | None:
        """How a text becomes a vector; None: the file does not say it."""
        number = self.optional_whole("pooling_type")
        if number is not None and number >= len(POOLINGS):
            raise self.error("pooling_type", f"{number} is not supported")
        return None if number is None else POOLINGS[number]

    def number(self, name: str) -> float:
        found = self.optional_number(name)
        if found is None:
            raise self._missing(name)
        return found

    def optional_number(self, name: str) -> float | None:
        """The shortest decimal number that is the file's in float32, as configs have it."""
        value = self._value(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"{value!r:.50} is no number")
        with np.errstate(over="ignore"):
            short = np.float32(value)
        if not np.isfinite(short):
            raise self.error(name, f"{value!r:.50} is no finite number")
        return float(str(short)) if short == value else float(value)

    def optional_text(self, name: str) -> str | None:
        return self._optional(name, str, "text")

    def optional_flag(self, name: str) -> bool | None:
        return self._optional(name, bool, "truth value")

    def n_layers(self) -> int:
        """The number of layers without those that draft, which stand behind the others. Each has
        tensors: a broken file does not say a billion of them."""
        n_blocks, n_drafting = self.size("block_count"), self.optional_whole(DRAFTING) or 0
        if n_blocks > len(self._gguf.tensors):
            raise self.error("block_count", f"the file has fewer tensors than {n_blocks}")
        if n_drafting >= n_blocks:
            raise self.error(DRAFTING, f"it is not below {n_blocks}, the layers of all kinds")
        return n_blocks - n_drafting

    def vocab_size(self) -> int:
        return self.n_rows("token_embd.weight")

    def n_rows(self, name: str) -> int:
        """The rows of a matrix. Files may leave the size out that is 1."""
        tensor = self._gguf.tensors.get(name)
        if tensor is None or len(tensor.shape) not in (1, 2):
            raise GGUFError(f"{self._path}: tensor {name!r}: it is missing, or no matrix")
        return tensor.n_rows

    def token_id(self, name: str) -> int | None:
        """The id of a special token, such as `bos`."""
        key = f"tokenizer.ggml.{name}_token_id"
        value = self._gguf.metadata.get(key)
        if value is None:
            return None
        vocab_size = self.vocab_size()
        if not isinstance(value, int) or not 0 <= value < vocab_size:
            raise GGUFError(
                f"{self._path}: key {key!r}: {value!r:.50} is no id of the {vocab_size} tokens"
            )
        return value

    def has_tensor(self, name: str) -> bool:
        return name in self._gguf.tensors

    def factors(self, name: str, size: int) -> list[float] | None:
        """The numbers of a tensor that is no weight, from 0 on; None: the file has no such one."""
        tensor = self._gguf.tensors.get(name)
        if tensor is None:
            return None
        self._asked_tensors.add(name)
        if tensor.shape != (size,):
            raise GGUFError(
                f"{self._path}: tensor {name!r}: its shape is {[*tensor.shape]}, not {[size]}"
            )
        numbers = dequantize(tensor).numpy().ravel()
        if not (np.isfinite(numbers).all() and (numbers > 0).all()):
            raise GGUFError(f"{self._path}: tensor {name!r}: it has numbers that are not above 0")
        return [float(str(number)) for number in numbers]

    def leave_out(self, names: Iterable[str]) -> None:
        """Says of tensors that the file may have them, and that they change nothing."""
        self._asked_tensors.update(names)

    def tensors_beside(self) -> frozenset[str]:
        """The tensors that are no weights, and those of layers that draft, which are left out."""
        drafting = range(self.n_layers(), self.size("block_count"))
        starts = tuple(f"blk.{number}." for number in drafting)
        left_out = (name for name in self._gguf.tensors if name.startswith(starts))
        return frozenset(self._asked_tensors).union(left_out)

    def keys_left_over(self) -> Iterator[str]:
        """The keys of the architecture that nobody has asked for, and that may mean something."""
        start = f"{self.architecture}."
        for key in self._gguf.metadata:
            name = key.removeprefix(start)
            if key.startswith(start) and name not in self._asked_keys | MEANINGLESS:
                yield key

    def error(self, name: str, reason: str) -> GGUFError:
        return GGUFError(f"{self._path}: key {self._key(name)!r}: {reason}")

    def _optional(self, name: str, kind: type[T], what: str) -> T | None:
        value = self._value(name)
        if value is not None and not isinstance(value, kind):
            raise self.error(name, f"{value!r:.50} is no {what}")
        return value

    def _missing(self, name: str) -> GGUFError:
        return self.error(name, "it is missing, or 0")

    def _value(self, name: str) -> bool | int | float | str | NDArray[Any] | list[Any] | None:
        self._asked_keys.add(name)
        return self._gguf.metadata.get(self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.architecture}.{name}"

    @property
    def _path(self) -> Path:
        return self._gguf.files[0]
