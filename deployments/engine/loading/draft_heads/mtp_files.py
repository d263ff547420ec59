"""Loads the MTP head in a model's own files, in whichever form their weights are.

A head is made as a model of one layer, by the class of its model: so its names are converted, its
experts merged and its quantized weights multiplied as the model's are. Each tensor is used, known
to be of no use, or refused.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_utils import load_state_dict

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.decoder import decoder
from deployments.engine.forward.draft_heads.headed import HeadForward
from deployments.engine.forward.draft_heads.mtp import JoinConfig, MtpHead, MtpJoin
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.fused.families import FAMILIES
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.linear import pack_linears
from deployments.engine.forward.products.making import make_products
from deployments.engine.forward.taps import LAST_NORM as BEHIND_LAYERS
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.configs.reader import read_config
from deployments.engine.loading.draft_heads.draft_head import DraftHead, LoadedHead
from deployments.engine.loading.draft_heads.mtp_families import (
    EXPERTS,
    INSTEAD,
    MTP_FAMILIES,
    N_STAND_INS,
    has_mtp_head,
    head_names,
    mtp_names,
    one_layer,
)
from deployments.engine.loading.formats.checkpoint import checkpoint_files, read_checkpoint
from deployments.engine.loading.formats.methods import quantization_options
from deployments.engine.loading.formats.quantized_model import model_of_weights, plain_config
from deployments.engine.loading.formats.safetensors_file import read_safetensors
from deployments.engine.loading.gguf.names import is_gguf
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import finish_weights, move_to_device, replace_attention
from deployments.engine.loading.weights_check import check_tensors
from deployments.engine.quantized.stored_weight import StoredWeight
from deployments.engine.threads import one_thread
from kv.layout import Layout
from kv.storage import Storage

SAFE = ".safetensors"


@dataclass(frozen=True, slots=True)
class LoadedMtp(LoadedHead):
    """An MTP head: what it reads is joined, and a model of one layer reads that."""

    join: MtpJoin
    layers: PreTrainedModel

    @property
    def dtype(self) -> torch.dtype:
        return self.join.state_norm.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.join.state_norm.weight.device

    def parts(self) -> Iterator[nn.Module]:
        yield self.join
        yield self.layers

    def checked(self, model: LoadedModel) -> "MtpDraft":
        """Raises UnsupportedModelError for a layer that the engine computes row by row alone."""
        execution = find_decoding(self.layers)
        if execution.by_rows is not None:
            raise UnsupportedModelError(
                f"the MTP head of {self.layers.config.model_type} can't be computed at once for "
                f"all rows: {INSTEAD}"
            )
        return MtpDraft(self, execution, self.layers.config.hidden_size)


@dataclass(frozen=True, slots=True)
class MtpDraft(DraftHead):
    """An MTP head that drafts. The state that it reads is that behind the model's last norm."""

    loaded: LoadedMtp
    execution: Execution
    state_size: int
    tapped: tuple[int, ...] = (BEHIND_LAYERS,)

    @property
    def layout(self) -> Layout:
        return self.execution.layout

    def prepare(self, max_tokens: int) -> None:
        replace_attention(self.loaded.layers, self.execution, max_tokens)
        fuse(self.loaded.layers)
        pack_linears(self.loaded.join)

    def forward(self, model: LoadedModel, storage: Storage) -> HeadForward:
        head, own = MtpHead(self.loaded.join, decoder(self.loaded.layers)), model.model
        matrices = own.get_input_embeddings(), own.get_output_embeddings()
        return HeadForward(head, *matrices, model.vocab_size, storage)


def check_mtp_files(path: str) -> None:
    """Looks at what a model's files say of its family, before weights are read. Raises
    UnsupportedModelError, or OSError where there is no model."""
    if is_gguf(path):
        raise UnsupportedModelError(
            f"spec-type: MTP heads in GGUF files are not read: name the original, or {INSTEAD}"
        )
    mtp_names(read_config(path))


def has_unused_head(path: str, model: LoadedModel) -> bool:
    """Whether the files of a model have a head that can draft, by the names of their tensors."""
    config = model.model.config
    if is_gguf(path) or type(config) not in MTP_FAMILIES:
        return False
    with suppress(OSError):  # the hub may be away: the model is loaded by now
        files = [Path(file) for file in checkpoint_files(path, read_config(path))]
        tensors = (each for file in files if file.suffix == SAFE for each in read_safetensors(file))
        return has_mtp_head(config, (each.name for each in tensors))
    return False


