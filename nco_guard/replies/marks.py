"""The patterns of a format as programs of threads, which read text character by character from every place at once.

Which match a backtracking search finds first is which thread comes first, so threads are kept in that order (Pike).
What is looked ahead for is an *obligation* of a thread, followed beside it. A program remembers no text: of a name it
knows that it is within one. `replies.cutter` searches by these.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from nco_guard.automata import cpython

__all__ = ["MATCH", "Obligations", "Program", "UnfollowedPattern", "Where", "program_of"]

#: The place of a program at which it has matched.
MATCH = 0
#: What is looked ahead for: whether it must not come, and where in the program the search for it is.
Obligations = tuple[tuple[bool, tuple[int, ...]], ...]

_NAMES = re.compile(r"\(\?P?<(?![=!])\w+>")
_MOST = 4_000  # steps of a program


class UnfollowedPattern(ValueError):
    """A pattern that looks at more than is followed here."""


class Where(NamedTuple):
    """What patterns see behind: the end of the text as far as they ask for it, and whether nothing stands there.

    over: nothing follows, either.
    """

    behind: str = ""
    first: bool = False
    over: bool = False


class Step(NamedTuple):
    """A step of a program. `to`: the next ones, the preferred first."""

    kind: Literal["match", "char", "split", "behind", "first", "ahead", "over"]
    to: tuple[int, ...] = ()
    items: tuple[Any, ...] = ()
    negated: bool = False


class Program:
    """A pattern. Errors: `UnfollowedPattern`."""

    def __init__(self, pattern: str) -> None:
        self.behind: list[str] = []
        self._steps = [Step("match")]
        self._inner = False
        self._told: dict[tuple[int, str], bool] = {}
        if re.search(r"\[\[:|\(\?[aiLmsuxbefrwpV]+[:)-]", pattern):
            raise UnfollowedPattern("flags and classes of its own")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                tree = cpython.parsed(_NAMES.sub("(?:", pattern), re.DOTALL)
        except (re.error, OverflowError, RecursionError) as error:
            raise UnfollowedPattern(str(error)) from None
        self.start = self._all(tree, MATCH)

    def _added(self, step: Step) -> int:
        if len(self._steps) > _MOST:
            raise UnfollowedPattern("too long a pattern")
        self._steps.append(step)
        return len(self._steps) - 1

    def _all(self, items: Any, then: int) -> int:
        for item in reversed([*items]):
            then = self._one(str(item[0]), item[1], then)
        return then

    def _one(self, kind: str, of: Any, then: int) -> int:
        if kind in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return self._char(kind, of, then)
        if kind == "BRANCH":
            return self._added(Step("split", tuple(self._all(each, then) for each in of[1])))
        if kind == "SUBPATTERN":
            return self._all(of[3], then)
        if kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, body = of
            return self._repeat(least, most, body, then, greedy=kind == "MAX_REPEAT")
        if kind == "AT":
            return self._at(str(of), then)
        if kind in ("ASSERT", "ASSERT_NOT"):
            way, body = of
            return self._look(way, body, then, negated=kind == "ASSERT_NOT")
        raise UnfollowedPattern(kind)

    def _char(self, kind: str, of: Any, then: int) -> int:
        if kind == "ANY":
            return self._added(Step("char", (then,), (), True))
        if kind != "IN":
            return self._added(Step("char", (then,), (("LITERAL", of),), kind == "NOT_LITERAL"))
        items = [(str(name), str(av) if str(name) == "CATEGORY" else av) for name, av in of]
        negated = items[0][0] == "NEGATE"
        return self._added(Step("char", (then,), tuple(items[negated:]), negated))

    def _repeat(self, least: int, most: Any, of: Any, then: int, *, greedy: bool) -> int:
        following = then
        if most == cpython.MAXREPEAT:
            following = self._added(Step("split"))
            body = self._all(of, following)
            self._steps[following] = Step("split", (body, then) if greedy else (then, body))
        else:
            for _ in range(int(most) - least):
                body = self._all(of, following)
                following = self._added(Step("split", (body, then) if greedy else (then, body)))
        for _ in range(least):
            following = self._all(of, following)
        return following

    def _at(self, kind: str, then: int) -> int:
        if kind in ("AT_BEGINNING", "AT_BEGINNING_STRING"):
            return self._added(Step("first", (then,)))
        if kind == "AT_END_STRING":
            return self._added(Step("over", (then,)))
        if kind == "AT_END":
            return self._look(1, cpython.parsed(r"\n?\Z", re.DOTALL), then, negated=False)
        raise UnfollowedPattern(kind)

    def _look(self, way: int, of: Any, then: int, *, negated: bool) -> int:
        if way < 0:
            texts = _literals(of)
            self.behind += texts
            return self._added(Step("behind", (then,), tuple(texts), negated))
        if self._inner:
            raise UnfollowedPattern("a look within a look")
        self._inner = True
        sought = self._all(of, MATCH)
        self._inner = False
        return self._added(Step("ahead", (then, sought), (), negated))

    def takes(self, place: int, character: str) -> bool:
        """Whether a thread at this place goes on with a character."""
        found = self._told.get((place, character))
        if found is None:
            step = self._steps[place]
            found = step.kind == "char" and step.negated != any(
                _holds(item, character) for item in step.items
            )
            self._told[place, character] = found
        return found

    def after(self, place: int) -> int:
        """Where a thread goes on from, behind a character that it takes."""
        return self._steps[place].to[0]

    def threads(
        self, place: int, owed: Obligations, where: Where, seen: set[tuple[int, Obligations]]
    ) -> list[tuple[int, Obligations]]:
        """Where threads are from a step on, at characters or `MATCH`, the preferred first; less what was `seen`."""
        found, waiting = list[tuple[int, Obligations]](), [(place, owed)]
        while waiting:
            place, owed = waiting.pop()
            if (place, owed) in seen:
                continue
            seen.add((place, owed))
            step = self._steps[place]
            if step.kind == "split":
                waiting += [(each, owed) for each in reversed(step.to)]
            elif step.kind in ("match", "char") or (step.kind == "over" and not where.over):
                found.append((place, owed))
            elif step.kind == "ahead":
                more = self._owing(step, where)
                if more is not None:
                    waiting.append((step.to[0], tuple(sorted({*owed, *more}))))
            elif (
                step.kind == "over"
                or (step.kind == "first" and where.first)
                or (step.kind == "behind" and where.behind.endswith(step.items) != step.negated)
            ):
                waiting.append((step.to[0], owed))
        return found

    def _owing(self, step: Step, where: Where) -> Obligations | None:
        sought = self._sought([step.to[1]], where)
        if MATCH in sought or not sought:
            return () if (MATCH in sought) != step.negated else None
        return ((step.negated, sought),)

    def _sought(self, places: Sequence[int], where: Where) -> tuple[int, ...]:
        seen = set[tuple[int, Obligations]]()
        return tuple(sorted({at for each in places for at, _ in self.threads(each, (), where, seen)}))

    def owed(self, owed: Obligations, character: str, where: Where) -> Obligations | None:
        """What is owed behind a further character; None: something cannot be any more."""
        left = set[tuple[bool, tuple[int, ...]]]()
        for negated, places in owed:
            sought = self._sought([self.after(one) for one in places if self.takes(one, character)], where)
            if MATCH in sought or not sought:
                if (MATCH in sought) == negated:
                    return None
            else:
                left.add((negated, sought))
        return tuple(sorted(left))

    def kept(self, owed: Obligations, where: Where) -> bool:
        """Whether all that is owed is there if nothing follows."""
        return all((MATCH in self._sought(places, where)) != negated for negated, places in owed)

    def may_be_empty(self) -> bool:
        """Whether it may match where no character is."""
        always = [Where(first=True, over=True), Where(), *(Where(each, over=True) for each in self.behind)]
        return any(
            place == MATCH for where in always for place, _ in self.threads(self.start, (), where, set())
        )


@lru_cache(maxsize=1024)
def program_of(pattern: str) -> Program:
    """The program of a pattern, one for all who ask. Errors: `UnfollowedPattern`."""
    return Program(pattern)


def _literals(of: Any) -> list[str]:
    """The texts of a look behind. Errors: `UnfollowedPattern` where it looks at more."""
    found = [""]
    for kind, what in of:
        name = str(kind)
        if name == "LITERAL":
            more = [chr(what)]
        elif name == "SUBPATTERN":
            more = _literals(what[3])
        elif name == "BRANCH":
            more = [text for each in what[1] for text in _literals(each)]
        elif name == "IN" and all(str(one) == "LITERAL" for one, _ in what):
            more = [chr(code) for _, code in what]
        else:
            raise UnfollowedPattern("it looks behind at more than literal text")
        found = [before + text for before in found for text in more]
    return found


def _holds(item: tuple[str, Any], character: str) -> bool:
    kind, of = item
    if kind == "LITERAL":
        return ord(character) == int(of)
    if kind == "RANGE":
        return int(of[0]) <= ord(character) <= int(of[1])
    from regex import match

    name = str(of).removeprefix("CATEGORY_")
    sign = {"SPACE": "s", "WORD": "w", "DIGIT": "d"}.get(name.removeprefix("NOT_"))
    if kind != "CATEGORY" or sign is None:
        raise UnfollowedPattern(str(of))
    return bool(match(f"\\{sign}", character)) != name.startswith("NOT_")
