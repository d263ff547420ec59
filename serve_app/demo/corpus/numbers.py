"""Small sums, counting, comparing and halving, and a polite no to sums that are too big."""

from collections.abc import Callable
from random import Random

from serve_app.demo.corpus.chat import Exchange, capital, joined

WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
    "twenty",
]
SIGNS = {
    "+": ("plus", "+"),
    "-": ("minus", "-"),
    "*": ("times", "*", "x"),
    "/": ("divided by", "/"),
}
ASKS = (
    "What is {}?",
    "What's {}?",
    "How much is {}?",
    "Calculate {}.",
    "Compute {}",
    "{} = ?",
    "{}?",
    "{}",
    "{} =",
    "Can you calculate {}?",
    "Please tell me what {} is.",
    "What does {} make?",
    "Do you know what {} is?",
    "Solve {}",
    "I need to know {}.",
)


def _operands(rng: Random) -> tuple[int, str, int, int]:
    sign = rng.choice("+++--**/")
    if sign == "+":
        a, b = rng.randint(0, 20), rng.randint(0, 20)
        return (a, sign, b, a + b) if rng.random() < 0.8 else _tens(rng)
    if sign == "-":
        b, c = rng.randint(0, 15), rng.randint(0, 15)
        return b + c, sign, b, c
    a, b = rng.randint(0, 10), rng.randint(0, 10)
    if sign == "*":
        return a, sign, b, a * b
    return a * (b + 1), sign, b + 1, a


def _tens(rng: Random) -> tuple[int, str, int, int]:
    a, b = 10 * rng.randint(1, 10), 10 * rng.randint(1, 10)
    return a, "+", b, a + b


def _spoken(rng: Random, number: int) -> str:
    return WORDS[number] if number < len(WORDS) and rng.random() < 0.15 else str(number)


def _written(rng: Random, a: int, sign: str, b: int) -> str:
    word = rng.choice(SIGNS[sign])
    if word not in ("+", "-", "*", "x", "/"):
        return f"{_spoken(rng, a)} {word} {_spoken(rng, b)}"
    return f"{a}{word}{b}" if rng.random() < 0.35 else f"{a} {word} {b}"


def arithmetic(rng: Random) -> list[Exchange]:
    a, sign, b, result = _operands(rng)
    question = capital(rng.choice(ASKS).format(_written(rng, a, sign, b)))
    answer = f"{a} {SIGNS[sign][0]} {b} is {result}."
    return [Exchange(question, answer, str(result))]


def _count_up(rng: Random) -> Exchange:
    if rng.random() < 0.5:
        start, end = (
            1,
            rng.choice((3, 5, 10, 10, 10, 12, 15, 20, 20, 30, 50, 100, rng.randint(2, 30))),
        )
    else:
        start = rng.randint(0, 60)
        end = min(100, start + rng.randint(2, 20))
    asks = [
        "Count from {} to {}.",
        "Can you count from {} to {}?",
        "List the numbers from {} to {}.",
    ]
    if start == 1:
        asks += [
            "Count to {1}.",
            "Count up to {1}",
            "Please count to {1}!",
            "Can you count to {1}?",
        ]
    numbers = ", ".join(map(str, range(start, end + 1)))
    return Exchange(rng.choice(asks).format(start, end), numbers + ".")


def _count_down(rng: Random) -> Exchange:
    start = rng.choice((3, 5, 10, 10, 10, 20, rng.randint(3, 20)))
    ask = rng.choice(
        ("Count down from {}.", "Count backwards from {}.", "Can you count down from {}?")
    )
    return Exchange(ask.format(start), ", ".join(map(str, range(start, 0, -1))) + ".")


def _count_by(rng: Random) -> Exchange:
    step = rng.choice((2, 5, 10))
    end = step * rng.choice((5, 10))
    ask = rng.choice(
        ("Count by {}s to {}.", "Count in steps of {} to {}.", "Count to {1} by {0}s.")
    )
    return Exchange(ask.format(step, end), ", ".join(map(str, range(step, end + 1, step))) + ".")


def counting(rng: Random) -> list[Exchange]:
    return [rng.choice((_count_up, _count_up, _count_down, _count_by))(rng)]


