"""The form in which the files of a model have its weights."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsForm:
    """The form of the files, by their headers.

    format: "gguf" or "safetensors".
    type: llama.cpp's name of a mixture, such as "Q4_K_M"; else how weights are quantized, in their
        files or as they are loaded; else the dtype of most weights.
    bits: of a weight, on average.
    n_weights, n_bytes: of all tensors, as the files have them.
    family: the architecture, by the file's own word.
    context_length: that the model was trained for; 0 if it is not said.
    vocab_type: llama.cpp's number for the kind of a tokenizer; 0 if it is not known.
    makes_vectors: a GGUF file says that the model is there for vectors.
    """

    format: str
    type: str
    bits: float
    n_weights: int
    n_bytes: int
    family: str = ""
    context_length: int = 0
    vocab_type: int = 0
    makes_vectors: bool = False
