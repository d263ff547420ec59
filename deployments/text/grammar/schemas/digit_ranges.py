"""Writes ranges of numbers of any size as regular expressions of their digits."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

MAX_DIGITS = 400  # more than float64 has
FRACTION = r"(\.[0-9]+)?"


@dataclass(frozen=True, slots=True)
class Bound:
    """The end of a range; one that is not `included` is left out of it."""

    value: int | float
    included: bool = True

    def __neg__(self) -> "Bound":
        return Bound(-self.value, self.included)


def range_regex(low: Bound | None, high: Bound | None, is_integer: bool) -> str:
    """The numbers of a range, without exponents; "" for none. Raises ValueError for an end with
    too many digits.
    """
    parts: list[str] = []
    if low is None or low.value < 0:
        most = None if low is None else -low
        least = Bound(0, False) if high is None or high.value >= 0 else -high
        parts += [f"-{magnitude}" for magnitude in _magnitudes(least, most, is_integer)]
    if high is None or high.value >= 0:
        least = Bound(0) if low is None or low.value < 0 else low
        parts += _magnitudes(least, high, is_integer)
    return "|".join(parts)


def _magnitudes(low: Bound, high: Bound | None, is_integer: bool) -> list[str]:
    """The numbers from 0 on."""
    if is_integer:
        return _integers(_first(low), None if high is None else _last(high), "")
    first, behind_first = _digits(low)
    above = [f"{first}{fraction}" for fraction in _at_least("", behind_first, low.included)]
    if high is None:
        return [*above, *_integers(first + 1, None, FRACTION)]
    last, behind_last = _digits(high)
    if first == last:
        between = _between(behind_first, low.included, behind_last, high.included)
        return [f"{first}{fraction}" for fraction in between]
    below = [f"{last}{fraction}" for fraction in _at_most("", behind_last, high.included)]
    inner = _integers(first + 1, last - 1, FRACTION)
    return [*above, *inner, *below] if first < last else []


def _digits(end: Bound) -> tuple[int, str]:
    """The integer before the point, and the digits behind it."""
    if end.value == int(end.value):
        return int(end.value), ""
    whole, _, behind = f"{Decimal(repr(end.value)):f}".partition(".")
    return int(whole), behind.rstrip("0")


def _at_least(start: str, digits: str, included: bool) -> Iterator[str]:
    """Fractions that begin with `start`, and go on with these digits or with what is more."""
    for index, digit in enumerate(map(int, digits)):
        if digit < 9:
            yield _fraction(start + digits[:index] + _digit(digit + 1, 9), "[0-9]*")
    yield _fraction(start + digits, "[0-9]*" if included else "[0-9]*[1-9][0-9]*")


def _at_most(start: str, digits: str, included: bool) -> Iterator[str]:
    """Fractions that begin with `start`, and go on with these digits or with what is less."""
    for index, digit in enumerate(map(int, digits)):
        yield _fraction(start + digits[:index], "")
        if digit:
            yield _fraction(start + digits[:index] + _digit(0, digit - 1), "[0-9]*")
    if included:
        yield _fraction(start + digits, "0*")


def _between(low: str, has_low: bool, high: str, has_high: bool) -> Iterator[str]:
    if has_low and (has_high or low != high):
        yield _fraction(low, "0*")
    length = max(len(low), len(high))
    least, most = low.ljust(length, "0"), high.ljust(length, "0")
    if least >= most:
        return
    same = next(i for i in range(length) if least[i] != most[i])
    start, first, last = least[:same], int(least[same]), int(most[same])
    yield from _at_least(f"{start}{first}", least[same + 1 :].rstrip("0"), has_low)
    if first + 1 < last:
        yield _fraction(start + _digit(first + 1, last - 1), "[0-9]*")
    yield from _at_most(f"{start}{last}", most[same + 1 :].rstrip("0"), has_high)


def _fraction(digits: str, more: str) -> str:
    """A point with digits, or nothing where these may all be left out."""
    if digits:
        return rf"\.{digits}{more}"
    return {"": "", "0*": r"(\.0+)?", "[0-9]*": FRACTION}.get(more, rf"\.{more}")


def _first(low: Bound) -> int:
    value = Fraction(low.value)
    first = -(-value.numerator // value.denominator)
    return first if low.included or first != value else first + 1


def _last(high: Bound) -> int:
    value = Fraction(high.value)
    last = value.numerator // value.denominator
    return last if high.included or last != value else last - 1


def _integers(low: int, high: int | None, ending: str) -> list[str]:
    n_low = len(str(low))
    if max(n_low, len(str(high or 0))) > MAX_DIGITS:
        raise ValueError("a bound has too many digits")
    if high is None:
        more = f"[1-9][0-9]{{{n_low},}}{ending}"
        return [*_integers(low, 10**n_low - 1, ending), more]
    parts: list[str] = []
    for n_digits in range(n_low, len(str(high)) + 1) if low <= high else ():
        least = max(low, 10 ** (n_digits - 1) if n_digits > 1 else 0)
        parts += _same_length(str(least), str(min(high, 10**n_digits - 1)))
    return [part + ending for part in parts]


def _same_length(low: str, high: str) -> list[str]:
    if low == high:
        return [low]
    same = next(i for i, pair in enumerate(zip(low, high, strict=True)) if pair[0] != pair[1])
    head, first, last = low[:same], int(low[same]), int(high[same])
    parts: list[str] = []
    if low[same + 1 :].strip("0"):
        parts += [f"{head}{first}{rest}" for rest in _beside(low[same + 1 :], 9)]
        first += 1
    if high[same + 1 :].strip("9"):
        parts += [f"{head}{last}{rest}" for rest in _beside(high[same + 1 :], 0)]
        last -= 1
    if first <= last:
        parts.append(head + _digit(first, last) + _any(len(low) - same - 1))
    return parts


def _beside(digits: str, outermost: int) -> list[str]:
    """Expressions of as many digits, from these on to all nines, or down to all zeros."""
    parts: list[str] = []
    for index, digit in enumerate(map(int, digits)):
        first, last = (digit + 1, 9) if outermost else (0, digit - 1)
        if first <= last:
            parts.append(digits[:index] + _digit(first, last) + _any(len(digits) - index - 1))
    return [*parts, digits]


def _digit(first: int, last: int) -> str:
    return str(first) if first == last else f"[{first}-{last}]"


def _any(count: int) -> str:
    return f"[0-9]{{{count}}}" if count else ""
