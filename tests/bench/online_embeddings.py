"""Streams a chat while thousands of embeddings are computed beside it, and compares the gaps
between its tokens with those of a quiet server.

    python -m tests.bench.online_embeddings [--url http://127.0.0.1:8000/v1] [--embedder NAME]

Without an embedder the chat's own model embeds, in the same steps.
"""

import argparse
import asyncio
import json
import math
import random
import time
import urllib.request
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from serve_app.command.bench.client import Server, complete, first_model
from serve_app.command.bench.words import count_words

OUT = 256  # tokens of one answer


@dataclass(frozen=True, slots=True)
class Embedding:
    """One request of very many texts."""

    url: str
    body: bytes

    def ask(self) -> int:
        """The tokens of all texts."""
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self.url}/embeddings", self.body, headers)
        with urllib.request.urlopen(request) as answer:
            tokens: int = json.load(answer)["usage"]["prompt_tokens"]
        return tokens


async def gaps(server: Server, prompt: str, until: "asyncio.Future[int]") -> list[float]:
    """Milliseconds between the tokens of one stream after the other, until then."""
    found: list[float] = []
    while not until.done():
        sample = await complete(server, prompt, OUT)
        if sample.error:
            raise RuntimeError(sample.error)
        found += [gap * 1000 for _, gap in sample.gaps()]
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, math.ceil(share * len(values)) - 1)]


async def main(arguments: argparse.Namespace) -> None:
    url = arguments.url.rstrip("/")
    server = Server(url, url, arguments.model or await first_model(url))
    words = await count_words(server, "count")
    rng = random.Random(0)
    texts = [words.prompt(rng, arguments.tokens) for _ in range(arguments.texts)]
    fields = {"model": arguments.embedder or server.model, "encoding_format": "base64"}
    if arguments.pooling:
        fields["pooling"] = arguments.pooling

    def embedding(texts: list[str]) -> Embedding:
        return Embedding(url, json.dumps({**fields, "input": texts}).encode())

    await asyncio.to_thread(embedding(texts[:8]).ask)  # loads the model
    prompt = words.prompt(rng, 64)
    quiet = await gaps(server, prompt, asyncio.ensure_future(asyncio.sleep(arguments.quiet_s, 0)))
    began = time.perf_counter()
    computed = asyncio.ensure_future(asyncio.to_thread(embedding(texts).ask))
    beside = await gaps(server, prompt, computed)
    speed = await computed / (time.perf_counter() - began)
    table = Table(title=f"{len(texts)} embeddings, {speed:.0f} of their tokens a second")
    for column in ("gaps of a stream", "tokens", "p50 ms", "p99 ms", "longest ms"):
        table.add_column(column, justify="right")
    for name, found in (("quiet", quiet), ("beside", beside)):
        figures = percentile(found, 0.5), percentile(found, 0.99), max(found)
        table.add_row(name, str(len(found)), *(f"{gap:.1f}" for gap in figures))
    Console(width=100).print(table)
    ratio = percentile(beside, 0.99) / percentile(quiet, 0.99)
    print(f"p99 beside: {ratio:.2f} times that of a quiet server")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", help="of the chat; the server's first one without it")
    parser.add_argument("--embedder", help="a model for embeddings")
    parser.add_argument("--pooling", help="last or mean, for a model that has none of its own")
    parser.add_argument("--texts", type=int, default=5000)
    parser.add_argument("--tokens", type=int, default=200, help="of each text, about")
    parser.add_argument("--quiet-s", type=float, default=20.0)
    asyncio.run(main(parser.parse_args()))
