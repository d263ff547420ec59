"""The server of the page's tests: its models, and a key for each test: chats of its own."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.checkpoints import byte_tokenizer, save_checkpoint
from tests.e2e.server import REPOSITORY, Server

DEMO = "manta-demo"
OTHER = "other"  # the demo's weights again, loaded when a test asks it
SEEING = "seeing"  # that takes pictures, and is never loaded
STARTERS = ["What is Manta?", "Tell me a story, please.", "What is 17 + 26?"]
SMALL = "small"  # that holds little
BROKEN = "broken"  # whose weights are of another shape than its configuration says
N_KEYS = 200
PRESETS = """
version = 1

[*]
num-cpus = 0.25
n-pages = 1024

[{demo}]                   ; the one that a new chat asks
starters = {starters}
model = {folder}
load-on-startup = true
pinned = true
[{other}]
model = {folder}
[{seeing}]
model = {vision}
[{small}]
model = small
n-pages = 64
[{broken}]
model = broken
"""


def key_of(number: int) -> str:
    return f"key-of-owner-{number}"


def save_models(folder: Path) -> Path:
    """Returns the path of their presets file."""
    save_checkpoint(folder / "small", context=256)
    _save_broken(folder / "broken")
    presets = folder / "models.ini"
    demos = REPOSITORY / "serve_app" / "demo"
    names = {"demo": DEMO, "other": OTHER, "seeing": SEEING, "small": SMALL, "broken": BROKEN}
    folders = {"folder": demos / "model", "vision": demos / "vision"}
    presets.write_text(PRESETS.format(**names, **folders, starters=" | ".join(STARTERS)))
    return presets


def _save_broken(path: Path) -> None:
    save_checkpoint(path)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(byte_tokenizer()),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    LlamaForCausalLM(config).float().save_pretrained(path / "wrong")
    (path / "wrong" / "model.safetensors").replace(path / "model.safetensors")


@contextmanager
def running(folder: Path, connect_origins: Sequence[str] = ()) -> Iterator[Server]:
    """`manta serve` with keys, tools and a store of its own. Its files are in `folder`.

    connect_origins: whom the page may ask beside it.
    """
    keys = folder / "keys"
    keys.write_text("".join(f"owner-{number} {key_of(number)}\n" for number in range(N_KEYS)))
    tools = folder / "tools"
    tools.mkdir()
    (tools / "notes.txt").write_text("The harbour opens at nine.\n")
    flags = {
        "presets": str(save_models(folder)),
        "models-max": "3",
        "downloads-dir": "off",
        "api-key-file": str(keys),
        "tools-folder": str(tools),
        "store": f"sqlite:///{folder / 'chats.sqlite'}",
        **({"connect-origins": ",".join(connect_origins)} if connect_origins else {}),
    }
    server = Server(folder, {}).started_by(*(f"--{name}={value}" for name, value in flags.items()))
    server.http.headers["authorization"] = f"Bearer {key_of(N_KEYS - 1)}"
    with server:
        yield server
