"""Check digits that a policy declares: what matches of a rule have to pass, as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from nco_guard.errors import PolicyError
from nco_guard.policy._base import Model
from nco_guard.policy._checks import check_text
from nco_guard.policy._errors import suggestion

__all__ = ["CHECK", "CheckDigits", "ChecksumName", "RuleChecksum", "checksum_title", "read_checksum"]

ChecksumName = Literal["none", "luhn", "mod97", "mod11_10", "verhoeff"]
"""Checks that have a name; `automata.patterns.sums` says how each is reckoned."""
CHECK = "check"  # the weight of the check character
_NAMES: tuple[ChecksumName, ...] = get_args(ChecksumName)
_DIGITS = "0123456789"
_MODULUS, _PLACES, _PARTS, _CHARACTERS = 10_000, 100, 8, 200  # at most
_LARGE = 10**30  # weights are below

_Run = tuple[str, int | str]


def _whole(value: Any, field: str, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise PolicyError(f"a whole number is needed, not {type(value).__name__}", field=field)
    if not least <= value <= most:
        raise PolicyError(f"a number from {least:,} to {most:,} is needed", field=field)
    return value


def _list(value: Any, field: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise PolicyError(
            f"a list is needed, not {type(value).__name__}; write it between brackets", field=field
        )
    if not value:
        raise PolicyError("at least one entry is needed", field=field)
    return value


def _mapping(value: Any, field: str) -> Mapping[str, Any]:
    if isinstance(value, tuple):  # as it is kept
        value = dict(value)
    if not isinstance(value, Mapping):
        raise PolicyError(f"a mapping is needed, not {type(value).__name__}", field=field)
    if not all(isinstance(key, str) for key in value):
        raise PolicyError("keys must be text; in YAML put digits and words between quotes", field=field)
    return value


def _read_modulus(value: Any) -> int:
    return _whole(value, "modulus", 2, _MODULUS)


def _read_weights(value: Any) -> tuple[int | str, ...] | None:
    if value is None:
        return None
    weights = _list(value, "weights")
    if len(weights) > _PLACES:
        raise PolicyError(f"at most {_PLACES} weights can be given", field="weights")
    for place, weight in enumerate(weights):
        if not isinstance(weight, str):
            _whole(weight, f"weights[{place}]", -_LARGE, _LARGE)
    return tuple(weights)


def _read_accept(value: Any) -> tuple[int, ...] | None:
    if value is None:
        return None
    remainders = [
        _whole(one, f"accept[{index}]", 0, _MODULUS - 1) for index, one in enumerate(_list(value, "accept"))
    ]
    return tuple(sorted(set(remainders)))


def _read_check(value: Any) -> str | None:
    if value is None:
        return None
    text = check_text(value, "text, a character for each remainder,")
    if not text.isprintable() or " " in text:
        raise PolicyError("a check character may be neither a space nor a control character")
    return text


def _read_runs(value: Any, field: str, *, digits: bool) -> tuple[_Run, ...]:
    """Characters and what they are worth; a key of several characters counts up from its value."""
    found = _mapping(value, field)
    for place, (run, worth) in enumerate(found.items(), 1):
        where = f"{field}, entry {place}"
        check_text(run)
        if not run or not run.isprintable() or " " in run:
            raise PolicyError("a key is one character, or several that count up", field=where)
        if isinstance(worth, str) and not digits:
            if not re.fullmatch("[0-9]{1,4}", worth):
                raise PolicyError("text is needed that has one to four digits, or a number", field=where)
            if int(worth) + len(run) > 10 ** len(worth):
                raise PolicyError("counting up, there are more characters than such digits", field=where)
        else:
            _whole(worth, where, -_MODULUS, _MODULUS)
    characters = "".join(found)
    if len(characters) > _CHARACTERS:
        raise PolicyError(f"at most {_CHARACTERS} characters can be given", field=field)
    if not digits and any(c.isdecimal() for c in characters):
        raise PolicyError("digits count by their value; name letters only, or write a table", field=field)
    if any(c.isdecimal() and c not in _DIGITS for c in characters):
        raise PolicyError("digits of all scripts are meant by 0 to 9; write these", field=field)
    _refuse_twice(characters, field)
    return tuple(sorted(found.items()))


def _refuse_twice(characters: str, field: str) -> None:
    for index, one in enumerate(characters):
        if re.search(re.escape(one), characters[:index], re.IGNORECASE):
            raise PolicyError("a character is there twice, upper and lower case being the same", field=field)


def _read_letters(value: Any) -> tuple[_Run, ...]:
    return _read_runs(value, "letters", digits=False)


def _read_tables(value: Any) -> tuple[tuple[str, tuple[_Run, ...]], ...]:
    found = _mapping(value, "tables")
    for place, name in enumerate(found, 1):
        if not re.fullmatch("[a-z][a-z0-9_]{0,30}", name) or name == CHECK:
            raise PolicyError(
                f"a table's name has small letters, digits and underscores, and is not {CHECK}",
                field=f"tables, entry {place}",
            )
    return tuple(
        sorted(
            (name, _read_runs(runs, f"tables, entry {place}", digits=True))
            for place, (name, runs) in enumerate(found.items(), 1)
        )
    )


def _spread(runs: tuple[_Run, ...]) -> dict[str, int | str]:
    """What each character is worth, by itself."""
    return {
        c: f"{int(worth) + index:0{len(worth)}d}" if isinstance(worth, str) else worth + index
        for run, worth in runs
        for index, c in enumerate(run)
    }


_INTEGERS = {"type": "array", "items": {"type": "integer"}, "minItems": 1}
_WORTH = {"type": "integer"}
_LETTERS = {
    "type": "object",
    "additionalProperties": {"anyOf": [_WORTH, {"type": "string", "pattern": "^[0-9]{1,4}$"}]},
}
_TABLES = {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": _WORTH}}
_WEIGHTS = {
    "type": "array",
    "items": {"anyOf": [_WORTH, {"type": "string"}]},
    "minItems": 1,
    "maxItems": _PLACES,
}


def _or_none(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


class CheckDigits(Model):
    """What the characters of a match have to add up to, for `RegexRule(checksum=...)`.

    The characters that count (decimal digits of any script, and `letters`) take the places of `weights` in order; all
    others are skipped. The sum of what each is worth times its weight leaves a remainder by `modulus`. A match passes
    if it takes all places, and no more, and its remainder is one of `accept`, or the character at the place of the
    weight "check" is the one that `check` has for it.

    Attributes:
        modulus: what the sum is divided by.
        weights: one for each place: a number, the name of one of `tables`, or "check" where the check character
            stands. Left out: all characters are one decimal number of any length, and the check character, if there is
            one, is the last.
        accept: remainders that pass; [0] where neither this nor `check` is given.
        check: the check character for each remainder, from 0 on. Its letters count at the check character's place.
        letters: what letters are worth. A key of several counts up: {"XYZ": 0} has X 0, Y 1 and Z 2. A value that is
            text stands for its digits, each of which takes a place: {"ABC": "10"} has B count as 1 and 1.
        tables: what characters are worth at places of their own, in place of a weight times their value.
        digit_sums: the digits of each product are added up, written in this base: 10 for Luhn's 2 * 7 = 14, 1 + 4.
        repeat: "right": weights are repeated to the left, and the last one belongs to the last character.

    Errors: `PolicyError`, which names the field and says what to write.

    Examples:
        >>> nhs = CheckDigits(weights=[10, 9, 8, 7, 6, 5, 4, 3, 2, 1], modulus=11)
        >>> rule = RegexRule(id="nhs", regex="[0-9]{10}", checksum=nhs)
        >>> Guard(Policy(name="p", rules=[rule])).verify("943 or 9434765919").ok
        False
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            modulus: int,
            weights: Sequence[int | str] | None = None,
            accept: Sequence[int] | None = None,
            check: str | None = None,
            letters: Mapping[str, int | str] | tuple[_Run, ...] = (),
            tables: Mapping[str, Mapping[str, int]] | tuple[tuple[str, tuple[_Run, ...]], ...] = (),
            digit_sums: int | None = None,
            repeat: Literal["none", "right"] = "none",
        ) -> None: ...

    modulus: Annotated[
        int,
        BeforeValidator(_read_modulus),
        WithJsonSchema({"type": "integer", "minimum": 2, "maximum": _MODULUS}),
    ] = Field(description="What the sum is divided by.")
    weights: Annotated[
        tuple[int | str, ...] | None, BeforeValidator(_read_weights), WithJsonSchema(_or_none(_WEIGHTS))
    ] = Field(
        default=None,
        description="For each place a number, a table's name, or check. Left out: all characters are one decimal "
        "number of any length, with the check character last.",
    )
    accept: Annotated[
        tuple[int, ...] | None, BeforeValidator(_read_accept), WithJsonSchema(_or_none(_INTEGERS))
    ] = Field(default=None, description="Remainders that pass; [0] where neither this nor check is given.")
    check: Annotated[str | None, BeforeValidator(_read_check)] = Field(
        default=None, description="The check character for each remainder, from 0 on."
    )
    letters: Annotated[
        tuple[_Run, ...],
        BeforeValidator(_read_letters),
        PlainSerializer(dict),
        WithJsonSchema(_LETTERS),
    ] = Field(
        default=(),
        description="What letters are worth, several in one key counting up; text stands for its digits.",
    )
    tables: Annotated[
        tuple[tuple[str, tuple[_Run, ...]], ...],
        BeforeValidator(_read_tables),
        PlainSerializer(lambda tables: {name: dict(runs) for name, runs in tables}),
        WithJsonSchema(_TABLES),
    ] = Field(default=(), description="What characters are worth at places of their own, by name.")
    digit_sums: Annotated[
        int | None,
        BeforeValidator(lambda value: value if value is None else _whole(value, "digit_sums", 2, 100)),
        WithJsonSchema(_or_none({"type": "integer", "minimum": 2, "maximum": 100})),
    ] = Field(default=None, description="The digits of each product are added up, written in this base.")
    repeat: Literal["none", "right"] = Field(
        default="none",
        description="right: weights are repeated to the left, the last belongs to the last character.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self._check_remainders()
        self._check_weights()
        self._check_tables()
        return self

    def _check_remainders(self) -> None:
        if self.check is not None:
            if self.accept is not None:
                raise PolicyError("with check a remainder names its character; remove accept", field="accept")
            if len(self.check) != self.modulus:
                raise PolicyError(
                    f"a character is needed for each remainder, {self.modulus} of them, not {len(self.check)}",
                    field="check",
                )
            if any(c.isdecimal() and c not in _DIGITS for c in self.check):
                raise PolicyError("digits of all scripts are meant by 0 to 9; write these", field="check")
        if self.accept is not None and self.accept[-1] >= self.modulus:
            raise PolicyError(f"remainders are below the modulus, {self.modulus}", field="accept")
        if self.accept is not None and len(self.accept) == self.modulus:
            raise PolicyError("all remainders would pass; leave out those that do not", field="accept")

    def _check_weights(self) -> None:
        weights = self.weights
        if weights is None:
            for field in ("tables", "digit_sums", "repeat"):
                if getattr(self, field) != type(self).model_fields[field].default:
                    raise PolicyError("it says something about weights; give weights, too", field=field)
            return
        names = {name for name, _ in self.tables}
        for place, weight in enumerate(weights):
            if isinstance(weight, str) and weight != CHECK and weight not in names:
                raise PolicyError(
                    f"a number, {CHECK} or the name of one of tables is needed", field=f"weights[{place}]"
                )
        given = weights.count(CHECK)
        if self.repeat == "right" and (given or self.check is not None):
            raise PolicyError(
                "with repeat the check digit is one of those that are added up; remove check", field="repeat"
            )
        if given != (self.check is not None):
            raise PolicyError(
                f"the field check and one weight {CHECK}, where the check character stands, go together",
                field="weights",
            )
        if self.digit_sums is not None:
            worth = [one for one in self.letter_values.values() if isinstance(one, int)]
            if any(one < 0 for one in (*worth, *(one for one in weights if isinstance(one, int)))):
                raise PolicyError("digits are added up of no negative number; use check", field="digit_sums")

    def _check_tables(self) -> None:
        letters = self.letter_values
        needed = [*_DIGITS, *(c for c, worth in letters.items() if isinstance(worth, int))]
        for name, table in self.table_values.items():
            if name not in (self.weights or ()):
                raise PolicyError(
                    "there is one whose name is not among the weights; remove it", field="tables"
                )
            folded = {c.casefold() for c in table}
            if any(c.casefold() not in folded for c in needed):
                raise PolicyError(
                    "each table needs a value for each digit and for each letter that letters gives a number",
                    field="tables",
                )
            if len(table) > len(needed):
                raise PolicyError(
                    "a table has characters that do not count; name them in letters", field="tables"
                )

    @property
    def letter_values(self) -> dict[str, int | str]:
        """What each letter is worth."""
        return _spread(self.letters)

    @property
    def table_values(self) -> dict[str, dict[str, int]]:
        """What each character is worth at the places of each table."""
        return {name: {c: int(one) for c, one in _spread(runs).items()} for name, runs in self.tables}

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """For `repr` and `str`: what kind of sum it is, never its characters."""
        yield "modulus", self.modulus
        if self.weights is not None:
            yield "places", len(self.weights)


RuleChecksum = ChecksumName | CheckDigits | tuple[ChecksumName | CheckDigits, ...]
"""What matches have to pass: a check that has a name, one that is declared, or several, all of them."""


def read_checksum(value: Any) -> RuleChecksum:
    """A name, a mapping of the fields of `CheckDigits`, or a list of two or more of these; errors name the place."""
    if not isinstance(value, list | tuple):
        return _read_one(value, "checksum")
    if not 2 <= len(value) <= _PARTS:
        raise PolicyError(
            f"a list is of two to {_PARTS} checks that all have to pass; a single one stands by itself",
            field="checksum",
        )
    parts = tuple(_read_one(one, f"checksum[{index}]") for index, one in enumerate(value))
    if "none" in parts:
        raise PolicyError("none passes always; remove it", field=f"checksum[{parts.index('none')}]")
    return parts


def _read_one(value: Any, field: str) -> ChecksumName | CheckDigits:
    if isinstance(value, CheckDigits):
        return value
    if isinstance(value, str):
        for name in _NAMES:
            if value == name:
                return name
        raise PolicyError(
            f"the name of a check is needed, or a mapping of its weights{suggestion(value, _NAMES)}",
            field=field,
        )
    if not isinstance(value, Mapping):
        raise PolicyError(
            f"the name of a check, or a mapping of its weights, is needed, not {type(value).__name__}",
            field=field,
        )
    if not all(isinstance(key, str) for key in value):
        raise PolicyError("the names of fields must be text; in YAML put them between quotes", field=field)
    try:
        return CheckDigits(**value)
    except PolicyError as error:
        inner = f".{error.field}" if error.field else ""
        raise PolicyError(error.message, field=f"{field}{inner}") from None


def checksum_title(checksum: RuleChecksum) -> str:
    """The check in a few words: `luhn`, `mod 11`, `mod 11 and luhn`."""
    if isinstance(checksum, tuple):
        return " and ".join(map(checksum_title, checksum))
    return f"mod {checksum.modulus}" if isinstance(checksum, CheckDigits) else checksum
