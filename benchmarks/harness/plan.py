"""What all suites are given, and how a case becomes part of the record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from benchmarks.harness.building import Ids, allowed_rows
from benchmarks.harness.options import Options
from benchmarks.harness.processes import Bounds, Outcome, isolated
from benchmarks.harness.record import Case, Check, Collector
from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.methods.world import METHODS, Method, World, cannot_express

__all__ = ["Plan", "Samples", "case_of", "check_of"]

Samples = dict[str, list[float]]
P = ParamSpec("P")
K = TypeVar("K")


@dataclass
class Plan:
    """A run under way. `say` reports progress; it is given no figures."""

    options: Options
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

    def together(
        self,
        cases: Mapping[K, Case],
        bounds: Bounds,
        work: Callable[P, Mapping[K, Samples]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> None:
        """Run several cases in one child, where they take turns or share what takes long to make."""
        outcome: Outcome[Mapping[K, Samples]] = isolated(bounds, work, *args, **kwargs)
        for key, case in cases.items():
            self.collector.add(case, (outcome.value or {}).get(key, {}), outcome.status, outcome.reason)

    def rows(self, case: Case, constraint: ConstraintSet, batch: int, steps: int) -> Ids | None:
        """`allowed_rows` made in a child; where they cannot be made, that is recorded as the case."""
        outcome = isolated(self.bounds(), allowed_rows, constraint, self.world, batch, steps)
        if outcome.value is None:
            self.collector.add(case, {}, outcome.status, outcome.reason)
        return outcome.value

    def check(self, case: Case, work: Callable[P, Check], *args: P.args, **kwargs: P.kwargs) -> None:
        """Compare something in a child; what could not be compared is recorded as the case."""
        outcome: Outcome[Check] = isolated(self.bounds(), work, *args, **kwargs)
        if outcome.value is not None:
            self.collector.checks.append(outcome.value)
        else:
            self.collector.add(case, {}, outcome.status, outcome.reason)


def case_of(
    suite: str, method: str, constraint: ConstraintSet | None, world: World, **where: int | str
) -> Case:
    """A case's name."""
    name = "" if constraint is None else constraint.name
    return Case.model_validate(
        {"suite": suite, "method": method, "constraint": name, "tokenizer": world.name, **where}
    )


def check_of(
    constraint: ConstraintSet, world: World, against: str, compared: int, differences: int, note: str
) -> Check:
    """What a comparison found."""
    return Check(
        constraint=constraint.name,
        tokenizer=world.name,
        against=against,
        compared=compared,
        differences=differences,
        note=note,
    )
