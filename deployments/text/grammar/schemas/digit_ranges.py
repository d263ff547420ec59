"""Writes ranges of numbers of any size as regular expressions of their digits."""

from dataclasses import dataclass
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
    """The numbers of a range, without exponents; "" for none. Ends that are no integers are only
    allowed for ranges of integers. Raises ValueError for an end with too many digits.
    """
    parts: list[str] = []
    if low is None or low.value < 0:
        most = None if low is None else -low
        least = Bound(0, False) if high is None or high.value >= 0 else -high
        parts += [f"-{one}" for one in _magnitudes(least, most, is_integer)]
    if high is None or high.value >= 0:
        least = Bound(0) if low is None or low.value < 0 else low
        parts += _magnitudes(least, high, is_integer)
    return "|".join(parts)


def _magnitudes(low: Bound, high: Bound | None, is_integer: bool) -> list[str]:
    """The numbers from 0 on."""
    if is_integer:
        last = None if high is None else _last(high)
        return _integers(_first(low), last, "")
    low_value, parts = int(low.value), list[str]()
    if not low.included:
        if high is None or high.value > low_value:
            parts.append(rf"{low_value}\.[0-9]*[1-9][0-9]*")
        low_value += 1
    if high is None:
        return [*parts, *_integers(low_value, None, FRACTION)]
    parts += _integers(low_value, int(high.value) - 1, FRACTION)
    if high.included and low_value <= int(high.value):
        parts.append(rf"{int(high.value)}(\.0+)?")
    return parts


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
