"""The abilities of models, and refusals of what one can't do: each says what it can do."""

from deployments.contract.errors import Refused, refused
from deployments.contract.media_rules import MediaKind
from deployments.contract.model_card import ModelCard, media_kinds
from deployments.contract.outputs import AnswerKinds, ModelTask, Pooling


def check_generates(card: ModelCard) -> None:
    if not generates(card):
        raise unable(card, "generate text")


def check_embeds(card: ModelCard, pooling: Pooling | None, param: str = "pooling") -> None:
    """`pooling`: what the request names; `param`: the field in which it can."""
    kinds = card.answers
    if not embeds(kinds):
        raise unable(card, "make embeddings")
    if pooling is None and kinds.pooling is None:
        message = (
            f"The files of the model {card.name!r} don't say how a text becomes one vector: name "
            f"`{param}`, or set it in the model's settings"
        )
        raise refused(message, param)


def check_classifies(card: ModelCard) -> None:
    if not card.answers.labels:
        raise unable(card, "classify")


def check_ranks(card: ModelCard) -> None:
    if not (scores_pairs(card.answers) or compares_vectors(card.answers)):
        raise unable(card, "rank texts")


def embeds(kinds: AnswerKinds) -> bool:
    """A model with labels has no vectors to compare: its head is in their place."""
    return kinds.can_embed and (kinds.task is ModelTask.EMBED or not kinds.labels)


def scores_pairs(kinds: AnswerKinds) -> bool:
    """Whether it gives a pair of texts a number, by a head or by its yes and no."""
    return kinds.task is ModelTask.SCORE or bool(kinds.score_token_ids)


def compares_vectors(kinds: AnswerKinds) -> bool:
    return kinds.task is ModelTask.EMBED and kinds.pooling is not None


def generates(card: ModelCard) -> bool:
    """A model that transcribes generates too, but hears what no message has."""
    return card.answers.can_generate and card.speech is None


def transcribes(card: ModelCard) -> bool:
    """A language model that hears is asked for it in words."""
    return card.speech is not None or (generates(card) and MediaKind.AUDIO in media_kinds(card))


def modalities_of(card: ModelCard) -> list[str]:
    """Returns the modalities that the model takes, as the lists of models say them."""
    return ["audio"] if card.speech is not None else ["text", *map(str, media_kinds(card))]


def tasks_of(card: ModelCard) -> list[str]:
    """Returns the tasks of the model, as the lists of models say them."""
    kinds = card.answers
    tasks = {
        "generate": generates(card),
        "transcribe": transcribes(card),
        "embed": embeds(kinds),
        "score": scores_pairs(kinds),
        "classify": bool(kinds.labels) and kinds.task is ModelTask.CLASSIFY,
    }
    return [name for name, can in tasks.items() if can]


def unable(card: ModelCard, what: str) -> Refused:
    kinds = card.answers
    able = {
        "generates text": generates(card),
        "transcribes sounds": transcribes(card),
        "makes embeddings": embeds(kinds),
        "scores pairs of texts": scores_pairs(kinds),
        "classifies texts": bool(kinds.labels) and kinds.task is ModelTask.CLASSIFY,
    }
    can = " and ".join(name for name, is_able in able.items() if is_able)
    message = f"The model {card.name!r} can't {what}: it {can or 'is loaded for something else'}"
    return refused(message, "model")
