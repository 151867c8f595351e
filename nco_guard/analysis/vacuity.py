"""Rules that forbid nothing and rules that forbid everything, each proved within a bound; and rules that cost much.

That no text has a match of a rule is emptiness of its automaton. That hard rules leave no text, or none beyond some
length, is emptiness or finiteness of what all of them together allow; one long text that is allowed settles that.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from nco_guard.analysis.blocking import PROOF_STATES, Blocked
from nco_guard.analysis.remarks import Remark
from nco_guard.automata.patterns.searching import Machine
from nco_guard.errors import StateLimitError

__all__ = ["expensive", "leaves_no_text", "longest_left", "unsatisfiable"]

_LONG = 60  # an allowed text of so many characters is proof enough that there is text left
_STEPS = 8_000  # of the walk that looks for ever new states
_GLANCE = 1_000  # the same, to see whether it is worth it
_TRIES = 12  # characters tried for a new state
_WITHOUT_NEW = 200  # steps after which a walk gives up looking for one
_GROWING = 0.25  # new states a step, in the second half of that walk
_SOARING = 0.75  # the same, where a glance is enough


def unsatisfiable(rules: Iterable[Blocked]) -> Iterator[Remark]:
    """Remarks about rules that no text can match."""
    for rule in rules:
        try:
            example = rule.example
        except StateLimitError:
            yield Remark(
                "not-decided", (rule.id,), f"whether any text matches rule {rule.id!r} was not decided",
                "nothing, unless you expect it: the proof met its bound", "note",
            )  # fmt: skip
            continue
        if example is None:
            what = "stop_at of rule" if rule.rule.stop_at is not None else "rule"
            yield Remark(
                "unsatisfiable-rule",
                (rule.id,),
                f"no text has a match of {what} {rule.id!r}",
                "look for borders and lookarounds that contradict what stands beside them, such as a\\bb",
            )


def leaves_no_text(rules: Sequence[Blocked]) -> Iterator[Remark]:
    """Remarks about hard rules that leave only the empty text, or only short ones; the fewest rules that do so."""
    hard = [rule for rule in rules if rule.hard and rule.provable and not rule.large]
    if not hard:
        return
    try:
        if _allows_much([rule for rule in rules if rule.hard and rule.provable]):
            return
        longest = longest_left([rule.machine for rule in hard])
        if longest is None:
            return
        needed = list(hard)
        for rule in hard:
            fewer = [other for other in needed if other is not rule]
            if fewer and longest_left([other.machine for other in fewer]) == longest:
                needed = fewer
    except StateLimitError:
        yield Remark(
            "not-decided", tuple(rule.id for rule in hard), "whether the hard rules leave any text was not decided",
            "nothing, unless you expect it: the proof met its bound", "note",
        )  # fmt: skip
        return
    names = ", ".join(repr(rule.id) for rule in needed)
    which = f"rule {names} leaves" if len(needed) == 1 else f"rules {names} together leave"
    if longest == 0:
        yield Remark(
            "forbids-all-text",
            tuple(rule.id for rule in needed),
            f"{which} nothing but the empty text",
            "make them narrower: as it is, every generation ends at once",
        )
    else:
        yield Remark(
            "only-short-text",
            tuple(rule.id for rule in needed),
            f"{which} no text of more than {longest} code point{'' if longest == 1 else 's'}",
            "make them narrower",
        )


def _allows_much(rules: Sequence[Blocked]) -> bool:
    """Whether some long text is found at once that all rules allow."""
    units = ["a", "hello there ", "- ", "\n", "Z", "0", " ", ".", "é", "語", "x9 ", "\U0001f600"]
    texts = [(unit * _LONG)[:_LONG] for unit in units]
    return any(not any(rule(text) for rule in rules) for text in texts)


def longest_left(machines: Sequence[Machine]) -> int | None:
    """The length of the longest text that none of the machines finds a match in; None: there is no longest.

    Errors: `StateLimitError` beyond the bound.
    """
    letters = _letters(machines)
    start = tuple(machine.start for machine in machines)
    numbers, order = {start: 0}, [start]
    edges: list[set[int]] = []
    while len(edges) < len(order):
        if len(order) > PROOF_STATES:
            raise StateLimitError(f"what is left could not be settled within {PROOF_STATES:,} joint states")
        found: set[int] = set()
        for row in letters:
            reached = tuple([m.step(s, c) for m, s, c in zip(machines, order[len(edges)], row, strict=True)])
            if min(reached) >= 0:
                if reached not in numbers:
                    numbers[reached] = len(order)
                    order.append(reached)
                found.add(numbers[reached])
        edges.append(found)
    ends = [all(m.may_end(s) for m, s in zip(machines, states, strict=True)) for states in order]
    return _longest_path(edges, ends)


def _letters(machines: Sequence[Machine]) -> list[tuple[int, ...]]:
    """What the machines take characters for: each combination once."""
    starts = {0xE000}.union(*(machine.classes.starts.tolist() for machine in machines))
    points = np.array([code for code in sorted(starts) if not 0xD800 <= code <= 0xDFFF], np.uint32)
    rows = zip(*(machine.classes.of(points).tolist() for machine in machines), strict=True)
    return list(dict.fromkeys(rows))


def _longest_path(edges: Sequence[set[int]], ends: Sequence[bool]) -> int | None:
    """Of the paths from state 0 to one that ends: the length of the longest, None if there is no bound."""
    before: list[set[int]] = [set() for _ in edges]
    for source, targets in enumerate(edges):
        for target in targets:
            before[target].add(source)
    alive = {state for state, end in enumerate(ends) if end}
    waiting = list(alive)
    while waiting:
        fresh = before[waiting.pop()] - alive
        alive |= fresh
        waiting.extend(fresh)
    # Peeled off from the ends: what cannot be peeled off lies on, or before, a cycle.
    length: dict[int, int] = {}
    missing = {state: len(edges[state] & alive) for state in alive}
    ready = [state for state, count in missing.items() if not count]
    while ready:
        state = ready.pop()
        length[state] = 1 + max((length[target] for target in edges[state] & alive), default=-1)
        for source in before[state] & alive:
            missing[source] -= 1
            if not missing[source]:
                ready.append(source)
    return length.get(0) if len(length) == len(alive) else None


def expensive(rules: Iterable[Blocked]) -> Iterator[Remark]:
    """Remarks about rules whose automata go on growing in a walk that looks for new states."""
    for rule in rules:
        if rule.as_written is not None or rule.large:
            continue  # lists have as many states as characters
        growth, found, steps = _growth(rule, _GLANCE)
        if _GROWING < growth < _SOARING:
            growth, found, steps = _growth(rule, _STEPS)
        if rule.work is not None and rule.work.is_over:
            return  # nothing was found out about this rule, nor will be about the others
        if growth > _GROWING:
            yield Remark(
                "expensive-rule",
                (rule.id,),
                f"the automaton of rule {rule.id!r} goes on growing: {found:,} states after {steps:,} characters",
                "shorten counted repeats that follow something common, or anchor the pattern to a word",
            )


def _growth(rule: Blocked, steps: int) -> tuple[float, int, int]:
    """New states a step in the second half of a walk, how many there are in the end, and after how many steps."""
    machine = rule.fresh_machine()
    seen = [machine.start]
    try:
        half = _walk(machine, seen, steps)
    except StateLimitError:
        return 1.0, len(seen), len(seen)
    return 2 * (len(seen) - half) / steps, len(seen), steps


def _walk(machine: Machine, found: list[int], steps: int) -> int:
    """Collect distinct states in `found`; how many there are after half of the walk."""
    rng = random.Random(0)
    state, seen, half, fresh = machine.start, {machine.start}, 0, 0
    for step in range(steps):
        if step == steps // 2:
            half = len(seen)
        if step - fresh > _WITHOUT_NEW:
            return len(seen)
        following: int | None = None
        for _ in range(_TRIES):
            reached = machine.step(state, rng.randrange(machine.classes.count))
            if reached >= 0 and (following is None or reached not in seen):
                following = reached
                if reached not in seen:
                    break
        state = machine.start if following is None else following
        if state not in seen:
            seen.add(state)
            found.append(state)
            fresh = step
    return half
