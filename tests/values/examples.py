"""What tests of `Cleaner` share: a policy, and classes of every kind."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from pydantic import BaseModel, ConfigDict

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import NCOGuardError
from nco_guard.values import Cleaner, Role

__all__ = [
    "CARD",
    "GUARD",
    "OUT",
    "POLICY",
    "Addable",
    "Data",
    "Kind",
    "Loose",
    "Model",
    "Named",
    "Plain",
    "Slotted",
    "Talking",
    "cleaner",
    "outcome",
    "streamed_by",
]

POLICY = Policy(
    name="values",
    rules=(
        StringRule(id="word", strings=("canary",)),
        RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com"),
        RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)"),
        RegexRule(id="day", regex="2031-02-03"),
        RegexRule(id="ssn", regex=r"ssn.{0,10}\d{4}"),
    ),
)

GUARD = Guard(POLICY)

CARD = 4111111111111111

OUT = "[redacted]"


class Model(BaseModel):
    number: int = 1
    text: str = "fine"


class Loose(BaseModel):
    model_config = ConfigDict(extra="allow")


@dataclasses.dataclass(frozen=True)
class Data:
    text: str
    other: int = 1


@dataclasses.dataclass(slots=True)
class Slotted:
    text: str


Named = collections.namedtuple("Named", "first second")


class Kind(Enum):
    BIRD = "canary"
    FISH = "cod"


class Addable(dict):  # type: ignore[type-arg]
    def __add__(self, other: Any) -> Addable:
        return Addable({**self, **other})


class Plain:
    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return type(other) is Plain and other.text == self.text

    __hash__ = None  # type: ignore[assignment]


class Talking:
    __slots__ = ()

    def __str__(self) -> str:
        return "a canary speaks"


def cleaner(**options: Any) -> Cleaner:
    return Cleaner(GUARD, **options)


def streamed_by(
    guard: Guard, pieces: Iterable[Any], action: Any = "redact", role: Role = Role.VALUE
) -> list[Any]:
    """All that a stream shows of the pieces, in order."""
    stream = Cleaner(guard, action).stream(role)
    return [shown for piece in pieces for shown in stream.feed(piece)] + stream.finish()


def outcome(run: Callable[[], Any]) -> Any:
    """What it returns, or the type of the library's error that it raises."""
    try:
        return run()
    except NCOGuardError as error:
        return type(error)
