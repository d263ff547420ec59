"""Answers that are no tokens: how a request asks for vectors, and how they travel."""

from dataclasses import dataclass
from enum import StrEnum

VECTOR_ITEM_BYTES = 4  # a number of a vector is a float32


class ModelTask(StrEnum):
    """The task of a model, by its files or by its setting."""

    GENERATE = "generate"
    EMBED = "embed"  # a vector for a text
    SCORE = "score"  # a number for a pair of texts, as cross-encoders and rerankers give it
    CLASSIFY = "classify"  # a number for each of its labels


class Pooling(StrEnum):
    """How the hidden states of a text become a vector, by llama-server's names."""

    LAST = "last"
    CLS = "cls"
    MEAN = "mean"
    TOKEN = "none"  # a vector for each token


class Activation(StrEnum):
    """The function that makes probabilities of the logits of a classification head."""

    NONE = "none"
    SIGMOID = "sigmoid"
    SOFTMAX = "softmax"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolParams:
    """Asks for vectors [n, size], where n is 1, or the number of tokens with `Pooling.TOKEN`.

    pooling: None for the model's own.
    dimensions: the first numbers of a vector, which are normalised if the vector would be; None:
        all of them.
    normalize: as llama-server's embd_normalize: -1 not at all, 0 to a largest number of 32760, 1
        taxicab, 2 Euclidean, more: the norm of this power; None: as the model's files say.
    use_head: what travels are the logits of the model's classification head; all else is None.
    """

    pooling: Pooling | None = None
    dimensions: int | None = None
    normalize: int | None = None
    use_head: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelParams:
    """Asks for the log-probabilities of some tokens as the next one: a vector [1, labels].

    They are of the model's own distribution over its vocabulary.
    """

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AlignParams:
    """Asks when a transcript's tokens are heard: a vector [1, tokens] of when each one begins to be
    attended from, in ticks of the model's times. The transcript is the end of the prompt.

    n_before: tokens of the prompt that stand before it.
    """

    n_before: int


OutputParams = PoolParams | LabelParams | AlignParams


@dataclass(frozen=True, slots=True)
class Vectors:
    """float32, little endian, [n, len(data) / 4 / n]. n is above 0."""

    n: int
    data: bytes

    @property
    def size(self) -> int:
        """Numbers of one vector."""
        return len(self.data) // VECTOR_ITEM_BYTES // self.n


def join_vectors(parts: list[Vectors]) -> Vectors | None:
    """The vectors of one text, which came in several parts. None: no part."""
    if not parts:
        return None
    return Vectors(sum(part.n for part in parts), b"".join(part.data for part in parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerKinds:
    """Which answers a model has, and how. A part of its card.

    can_generate: it answers with tokens, and has log-probabilities of labels.
    can_embed: its hidden states can be had.
    pooling: its own; None: a request has to name one.
    embedding_size: numbers of a vector.
    normalizes: its vectors have the Euclidean length 1 unless a request says otherwise.
    takes_pairs: its vocabulary of token types has one for a second text, see `second_at`.
    prompts: what goes before a text, by its name; `default_prompt` is the name of one, or "".
    labels: of its classification head, in the order of its logits.
    activation: what makes probabilities of these logits.
    score_token_ids: of a generative reranker: yes and no. Its score is the probability of the first
        one of the two.
    max_input_tokens: of one text, special tokens included; None: the context.
    """

    task: ModelTask = ModelTask.GENERATE
    can_generate: bool = True
    can_embed: bool = False
    pooling: Pooling | None = None
    embedding_size: int = 0
    normalizes: bool = False
    takes_pairs: bool = False
    prompts: tuple[tuple[str, str], ...] = ()
    default_prompt: str = ""
    labels: tuple[str, ...] = ()
    activation: Activation = Activation.NONE
    score_token_ids: tuple[int, ...] = ()
    max_input_tokens: int | None = None


GENERATES = AnswerKinds()
