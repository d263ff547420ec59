"""Loads a draft head: a directory or a hub id, in either form of its files.

The names of its layer begin with `midlayer` (`LlamaForCausalLMEagle3`: SafeAILab, SpecForge,
AngelSlim) or with `layers.0` (speculators). Each tensor is used, known to be of no use, or refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.modeling_utils import load_state_dict

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.draft_heads.eagle import EagleConfig, EagleHead, rotary_of
from deployments.engine.forward.draft_heads.headed import HeadForward
from deployments.engine.forward.linear import pack_linears
from deployments.engine.loading.draft_heads.draft_head import DraftHead, LoadedHead
from deployments.engine.loading.draft_heads.head_config import head_fields, read_head_config
from deployments.engine.loading.formats.checkpoint import checkpoint_files
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.weights_check import listed
from deployments.engine.threads import one_thread
from kv.layout import LayerShape, Layout
from kv.storage import Storage

MAX_OTHER_TOKENS = 128  # that one vocabulary alone has: it was made for more special tokens
OFFSETS = "d2t"  # by how much the model's ids are larger than those of the head
# Which of the model's tokens the head can say: as `d2t` has it. What modules compute by themselves.
# What a head is compared with in training.
NO_USE = re.compile(r"t2d$|inv_freq$|(cos|sin)_cached$|verifier_(lm_head|norm)\.weight$")
PREFIXES = {"model.": "", "midlayer.": "layers.0."}
ATTENTION = "layers.0.self_attn."
JOINED, PARTS = f"{ATTENTION}qkv_proj.", [f"{ATTENTION}{name}_proj." for name in "qkv"]


@dataclass(frozen=True, slots=True)
class LoadedEagle(LoadedHead):
    """An EAGLE-3 head."""

    module: EagleHead

    @property
    def config(self) -> EagleConfig:
        return self.module.config

    @property
    def dtype(self) -> torch.dtype:
        return self.module.norm.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.module.norm.weight.device

    def parts(self) -> Iterator[nn.Module]:
        yield self.module

    def checked(self, model: LoadedModel) -> "EagleDraft":
        """Raises UnsupportedModelError for a model of other sizes."""
        config, text = self.config, model.model.config.get_text_config(decoder=True)
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
        return EagleDraft(self, tapped, config.hidden_size)


@dataclass(frozen=True, slots=True)
class EagleDraft(DraftHead):
    """An EAGLE-3 head that drafts."""

    loaded: LoadedEagle
    tapped: tuple[int, ...]
    state_size: int

    @property
    def layout(self) -> Layout:
        config = self.loaded.config
        return (LayerShape(config.kv_heads, config.head_dim),)

    def prepare(self, max_tokens: int) -> None:
        pack_linears(self.loaded.module)

    def forward(self, model: LoadedModel, storage: Storage) -> HeadForward:
        head, config = self.loaded.module, self.loaded.config
        embed = head.embed_tokens if config.has_embedding else model.model.get_input_embeddings()
        lm_head = head.lm_head if config.has_head else model.model.get_output_embeddings()
        return HeadForward(head, embed, lm_head, config.target_vocab_size, storage)


@torch.inference_mode()
def load_head(path: str, dtype: torch.dtype, device: torch.device | str) -> LoadedEagle:
    """The head in a directory or at a hub id, on `device` and in `dtype`.

    Raises UnsupportedModelError for a head that is not supported, and for one whose tensors are
    missing, unknown or of other shapes; OSError where there is none.
    """
    fields = head_fields(path)
    if fields is None:
        raise UnsupportedModelError(f"{path} is no draft head")
    config = read_head_config(fields)
    with one_thread(), unsupported_on_error("the weights of the draft head can't be read"):
        files = checkpoint_files(path, PretrainedConfig())
        tensors = dict[str, Tensor]()
        for file in files:
            tensors |= load_state_dict(Path(file), map_location="cpu")
    return made_head(config, tensors, dtype, device)


@one_thread()  # a team of its own would slow down all steps
def made_head(
    config: EagleConfig,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> LoadedEagle:
    """A head of tensors by their names in files, which say what its config leaves open. Raises
    UnsupportedModelError for tensors that are not as it says."""
    named = {_name(name): tensor for name, tensor in tensors.items() if not NO_USE.search(name)}
    offsets = named.pop(OFFSETS, None)
    config = _as_found(config, named)
    with torch.device("meta"):
        head = EagleHead(config)
    _check(named, _expected(head))
    head.rotary_emb = rotary_of(config)
    placed = {name: tensor.to(device, dtype) for name, tensor in named.items()}
    head.load_state_dict(_joined(placed), assign=True)
    head.target_ids = _target_ids(offsets, config)
    return LoadedEagle(head.to(device).eval())


def _name(name: str) -> str:
    """The name of a tensor in speculators."""
    for before, after in PREFIXES.items():
        if name.startswith(before):
            name = after + name.removeprefix(before)
    return name


def _as_found(config: EagleConfig, tensors: Mapping[str, Tensor]) -> EagleConfig:
    """The config with what the names of the tensors say."""
    linears = {name.split(".")[-2] for name in tensors if name.endswith(".bias")}
    if linears & {"q_proj", "k_proj", "v_proj"}:
        linears.add("qkv_proj")
    return replace(
        config,
        has_head_norms=f"{ATTENTION}q_norm.weight" in tensors,
        has_embedding="embed_tokens.weight" in tensors,
        has_head="lm_head.weight" in tensors,
        biases=frozenset(linears),
    )


def _expected(head: EagleHead) -> dict[str, tuple[int, ...]]:
    """The shapes of a head's tensors, by their names in files."""
    config, found = head.config, dict[str, tuple[int, ...]]()
    rows = config.heads, config.kv_heads, config.kv_heads
    for name, tensor in head.state_dict().items():
        if name.startswith(JOINED):
            kind = name.removeprefix(JOINED)
            for part, n in zip(PARTS, rows, strict=True):
                found[part + kind] = (n * config.head_dim, *tensor.shape[1:])
        else:
            found[name] = tuple(tensor.shape)
    return found


