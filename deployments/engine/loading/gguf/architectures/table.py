"""The architectures of GGUF files that are read, by the names that files have for them."""

from collections.abc import Mapping

from deployments.engine.loading.gguf.architectures.architecture import GGUFArchitecture
from deployments.engine.loading.gguf.architectures.deepseek import DEEPSEEK2
from deployments.engine.loading.gguf.architectures.encoders import BERT, NOMIC_BERT
from deployments.engine.loading.gguf.architectures.gemma import GEMMA2, GEMMA3
from deployments.engine.loading.gguf.architectures.gemma4 import GEMMA4
from deployments.engine.loading.gguf.architectures.gpt_oss import GPT_OSS
from deployments.engine.loading.gguf.architectures.lfm2 import LFM2
from deployments.engine.loading.gguf.architectures.llama import GRANITE, LLAMA, SMOLLM3
from deployments.engine.loading.gguf.architectures.phi import PHI3
from deployments.engine.loading.gguf.architectures.qwen import QWEN2, QWEN3, QWEN3_MOE
from deployments.engine.loading.gguf.architectures.qwen_next import QWEN3_NEXT, QWEN35, QWEN35_MOE

ARCHITECTURES: Mapping[str, GGUFArchitecture] = {
    "bert": BERT,
    "deepseek2": DEEPSEEK2,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma4": GEMMA4,
    "gpt-oss": GPT_OSS,
    "granite": GRANITE,
    "lfm2": LFM2,
    "llama": LLAMA,
    "nomic-bert": NOMIC_BERT,
    "phi3": PHI3,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "qwen3moe": QWEN3_MOE,
    "qwen35": QWEN35,
    "qwen35moe": QWEN35_MOE,
    "qwen3next": QWEN3_NEXT,
    "smollm3": SMOLLM3,
}