@one_thread()
def load_mtp(path: str, model: LoadedModel) -> LoadedMtp:
    """The head in the files of a model, on its device and in its dtype.

    Raises UnsupportedModelError for a model without one, and for one whose tensors are missing,
    unknown or of other shapes.
    """
    check_mtp_files(path)
    with unsupported_on_error("the weights of the MTP head can't be read"):
        tensors = _tensors(path, model)
    return made_mtp(model, tensors)


def _tensors(path: str, model: LoadedModel) -> dict[str, Tensor]:
    """The tensors of a head by our names, of which nothing may have been read yet."""
    config, own = read_config(path), model.model.config
    files, options = checkpoint_files(path, config), quantization_options(config)
    if options is not None:
        found = read_checkpoint(
            files, options, model.dtype, lambda names: head_names(own, names).keys()
        ).tensors
        named = head_names(own, found)
    elif all(Path(file).suffix == SAFE for file in files):
        mapped = {each.name: each for file in files for each in read_safetensors(Path(file))}
        named = head_names(own, mapped)
        found = {name: mapped[name].mapped() for name in named}
    else:
        found = {name: t for file in files for name, t in load_state_dict(file).items()}
        named = head_names(own, found)
    return {ours: found[name] for name, ours in named.items()}


@one_thread()  # a team of its own would slow down all steps
def made_mtp(model: LoadedModel, tensors: Mapping[str, Tensor]) -> LoadedMtp:
    """A head of a model, of tensors by our names. Raises UnsupportedModelError for tensors that are
    not as the model's config says."""
    own, dtype, device = model.model.config, model.dtype, model.device
    join = _join(model, {n: t for n, t in tensors.items() if not n.startswith("model.")}, dtype)
    weights = {name: tensor for name, tensor in tensors.items() if name.startswith("model.")}
    config = one_layer(plain_config(own), has_experts=any(n.startswith(EXPERTS) for n in weights))
    # Other vectors than those of tokens: the layer is tried with them.
    generator, names = torch.Generator().manual_seed(0), mtp_names(own)
    stand_in = torch.randn(N_STAND_INS, own.hidden_size, generator=generator).to(dtype)
    weights |= {f"{names.embedding}.weight": stand_in, "lm_head.weight": stand_in.clone()}
    if names.last_norm not in names.modules:
        last_norm = model.model.get_submodule(names.last_norm).get_parameter("weight")
        weights[f"{names.last_norm}.weight"] = last_norm.detach().to("cpu")
    with _named(own.model_type), unsupported_on_error("it can't be loaded"):
        check_tensors(weights, config, dtype, AutoModelForCausalLM)
        layers = model_of_weights(config, weights, dtype, AutoModelForCausalLM).eval()
    move_to_device(layers, device)
    finish_weights(layers, device)
    return LoadedMtp(join, layers)


@contextmanager
def _named(model_type: str) -> Iterator[None]:
    """Within, errors say that they are a head's."""
    try:
        yield
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"the MTP head of {model_type}: {error}") from error


def _join(model: LoadedModel, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> MtpJoin:
    own, family = model.model.config, FAMILIES.get(type(model.model))
    with torch.device("meta"):
        join = MtpJoin(
            JoinConfig(
                hidden_size=own.hidden_size,
                epsilon=getattr(own, "rms_norm_eps", None) or own.layer_norm_epsilon,
                norm_plus=0.0 if family is None else family.norm_plus,
                is_state_first=mtp_names(own).is_state_first,
            )
        )
    expected = {name: [*weight.shape] for name, weight in join.state_dict().items()}
    found = {name: [*tensor.shape] for name, tensor in tensors.items()}
    if found != expected:
        raise UnsupportedModelError(
            f"the MTP head joins by weights of shapes {found}, and not {expected}"
        )
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        plain = tensor if isinstance(tensor, StoredWeight) else tensor.to(dtype)
        weight = nn.Parameter(plain, requires_grad=False)
        join.get_submodule(module).register_parameter(kind, weight)
    make_products(join, model.device)
    return join.to(model.device).eval()
