"""A recording of layers computes, bit for bit, what the layers compute when they are called."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GraniteConfig,
    LlamaConfig,
    Phi3Config,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from deployments.engine.attention.cpu import plan_cpu_attention
from deployments.engine.attention.grouped import plan_by_layer
from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward import cpu_recording as recording
from deployments.engine.forward.adapters.layer import AdaptedLayer
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.adapters.target import LoraLayerWeights
from deployments.engine.forward.cpu_recording import RecordedLayers
from deployments.engine.forward.decoder import FusedDecoder
from deployments.engine.forward.fused.families import FAMILIES
from deployments.engine.forward.fused.family import ROTATED
from deployments.engine.forward.fused.fusing import fuse_projections, rotary_kinds
from deployments.engine.forward.fused.layer import FusedLayer
from deployments.engine.forward.linear import KernelLinear, PackedLinear
from deployments.engine.forward.products.making import make_products
from deployments.engine.forward.quantized_linear import ManyRows, PackedQuantized
from deployments.engine.forward.taps import LAST_NORM, Taps
from deployments.engine.kernels.cpu.dispatch import MAX_RECORDED_TOKENS, THREAD
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16
from deployments.engine.kernels.cpu.packed_weight import pack_rows
from deployments.engine.kernels.rotary import Rotaries, rotary_embedding
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loader import replace_attention
from deployments.engine.quantized.layout import INT8
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_weight import StoredWeight
from kv.storage import Storage
from tests.adapters import step_with_adapters
from tests.engine.forward.test_decoder import FUSED
from tests.engine.quantized.made import MadeMatrix
from tests.models import CONFIGS, VOCAB

pytestmark = pytest.mark.skipif(not has_matmul_kernels(), reason="no kernels of ours multiply here")
SHAPE = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
PAGE, DIM, N_PAGES = 4, 16, 400
GEMMA = Gemma3TextConfig(
    **{**SHAPE, **HEADS, "num_hidden_layers": 6},
    vocab_size=VOCAB,
    head_dim=DIM,
    sliding_window=8,
)
KINDS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SHAPE, **HEADS, vocab_size=VOCAB, attention_bias=True),
    "windows": Qwen2Config(
        **SHAPE,
        **HEADS,
        vocab_size=VOCAB,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
    ),
    "qwen3": CONFIGS["qwen3"](),
    "gemma3": GEMMA,
    "granite": GraniteConfig(**SHAPE, **HEADS, vocab_size=VOCAB, residual_multiplier=0.3),
    "phi3": Phi3Config(**SHAPE, **HEADS, vocab_size=VOCAB, pad_token_id=0),
    "int8": LlamaConfig(**SHAPE, **HEADS, vocab_size=VOCAB),
    "adapters": LlamaConfig(**SHAPE, **HEADS, vocab_size=VOCAB),
    "adapters of gemma3": GEMMA,
    "qwen3_moe": CONFIGS["qwen3_moe"](),
    "gpt_oss": CONFIGS["gpt_oss"](),
    "glm4_moe": FUSED["glm4_moe"],  # one of its experts is shared
    "qwen2_moe": FUSED["qwen2_moe"],  # it is, and is gated
    "ernie4_5_moe": FUSED["ernie4_5_moe"],  # a router keeps its correction below it,
    "minimax_m2": FUSED["minimax_m2"],  # or it lies beside the router
    "ministral3": FUSED["ministral3"],  # queries have a factor
    "hunyuan": FUSED["hunyuan"],  # heads are normed behind their rotary embedding
    "olmo2": FUSED["olmo2"],  # heads are normed together
    "glm4": FUSED["glm4"],  # neighbours are rotated together
    "cohere2": FUSED["cohere2"],  # LayerNorms
}
Layers = Sequence[FusedLayer]


# outputs and inputs of a layer's modules
MODULES = {
    "self_attn.q_proj": (64, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (96, 64),
    "mlp.down_proj": (64, 96),
}
N_ADAPTERS = 3


def model_of(kind: str) -> PreTrainedModel:
    torch.manual_seed(3)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(KINDS[kind], dtype=torch.bfloat16)
    fuse_projections(model.eval(), "cpu")
    make_products(model, torch.device("cpu"))
    return model


def layers_of(model: PreTrainedModel, kind: str) -> tuple[Layers, AdapterSlots | None]:
    for module in [*model.modules()]:
        for name, child in module.named_children():
            if type(child) is nn.Linear:
                setattr(module, name, packed(child, kind))
    family, layers = FAMILIES[type(model)], model.model.layers
    if "adapters" not in kind:
        return [FusedLayer(layer, family, model.config) for layer in layers], None
    slots = AdapterSlots(model, N_ADAPTERS, 16)
    for slot in range(1, N_ADAPTERS + 1):
        slots.install(slot, [(adapter(len(layers), rank=slot), 1.0)])
    names = {module: name for name, module in model.named_modules()}
    adapted = [AdaptedLayer(layer, names[layer], family, model.config, slots) for layer in layers]
    return adapted, slots


def adapter(n_layers: int, rank: int) -> dict[str, LoraLayerWeights]:
    """A random one."""
    return {
        f"model.layers.{layer}.{name}": LoraLayerWeights(
            torch.randn(rank, n_in) / 4, torch.randn(n_out, rank) / 4, 1.0
        )
        for layer in range(n_layers)
        for name, (n_out, n_in) in MODULES.items()
    }


def packed(linear: nn.Linear, kind: str) -> KernelLinear:
    if kind != "int8":
        return PackedLinear(linear, uses_onednn=False)
    scales = (linear.weight.detach().abs().amax(1) / 127).bfloat16()
    numbers = (linear.weight.detach() / scales[:, None]).round().clamp(-128, 127).to(torch.int8)
    rows = QuantizedRows(INT8, numbers.view(torch.uint8), Factors(scales[:, None]))
    stored = StoredWeight.of(MadeMatrix(rows), numbers.shape, torch.bfloat16)
    made = pack_rows(stored, rows.layout, *numbers.shape)
    assert made is not None
    return PackedQuantized(made, None, ManyRows(MAX_RECORDED_TOKENS, are_rounded=False))


class Decodes:
    """Decode steps on two equal storages: one for recordings, one for the layers."""

    def __init__(self, kind: str) -> None:
        self.config = config = KINDS[kind]
        self.width = config.hidden_size
        self.dim = getattr(config, "head_dim", None) or DIM
        model = model_of(kind)
        self.layout = find_decoding(model).layout
        self.family = FAMILIES[type(model)]
        self.kinds = rotary_kinds(model, self.family)
        self.storages = [self._storage() for _ in range(2)]
        self.layers, self.adapters = layers_of(model, kind)
        self.recorded = RecordedLayers(self.layers)

    def _storage(self) -> Storage:
        generator = torch.Generator().manual_seed(4)
        storage = Storage(self.layout, N_PAGES, PAGE, dtype=torch.bfloat16)
        for pages in (*storage.k, *storage.v):
            pages.copy_(torch.randn(pages.shape, generator=generator))
        return storage

    def inputs(
        self, lengths: list[int], new: int, storage: Storage
    ) -> tuple[Tensor, Rotaries, FusedStepAttention]:
        generator = torch.Generator().manual_seed(sum(lengths))
        total, n = np.array(lengths), len(lengths)
        pages = -(-int(total.max()) // PAGE)
        groups = len(storage.groups)
        tables = (np.arange(groups * n * pages) % N_PAGES).reshape(groups, n, pages)

        def plan(layer: int) -> FusedStepAttention:
            table = tables[storage.group_of[layer]]
            return plan_cpu_attention(storage, table, total, np.full(n, new), layer)

        step = plan_by_layer(storage, plan)
        x = torch.randn(n * new, self.width, generator=generator).bfloat16()
        angles = torch.rand(1, n * new, self.dim // 2, generator=generator).repeat(1, 1, 2)
        cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        scale = self.family.query_scale(self.config, ROTATED, torch.arange(n * new)[None])
        scale = None if scale is None else scale.bfloat16()
        rotary = rotary_embedding(cos, sin, self.family.is_interleaved, scale)
        return x, dict.fromkeys(self.kinds, rotary), step

    def with_adapters(self, lengths: list[int], new: int) -> AbstractContextManager[None]:
        """Runs the adapters of rows with these lengths; each row has one, or none."""
        if self.adapters is None:
            return nullcontext()
        slots = [length % (N_ADAPTERS + 1) for length in lengths]
        return self.adapters.running(step_with_adapters(slots, [new] * len(lengths)))

    @torch.inference_mode()
    def both(self, lengths: list[int], new: int = 1) -> tuple[Tensor | None, Tensor]:
        """The outputs of a recording, None if there is none, and of the layers one by one."""
        with self.with_adapters(lengths, new):
            recorded = self.recorded(*self.inputs(lengths, new, self.storages[0]))
            x, rotary, step = self.inputs(lengths, new, self.storages[1])
            for layer in self.layers:
                x = layer(x, rotary, step)
        return recorded and recorded[0], x

    def assert_same(self, lengths: list[int], new: int = 1) -> None:
        recorded, called = self.both(lengths, new)
        assert recorded is not None
        assert torch.equal(recorded, called)
        first, second = ((*storage.k, *storage.v) for storage in self.storages)
        assert all(torch.equal(pages, other) for pages, other in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_recorded_layers_compute_what_they_do_when_called(kind: str) -> None:
    decodes = Decodes(kind)
    for lengths in ([5], [6, 9], [7], [30], [7, 10], [12, 3, 4], [31]):
        decodes.assert_same(lengths)
    decodes.assert_same([11, 12], new=4)  # rows with drafts
    decodes.assert_same([9] * (MAX_RECORDED_TOKENS - 1))
    decodes.assert_same([8, 11])


@torch.inference_mode()
def test_what_is_tapped_is_kept_where_layers_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    decodes, model, found = Decodes("llama"), model_of("llama"), list[Tensor]()
    replace_attention(model, find_decoding(model), 64)
    layers_of(model, "llama")
    token_ids, positions, tokens = torch.tensor([[3, 4], [8, 11], [0, 1]])
    for storage, is_recorded in zip(decodes.storages, (True, False), strict=True):
        decode, taps = FusedDecoder(model), Taps((2, LAST_NORM, 0, 1), tokens)
        with decode.tapped(taps):
            *_, step = decodes.inputs([9, 12], 1, storage)
            last = decode(token_ids, positions, tokens, step)
        assert any(decode._layers._recordings.values()) is is_recorded
        found.append(torch.cat([last, taps.joined()], 1))
        monkeypatch.setattr(recording, "TEAM", None)
    assert torch.equal(*found)


def test_an_adapter_in_the_slot_of_another_one_is_replayed() -> None:
    decodes = Decodes("adapters")
    assert decodes.adapters is not None
    before, _ = decodes.both([5, 6])
    assert before is not None
    before = before.clone()
    decodes.adapters.install(1, [(adapter(len(decodes.layers), rank=4), 1.0)])
    decodes.assert_same([5, 6])
    after, _ = decodes.both([5, 6])
    assert after is not None
    assert not torch.equal(after[0], before[0])
    assert torch.equal(after[1], before[1]), "the other row's adapter is the same"


def test_a_row_outgrows_the_page_tables_of_recordings() -> None:
    decodes = Decodes("llama")
    for length in (
        recording.MIN_TABLE_PAGES * PAGE,
        recording.MIN_TABLE_PAGES * PAGE + 1,
        3 * recording.MIN_TABLE_PAGES * PAGE,
    ):
        decodes.assert_same([length])
        decodes.assert_same([5, 8])


def test_other_pages_are_recorded_anew() -> None:
    decodes = Decodes("llama")
    decodes.assert_same([5])
    decodes.storages = [decodes._storage() for _ in range(2)]
    decodes.assert_same([5])


def test_more_rows_than_are_recorded_and_chunks_are_left_to_the_layers() -> None:
    decodes = Decodes("llama")
    assert decodes.both([3] * (MAX_RECORDED_TOKENS + 1))[0] is None
    assert decodes.both([40], new=20)[0] is None
    assert decodes.both([3])[0] is not None


def test_the_longest_step_is_recorded_where_kernels_multiply_it() -> None:
    Decodes("llama").assert_same([9] * MAX_RECORDED_TOKENS)
    if has_native_bf16():  # torch multiplies so many rows by such a matrix there
        assert Decodes("int8").both([9] * MAX_RECORDED_TOKENS)[0] is None


@pytest.mark.parametrize("is_in_place", [False, True])
def test_layers_that_torch_computes_a_part_of_are_not_recorded(is_in_place: bool) -> None:
    decodes = Decodes("llama")
    layer = decodes.layers[1]

    def changed(x: Tensor, rotaries: Rotaries, step: FusedStepAttention) -> Tensor:
        x = layer(x, rotaries, step)
        return x.mul_(2) if is_in_place else x * 2

    decodes.recorded = RecordedLayers([decodes.layers[0], changed, decodes.layers[2]])
    for lengths in ([5], [5], [5, 7]):
        assert decodes.both(lengths)[0] is None
    assert THREAD.recording is None
