"""Checks whether a model or a head can draft for a model: they share pages, and a draft model
speaks the same tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.draft_heads.draft_head import DraftHead, LoadedHead
from deployments.engine.loading.draft_heads.head_config import head_fields, read_head_config
from deployments.engine.loading.draft_heads.head_files import MAX_OTHER_TOKENS, load_head
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer, replace_attention
from kv.layout import Layout


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A model that can draft, and how it is computed."""

    loaded: LoadedModel
    execution: Execution

    @property
    def layout(self) -> Layout:
        return self.execution.layout

    def prepare(self, max_tokens: int) -> None:
        """Makes its layers the engine's, for sequences of up to `max_tokens` tokens."""
        replace_attention(self.loaded.model, self.execution, max_tokens)
        fuse(self.loaded.model)


Drafting = LoadedModel | LoadedHead
CheckedDraft = DraftModel | DraftHead


def check_draft_files(path: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Looks at the files of what is to draft for a model with this tokenizer, before weights are
    read. Raises UnsupportedModelError, or OSError where there are none."""
    fields = head_fields(path)
    if fields is None:
        check_same_tokenizer(load_tokenizer(path), tokenizer)
    else:
        read_head_config(fields)


def load_draft(path: str, model: LoadedModel) -> Drafting:
    """The draft model or draft head at a path or hub id, on the device and in the dtype of `model`.

    Raises as `load_model` and `load_head` do.
    """
    if head_fields(path) is None:
        return load_model(path, dtype=model.dtype, device=model.device)
    return load_head(path, model.dtype, model.device)


def check_draft(draft: Drafting, model: LoadedModel) -> CheckedDraft:
    """Raises UnsupportedModelError for what can't draft for `model`. The attention of a draft model
    is the engine's afterwards."""
    for name in ("dtype", "device"):
        ours, theirs = getattr(draft, name), getattr(model, name)
        if ours != theirs:
            raise UnsupportedModelError(
                f"what drafts has {name} {ours}, the model {theirs}: they share pages"
            )
    if isinstance(draft, LoadedHead):
        return draft.checked(model)
    config = draft.model.config
    check_supported(config)
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
