"""Masking rows of scores whose states are known: penalties, -inf for forbidden tokens, dead ends, reports.

Whoever knows which row continues which text (a `LogitsProcessor` from ids, continuous batching from its requests) hands
over the joint states; everything that happens to the scores happens here. Rows may have policies of their own.
Cost: a sparse write of the forbidden ids (see `scores`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from nco_guard.batch import Ids
from nco_guard.engines.hf.scores import Look, Looked, scores_of
from nco_guard.errors import DeadEndError
from nco_guard.masking import JointTables
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary

__all__ = ["LiveRow", "LiveRows", "RowMasker", "StepReport"]

T = TypeVar("T")

_NO_IDS: Ids = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class StepReport:
    """What the mask did in one call, for the rows whose text goes on; lists run in parallel.

    rows: row numbers in this call. steps: tokens generated in that row so far. top_forbidden, top_penalized:
    whether the token that the model ranked first was forbidden, or is penalised. rule_ids: then, the rules
    whose match that token completes; none where it is forbidden for another reason (what follows could not
    end well).
    best_allowed_rank: rank of the best allowed token in the model's own ranking (0: first). removed_mass:
    probability that the model gave to forbidden tokens, from the scores as they came. dead_end: where no
    token is left, what came of it ("end", "fallback" or "error", see the policy's `on_dead_end`), else None.
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

    def part(self, places: Sequence[int], rows: Sequence[int]) -> StepReport:
        """The entries at the given places of the lists, their rows numbered anew."""

        def chosen(values: list[T]) -> list[T]:
            return [values[place] for place in places]

        return StepReport(
            rows=list(rows),
            steps=chosen(self.steps),
            top_forbidden=chosen(self.top_forbidden),
            top_penalized=chosen(self.top_penalized),
            rule_ids=chosen(self.rule_ids),
            best_allowed_rank=chosen(self.best_allowed_rank),
            removed_mass=chosen(self.removed_mass),
            dead_end=chosen(self.dead_end),
        )


class LiveRow(NamedTuple):
    """A row whose text goes on."""

    #: Its place in the scores.
    row: int
    #: The joint state of its text, not negative.
    state: int
    #: How many tokens may still follow the one that is being chosen; None: no limit is known.
    remaining: int | None
    #: Tokens generated so far.
    step: int
    #: Its last token; None where it can be no pad.
    last: int | None


class LiveRows(NamedTuple):
    """The rows of one policy, and the tables that their states belong to."""

    bound: BoundGuard
    tables: JointTables
    rows: Sequence[LiveRow]


class RowMasker:
    """Masks live rows.

    Guarantee: in the rows named, the columns of forbidden tokens become -inf and penalties of soft rules are
    subtracted; every other score stays as it is, bit by bit. A dead end is resolved by the row's own policy.

    beams, engine_ends: as for `GuardLogitsProcessor`.
    sink: receives one `StepReport` for each step. masses: whether it wants the removed probability of every row; else
    it is NaN in rows where the model's first choice stands and is not penalised, which saves most of the cost.
    on_failure: called with a row and the error where no token is left and the policy has none either. Returns the token
    to write instead, or None, and then the error is raised.
    """

    def __init__(
        self,
        *,
        beams: int = 1,
        engine_ends: bool = False,
        sink: Callable[[StepReport], None] | None = None,
        masses: bool = True,
        on_failure: Callable[[int, DeadEndError], int | None] | None = None,
    ) -> None:
        self._beams = beams
        self._engine_ends = engine_ends
        self._sink = sink
        self._masses = masses
        self._on_failure = on_failure
        self._known: WeakKeyDictionary[BoundGuard, _Facts] = WeakKeyDictionary()
        self._complements: dict[int, tuple[Ids, Ids]] = {}

    def apply(self, result: torch.Tensor, groups: Sequence[LiveRows]) -> None:
        """Mask one step.

        result: float [rows, width], the scores, written in place. groups: rows by policy, all of one width; the beams
        of a sequence have one policy. Raises `DeadEndError`.
        """
        columns: dict[int, Ids] = {}
        penalties: dict[int, tuple[Ids, torch.Tensor, torch.Tensor]] = {}
        pads: dict[int, int] = {}
        probe = 0
        for bound, tables, rows in groups:
            facts = self._facts(bound)
            probe = facts.probe
            forbidden_in = tables.forbidden
            for row, state, remaining, _, last in rows:
                columns[row] = forbidden_in(state, remaining)
                if last in facts.silent:
                    pads[row] = last
                if facts.soft:
                    ids, amounts = tables.penalties(state)
                    if len(ids):
                        at = torch.from_numpy(np.array(ids)).to(result.device)
                        penalties[row] = ids, at, torch.from_numpy(np.array(amounts)).to(result)
        if not columns:
            return
        scores = scores_of(result, self._complements)
        looked: list[Looked] = []
        if self._sink is not None:
            wanted = [
                Look(row, forbidden, penalties[row][0] if row in penalties else _NO_IDS, pads.get(row))
                for row, forbidden in columns.items()
            ]
            looked = scores.look(wanted, removed=self._masses)
        for row, (_, at, less) in penalties.items():
            result[row, at] -= less
        scores.forbid(columns)
        dead = scores.empty(list(columns), probe)
        resolutions = self._resolve(result, groups, columns, pads, dead) if dead else {}
        if self._sink is not None:
            self._sink(_report(groups, looked, resolutions))
        for row, (name, token) in resolutions.items():
            result[row, self._chosen(groups, row, name, token)] = 0.0

    def _facts(self, bound: BoundGuard) -> _Facts:
        facts = self._known.get(bound)
        if facts is None:
            facts = self._known[bound] = _Facts.of(bound)
        return facts

    def _resolve(
        self,
        result: torch.Tensor,
        groups: Sequence[LiveRows],
        columns: Mapping[int, Ids],
        pads: Mapping[int, int],
        dead: set[int],
    ) -> dict[int, tuple[str, int | None]]:
        """What is to be done about rows in which no token is left, unless a live beam stands in for them."""
        for row in list(dead):
            # A row that was stopped from outside where its text may not end gets pads, which use up what was
            # left to bring it to an end. One more pad adds no text either; whoever stopped it has to trim it.
            if row in pads:
                result[row, pads[row]] = 0.0
                dead.remove(row)
        total = result.shape[0]
        families = (range(first, min(first + self._beams, total)) for first in range(0, total, self._beams))
        lost = [row for family in families if dead and dead.issuperset(family) for row in family]
        return {row: self._resolution(_group_of(groups, row).bound, columns[row]) for row in lost}

    def _resolution(self, bound: BoundGuard, forbidden: Ids) -> tuple[str, int | None]:
        """What the policy has for a dead end: its name, and the token to write; None: an error."""
        wanted = bound.policy.on_dead_end
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
        wanted = _group_of(groups, row).bound.policy.on_dead_end
        error = DeadEndError(
            f"row {row}: no token is left to continue the text and it may not end here (on_dead_end: {wanted}, resolved "
            f"by: {name}); if another processor masks tokens as well (min_new_tokens, suppress_tokens, ...), relax it"
        )
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


def _likely_alive(vocabulary: Vocabulary) -> int:
    outside = {*vocabulary.unusable_ids, *vocabulary.special_ids}
    middle = vocabulary.width // 2
    return next((index for index in range(middle, vocabulary.width) if index not in outside), middle)


def _group_of(groups: Sequence[LiveRows], row: int) -> LiveRows:
    return next(group for group in groups if any(live.row == row for live in group.rows))


def _report(
    groups: Sequence[LiveRows], looked: Sequence[Looked], resolutions: Mapping[int, tuple[str, int | None]]
) -> StepReport:
    live = [(row, group.tables) for group in groups for row in group.rows]
    seen = sorted(zip(live, looked, strict=True), key=lambda pair: pair[0][0].row)
    return StepReport(
        rows=[row.row for (row, _), _ in seen],
        steps=[row.step for (row, _), _ in seen],
        top_forbidden=[look.rank > 0 for _, look in seen],
        top_penalized=[look.penalised for _, look in seen],
        rule_ids=[
            tables.rules_at_fault(row.state, look.top) if look.rank or look.penalised else ()
            for (row, tables), look in seen
        ],
        best_allowed_rank=[look.rank for _, look in seen],
        removed_mass=[look.removed for _, look in seen],
        dead_end=[resolutions[row.row][0] if row.row in resolutions else None for (row, _), _ in seen],
    )
