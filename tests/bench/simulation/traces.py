"""Made-up requests for the routing simulation: pages and times, the same for the same seed."""

import random
from dataclasses import dataclass

PAGE_SIZE = 16


@dataclass(frozen=True, slots=True)
class Turn:
    """A prompt by its full pages, the pages that its answer fills, the pause after the answer."""

    prompt: tuple[bytes, ...]
    answer: tuple[bytes, ...]
    think_s: float


@dataclass(frozen=True, slots=True)
class Conversation:
    name: str
    start: float
    turns: tuple[Turn, ...]


def pages(rng: random.Random, n: int) -> tuple[bytes, ...]:
    return tuple(rng.randbytes(16) for _ in range(n))


def zipf(n: int, exponent: float) -> list[float]:
    return [1 / rank**exponent for rank in range(1, n + 1)]


def multi_turn(seed: int, *, n: int, per_second: float) -> list[Conversation]:
    """Chats that grow: shared system prompts, about five turns, seconds to think between them."""
    rng = random.Random(seed)
    systems = [pages(rng, rng.randint(16, 128)) for _ in range(12)]
    popularity = zipf(len(systems), 1.0)
    conversations, start = [], 0.0
    for number in range(n):
        start += rng.expovariate(per_second)
        history, turns = rng.choices(systems, popularity)[0], []
        for _ in range(min(16, 2 + int(rng.expovariate(1 / 4)))):
            prompt = history + pages(rng, rng.randint(2, 30))
            answer = pages(rng, rng.randint(2, 14))
            turns.append(Turn(prompt, answer, 1 + rng.expovariate(1 / 9)))
            history = prompt + answer
        conversations.append(Conversation(f"chat {number}", start, tuple(turns)))
    return conversations


def shared_prompts(seed: int, *, n: int, per_second: float) -> list[Conversation]:
    """Single questions about few long documents, some of which are asked about much more."""
    rng = random.Random(seed)
    documents = [pages(rng, rng.randint(150, 500)) for _ in range(64)]
    popularity = zipf(len(documents), 0.9)
    conversations, start = [], 0.0
    for number in range(n):
        start += rng.expovariate(per_second)
        prompt = rng.choices(documents, popularity)[0] + pages(rng, rng.randint(2, 12))
        turn = Turn(prompt, pages(rng, rng.randint(2, 12)), 0.0)
        conversations.append(Conversation(f"question {number}", start, (turn,)))
    return conversations
