"""Checks of single fields, shared by all rules; each raises a `PolicyError` that says what to write."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from typing import Any

from nco_guard.errors import PatternError, PolicyError, re_complaint

__all__ = [
    "IGNORABLE_SETS",
    "check_flag",
    "check_id",
    "check_ignore",
    "check_penalty",
    "check_regex",
    "check_text",
    "check_texts",
]

# Sets of characters that `ignore` knows by name; what is in them, `automata.folding` says.
IGNORABLE_SETS = ("zero-width", "combining", "punctuation")


# The automaton that keeps the output well-formed UTF-8 is always on and has this id.
_RESERVED_IDS = frozenset({"utf-8"})
# What escapes become in strings that are not raw: the escape, and the character's name.
_SLIPS = {
    "\x07": (r"\a", "bell"),
    "\x08": (r"\b", "backspace"),
    "\x0b": (r"\v", "vertical tab"),
    "\x0c": (r"\f", "form feed"),
}
_SLIPPED = re.compile(r"(?<!\\)[\x07\x08\x0b\x0c]")  # `re.escape` puts a backslash before them
_POSITION = re.compile(r"at position (\d+)")


class _Fresh(str):
    """A key of its own in `re`'s cache: a pattern compiled before by somebody else would not warn again."""

    __slots__ = ()


def _surrogate(text: str) -> int | None:
    return next((i for i, char in enumerate(text) if "\ud800" <= char <= "\udfff"), None)


def check_text(value: Any, what: str = "text") -> str:
    """`value` if it is text that UTF-8 can hold."""
    if not isinstance(value, str):
        raise PolicyError(
            f"{what} is needed here, not {type(value).__name__}; in YAML put the value between quotes"
        )
    at = _surrogate(value)
    if at is not None:
        raise PolicyError(
            f"character {at} is half of a surrogate pair, which UTF-8 cannot hold; write the whole character"
        )
    return value


def check_id(value: Any) -> str:
    """`value` if it can name a rule in messages, logs and metrics."""
    text = check_text(value, "the rule's name as text")
    if not text:
        raise PolicyError("an id may not be empty; it names the rule in errors and audit records")
    if not text.isprintable() or text != text.strip():
        raise PolicyError("an id may hold neither control characters nor spaces at its ends; remove them")
    if text in _RESERVED_IDS:
        raise PolicyError(f"the id {text!r} is taken by a constraint that is always on; choose another")
    return text


def _all_sound(texts: Sequence[Any]) -> bool:
    """Whether these are all texts, none empty, that UTF-8 can hold."""
    if set(map(type, texts)) - {str} or not all(texts):
        return False
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return False
    return True


def check_texts(value: Any, field: str) -> tuple[str, ...]:
    """A list of non-empty texts, exact duplicates dropped, order kept; errors name the index."""
    if isinstance(value, str):
        raise PolicyError("a list is needed, not one text; write it between brackets: [text]", field=field)
    if not isinstance(value, list | tuple):
        raise PolicyError(f"a list of texts is needed, not {type(value).__name__}", field=field)
    texts: Sequence[Any] = value
    # Lists may have a million entries: only where something is wrong are they looked at one by one.
    for index, text in () if _all_sound(texts) else enumerate(texts):
        place = f"{field}[{index}]"
        try:
            check_text(text)
        except PolicyError as error:
            raise PolicyError(error.message, field=place) from None
        if not text:
            raise PolicyError("an empty text is part of every text; remove it", field=place)
    return tuple(dict.fromkeys(texts))


def check_ignore(value: Any) -> tuple[str, ...]:
    """Single characters and names of sets, exact duplicates dropped, order kept; errors name the index."""
    entries = check_texts(value, "ignore")
    for index, entry in enumerate(entries):
        if len(entry) != 1 and entry not in IGNORABLE_SETS:
            raise PolicyError(
                f"one character, or one of {', '.join(IGNORABLE_SETS)}, is needed; list characters one by one",
                field=f"ignore[{index}]",
            )
    return entries


def check_flag(value: Any) -> bool:
    """True or false, and nothing that could merely be read so."""
    if not isinstance(value, bool):
        raise PolicyError(f"true or false is needed, not {type(value).__name__}")
    return value


def check_penalty(value: Any) -> float:
    """Infinity (a hard rule) or a positive number of logits (a soft one)."""
    if isinstance(value, str):
        if value.lower().removeprefix("+") in {"inf", ".inf", "infinity"}:
            return math.inf
        raise PolicyError("a number above 0 is needed, or inf for a hard rule")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f"a number above 0 is needed, or inf for a hard rule, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        raise PolicyError("this number is too large; write inf for a hard rule") from None
    if math.isnan(number):
        raise PolicyError("NaN is not a penalty; write a number above 0, or inf for a hard rule")
    if number <= 0:
        raise PolicyError(
            "a penalty must be above 0; to only record matches, leave it out and set monitor: true"
        )
    return number


def _refuse_slipped_escapes(pattern: str, field: str) -> None:
    r"""`PatternError` for a control character that an escape left behind where no raw string was written.

    `"\bfoo\b"` holds backspaces, which no text has, so the rule would never match and nothing would say so. Tabs and
    line ends mean the same either way. Who does mean such a character writes its escape: `[\b]`, `\x0c`.
    """
    found = _SLIPPED.search(pattern)
    if found is None:
        return
    escape, name = _SLIPS[found.group()]
    code = ord(found.group())
    raise PatternError(
        f"this is the character itself, where {escape} was likely meant: in Python write a raw string, as "
        f'r"{escape}", in YAML single quotes, in JSON two backslashes; if the {name} is meant, write \\x{code:02x}',
        construct=f"{name} (U+{code:04X})",
        position=found.start(),
        field=field,
    )


def check_regex(value: Any, field: str) -> str:
    """`value` if `re.compile` takes it without a warning.

    Which of `re`'s constructs can be enforced is decided when the policy is compiled.
    """
    if isinstance(value, re.Pattern):
        raise PolicyError(
            "text is needed, not a compiled pattern; give its .pattern, with flags written inline: (?i)",
            field=field,
        )
    if not isinstance(value, str):
        raise PolicyError(
            f"a regex as text is needed, not {type(value).__name__}; in YAML put it between quotes",
            field=field,
        )
    at = _surrogate(value)
    if at is not None:
        raise PatternError(
            "UTF-8 cannot hold half of a surrogate pair; write the whole character",
            construct="lone surrogate",
            position=at,
            field=field,
        )
    if not value:
        raise PatternError(
            "it matches everywhere, which forbids all text", construct="empty regex", field=field
        )
    _refuse_slipped_escapes(value, field)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(_Fresh(value))
    except re.error as error:
        raise PatternError(
            f"Python's re refuses it: {re_complaint(error)}",
            construct="syntax",
            position=error.pos,
            field=field,
        ) from None
    except Warning as warning:
        found = _POSITION.search(str(warning))
        raise PatternError(
            "Python's re warns about what this may come to mean; escape the characters meant literally",
            construct=type(warning).__name__,
            position=int(found.group(1)) if found else None,
            field=field,
        ) from None
    except OverflowError:
        raise PatternError(
            "a repeat count is too large for Python's re; write a smaller one",
            construct="repeat",
            field=field,
        ) from None
    except RecursionError:
        raise PatternError(
            "groups are nested too deeply for Python's re; flatten them", construct="nesting", field=field
        ) from None
    return value
