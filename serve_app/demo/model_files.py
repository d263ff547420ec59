"""The files of the demo model and of its draft model, and how they are loaded."""

from pathlib import Path

from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast

MODEL = Path(__file__).with_name("model")
DRAFT = Path(__file__).with_name("draft")


def load(folder: Path = MODEL) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    return LlamaForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
