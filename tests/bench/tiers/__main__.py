"""Times an engine with a folder for prefixes beside one without, and what has to hold of them.

    python -m tests.bench.tiers conversations|nothing_hit|streams|index|restart|storm [--shape 135m]
        [--tokens 33000] [--rounds 3] [--folder FOLDER]

On an otherwise idle machine. FOLDER is where temporary folders are made.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console

from tests.bench.tiers import scenes

Folders = Callable[[], scenes.Folder]


@contextmanager
def fresh(where: str | None) -> Iterator[Path]:
    with TemporaryDirectory(dir=where, prefix="manta-tiers-") as folder:
        yield Path(folder)


SCENES: dict[str, Callable[[argparse.Namespace, Folders], list[scenes.Demand]]] = {
    "conversations": lambda chosen, fresh: scenes.conversations(chosen.shape, fresh, chosen.rounds),
    "nothing_hit": lambda chosen, fresh: scenes.nothing_hit(chosen.shape, fresh, chosen.rounds),
    "streams": lambda chosen, fresh: scenes.streams(chosen.shape, fresh, chosen.rounds),
    "index": lambda chosen, fresh: scenes.index(fresh),
    "restart": lambda chosen, fresh: scenes.restart(chosen.shape, chosen.tokens, fresh),
    "storm": lambda chosen, fresh: scenes.storm(chosen.shape, fresh, chosen.rounds),
}


def main(chosen: argparse.Namespace) -> None:
    torch.set_num_threads(chosen.threads)
    console = Console(width=100)
    console.print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for demand in SCENES[chosen.scene](chosen, partial(fresh, chosen.folder)):
        console.print(str(demand))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--shape", choices=("demo", "135m"), default="135m")
    parser.add_argument("--tokens", type=int, default=33_000, help="of the prompt of a restart")
    parser.add_argument("--rounds", type=int, default=3, help="of what is asked of both in turns")
    parser.add_argument("--folder")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    main(parser.parse_args())
