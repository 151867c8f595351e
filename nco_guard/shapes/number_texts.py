"""Numbers as they print, as expressions: what `automata.json_text` lets be written, and whole numbers within bounds."""

from __future__ import annotations

__all__ = ["DECIMALS", "WHOLE", "WHOLE_IN_FLOATS", "whole_between"]

_MOST = 300
_DIGITS = 15

WHOLE = rf"0|-?[1-9][0-9]{{0,{_MOST - 1}}}"
#: Whole numbers that floats hold, for readers who go by them.
WHOLE_IN_FLOATS = rf"0|-?[1-9][0-9]{{0,{_DIGITS - 1}}}"
#: Numbers with a point that print as they stand there.
DECIMALS = "|".join(
    [
        r"0\.0",
        rf"-?0\.0{{0,3}}(?:[1-9]|[1-9][0-9]{{0,{_DIGITS - 2}}}[1-9])",
        rf"-?[1-9][0-9]{{0,{_DIGITS - 1}}}\.0",
        *(
            rf"-?[1-9][0-9]{{{whole - 1}}}\.[0-9]{{0,{_DIGITS - whole - 1}}}[1-9]"
            for whole in range(1, _DIGITS)
        ),
    ]
)


def whole_between(least: int | None, most: int | None, *, in_floats: bool = False) -> str | None:
    """An expression of the whole numbers within bounds, both included; None where there are none.

    Examples:
        >>> whole_between(8, 12)
        '[8-9]|1(?:[0-2])'
    """
    edge = 10 ** (_DIGITS if in_floats else _MOST) - 1
    low, high = max(-edge, -edge if least is None else least), min(edge, edge if most is None else most)
    if low > high:
        return None
    found: list[str] = []
    if low < 0:
        found += [f"-(?:{one})" for one in _ranges(max(1, -high), -low)]
    if high >= 0:
        found += _ranges(max(0, low), high)
    return "|".join(found)


def _ranges(low: int, high: int) -> list[str]:
    """Expressions of whole numbers from 0 on."""
    found: list[str] = []
    for size in range(len(str(low)), len(str(high)) + 1):
        first, last = max(low, 10 ** (size - 1) if size > 1 else 0), min(high, 10**size - 1)
        # What has all numbers of several sizes is one expression.
        if size > 1 and first == 10 ** (size - 1) and high >= 10 ** len(str(high)) - 1:
            return [*found, f"[1-9][0-9]{{{size - 1},{len(str(high)) - 1}}}"]
        found += _of_one_size(str(first), str(last))
    return found


def _of_one_size(first: str, last: str) -> list[str]:
    if first == last:
        return [first]
    if len(first) == 1:
        return [f"[{first}-{last}]"]
    rest = len(first) - 1
    if first[0] == last[0]:
        return [first[0] + f"(?:{'|'.join(_of_one_size(first[1:], last[1:]))})"]
    begin, end, found = int(first[0]), int(last[0]), []
    any_ = f"[0-9]{{{rest}}}"
    if first[1:] != "0" * rest:
        found.append(first[0] + f"(?:{'|'.join(_of_one_size(first[1:], '9' * rest))})")
        begin += 1
    tail = []
    if last[1:] != "9" * rest:
        tail.append(last[0] + f"(?:{'|'.join(_of_one_size('0' * rest, last[1:]))})")
        end -= 1
    if begin <= end:
        found.append(f"[{begin}-{end}]{any_}")
    return found + tail
