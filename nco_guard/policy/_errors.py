"""Turns what goes wrong while a policy is read into this library's typed errors.

Pydantic's own `ValidationError` never reaches a caller. No message repeats a string, a regex or any other
value of the policy: forbidden strings are often the very thing that must not end up in a log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from nco_guard import arguments
from nco_guard.errors import PatternError, PolicyError

__all__ = [
    "FIELDS",
    "indexed",
    "like",
    "located",
    "named",
    "placed",
    "suggestion",
    "typed_error",
    "unknown_field",
]

# What people write for our fields when they come from other tools.
_SYNONYMS = {
    "words": "strings",
    "phrases": "strings",
    "terms": "strings",
    "pattern": "regex",
    "patterns": "regex",
    "regexp": "regex",
    "automaton": "fsm",
    "dfa": "fsm",
    "lambda": "penalty",
    "weight": "penalty",
    "name": "id",
    "ignorecase": "case",
    "ignore_case": "case",
    "word": "whole_word",
    "normalise": "normalize",
    "leet": "confusables",
    "homoglyphs": "confusables",
}
# The same for values that are words.
_MEANT = {
    "insensitive": "fold",
    "case-insensitive": "fold",
    "case_insensitive": "fold",
    "ignore": "fold",
    "ignorecase": "fold",
    "lower": "fold",
    "sensitive": "exact",
    "case-sensitive": "exact",
    "input": "prompt",
    "stop": "end",
    "error": "raise",
    "homoglyphs": "letters",
}
# Names that mean something somewhere in a policy; a test holds them to the models.
FIELDS = (
    *(
        "applies_to",
        "case",
        "checksum",
        "confusables",
        "context",
        "description",
        "fallback",
        "fsm",
        "id",
        "ignore",
        "json_escapes",
    ),
    *(
        "monitor",
        "name",
        "normalize",
        "on_audit_failure",
        "on_dead_end",
        "penalty",
        "regex",
        "rewind",
        "rules",
        "stop_at",
    ),
    *("when_blocked",),
    *("accept", "check", "digit_sums", "letters", "modulus", "repeat", "tables", "weights"),
    *("strings", "whole_word", "preset", "only", "except", "languages", "substring", "valid_only", "stop"),
)


def like(word: object, known: Iterable[str]) -> str | None:
    """The known name that somebody meant who wrote `word`; None if it is like none of them."""
    return arguments.near(word, known, _SYNONYMS) if isinstance(word, str) else None


def suggestion(word: object, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the nearest known one, else all of them."""
    names = sorted(known)
    return arguments.meant(like(word, names), ", known: " + ", ".join(names) if names else ", there are none")


def named(name: object, known: Iterable[str]) -> str:
    """A name that is not known, as a message may show it: see `unknown_field`."""
    if not isinstance(name, str):
        return f"of type {type(name).__name__}"
    return repr(name) if like(name, (*known, *FIELDS)) is not None else "of this name"


def unknown_field(name: object, place: int, known: Iterable[str], rule_id: str | None = None) -> PolicyError:
    """For a field that is not known, the `place`-th of its mapping.

    It is named only if it is like a known one: anything else may be what the policy forbids, indented wrongly.
    """
    names = sorted(known)
    hint = suggestion(name, names)
    if like(name, (*names, *FIELDS)) is None:
        return PolicyError(f"field number {place} is not known{hint}", rule_id=rule_id)
    return PolicyError(f"unknown field {name!r}{hint}", rule_id=rule_id, field=str(name))


def _choice(given: object, expected: str) -> str:
    """For a value that is none of a few words, `expected` as pydantic lists them; it is not repeated."""
    words = re.findall(r"'([^']*)'", expected)
    word = given.casefold() if isinstance(given, str) else ""
    meant = _MEANT[word] if _MEANT.get(word) in words else like(word, words)
    return f"{expected} is needed{arguments.meant(meant)}"


def _rebuilt(error: PolicyError, message: str, rule_id: str | None, field: str | None) -> PolicyError:
    if isinstance(error, PatternError):
        return PatternError(
            message, construct=error.construct, position=error.position, rule_id=rule_id, field=field
        )
    return type(error)(message, rule_id=rule_id, field=field)


def _plain_message(error: PolicyError) -> str:
    return error.reason if isinstance(error, PatternError) else error.message


def placed(error: PolicyError, *, rule_id: str | None = None, field: str | None = None) -> PolicyError:
    """The error, with rule and field filled in where it does not name them yet."""
    if (error.rule_id or not rule_id) and (error.field or not field):
        return error
    return _rebuilt(error, _plain_message(error), error.rule_id or rule_id, error.field or field)


def indexed(error: PolicyError, index: int) -> PolicyError:
    """The error; if it does not know its rule's id, its field names the rule by index."""
    if error.rule_id:
        return error
    field = f"rules[{index}]" + (f".{error.field}" if error.field else "")
    return _rebuilt(error, _plain_message(error), None, field)


def located(error: PolicyError, where: str) -> PolicyError:
    """The error, with the place in a file appended to its message."""
    return _rebuilt(error, f"{_plain_message(error)} ({where})", error.rule_id, error.field)


def _field_name(location: tuple[int | str, ...]) -> str | None:
    name = ""
    for part in location:
        if isinstance(part, int):
            name += f"[{part}]"
        else:
            name += f".{part}" if name else part
    return name or None


def typed_error(
    error: ValidationError, known_fields: Iterable[str], rule_id: str | None, data: object
) -> PolicyError:
    """The first of pydantic's complaints as a `PolicyError`, naming rule and field and saying what to do.

    `data`: what was validated."""
    details: list[Any] = list(error.errors(include_url=False, include_input=False))
    # An unknown field usually explains a missing one: `string:` instead of `strings:`.
    first = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
    field = _field_name(first["loc"])
    cause = first.get("ctx", {}).get("error")
    if isinstance(cause, PolicyError):
        return placed(cause, rule_id=rule_id, field=field)
    if first["type"] == "extra_forbidden":
        name = first["loc"][-1]
        place = list(data).index(name) + 1 if isinstance(data, Mapping) and name in data else 1
        return unknown_field(name, place, known_fields, rule_id)
    if first["type"] == "missing":
        return PolicyError("this field is required; add it", rule_id=rule_id, field=field)
    if first["type"] == "literal_error":
        given = data.get(first["loc"][-1]) if isinstance(data, Mapping) and first["loc"] else None
        return PolicyError(_choice(given, first["ctx"]["expected"]), rule_id=rule_id, field=field)
    message = str(first["msg"])
    return PolicyError(message[:1].lower() + message[1:], rule_id=rule_id, field=field)
