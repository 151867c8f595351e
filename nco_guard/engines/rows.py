"""Masking rows of scores whose states are known: penalties, -inf for forbidden tokens, dead ends, reports.

Whoever knows which row continues which text (a `LogitsProcessor` from ids, continuous batching from its requests) hands
over the joint states; everything that happens to the scores happens here. Rows may have policies of their own.
Cost: a sparse write of the forbidden ids (see `scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import itemgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from nco_guard.engines.dead_ends import no_token_left, why_empty
from nco_guard.engines.scores import Complements, HostScores, Look, Looked, Scores
from nco_guard.errors import DeadEndError, StateLimitError
from nco_guard.masking.answers import Tables
from nco_guard.masking.idsets import holds
from nco_guard.session import BoundGuard
from nco_guard.session.rows import Ids, LimitMet
from nco_guard.tokens import Vocabulary

__all__ = [
    "LiveRows",
    "OnStep",
    "RowMasker",
    "StepReport",
    "forced_token",
    "kept_limit",
    "tokens_left",
]

Penalties = tuple[Ids, NDArray[np.float32]]

_NO_IDS: Ids = np.zeros(0, np.int64)
_NOTHING_LEFT = Looked(top=0, rank=0, penalised=False, removed=1.0)
_UNCHANGED = Looked(top=0, rank=0, penalised=False, removed=0.0)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What the mask did in one call, for the rows whose text goes on; lists run in parallel.

    Attributes:
        rows: row numbers in this call.
        steps: tokens generated in that row so far.
        top_forbidden: whether the token that the model ranked first was forbidden.
        top_penalized: whether it is penalised.
        rule_ids: then, the rules whose match that token completes; none where it is forbidden for another reason (what
            follows could not end well).
        best_allowed_rank: rank of the best allowed token in the model's own ranking (0: first).
        removed_mass: probability that the model gave to forbidden tokens, from the scores as they came.
        dead_end: where no token is left, what came of it ("end", "fallback" or "error", see the policy's
            `on_dead_end`), else None.
        forced: the rules that the row's last token breaks, which was written although it was forbidden; empty where
            it was forbidden for another reason. None where it was allowed.
        discarded: where the text went back instead (`when_blocked="rewind"`), how many tokens were thrown away; else
            None. What was blocked there need not be what the model ranked first; the rules are those whose
            match it would have completed.

    Under assisted decoding and beam search a call also scores positions and beams that are discarded later. Holds
    no token ids and no text.
    """

    rows: list[int]
    steps: list[int]
    top_forbidden: list[bool]
    top_penalized: list[bool]
    rule_ids: list[tuple[str, ...]]
    best_allowed_rank: list[int]
    removed_mass: list[float]
    dead_end: list[str | None]
    forced: list[tuple[str, ...] | None]
    discarded: list[int | None]

    def part(self, places: Sequence[int], rows: Sequence[int]) -> StepReport:
        """The entries at the given places of the lists, their rows numbered anew."""
        kept = {each.name: [getattr(self, each.name)[place] for place in places] for each in fields(self)}
        return StepReport(**{**kept, "rows": list(rows)})


OnStep = Callable[[StepReport], None]
"""What is told of each step."""


class LiveRows(NamedTuple):
    """The rows of one policy whose texts go on; lists run in parallel."""

    bound: BoundGuard
    #: What the states belong to.
    tables: Tables
    #: Their places in the scores.
    rows: list[int]
    #: The joint states of their texts, not negative.
    states: list[int]
    #: How many tokens may still follow the one that is being chosen; None: no limit is known.
    remaining: list[int | None]
    #: Tokens generated so far.
    steps: list[int]
    #: Their last tokens; None where it can be no pad.
    lasts: list[int | None]
    #: Rows whose last token was forbidden, and the rules that it breaks.
    forced: dict[int, tuple[str, ...]]

    @classmethod
    def none(cls, bound: BoundGuard, tables: Tables) -> LiveRows:
        """No rows yet; `add` adds them."""
        return cls(bound, tables, [], [], [], [], [], {})

    def add(self, row: int, state: int, remaining: int | None, step: int, last: int | None) -> None:
        """One more row."""
        self.rows.append(row)
        self.states.append(state)
        self.remaining.append(remaining)
        self.steps.append(step)
        self.lasts.append(last)


