"""What all suites are given, and how a case becomes part of the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from nco_guard.bench.constraints import ConstraintSet
from nco_guard.bench.methods import METHODS, Method, World, cannot_express
from nco_guard.bench.options import BenchOptions
from nco_guard.bench.processes import Bounds, Outcome, isolated
from nco_guard.bench.record import Case, Collector

__all__ = ["Plan", "Samples"]

Samples = dict[str, list[float]]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Plan:
    """A run under way. `say` reports progress; it is given no figures."""

    options: BenchOptions
    worlds: tuple[World, ...]
    threads: int
    say: Callable[[str], None]
    collector: Collector = field(default_factory=Collector)

    @property
    def world(self) -> World:
        """The tokenizer that is measured throughout."""
        return self.worlds[0]

    def bounds(self, share: float = 1.0) -> Bounds:
        """Of a case; `share` of the time for one that is many."""
        return Bounds(self.options.case_seconds * share, self.options.case_mib)

    def able(
        self, suite: str, constraint: ConstraintSet, world: World, methods: Sequence[str], **where: int | str
    ) -> list[Method]:
        """The methods that have the constraint; those that do not are recorded with the reason."""
        able: list[Method] = []
        for key in methods:
            method = METHODS[key]
            reason = cannot_express(method, constraint)
            if reason:
                case = case_of(suite, key, constraint, world, **where)
                self.collector.add(case, {}, "cannot express", reason)
            else:
                able.append(method)
        return able

    def turns(self, methods: Sequence[T], rounds: int) -> Iterator[tuple[int, T]]:
        """A B C, B C A, ...: each method once a round, another one first each time."""
        for number in range(rounds):
            first = number % max(1, len(methods))
            for method in (*methods[first:], *methods[:first]):
                yield number, method

    def measure(
        self,
        case: Case,
        bounds: Bounds,
        work: Callable[P, Samples],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> bool:
        """Run a case once more in a child, unless it went wrong before; whether it went well."""
        if self.collector.status(case) not in (None, "ok"):
            return False
        outcome: Outcome[Samples] = isolated(bounds, work, *args, **kwargs)
        self.collector.add(case, outcome.value or {}, outcome.status, outcome.reason)
        return outcome.status == "ok"


def case_of(
    suite: str, method: str, constraint: ConstraintSet | None, world: World, **where: int | str
) -> Case:
    """A case's name."""
    name = "" if constraint is None else constraint.name
    return Case.model_validate(
        {"suite": suite, "method": method, "constraint": name, "tokenizer": world.name, **where}
    )
