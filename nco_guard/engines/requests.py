"""Requests of engines that batch continuously: which join and leave at any step, each in the state of its own text.

A request keeps its own ids wherever it goes: rows change from step to step, prompts come in pieces, and a request whose
cache is taken away comes back as a longer prompt. So its state follows from the ids that it has generated.
Cost per step: one copy of each request's generated ids, one table step each, then what `rows.RowMasker` costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from nco_guard.engines.endings import Outcome, refuse_broken, settle, verified
from nco_guard.engines.recording import Recording
from nco_guard.engines.rows import LiveRows, kept_limit
from nco_guard.errors import GenerationError, NCOGuardError, StateLimitError
from nco_guard.masking import LIMITED
from nco_guard.masking.answers import Tables
from nco_guard.scan import Report, Verifier
from nco_guard.session import BoundGuard, TextState
from nco_guard.session.rows import LimitMet, in_fresh_tables

__all__ = ["GuardedRequest", "live_rows"]


class GuardedRequest:
    """One request: its prompt, its budget of new tokens, and the text that it has generated.

    number: counts the requests of one batch. limit: how many tokens it may generate. bound: its own guard's.
    error: why the policy could not let it go on, found while others generate.
    """

    def __init__(
        self, number: int, bound: BoundGuard, prompt: list[int], limit: int, recording: Recording
    ) -> None:
        self.number = number
        self.bound = bound
        self.prompt = prompt
        self.limit = limit
        self.recording = recording
        self.error: NCOGuardError | None = None
        self.text = TextState(bound, prompt)

    def finished(self, verifier: Verifier, generated: list[int]) -> tuple[list[int], Outcome, Report]:
        """The request is over: its ids up to where its text may end, how it ended, and the report; recorded.

        Errors: `GenerationError` if the verifier found what the masks should have kept out; `self.error`.
        """
        try:
            if self.error is not None:
                raise self.error
            kept, outcome = settle(self.bound, self.prompt, generated, None, self.limit)
            (report,) = verified(verifier, self.bound, [self.prompt], [kept])
        except NCOGuardError as error:
            self.recording.failed(error)
            raise
        self.recording.finished([outcome], [kept], [report], [self.bound.vocabulary.searched(kept)])
        refuse_broken([report])
        return kept, outcome, report


def live_rows(found: Sequence[tuple[GuardedRequest, list[int]]]) -> list[LiveRows]:
    """The rows of the coming step; found: the request of each, and what it has generated."""
    return in_fresh_tables(partial(_live, found), lambda row: found[row][0].text.give_up(), len(found))


def _live(found: Sequence[tuple[GuardedRequest, list[int]]]) -> list[LiveRows]:
    """`LimitMet` where they cannot be found in the present tables."""
    tables: dict[BoundGuard, Tables] = {}
    live: dict[BoundGuard, LiveRows] = {}
    for row, (request, generated) in enumerate(found):
        bound, text, step = request.bound, request.text, len(generated)
        # Tables may be replaced between two looks at them; the states of a step belong to the same ones.
        present = tables.setdefault(bound, bound.answers)
        remaining: int | None = request.limit - step - 1
        try:
            state = text.rewrite(present, generated)
            _ = present.forbidden(state, remaining), present.penalties(state)
        except StateLimitError as error:
            raise LimitMet(row) from error
        if (state < 0 and state != LIMITED) or step >= request.limit:
            raise GenerationError("a request goes on after its end: its tokens were not those of the guard")
        if text.forced:
            remaining = kept_limit(present, state, remaining, row)
        if bound not in live:
            live[bound] = LiveRows.none(bound, present)
        live[bound].add(row, state, remaining, step, None)
        if text.violation is not None:
            live[bound].forced[row] = present.rules_at_fault(*text.violation)
    return list(live.values())