def tokens_left(prompt: int, length: int, max_length: int | None, max_new_tokens: int | None) -> int | None:
    """How many tokens may still follow the one that is being chosen, by limits as engines have them.

    prompt, length: tokens of the prompt, and of all so far. None: no limit is known; whoever goes on past one has
    another, or none.
    """
    if max_new_tokens is not None:
        own = prompt + max_new_tokens
        max_length = own if max_length is None else min(max_length, own)
    return None if max_length is None or max_length <= length else max_length - length - 1


def kept_limit(tables: Tables, state: int, remaining: int | None, row: int) -> int | None:
    """How many tokens may follow, for a row that holds a forced token; None where none leads to an end in time."""
    try:
        if remaining is not None and len(tables.forbidden(state, remaining)) == tables.vocabulary.width:
            return None
    except StateLimitError as error:
        raise LimitMet(row) from error
    return remaining


def forced_token(row: int, rules: Sequence[str]) -> str:
    """What is said of a forbidden token that somebody else wrote into a row."""
    reason = f"it breaks {', '.join(map(repr, rules))}" if rules else "the text could not end well after it"
    return (
        f"row {row}: a token was written that the guard forbids ({reason}); what follows is guarded, but this text "
        f"is not what the policy allows. Put the guard last among the processors, after whatever forces tokens"
    )


