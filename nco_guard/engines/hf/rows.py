"""Masking rows of scores whose states are known: penalties, -inf for forbidden tokens, dead ends, reports.

Whoever knows which row continues which text (a `LogitsProcessor` from ids, continuous batching from its requests) hands
over the joint states; everything that happens to the scores happens here. Cost: a sparse write of the forbidden ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from nco_guard.batch import Ids
from nco_guard.errors import DeadEndError
from nco_guard.masking import JointTables
from nco_guard.session import BoundGuard

__all__ = ["LiveRow", "RowMasker", "StepReport"]

_PROBED_COLUMNS = 256


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

    def only(self, at: int) -> StepReport:
        """The part of one row, which becomes row 0."""
        here = slice(at, at + 1)
        return StepReport(
            rows=[0],
            steps=self.steps[here],
            top_forbidden=self.top_forbidden[here],
            top_penalized=self.top_penalized[here],
            rule_ids=self.rule_ids[here],
            best_allowed_rank=self.best_allowed_rank[here],
            removed_mass=self.removed_mass[here],
            dead_end=self.dead_end[here],
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


class RowMasker:
    """Masks live rows.

    Guarantee: in the rows named, the columns of forbidden tokens become -inf and penalties of soft rules are
    subtracted; every other score stays as it is, bit by bit.

    beams, engine_ends, sink: as for `GuardLogitsProcessor`.
    on_failure: called with a row and the error where no token is left and the policy has none either. Returns the token
    to write instead, or None, and then the error is raised.
    """

    def __init__(
        self,
        bound: BoundGuard,
        *,
        beams: int = 1,
        engine_ends: bool = False,
        sink: Callable[[StepReport], None] | None = None,
        on_failure: Callable[[int, DeadEndError], int | None] | None = None,
    ) -> None:
        self._bound = bound
        self._beams = beams
        self._engine_ends = engine_ends
        self._sink = sink
        self._on_failure = on_failure
        self._width = bound.vocabulary.width
        self._silent = bound.vocabulary.silent_ids.intersection(bound.vocabulary.special_ids).difference(
            bound.vocabulary.eos_ids
        )

    def apply(
        self, result: torch.Tensor, raw: torch.Tensor, tables: JointTables, live: Sequence[LiveRow]
    ) -> None:
        """Mask one step in place.

        result: float [rows, width], written. raw: the same scores as they came, read only if there is a sink; then it
        must not share memory with `result`. tables: what the states belong to. Raises `DeadEndError`.
        """
        columns: dict[int, Ids] = {}
        penalised: dict[int, Ids] = {}
        cache: dict[tuple[int, int | None], Ids] = {}
        for row, state, remaining, _, _ in live:
            key = (state, remaining)
            forbidden = cache.get(key)
            if forbidden is None:
                forbidden = tables.forbidden(state, remaining)
                cache[key] = forbidden
            columns[row] = forbidden
            costly, amounts = tables.penalties(state)
            if len(costly):
                penalised[row] = costly
                index = torch.from_numpy(np.array(costly)).to(result.device)
                result[row, index] -= torch.from_numpy(np.array(amounts)).to(result)
        _fill(result, columns, self._width)
        dead = self._dead_groups(self._dead_rows(result, columns, live), result.shape[0])
        resolutions = {row: self._resolution(columns[row]) for row in dead}
        if self._sink is not None and columns:
            self._sink(self._report(raw, result, tables, live, penalised, resolutions))
        for row, (name, token) in resolutions.items():
            if token is None:
                error = DeadEndError(
                    f"row {row}: no token is left to continue the text and it may not end here (on_dead_end: "
                    f"{self._bound.policy.on_dead_end}, resolved by: {name}); if another processor masks tokens as "
                    f"well (min_new_tokens, suppress_tokens, ...), relax it"
                )
                token = None if self._on_failure is None else self._on_failure(row, error)
                if token is None:
                    raise error
            result[row, token] = 0.0

    def _dead_rows(self, result: torch.Tensor, columns: dict[int, Ids], live: Sequence[LiveRow]) -> set[int]:
        """The rows in which no token is left."""
        if not columns:
            return set()
        # A few columns tell that a row is alive; the whole row is read only where they do not.
        stride = max(1, self._width // _PROBED_COLUMNS)
        suspects = (result[:, ::stride].amax(dim=-1) == -math.inf).nonzero().ravel().tolist()
        dead = {row for row in suspects if row in columns and bool((result[row].amax() == -math.inf).item())}
        for row, _, _, _, last in live if dead else ():
            # A row that was stopped from outside where its text may not end gets pads, which use up what was
            # left to bring it to an end. One more pad adds no text either; whoever stopped it has to trim it.
            if row in dead and last in self._silent:
                result[row, last] = 0.0
                dead.remove(row)
        return dead

    def _dead_groups(self, dead: set[int], rows: int) -> list[int]:
        """The dead rows that no live beam of the same sequence stands in for."""
        groups = (range(first, min(first + self._beams, rows)) for first in range(0, rows, self._beams))
        return [row for group in groups if dead and dead.issuperset(group) for row in group]

    def _resolution(self, forbidden: Ids) -> tuple[str, int | None]:
        """What the policy has for a dead end: its name, and the token to write; None: an error."""
        bound = self._bound
        wanted = bound.policy.on_dead_end
        if wanted == "fallback" and bound.fallback_id is not None and bound.fallback_id not in forbidden:
            return "fallback", bound.fallback_id
        if wanted == "end":
            for token in bound.vocabulary.eos_ids:
                # `generate` cuts a text back to where it may end; nobody else does.
                if token not in forbidden or self._engine_ends:
                    return "end", token
        return "error", None

    def _report(
        self,
        raw: torch.Tensor,
        result: torch.Tensor,
        tables: JointTables,
        live: Sequence[LiveRow],
        penalised: dict[int, Ids],
        resolutions: dict[int, tuple[str, int | None]],
    ) -> StepReport:
        rows = [row.row for row in live]
        scores = raw[rows].float()
        blocked = (result[rows] == -math.inf) & (scores > -math.inf)
        removed = scores.masked_fill(~blocked, -math.inf).logsumexp(-1) - scores.logsumexp(-1)
        best = scores.masked_fill(blocked, -math.inf).amax(-1, keepdim=True)
        ranks = (scores > best).sum(-1).tolist()
        tops = scores.argmax(-1).tolist()
        costly = [top in penalised.get(row, ()) for row, top in zip(rows, tops, strict=True)]
        return StepReport(
            rows=rows,
            steps=[row.step for row in live],
            top_forbidden=[rank > 0 for rank in ranks],
            top_penalized=costly,
            rule_ids=[
                tables.rules_at_fault(row.state, top) if rank or cost else ()
                for row, top, rank, cost in zip(live, tops, ranks, costly, strict=True)
            ],
            best_allowed_rank=ranks,
            removed_mass=[min(1.0, mass) for mass in removed.exp().tolist()],
            dead_end=[resolutions[row][0] if row in resolutions else None for row in rows],
        )


def _fill(result: torch.Tensor, columns: dict[int, Ids], width: int) -> None:
    """-inf at the given columns of each row, by one sparse write."""
    if not columns:
        return
    if result.is_contiguous():
        flat = np.concatenate([forbidden + row * width for row, forbidden in columns.items()])
        result.view(-1).index_fill_(0, torch.from_numpy(flat).to(result.device), -math.inf)
        return
    for row, forbidden in columns.items():
        result[row, torch.from_numpy(np.array(forbidden)).to(result.device)] = -math.inf
