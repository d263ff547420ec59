"""Checks whether a model or a head can draft for a model: they share pages, and a draft model
speaks the same tokens."""

from collections.abc import Mapping
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.draft_heads.carried_states import CarriedStates
from deployments.engine.forward.draft_heads.headed import HeadForward, HeadParts
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.linear import pack_linears
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.draft_heads.head_config import head_fields, read_head_config
from deployments.engine.loading.draft_heads.head_files import LoadedHead, load_head
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer, replace_attention
from kv.layout import LayerShape, Layout
from kv.storage import Storage

MAX_OTHER_TOKENS = 128  # that one vocabulary alone has: it was made for more special tokens


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


@dataclass(frozen=True, slots=True)
class DraftHead:
    """A head that can draft for the model that it was checked for.

    tapped: the model's layers whose states it reads.
    """

    loaded: LoadedHead
    tapped: tuple[int, ...]

    @property
    def layout(self) -> Layout:
        config = self.loaded.config
        return (LayerShape(config.kv_heads, config.head_dim),)

    def prepare(self, max_tokens: int) -> None:
        """Packs its weights for the processor."""
        pack_linears(self.loaded.module)

    def parts(self, model: LoadedModel, storage: Storage, limits: EngineLimits) -> HeadParts:
        """The head beside its model. Its layer is the last one of `storage`."""
        n = len(storage.layout)
        head = self.loaded
        forward = HeadForward(head.module, model.model, storage.part(n - len(self.layout), n))
        # The state before the first token of a step, and those of its tokens.
        window, size = 2 + limits.draft_tokens, head.config.hidden_size
        carried = CarriedStates(limits.max_running, window, size, head.dtype, head.device)
        return HeadParts(forward, carried, self.tapped, storage)


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
        return _check_head(draft, model)
    config = draft.model.config
    check_supported(config)
    execution = find_decoding(draft.model)
    if execution.has_states:
        raise UnsupportedModelError(
            f"{config.model_type} can't draft: its layers keep a state, which wrong drafts "
            "would spoil"
        )
    return DraftModel(draft, execution)


def _check_head(head: LoadedHead, model: LoadedModel) -> DraftHead:
    config, text = head.config, model.model.config.get_text_config(decoder=True)
    size, n_layers = getattr(text, "hidden_size", None), text.num_hidden_layers
    if config.target_size != size:
        raise UnsupportedModelError(
            f"the draft head reads states of size {config.target_size}, and those of the model "
            f"have {size}: it was made for another one"
        )
    if abs(config.target_vocab_size - model.vocab_size) > MAX_OTHER_TOKENS:
        raise UnsupportedModelError(
            f"the draft head was made for {config.target_vocab_size} tokens, and the model has "
            f"{model.vocab_size}"
        )
    own = {"embed_tokens": config.has_embedding, "lm_head": config.has_head}
    if config.hidden_size != size and not all(own.values()):
        lacking = next(name for name, has in own.items() if not has)
        raise UnsupportedModelError(
            f"the draft head has no {lacking}, and that of the model is of another size"
        )
    tapped = config.tapped_of(n_layers)
    if not all(0 <= layer < n_layers for layer in tapped):
        raise UnsupportedModelError(
            f"the draft head reads layers {[*tapped]} of the model, which has {n_layers}"
        )
    return DraftHead(head, tapped)


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