class RowMasker:
    """Masks live rows. One whose state or mask met a limit (`JointTables.stuck`) is ended, whatever the policy says.

    Guarantee: in the rows named, the columns of forbidden tokens become -inf and penalties of soft rules are
    subtracted; every other score stays as it is, bit by bit. A dead end is resolved by the row's own policy.

    beams, engine_ends: as for `GuardLogitsProcessor`.
    on_step: receives one `StepReport` for each step. changes_only: for steps in which something changed, with the rows
    in which it did: the first choice of the model was forbidden or penalised, or no token was left. That saves nearly
    all of the cost.
    on_failure: called with a row and the error where no token is left and the policy has none either. Returns the token
    to write instead, or None, and then the error is raised.
    scores_of: what works on the engine's scores; by default they are an array of NumPy, `tensors.scores_of` takes
    tensors.
    """

    def __init__(
        self,
        *,
        beams: int = 1,
        engine_ends: bool = False,
        on_step: OnStep | None = None,
        changes_only: bool = False,
        on_failure: Callable[[int, DeadEndError], int | None] | None = None,
        scores_of: Callable[[Any, Complements], Scores] = HostScores,
    ) -> None:
        self._beams = beams
        self._engine_ends = engine_ends
        self._on_step = on_step
        self._changes_only = changes_only
        self._on_failure = on_failure
        self._scores_of = scores_of
        self._complements: Complements = {}

    def apply(self, result: Any, groups: Sequence[LiveRows]) -> None:
        """Mask one step.

        result: float [rows, width], the scores as the engine has them, written in place. groups: rows by policy, all of
        one width; the beams of a sequence have one policy. Raises `LimitMet` before anything is written,
        `StateLimitError` for a row that cannot be ended, `DeadEndError`, and `GenerationError` for scores that are no
        numbers: no choice among them means anything.
        """
        columns: dict[int, Ids] = {}
        penalties: dict[int, Penalties] = {}
        probe = 0
        for group in groups:
            facts = _facts_of(group.bound)
            probe = facts.probe
            forbidden_in = group.tables.forbidden
            # Most rows of a batch are in few states.
            known: dict[tuple[int, int | None], Ids] = {}
            for row, state, remaining in zip(group.rows, group.states, group.remaining, strict=True):
                key = (state, remaining)
                forbidden = known.get(key)
                if forbidden is None:
                    try:
                        forbidden = known[key] = forbidden_in(state, remaining)
                    except StateLimitError as error:
                        raise LimitMet(row) from error
                columns[row] = forbidden
            if facts.soft:
                penalties |= _penalties(group)
        if not columns:
            return
        scores = self._scores_of(result, self._complements)
        looked = self._look(scores, groups, columns, penalties) if self._on_step is not None else {}
        for row, (ids, amounts) in penalties.items():
            scores.subtract(row, ids, amounts)
        dead = scores.forbid(columns, probe)
        resolutions = self._resolve(scores, groups, columns, dead) if dead else {}
        if self._on_step is not None and (looked or resolutions or any(group.forced for group in groups)):
            self._on_step(_report(groups, looked, resolutions))
        for row, (name, token) in resolutions.items():
            scores.allow(row, self._chosen(groups, row, name, token))

    def _look(
        self,
        scores: Scores,
        groups: Sequence[LiveRows],
        columns: Mapping[int, Ids],
        penalties: Mapping[int, Penalties],
    ) -> dict[int, Looked]:
        """What the mask will do in each row, or in each in which it changes something."""
        rows = list(columns)
        if self._changes_only:
            rows = [
                row
                for row, top in zip(rows, scores.first_choices(rows), strict=True)
                if holds(columns[row], top) or (row in penalties and holds(penalties[row][0], top))
            ]
            if not rows:
                return {}
        pads = self._pads(groups)
        looked = scores.look(
            [
                Look(row, columns[row], penalties[row][0] if row in penalties else _NO_IDS, pads.get(row))
                for row in rows
            ]
        )
        return {
            row: look
            for row, look in zip(rows, looked, strict=True)
            # Where a pad is allowed after all, the first choice may be that one.
            if not self._changes_only or look.rank or look.penalised
        }

    def _pads(self, groups: Sequence[LiveRows]) -> dict[int, int]:
        """Rows whose last token may be a pad, and that token; the prompt's last token is none."""
        return {
            row: last
            for group in groups
            for row, step, last in zip(group.rows, group.steps, group.lasts, strict=True)
            if step and last is not None and last in _facts_of(group.bound).silent
        }

    def _resolve(
        self,
        scores: Scores,
        groups: Sequence[LiveRows],
        columns: Mapping[int, Ids],
        dead: set[int],
    ) -> dict[int, tuple[str, int | None]]:
        """What is to be done about rows in which no token is left, unless a live beam stands in for them."""
        pads = self._pads(groups) if dead else {}
        for row in list(dead):
            # A row that was stopped from outside where its text may not end gets pads, which use up what was
            # left to bring it to an end. One more pad adds no text either; whoever stopped it has to trim it.
            if row in pads:
                scores.allow(row, pads[row])
                dead.remove(row)
        total = len(scores)
        families = (range(first, min(first + self._beams, total)) for first in range(0, total, self._beams))
        lost = [row for family in families if dead and dead.issuperset(family) for row in family]
        return {row: self._resolution(_group_of(groups, row), row, columns[row]) for row in lost}

    def _resolution(self, group: LiveRows, row: int, forbidden: Ids) -> tuple[str, int | None]:
        """What the policy has for a dead end: its name, and the token to write; None: an error."""
        bound, at = group.bound, group.rows.index(row)
        wanted = bound.policy.on_dead_end
        if group.tables.stuck(group.states[at], group.remaining[at]):
            ends = bound.vocabulary.eos_ids if self._engine_ends else ()
            return "state_limit", min(ends, default=None)
        if wanted == "fallback" and bound.fallback_id is not None and bound.fallback_id not in forbidden:
            return "fallback", bound.fallback_id
        if wanted == "end":
            for token in bound.vocabulary.eos_ids:
                # `generate` cuts a text back to where it may end; nobody else does.
                if token not in forbidden or self._engine_ends:
                    return "end", token
        return "error", None

    def _chosen(self, groups: Sequence[LiveRows], row: int, name: str, token: int | None) -> int:
        """The token to write at a dead end. Raises `DeadEndError` where there is none."""
        if token is not None:
            return token
        group = _group_of(groups, row)
        wanted = group.bound.policy.on_dead_end
        if name == "state_limit":
            raise StateLimitError(
                f"row {row}: this text brings a rule to the limit of its automaton, or what could still be written was "
                "not decided within the bound, so the text can neither go on nor end here; use guard.generate, which "
                "ends it where it may end, or make the rule's counted repeats shorter"
            )
        at = group.rows.index(row)
        why = why_empty(group.bound, group.tables, group.states[at], group.remaining[at])
        error = DeadEndError(no_token_left(row, why, f"{wanted}, resolved by: {name}"))
        token = None if self._on_failure is None else self._on_failure(row, error)
        if token is None:
            raise error
        return token


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a masker needs to know of a policy in every step.

    silent: special tokens that may be pads. soft: whether there are penalties. probe: a column that is likely to be
    alive.
    """

    silent: frozenset[int]
    soft: bool
    probe: int

    @classmethod
    def of(cls, bound: BoundGuard) -> _Facts:
        vocabulary = bound.vocabulary
        silent = vocabulary.silent_ids.intersection(vocabulary.special_ids).difference(vocabulary.eos_ids)
        soft = any(rule.mode == "soft" for rule in bound.policy.rules)
        return cls(silent, soft, _likely_alive(vocabulary))


_facts: WeakKeyDictionary[BoundGuard, _Facts] = WeakKeyDictionary()


def _facts_of(bound: BoundGuard) -> _Facts:
    known = _facts.get(bound)
    if known is None:
        known = _facts[bound] = _Facts.of(bound)
    return known


def _likely_alive(vocabulary: Vocabulary) -> int:
    outside = {*vocabulary.unusable_ids, *vocabulary.special_ids}
    middle = vocabulary.width // 2
    return next((index for index in range(middle, vocabulary.width) if index not in outside), middle)


def _penalties(group: LiveRows) -> dict[int, Penalties]:
    """What soft rules subtract, by row: ids and amounts."""
    found: dict[int, Penalties] = {}
    for row, state in zip(group.rows, group.states, strict=True):
        try:
            ids, amounts = group.tables.penalties(state)
        except StateLimitError as error:
            raise LimitMet(row) from error
        if len(ids):
            found[row] = ids, amounts
    return found


def _group_of(groups: Sequence[LiveRows], row: int) -> LiveRows:
    return next(group for group in groups if row in group.rows)


def _report(
    groups: Sequence[LiveRows],
    looked: Mapping[int, Looked],
    resolutions: Mapping[int, tuple[str, int | None]],
) -> StepReport:
    """The rows that were looked at, and those in which no token is left."""
    found: list[tuple[int, int, tuple[str, ...], Looked]] = []
    forced = {row: rules for group in groups for row, rules in group.forced.items()}
    for group in groups:
        for row, step, state in zip(group.rows, group.steps, group.states, strict=True):
            look = looked.get(row)
            if look is None:
                if row not in resolutions and row not in group.forced:
                    continue
                # Others had left the model nothing before, or only what was forced is to be told.
                look = _NOTHING_LEFT if row in resolutions else _UNCHANGED
            changed = look.rank or look.penalised
            rules = group.tables.rules_at_fault(state, look.top) if changed else ()
            found.append((row, step, rules, look))
    found.sort(key=itemgetter(0))
    looks = [look for *_, look in found]
    return StepReport(
        rows=[row for row, *_ in found],
        steps=[step for _, step, *_ in found],
        top_forbidden=[look.rank > 0 for look in looks],
        top_penalized=[look.penalised for look in looks],
        rule_ids=[rules for _, _, rules, _ in found],
        best_allowed_rank=[look.rank for look in looks],
        removed_mass=[look.removed for look in looks],
        dead_end=[resolutions[row][0] if row in resolutions else None for row, *_ in found],
        forced=[forced.get(row) for row, *_ in found],
        discarded=[None] * len(found),
    )
