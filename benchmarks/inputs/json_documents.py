"""Schemas as tools and extractions have them, and documents of each, drawn at random."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.inputs.texts import prose

__all__ = ["DOCUMENTS", "Drawn"]


@dataclass(frozen=True)
class Drawn:
    """A schema, and what draws a value of it."""

    schema: dict[str, Any]
    draw: Callable[[random.Random], Any]

    def texts(self, count: int, seed: int = 0) -> list[str]:
        """So many documents as JSON, each with its keys in the schema's order."""
        rng = random.Random(seed)
        return [json.dumps(self.draw(rng), ensure_ascii=False) for _ in range(count)]


_NAMES = [
    "Ana",
    "Bruno",
    "Chen",
    "Dina",
    "Emeka",
    "Fatima",
    "Goran",
    "Hana",
    "Ivan",
    "Jun",
    "Kofi",
    "Lena",
    "Mara",
    "Noor",
    "Otto",
    "Priya",
    "Quinn",
    "Rosa",
]
_CITIES = [
    "Lisbon",
    "Oslo",
    "Quito",
    "Nairobi",
    "Hanoi",
    "Lima",
    "Turin",
    "Ghent",
    "Riga",
    "Perth",
    "Osaka",
    "Cairo",
    "Malmö",
    "Łódź",
]


def _sentences() -> list[str]:
    """Lines of English that need no escape and hold no digit: what rules forbid is not in them."""
    lines = {
        " ".join(line.split())
        for line in prose(400_000).splitlines()
        if 30 < len(line.strip()) < 120 and line.isascii() and not set(line) & set('0123456789"\\@{}<>`:=/')
    }
    return sorted(lines)


_LINES = _sentences()


def _text(rng: random.Random, most: int = 2) -> str:
    return " ".join(rng.sample(_LINES, rng.randint(1, most)))


def _objects(properties: dict[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _without(rng: random.Random, value: dict[str, Any], *optional: str) -> dict[str, Any]:
    """Half of the optional fields are left out."""
    return {name: each for name, each in value.items() if name not in optional or rng.random() < 0.5}


_STRING, _WHOLE = {"type": "string"}, {"type": "integer", "minimum": 0}
_PERSON = _objects(
    {
        "name": _STRING,
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["guest", "member", "owner"]},
        "tags": {"type": "array", "items": _STRING, "maxItems": 4},
        "bio": _STRING,
    },
    "tags",
)
_ITEM = _objects(
    {
        "title": _STRING,
        "count": _WHOLE,
        "price": {"type": "number", "minimum": 0},
        "gift": {"type": "boolean"},
    },
    "gift",
)
_ORDER = _objects(
    {
        "customer": _objects({"name": _STRING, "city": _STRING}),
        "items": {"type": "array", "items": _ITEM, "minItems": 1, "maxItems": 5},
        "note": {"type": ["string", "null"]},
        "state": {"enum": ["open", "paid", "sent", "returned"]},
    }
)
_CALL = _objects(
    {
        "name": {"const": "search"},
        "arguments": _objects(
            {
                "query": {"type": "string", "maxLength": 200},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50},
                "sort": {"enum": ["date", "relevance", "price"]},
                "fuzzy": {"type": "boolean"},
            },
            "limit",
            "sort",
            "fuzzy",
        ),
    }
)
_BOOKING = _objects(
    {
        "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"},
        "day": {"type": "string", "format": "date"},
        "city": _STRING,
        "seats": {"type": "integer", "minimum": 1, "maximum": 9},
    }
)


def _person(rng: random.Random) -> Any:
    value = {
        "name": f"{rng.choice(_NAMES)} {rng.choice(_NAMES)}",
        "age": rng.randint(1, 99),
        "kind": rng.choice(_PERSON["properties"]["kind"]["enum"]),
        "tags": [rng.choice(_CITIES).lower() for _ in range(rng.randint(0, 4))],
        "bio": _text(rng),
    }
    return _without(rng, value, "tags")


def _order(rng: random.Random) -> Any:
    items = [
        {
            "title": _text(rng, 1)[:30].strip(),
            "count": rng.randint(1, 20),
            "price": rng.randint(1, 9999) / rng.choice((1, 2, 4)),
            "gift": rng.random() < 0.5,
        }
        for _ in range(rng.randint(1, 4))
    ]
    return {
        "customer": {"name": rng.choice(_NAMES), "city": rng.choice(_CITIES)},
        "items": [_without(rng, item, "gift") for item in items],
        "note": rng.choice((None, _text(rng, 1))),
        "state": rng.choice(_ORDER["properties"]["state"]["enum"]),
    }


def _call(rng: random.Random) -> Any:
    arguments = {
        "query": _text(rng, 1),
        "limit": rng.randint(1, 50),
        "sort": rng.choice(("date", "relevance", "price")),
        "fuzzy": rng.random() < 0.5,
    }
    return {"name": "search", "arguments": _without(rng, arguments, "limit", "sort", "fuzzy")}


def _booking(rng: random.Random) -> Any:
    letters = "".join(rng.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZ", k=2))
    return {
        "code": f"{letters}-{rng.randint(0, 999):03d}",
        "day": f"20{rng.randint(20, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
        "city": rng.choice(_CITIES),
        "seats": rng.randint(1, 9),
    }


#: By name; in the last one a `pattern` and a `format` say what stands in strings.
DOCUMENTS: dict[str, Drawn] = {
    "person": Drawn(_PERSON, _person),
    "order": Drawn(_ORDER, _order),
    "call": Drawn(_CALL, _call),
    "booking": Drawn(_BOOKING, _booking),
}