def _check(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> None:
    if missing := expected.keys() - tensors.keys():
        raise UnsupportedModelError(f"the draft head's files lack weights: {listed(missing)}")
    if unknown := tensors.keys() - expected.keys():
        raise UnsupportedModelError(
            f"the draft head's files have weights that are not known: {listed(unknown)}"
        )
    shapes = [
        f"{name} is {[*tensors[name].shape]}, not {[*shape]}"
        for name, shape in expected.items()
        if tuple(tensors[name].shape) != shape
    ]
    if shapes:
        raise UnsupportedModelError(
            f"the draft head's weights are not as its config says: {listed(shapes)}"
        )
    types = [name for name, tensor in tensors.items() if not tensor.is_floating_point()]
    if types or any(tensor.element_size() == 1 for tensor in tensors.values()):
        raise UnsupportedModelError("the draft head's weights are quantized: name the original")


def _joined(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with one matrix of queries, keys and values."""
    for kind in ("weight", "bias"):
        names = [part + kind for part in PARTS]
        if names[0] in tensors:
            tensors[JOINED + kind] = torch.cat([tensors.pop(name) for name in names])
    return tensors


def _target_ids(offsets: Tensor | None, config: EagleConfig) -> Tensor | None:
    """The model's ids of the tokens that the head can say; None: these are all, as they are."""
    n, n_target = config.vocab_size, config.target_vocab_size
    if n < n_target and (offsets is None or not config.has_head):
        missing = OFFSETS if offsets is None else "lm_head.weight"
        raise UnsupportedModelError(
            f"the draft head says {n} of {n_target} tokens, and its files lack {missing}"
        )
    if offsets is None:
        return None
    ids = torch.arange(len(offsets)) + offsets.long().flatten()
    if len(ids) != n or len(torch.unique(ids)) != n or ids.min() < 0 or ids.max() >= n_target:
        raise UnsupportedModelError(f"{OFFSETS} of the draft head does not name {n} tokens")
    return ids if offsets.any() or n < n_target else None
