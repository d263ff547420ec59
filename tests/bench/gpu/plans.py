"""How much is measured on a GPU, and in small where there is none."""

from dataclasses import dataclass, field

from transformers import LlamaConfig, PretrainedConfig, Qwen3Config, Qwen3MoeConfig

from tests.bench.shapes import ENDS, LLAMA_8B, QWEN3_600M, QWEN3_MOE_30B


@dataclass(frozen=True)
class Plan:
    """The models to measure, and how much of each. `steps` are those of a decode."""

    large: PretrainedConfig
    small: PretrainedConfig
    sparse: Qwen3MoeConfig
    decodes: tuple[tuple[int, int], ...]  # rows, context
    steps: int
    prefill: int  # tokens
    follow_up: tuple[int, int]  # cached tokens, new ones
    requests: int
    tokens_in: int
    tokens_out: int
    copied: int  # bytes
    matrix: int  # rows and columns
    max_batch_tokens: int
    max_running: int
    adapters: tuple[int, int, int] = (32, 8, 16)  # rows, adapters, rank
    sparse_decodes: tuple[tuple[int, int], ...] = ((1, 128), (8, 128), (64, 1024))
    sparse_prefill: int = 2048
    quantized: tuple[int, ...] = (1, 8, 32, 2048)  # rows of steps, and of products by themselves
    baseline: dict[str, int] = field(default_factory=dict)  # sizes that it chooses on a GPU


PLANS = {
    "full": Plan(
        large=LLAMA_8B,
        small=QWEN3_600M,
        sparse=QWEN3_MOE_30B,
        decodes=((1, 128), (64, 1024)),
        steps=128,
        prefill=8192,
        follow_up=(32768, 17),
        requests=500,
        tokens_in=512,
        tokens_out=128,
        copied=8 << 30,
        matrix=8192,
        max_batch_tokens=8192,
        max_running=256,
    ),
    "tiny": Plan(
        large=LlamaConfig(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            **ENDS,
        ),
        small=Qwen3Config(
            vocab_size=256,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            tie_word_embeddings=True,
            max_position_embeddings=256,
            **ENDS,
        ),
        sparse=Qwen3MoeConfig(
            vocab_size=256,
            hidden_size=64,
            moe_intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_experts=8,
            num_experts_per_tok=2,
            norm_topk_prob=True,
            max_position_embeddings=256,
            **ENDS,
        ),
        decodes=((1, 16), (4, 32)),
        steps=8,
        prefill=64,
        follow_up=(96, 5),
        requests=6,
        tokens_in=16,
        tokens_out=4,
        copied=1 << 20,
        matrix=64,
        max_batch_tokens=64,
        max_running=8,
        adapters=(4, 2, 4),
        sparse_decodes=((1, 16), (4, 32)),
        sparse_prefill=64,
        quantized=(1, 4, 32),
        baseline={"num_blocks": 32, "max_batch_tokens": 64},
    ),
}
