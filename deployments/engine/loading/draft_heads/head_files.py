"""Loads a draft head: a directory or a hub id, in either form of its files.

The names of its layer begin with `midlayer` (`LlamaForCausalLMEagle3`: SafeAILab, SpecForge,
AngelSlim) or with `layers.0` (speculators). Each tensor is used, known to be of no use, or refused.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.modeling_utils import load_state_dict

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.draft_heads.eagle import EagleConfig, EagleHead, rotary_of
from deployments.engine.loading.draft_heads.head_config import head_fields, read_head_config
from deployments.engine.loading.formats.checkpoint import checkpoint_files
from deployments.engine.loading.weights_check import listed
from deployments.engine.threads import one_thread

OFFSETS = "d2t"  # by how much the model's ids are larger than those of the head
# Which of the model's tokens the head can say: as `d2t` has it. What modules compute by themselves.
# What a head is compared with in training.
NO_USE = re.compile(r"t2d$|inv_freq$|(cos|sin)_cached$|verifier_(lm_head|norm)\.weight$")
PREFIXES = {"model.": "", "midlayer.": "layers.0."}
ATTENTION = "layers.0.self_attn."
JOINED, PARTS = f"{ATTENTION}qkv_proj.", [f"{ATTENTION}{name}_proj." for name in "qkv"]


@dataclass(frozen=True, slots=True)
class LoadedHead:
    """A draft head in evaluation mode, for the model that it was made for."""

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

    def to(self, device: torch.device | str) -> Self:
        """Moves all parts to a device."""
        self.module.to(device)
        return self

    def parts(self) -> Iterator[nn.Module]:
        """All that has weights."""
        yield self.module


@torch.inference_mode()
def load_head(path: str, dtype: torch.dtype, device: torch.device | str) -> LoadedHead:
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


def made_head(
    config: EagleConfig,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> LoadedHead:
    """A head of tensors by their names in files, which say what its config leaves open. Raises
    UnsupportedModelError for tensors that are not as it says."""
    with one_thread():  # a team of its own would slow down all steps
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
        return LoadedHead(head.to(device).eval())


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
