"""Suite `equality`: are the masks that were timed the right ones?

Every mask on the way through the text is compared with that of each exact method; a sample of the states met, and of
states that random text leads to, with the definition (`masking.bruteforce`), which takes seconds a mask over a large
vocabulary and so has a time limit of its own.

What is compared: llguidance keeps text well-formed as we do, so all columns but those that it calls special. The others
do not, so the columns of ASCII tokens.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.harness.building import Ids, allowed_rows, build
from benchmarks.harness.plan import Plan, case_of, check_of
from benchmarks.harness.processes import isolated
from benchmarks.harness.record import Check, Record
from benchmarks.harness.render import section, title
from benchmarks.inputs.constraints import MEASURED, ConstraintSet, regexes
from benchmarks.methods.baselines import Prepared, Stateful
from benchmarks.methods.peers import PreparedPeer
from benchmarks.methods.world import METHODS, Method, World
from nco_guard.errors import ForbiddenTokenError, UnsupportedError
from nco_guard.masking import bruteforce
from nco_guard.session import BoundGuard, Session

__all__ = ["against_definition", "against_method", "measure", "show"]

_SAMPLED = 12


def measure(plan: Plan) -> None:
    """All constraints, against the definition and all exact methods."""
    options, world = plan.options, plan.world
    seconds, steps = 4.0 if options.quick else 60.0, max(20, options.text_steps // 4)
    for constraint in (*MEASURED, regexes(8, options.regexpspace)):
        plan.say(f"equality: {constraint.name}: the definition")
        case = case_of("equality", "definition", constraint, world)
        plan.check(case, against_definition, constraint, world, options.text_steps, seconds)
        rows = isolated(plan.bounds(), allowed_rows, constraint, world, 1, steps)
        exact = [key for key, method in METHODS.items() if method.exact and method.kind != "ours"]
        if not constraint.beyond and constraint.plain[1]:
            exact.remove("guard-trie")  # patterns are finitely many strings to it
        for method in plan.able("equality", constraint, world, exact):
            case = case_of("equality", method.key, constraint, world)
            if rows.value is None:
                plan.collector.add(case, {}, rows.status, rows.reason)
                continue
            plan.say(f"equality: {constraint.name}: {method.title}")
            plan.check(case, against_method, method, constraint, world, rows.value)


def show(record: Record) -> str:
    """What this suite compared, and all others."""
    rows = [
        (c.constraint, c.tokenizer, title(c.against), f"{c.compared:,}", f"{c.differences:,}", c.note)
        for c in record.checks
    ]
    header = ("constraint", "tokenizer", "compared with", "masks", "differences", "")
    return section("## Equality", "", header, rows, record.find("equality"))


def against_definition(constraint: ConstraintSet, world: World, steps: int, seconds: float) -> Check:
    """A sample of the states that text and random tokens lead to; at least one, then until the time is up."""
    bound = build(METHODS["ours"], constraint, world).guard()
    rng = random.Random(0)
    session = bound.session()
    for token in world.text(steps)[:steps]:
        _step(bound, session, token)
    for _ in range(40):
        _step(bound, session, rng.randrange(world.vocabulary.width))
    tables = bound.tables
    states = rng.sample(range(tables.state_count), min(_SAMPLED, tables.state_count))
    deadline = time.monotonic() + seconds
    compared = differences = 0
    for state in states:
        if compared and time.monotonic() > deadline:
            break
        expected = bruteforce.forbidden(tables.constraints, tables.components(state), world.vocabulary)
        differences += not np.array_equal(np.flatnonzero(expected), tables.forbidden(state))
        compared += 1
    note = f"a sample of {compared} of {tables.state_count} states met"
    return check_of(constraint, world, "definition", compared, differences, note)


def _step(bound: BoundGuard, session: Session, token: int) -> None:
    if token not in bound.vocabulary.eos_ids and token not in session.forbidden_ids():
        session.advance(token)


def against_method(method: Method, constraint: ConstraintSet, world: World, rows: Ids) -> Check:
    """Every mask along the first row, int64 [1, steps]."""
    bound = build(METHODS["ours"], constraint, world).guard()
    other = build(method, constraint, world).other()
    session, compared, differences = bound.session(), 0, 0
    special = world.special()
    if method.key != "llguidance":
        special |= np.array([not token.isascii() for token in world.vocabulary.tokens])
    columns = ~special
    columns[list(world.vocabulary.eos_ids)] = False
    read, masks = _reader(other)
    for token in rows[0].tolist():
        compared += 1
        differences += bool((session.mask() != masks())[columns].any())
        session.advance(token)
        try:
            read(token)
        except ForbiddenTokenError:
            differences += 1
            break
    note = f"{int(columns.sum()):,} of {world.vocabulary.width:,} columns"
    return check_of(constraint, world, method.key, compared, differences, note)


def _reader(other: Prepared) -> tuple[Callable[[int], None], Callable[[], NDArray[np.bool_]]]:
    """One sequence under another method: how it reads a token, and its mask, bool [width]."""
    if isinstance(other, PreparedPeer):
        matcher = other.matcher()
        return matcher.advance, matcher.forbidden
    if not isinstance(other, Stateful):
        raise UnsupportedError(f"{other.name} has no state to follow a text with")
    states = [other.start(1)]
    scores = torch.zeros(1, other.width)

    def read(token: int) -> None:
        states.append(other.advance(states.pop(), torch.tensor([token])))

    return read, lambda: np.asarray(torch.isneginf(other.apply(states[-1], scores)[0]).numpy())
