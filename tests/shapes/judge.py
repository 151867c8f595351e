"""What a finished text under a schema and a policy must be: slowly, by Python's `json` and `re` and by `jsonschema`.

Nothing here looks at masks, automata, matchers, or how the library reads values. What a rule matches is said by
`tests.properties.reference`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator, ValidationError

from nco_guard.policy import Policy
from tests.properties.reference import broken
from tests.shapes.formats import FORMATS

Schema = Any


@dataclass(frozen=True)
class Fault:
    """What is wrong with a text.

    kind: "json" (it does not parse), "twice" (a key stands twice in an object), "surrogate" (half a character, which
    no UTF-8 holds), "schema" (it does not validate), "exact" (`jsonschema` takes it, a stricter reading does not: of
    numbers as written, of patterns as ECMA-262 has them), "floats" (only `jsonschema` over floats does not take it); or
    where a hard rule matches: "raw" text, "read" (its escapes resolved where they stand), "string", "key", "number",
    "literal"; "edge" for one that matches one of these only where that is all of the text (`^`, `$`), not in JSON.
    what: the keyword or the rule.
    """

    kind: str
    what: str


MATCHES = frozenset({"raw", "read", "string", "key", "number", "literal"})
"""The kinds of a broken policy."""


def faults(schema: Schema, policy: Policy | None, text: str) -> list[Fault]:
    """All that is wrong with a finished text; nothing for a good one."""
    try:
        parsed = parse(text)
    except (ValueError, RecursionError) as error:
        return [Fault("json", type(error).__name__), *_matches(policy, "raw", text)]
    return [*_form(parsed), *_invalid(schema, text), *forbidden_in(policy, text)]


# -- what it parses to ---------------------------------------------------------------------------------------------


class Number(str):
    """A number as it is written."""


class Pairs(list[tuple[str, Any]]):
    """An object with all that is written in it, a key that stands twice included."""


def _no_number(literal: str) -> Any:
    raise ValueError(f"{literal} is no JSON")


def parse(text: str) -> Any:
    """JSON by `json`, with nothing lost: `Pairs`, lists, `Number`, strings, true, false and null."""
    return json.loads(
        text,
        object_pairs_hook=Pairs,
        parse_int=Number,
        parse_float=Number,
        parse_constant=_no_number,
    )


def leaves(parsed: Any) -> Iterator[tuple[str, str]]:
    """(kind, text) of all that somebody reads: strings, keys, and all else in each form that it is printed in."""
    if isinstance(parsed, Number):
        for shown in printed(parsed):
            yield "number", shown
    elif parsed is None or isinstance(parsed, bool):
        yield from (("literal", shown) for shown in (json.dumps(parsed), str(parsed)))
    elif isinstance(parsed, str):
        yield "string", parsed
    elif isinstance(parsed, Pairs):
        for key, held in parsed:
            yield "key", key
            yield from leaves(held)
    elif isinstance(parsed, list):
        for held in parsed:
            yield from leaves(held)


def printed(literal: str) -> list[str]:
    """A number as Python prints it, and as a language does that has one kind of numbers."""
    value = json.loads(literal)
    found = [str(value), json.dumps(value)]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        found.append(str(int(value)))
    return [*dict.fromkeys(found)]


def _form(parsed: Any) -> Iterator[Fault]:
    for kind, text in leaves(parsed):
        if any("\ud800" <= character <= "\udfff" for character in text):
            yield Fault("surrogate", kind)
    yield from _twice(parsed)


def _twice(parsed: Any) -> Iterator[Fault]:
    if isinstance(parsed, Pairs):
        names = [key for key, _ in parsed]
        if len(set(names)) < len(names):
            yield Fault("twice", "keys")
        for _, held in parsed:
            yield from _twice(held)
    elif isinstance(parsed, list):
        for held in parsed:
            yield from _twice(held)


# -- what the policy says ------------------------------------------------------------------------------------------


def forbidden_in(policy: Policy | None, text: str) -> list[Fault]:
    """Where hard rules match: the text as written, and if it is JSON, all that it parses to."""
    found = dict.fromkeys(_matches(policy, "raw", text))
    try:
        parsed = parse(text)
    except (ValueError, RecursionError):
        return [*found]
    if (read := resolved(text)) != text:
        found |= dict.fromkeys(_matches(policy, "read", read))
    for kind, leaf in dict.fromkeys(leaves(parsed)):
        for fault in _matches(policy, kind, leaf):
            stands = f" {leaf} " if kind in ("number", "literal") else f'"{leaf}"'
            within = any(each.what == fault.what for each in _matches(policy, kind, stands))
            found[fault if within else Fault("edge", fault.what)] = None
    return [*found]


def resolved(text: str) -> str:
    """A JSON text with the escapes of its strings resolved where they stand."""
    return re.sub(r'"(?:\\.|[^"\\])*"', lambda found: f'"{json.loads(found[0])}"', text)


def _matches(policy: Policy | None, kind: str, text: str) -> list[Fault]:
    return [] if policy is None else [Fault(kind, rule) for rule in broken(policy, text)]


# -- what the schema says ------------------------------------------------------------------------------------------


def _invalid(schema: Schema, text: str) -> list[Fault]:
    exact = _keywords(
        _Exact(_exactly(schema), format_checker=FORMATS), json.loads(text, parse_float=_decimal)
    )
    try:
        plain = _keywords(Draft202012Validator(schema, format_checker=FORMATS), json.loads(text))
    except OverflowError:  # a number too large for `jsonschema` to divide
        return [Fault("floats", "overflow"), *(Fault("schema", keyword) for keyword in sorted(exact))]
    found = []
    for keyword in sorted(plain | exact):
        kind = "floats" if keyword not in exact else "exact" if keyword not in plain else "schema"
        found.append(Fault(kind, keyword))
    return found


def validates(schema: Schema, text: str) -> bool:
    """Whether a JSON text is what the schema says, under either reading."""
    return not _invalid(schema, text)


def _keywords(validator: Any, value: Any) -> set[str]:
    found: set[str] = set()
    for error in validator.iter_errors(value):
        where = str(error.validator)
        found.add(f"{where}: {error.validator_value}" if where == "format" else where)
    return found


def _exactly(value: Any) -> Any:
    """The same with its numbers as they are written."""
    if isinstance(value, float):
        return Decimal(repr(value))
    if isinstance(value, dict):
        return {key: _exactly(held) for key, held in value.items()}
    return [_exactly(held) for held in value] if isinstance(value, list) else value


_FAR = 1_000_000  # an exponent beyond which no bound tells numbers apart, and which `Decimal` still has


def _decimal(literal: str) -> Decimal:
    digits, _, exponent = literal.lower().partition("e")
    return Decimal(f"{digits}e{max(-_FAR, min(_FAR, int(exponent or 0)))}")


def _is_number(_: Any, value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_integer(_: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)


_MANY = 400  # powers of ten beyond which no divisor tells numbers apart


def _multiple(validator: Any, divisor: Any, value: Any, _: Schema) -> Iterator[ValidationError]:
    if validator.is_type(value, "number") and not is_multiple(value, divisor):
        yield ValidationError("is no multiple")


def is_multiple(value: int | Decimal, divisor: int | Decimal) -> bool:
    """Whether one number, as written, is a whole multiple of another."""
    if isinstance(value, Decimal):
        sign, digits, exponent = value.as_tuple()
        assert isinstance(exponent, int)
        if not any(digits):
            return True
        if exponent < -_MANY:
            digits = digits[: len("".join(map(str, digits)).rstrip("0"))]
            exponent = value.as_tuple().exponent + len(value.as_tuple().digits) - len(digits)  # type: ignore[operator]
            if exponent < -_MANY:
                return False
        value = Decimal((sign, digits, min(exponent, _MANY)))
    return Fraction(value) % Fraction(divisor) == 0


_SPACES = r" \t\n\v\f\r\u00a0\ufeff\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_ECMA = {
    "$": r"(?![\s\S])",
    ".": r"[^\n\r\u2028\u2029]",
    r"\s": f"[{_SPACES}]",
    r"\S": f"[^{_SPACES}]",
}


def ecma(pattern: str) -> re.Pattern[str]:
    """A pattern as ECMA-262 reads it: an end is the end, digits and letters of words are ASCII, spaces are not."""
    found, inside = "", False
    for piece in re.findall(r"\\.|[\s\S]", pattern):
        if not inside:
            inside = piece == "["
            found += _ECMA.get(piece, piece)
        else:
            inside = piece != "]"
            found += _SPACES if piece == r"\s" else piece
    return re.compile(found, re.ASCII)


def _pattern(validator: Any, pattern: str, value: Any, _: Schema) -> Iterator[ValidationError]:
    if validator.is_type(value, "string") and not ecma(pattern).search(value):
        yield ValidationError("does not match")


_Exact = jsonschema.validators.extend(
    Draft202012Validator,
    {"multipleOf": _multiple, "pattern": _pattern},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("number", _is_number).redefine(
        "integer", _is_integer
    ),
)
