"""The help of `manta serve`: a screen of flags, or all of them."""

from collections.abc import Callable, Iterable, Mapping

import click

from serve_app.command.flags.flag import Flag
from serve_app.command.flags.table import flags

# In the order of the help, with words that fit a line.
SHOWN: Mapping[str, str] = {
    "--host": "Address to listen on; 0.0.0.0 is every one  [127.0.0.1]",
    "--port": "Port  [8000, or the next free one]",
    "--api-key": "Clients have to send it; may be repeated",
    "--name": "What clients send as `model`",
    "--alias": "Other names for it",
    "--ctx-size": "Most tokens of prompt and answer together",
    "--parallel": "Sequences at once  [64, on a GPU 256]",
    "--num-cpus": "Cores of a replica  [half of them]",
    "--num-gpus": "GPUs of each rank: 0 or 1  [1 where there is one]",
    "--tensor-parallel": "GPUs that share the weights",
    "--num-replicas": "Copies of the model",
    "--dtype": "bfloat16, float16 or float32",
    "--quantization": "int8, int4 or fp8: fewer bits for weights",
    "--kv-gib": "Memory for the KV cache, in GiB",
    "--gpu-memory-utilization": "Share of a GPU to use  [0.9]",
    "--model-draft": "A small model that drafts",
    "--lora-modules": "Adapters to choose from: NAME=FOLDER",
    "--presets": "Many models: an INI file with a section for each",
    "--models-dir": "Many models: a folder of them",
    "--sleep-idle-seconds": "Give memory back after so long without a request",
}
SECTIONS: Mapping[str, Callable[[Flag], bool]] = {
    "Settings": lambda flag: not flag.is_without_effect,
    "Accepted, because it is so anyway": lambda flag: (
        flag.is_without_effect and not flag.is_refused
    ),
    "Refused": lambda flag: flag.is_refused,
}


def write_flags(
    formatter: click.HelpFormatter, own: Iterable[click.Parameter], everything: bool
) -> None:
    """`own`: options of the command that are no settings."""
    by_name = {flag.names[0]: flag for flag in flags()}
    shown = [(_names(by_name[name]), words) for name, words in SHOWN.items()]
    shown += [
        (", ".join(option.opts), option.help or "")
        for option in own
        if isinstance(option, click.Option) and not option.hidden
    ]
    with formatter.section("Options"):
        formatter.write_dl(shown if not everything else shown[len(SHOWN) :])
    for title, belongs in SECTIONS.items() if everything else ():
        rows = [(_every_name(flag), flag.help) for flag in flags() if belongs(flag)]
        with formatter.section(title):
            formatter.write_dl(rows)


def _names(flag: Flag) -> str:
    """The first name, and a short one."""
    short = [name for name in flag.names if not name.startswith("--")]
    return f"{', '.join([*short[:1], flag.names[0]])} {flag.metavar}".strip()


def _every_name(flag: Flag) -> str:
    return f"{', '.join(flag.names)} {flag.metavar}".strip()
