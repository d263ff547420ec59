"""Judges every causal language model of the installed transformers.

    python -m tests.families [--write PATH] [TYPE ...]

Tiny random models of each type in float32: greedy tokens and their log-probabilities beside
`model.generate`, alone, in a batch and in chunks, after prefix hits and after preemptions. With
`--write` the table becomes a page.
"""

import argparse
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers
from rich.progress import track

from tests.families.tiny import MODEL_TYPES
from tests.families.verdict import Kind, Verdict, judge

PAGE = """# Families of models

What the engine makes of each causal language model of transformers {version}, by tiny random models
in float32: their greedy tokens and log-probabilities beside those of `model.generate`, alone, in a
batch and in chunks, after prefix hits and after preemptions.
`python -m tests.families --write {path}` makes this page.

The table is about decoders. The usual files of encoder-decoder types (`bart`, `marian`, `pegasus`
and others) are refused. Those of `bert` and its relatives make [vectors](embeddings.md), unless
their config says `is_decoder: true`. Whisper writes [transcripts](audio.md).

| says | means |
|---|---|
| fused | fastest: its layers are computed by kernels of Manta's own, in few operations |
| row by row | slower with many requests ([why](models.md#which-models)) |
| as by passes ... | transformers gives other tokens with its cache: it is compared without |
| refused | the model does not load |
| no reference | transformers could not run the tiny model here, so that nothing is known |

{counts}.

| type | | why |
|---|---|---|
{rows}
"""


def page(verdicts: Sequence[Verdict], path: Path) -> str:
    counts = Counter(verdict.kind for verdict in verdicts)
    rows = [f"| `{verdict.model_type}` | {verdict.kind} | {verdict.why} |" for verdict in verdicts]
    return PAGE.format(
        version=transformers.__version__,
        path=path,
        counts=", ".join(f"{counts[kind]} {kind}" for kind in Kind),
        rows="\n".join(rows),
    )


def main() -> int:
    """The number of types that are served wrongly."""
    parser = argparse.ArgumentParser(prog="tests.families", description=__doc__)
    parser.add_argument("types", nargs="*", metavar="TYPE", default=MODEL_TYPES)
    parser.add_argument("--write", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    verdicts = []
    for model_type in track(arguments.types, "families", disable=not sys.stderr.isatty()):
        verdicts.append(judge(model_type))
        print(model_type, verdicts[-1].kind, verdicts[-1].why, sep="\t", flush=True)
    if arguments.write:
        arguments.write.write_text(page(verdicts, arguments.write))
    counts = Counter(verdict.kind for verdict in verdicts)
    print(", ".join(f"{counts[kind]} {kind}" for kind in Kind))
    return counts[Kind.DIFFERENT]


if __name__ == "__main__":
    sys.exit(main())