def _neighbour(rng: Random) -> Exchange:
    n, after = rng.randint(1, 99), rng.random() < 0.5
    word, other = ("after", n + 1) if after else ("before", n - 1)
    ask = rng.choice(
        ("What number comes {0} {1}?", "Which number is {0} {1}?", "What comes {0} {1}?")
    )
    return Exchange(ask.format(word, n), f"The number {word} {n} is {other}.", str(other))


def _bigger(rng: Random) -> Exchange:
    a, b = rng.sample(range(101), 2)
    big = rng.random() < 0.6
    word = rng.choice(("bigger", "larger", "greater")) if big else "smaller"
    result = max(a, b) if big else min(a, b)
    other = a + b - result
    ask = rng.choice(
        (
            "Which is {2}, {0} or {1}?",
            "What is {2}: {0} or {1}?",
            "Which number is {2}, {0} or {1}?",
        )
    )
    return Exchange(ask.format(a, b, word), f"{result} is {word} than {other}.", str(result))


def _parity(rng: Random) -> Exchange:
    n = rng.randint(0, 100)
    kind, other = ("even", "odd") if n % 2 == 0 else ("odd", "even")
    ask = rng.choice((f"Is {n} even or odd?", f"Is {n} odd or even?"))
    if rng.random() < 0.4:
        guess = rng.choice((kind, other))
        yes = "Yes" if guess == kind else "No"
        return Exchange(f"Is {n} {guess}?", f"{yes}, {n} is {kind}.", yes)
    return Exchange(ask, f"{n} is {kind}.", kind)


def _half(rng: Random) -> Exchange:
    n = rng.randint(0, 20)
    if rng.random() < 0.5:
        return Exchange(f"What is half of {2 * n}?", f"Half of {2 * n} is {n}.", str(n))
    ask = rng.choice((f"What is twice {n}?", f"What is double {n}?", f"Double {n}."))
    return Exchange(ask, f"Twice {n} is {2 * n}.", str(2 * n))


def _apples(rng: Random) -> Exchange:
    a, b = rng.randint(2, 12), rng.randint(1, 9)
    thing = rng.choice(
        ["apples", "books", "balls", "coins", "cookies", "pens", "eggs", "cats", "cards", "flowers"]
    )
    if rng.random() < 0.5:
        text = f"I have {a} {thing} and get {b} more. How many {thing} do I have?"
        return Exchange(
            text, f"You have {a + b} {thing}, because {a} plus {b} is {a + b}.", str(a + b)
        )
    a += b
    text = f"I have {a} {thing} and give away {b}. How many {thing} are left?"
    return Exchange(
        text, f"You have {a - b} {thing} left, because {a} minus {b} is {a - b}.", str(a - b)
    )


def _too_big(rng: Random) -> Exchange:
    a, b = rng.randint(101, 9999), rng.randint(12, 9999)
    sum_ = f"{a}{rng.choice((' + ', ' * ', ' - ', ' / ', '*', '+', ' times ', ' plus '))}{b}"
    return Exchange(
        capital(rng.choice(ASKS).format(sum_)),
        "That is too big for me. I am a tiny demo model, and I can only do small sums, like "
        f"{rng.choice(('7 plus 5', '3 times 4', '9 minus 2'))}.",
    )


def _too_long(rng: Random) -> Exchange:
    a, b, c = (rng.randint(1, 20) for _ in range(3))
    question = f"{a} {rng.choice('+-*')} {b} {rng.choice('+-*')} {c}"
    answer = "I can only do sums of two numbers, like 7 plus 5. Please ask for one step at a time."
    return Exchange(capital(rng.choice(ASKS).format(question)), answer)


def _two_of(rng: Random) -> Exchange:
    kind, numbers = rng.choice((("even", list(range(2, 21, 2))), ("odd", list(range(1, 20, 2)))))
    shown = [str(n) for n in numbers[:5]]
    return Exchange(f"Name five {kind} numbers.", f"{joined(shown)} are {kind} numbers.")


KINDS: tuple[Callable[[Random], Exchange], ...] = (
    _neighbour,
    _bigger,
    _parity,
    _half,
    _apples,
    _too_big,
    _too_long,
    _two_of,
)


def number_sense(rng: Random) -> list[Exchange]:
    return [rng.choice(KINDS)(rng)]
