"""Checks whether a model can draft for another one: they share pages and speak the same tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer
from kv.layout import Layout

MAX_OTHER_TOKENS = 128  # that one tokenizer alone has: it was made for more special tokens


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A model that can draft, and how it is computed."""

    loaded: LoadedModel
    execution: Execution

    @property
    def layout(self) -> Layout:
        return self.execution.layout


def load_draft(path: str, model: LoadedModel, tokenizer: PreTrainedTokenizerBase) -> LoadedModel:
    """The draft model at a path or hub id, on the device and in the dtype of `model`, whose
    tokenizer is given.

    Raises as `load_model` and `check_same_tokenizer` do.
    """
    check_same_tokenizer(load_tokenizer(path), tokenizer)
    return load_model(path, dtype=model.dtype, device=model.device)


def check_draft(draft: LoadedModel, model: LoadedModel) -> DraftModel:
    """Raises UnsupportedModelError for a model that can't draft for `model`. Its attention is the
    engine's afterwards."""
    config = draft.model.config
    check_supported(config)
    for name in ("dtype", "device"):
        ours, theirs = getattr(draft, name), getattr(model, name)
        if ours != theirs:
            raise UnsupportedModelError(
                f"the draft model has {name} {ours}, the model {theirs}: they share pages"
            )
    execution = find_decoding(draft.model)
    if execution.has_states:
        raise UnsupportedModelError(
            f"{config.model_type} can't draft: its layers keep a state, which wrong drafts "
            "would spoil"
        )
    return DraftModel(draft, execution)


def check_same_tokenizer(
    draft: PreTrainedTokenizerBase, tokenizer: PreTrainedTokenizerBase
) -> None:
    """Raises UnsupportedModelError unless a token is the same text for both, and names one that is
    not. Either may have some more."""
    theirs, ours = _texts(draft.get_vocab()), _texts(tokenizer.get_vocab())
    for token_id in sorted(theirs.keys() & ours.keys()):
        if theirs[token_id] != ours[token_id]:
            raise UnsupportedModelError(
                f"the draft model has another tokenizer: token {token_id} is "
                f"{theirs[token_id]!r}, and {ours[token_id]!r} for the model"
            )
    if len(theirs.keys() ^ ours.keys()) > MAX_OTHER_TOKENS:
        raise UnsupportedModelError(
            f"the draft model has another tokenizer: of {len(theirs)} tokens, and the model has "
            f"{len(ours)}"
        )


def _texts(vocab: Mapping[str, int]) -> dict[int, str]:
    return {token_id: text for text, token_id in vocab.items()}
