"""What a route is, and how one is run with a shape: under the policy, under none, and with the clean twin."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nco_guard import Guard, Policy
from nco_guard.audit import Event, Sink
from nco_guard.errors import NCOGuardError
from tests.leaks.canaries import CLEAN, NOTHING, POLICY, SECRET, Secret
from tests.leaks.places import Places
from tests.leaks.shapes import Shape, same

__all__ = ["Outcome", "Route", "Run", "carried", "check", "performed", "route", "routes", "shows_something"]


class _PassingOn:
    """The sink of a shared guard: passes on to that of the run which is under way."""

    to: Sink | None = None

    def __call__(self, event: Event) -> None:
        if self.to is not None:
            self.to(event)


_PASSED_ON = _PassingOn()


@cache
def _guard_of(policy: Policy) -> Guard:
    return Guard(policy, audit=_PASSED_ON)


@dataclass
class Run:
    """One run of a route: what it is given, and where it puts what it gets."""

    shape: Shape
    secret: Secret
    policy: Policy
    sink: Sink
    places: Places

    def guard(self) -> Guard:
        """A guard whose audit is looked at; runs share it, since compiling takes longer than most of them."""
        _PASSED_ON.to = self.sink
        return _guard_of(self.policy)

    def value(self) -> Any:
        """The shape, made anew."""
        return self.shape.build(self.secret)


@dataclass(frozen=True)
class Route:
    """A way by which something reaches a reader.

    Attributes:
        carries: kinds of shapes that it can carry.
        covers: public names that it goes through.
        raises: errors that are its answer to the secret.
        silent: it shows nothing of what it is given, so that under no policy there is nothing to find either.
        unchanged: its result for a clean value is that value.
        drawn: it samples, so that no two runs give the same.
        skips: shapes of those kinds that it cannot carry, by name.
    """

    name: str
    run: Callable[[Run], Any]
    carries: frozenset[str]
    covers: tuple[str, ...]
    raises: tuple[type[BaseException], ...] = ()
    silent: bool = False
    unchanged: bool = False
    skips: frozenset[str] = frozenset()
    drawn: bool = False

    def __repr__(self) -> str:
        return self.name


def route(
    into: list[Route],
    name: str,
    *,
    carries: Iterable[str],
    covers: Iterable[str] = (),
    raises: tuple[type[BaseException], ...] = (),
    silent: bool = False,
    unchanged: bool = False,
    skips: Iterable[str] = (),
    drawn: bool = False,
) -> Callable[[Callable[[Run], Any]], Callable[[Run], Any]]:
    """Adds a route to a list."""

    def add(run: Callable[[Run], Any]) -> Callable[[Run], Any]:
        made = Route(
            name, run, frozenset(carries), tuple(covers), raises, silent, unchanged, frozenset(skips), drawn
        )
        into.append(made)
        return run

    return add


def routes(
    into: list[Route], name: str, cases: Iterable[Any], **options: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds a route for each of the cases: words that go into the name, and to the function after the run.

    A case is a tuple of words, or a single one.
    """
    found = [case if isinstance(case, tuple) else (case,) for case in cases]

    def add(run: Callable[..., Any]) -> Callable[..., Any]:
        for case in found:
            route(into, name.format(*case), **options)(lambda given, case=case: run(given, *case))  # type: ignore[misc]
        return run

    return add


def carried(one: Route, corpus: Iterable[Shape]) -> list[Shape]:
    """The shapes of a corpus that a route carries."""
    return [shape for shape in corpus if shape.kind in one.carries and shape.name not in one.skips]


@dataclass
class Outcome:
    """What a run showed."""

    looks: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    error: BaseException | None = None
    result: Any = None


def performed(one: Route, shape: Shape, secret: Secret, policy: Policy, *, looking: bool = True) -> Outcome:
    """Run a route, and look everywhere."""
    outcome = Outcome()
    with TemporaryDirectory() as folder:
        places = Places(Path(folder))
        with places.watching() as sink:
            run = Run(shape, secret, policy, sink, places)
            try:
                answer = one.run(run)
                if inspect.isawaitable(answer):
                    asyncio.run(_awaited(answer))
            except Exception as error:
                places.failed(error)
                outcome.error = error
            finally:
                _PASSED_ON.to = None
        for look in places.looks() if looking else ():
            outcome.looks[look.place] += 1
            outcome.leaks += [f"{look.place}: {leak}" for leak in look.leaks]
    outcome.result = places.result
    return outcome


async def _awaited(answer: Any) -> Any:
    return await answer


def check(one: Route, shape: Shape) -> tuple[Counter[str], list[str]]:
    """(places looked at, what is wrong) of a route with a shape.

    Wrong are: the secret in any place; an error that is neither this library's nor one that comes without a policy
    too; for the clean twin any error, and any difference from what the route gives under a policy that forbids nothing.
    """
    looked: Counter[str] = Counter()
    wrong: list[str] = []
    hot = performed(one, shape, SECRET, POLICY)
    looked += hot.looks
    wrong += [f"leak in {leak}" for leak in hot.leaks]
    free = performed(
        one, shape, CLEAN, NOTHING, looking=False
    )  # nothing in it could leak, or be kept from it
    cold = performed(one, shape, CLEAN, POLICY)
    looked += cold.looks
    known = (NCOGuardError, *one.raises, *(() if free.error is None else (type(free.error),)))
    if hot.error is not None and not isinstance(hot.error, known):
        wrong.append(f"error {type(hot.error).__name__}: {str(hot.error)[:300]}")
    if cold.leaks:
        wrong.append(f"the clean twin holds it: {cold.leaks}")
    if type(cold.error) is not type(free.error):
        wrong.append(f"error for the clean twin: {type(cold.error).__name__}: {str(cold.error)[:300]}")
    elif shape.same and not one.drawn and not same(cold.result, free.result):
        wrong.append(f"the clean twin was changed: {cold.result!r:.200} for {free.result!r:.200}")
    if one.unchanged and shape.same and cold.error is None and not same(cold.result, shape.build(CLEAN)):
        wrong.append(
            f"the clean twin came back otherwise: {cold.result!r:.200} for {shape.build(CLEAN)!r:.200}"
        )
    return looked, wrong


def shows_something(one: Route, shapes: Iterable[Shape]) -> bool:
    """Whether under a policy that forbids nothing the secret is found: else no look at this route means anything."""
    return one.silent or any(performed(one, shape, SECRET, NOTHING).leaks for shape in shapes)
