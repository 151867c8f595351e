"""From what happens in a generation to audit events; no text and no token ever enters them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from nco_guard.audit import DecodeView, PolicyLog, RunRecorder
from nco_guard.audit.events import RewindTarget
from nco_guard.engines.rows import OnStep, StepReport
from nco_guard.scan.findings import Report
from nco_guard.session import BoundGuard

__all__ = ["FellBack", "Recording", "Recordings", "begun"]


class FellBack(NamedTuple):
    """How far a text was to go back, and how often it could not."""

    back_to: RewindTarget
    times: int


def begun(
    log: PolicyLog, bound: BoundGuard, sequences: int, model_id: str | None, ends: Sequence[str]
) -> RunRecorder:
    """A recorder for one run of an engine, its start recorded; `ends`: how its texts can end, all of them covered."""
    regions = bound.vocabulary.regions
    regions = regions and bound.compiled.bound_in(regions)
    free = () if regions is None else regions.free
    return log.run(
        sequences=sequences,
        tokenizer_digest=bound.vocabulary.digest,
        vocabulary_size=bound.vocabulary.width,
        model_id=model_id,
        decode_view=DecodeView(
            skip_special_tokens=bound.vocabulary.skip_special_tokens,
            covered_ends=tuple(ends),
            borders=len(bound.vocabulary.borders),
            fields=() if regions is None else tuple(name for name in regions.names if name not in free),
            free_fields=free,
        ),
    )


class Recording:
    """One run: steps in, events out. Without a recorder it only passes steps on to the caller's own function.

    drafts: positions are scored that may be discarded, some of them with scores that are no model's. Events
    then wait until the run is over, and the last word on each step counts.
    """

    def __init__(self, recorder: RunRecorder | None, on_step: OnStep | None, drafts: bool = False) -> None:
        self._recorder = recorder
        self._caller = on_step
        self._interventions = 0
        self._waiting: dict[tuple[int, int], tuple[StepReport, int]] | None = {} if drafts else None

    @property
    def wanted(self) -> OnStep | None:
        """What the processor is to call; None if nobody listens, for its reports are not free."""
        recorded = self._recorder is not None and self._recorder.steps
        return self._on_step if recorded or self._caller is not None else None

    def _on_step(self, report: StepReport) -> None:
        if self._caller is not None:
            self._caller(report)
        for at, row in enumerate(report.rows):
            if self._waiting is None:
                self._record(report, at)
            else:
                self._waiting[row, report.steps[at]] = report, at

    def _record(self, report: StepReport, at: int) -> None:
        if self._recorder is None or not self._recorder.steps:
            return
        row, step, forbidden = report.rows[at], report.steps[at], report.top_forbidden[at]
        discarded = report.discarded[at]
        if forbidden or report.top_penalized[at] or discarded is not None:
            self._interventions += 1
            self._recorder.intervention(
                sequence=row,
                step=step,
                action="rewound" if discarded is not None else "masked" if forbidden else "penalized",
                rule_ids=report.rule_ids[at],
                removed_probability=report.removed_mass[at],
                first_choice_forbidden=forbidden,
                first_allowed_rank=report.best_allowed_rank[at],
                discarded=discarded,
            )
        resolution = report.dead_end[at]
        if resolution is not None:
            self._recorder.dead_end(sequence=row, step=step, resolution=resolution)

    def _flush(self, lengths: Sequence[int] | None) -> None:
        for (row, step), (report, at) in sorted((self._waiting or {}).items(), key=lambda item: item[0]):
            if lengths is None or step < lengths[row]:
                self._record(report, at)
        self._waiting = None

    def failed(self, error: BaseException) -> None:
        """Generation ended by an error."""
        self._flush(None)
        self._finish((), 0, error)

    def finished(
        self,
        outcomes: Sequence[str],
        token_ids: Sequence[list[int]],
        reports: Sequence[Report],
        texts: Sequence[str],
        back: Sequence[FellBack] | None = None,
    ) -> None:
        """All texts are there and verified. They are read only where a correlation key is given.

        back: where texts could go back, what became of each; in one run all are to go back as far.
        """
        self._flush([len(ids) for ids in token_ids])
        if self._recorder is not None:
            for sequence, (report, text) in enumerate(zip(reports, texts, strict=True)):
                self._recorder.report(report, sequence=sequence, text=text)
        self._finish(outcomes, sum(map(len, token_ids)), None, back)

    def _finish(
        self,
        outcomes: Sequence[str],
        tokens: int,
        error: BaseException | None,
        back: Sequence[FellBack] | None = None,
    ) -> None:
        if self._recorder is not None:
            self._recorder.finished(
                outcomes=outcomes,
                interventions=self._interventions,
                tokens=tokens,
                error=error,
                back_to=back[0].back_to if back else None,
                fallbacks=[one.times for one in back] if back else None,
            )


class Recordings:
    """The runs of one batch: each guard's own, with its own prompts only, numbered as if they were alone.

    runs: one for each guard. run_of_prompt: which of them each prompt belongs to. rows: how many rows are scored; each
    prompt has as many as the others. on_step: the caller's own, to which all rows go together.
    """

    def __init__(
        self,
        runs: Sequence[Recording],
        run_of_prompt: Sequence[int],
        rows: int,
        on_step: OnStep | None,
    ) -> None:
        self._runs = runs
        self._run_of_prompt = run_of_prompt
        self._caller = on_step
        self.changes_only = on_step is None  # what is recorded is only where the guard changed something
        self._listening = [run for run in range(len(runs)) if runs[run].wanted is not None]
        self._numbers = [dict(zip(own, range(len(own)), strict=True)) for own in self._shares(rows)]

    def _shares(self, count: int) -> list[list[int]]:
        """For each run, which of so many rows or sequences are its own."""
        prompts = len(self._run_of_prompt)
        shares: list[list[int]] = [[] for _ in self._runs]
        for number in range(count):
            shares[self._run_of_prompt[number * prompts // count]].append(number)
        return shares

    @property
    def wanted(self) -> OnStep | None:
        """What the processor is to call; None if nobody listens."""
        if len(self._runs) == 1 and self._caller is None:
            return self._runs[0].wanted  # its rows are numbered as the batch's are
        return self._on_step if self._caller is not None or self._listening else None

    def _on_step(self, report: StepReport) -> None:
        if self._caller is not None:
            self._caller(report)
        for run in self._listening:
            record, numbers = self._runs[run].wanted, self._numbers[run]
            places = [place for place, row in enumerate(report.rows) if row in numbers]
            if record is not None and places:
                record(report.part(places, [numbers[report.rows[place]] for place in places]))

    def failed(self, error: BaseException) -> None:
        """Generation ended by an error."""
        with ExitStack() as each:  # one may fail; the others record all the same
            for run in reversed(self._runs):  # the last one pushed is called first
                each.callback(run.failed, error)

    def finished(
        self,
        outcomes: Sequence[str],
        token_ids: Sequence[list[int]],
        reports: Sequence[Report],
        texts: Sequence[str],
        back: Sequence[FellBack] | None = None,
    ) -> None:
        """All texts are there and verified. They are read only where a correlation key is given.

        back: where texts could go back, what became of each; in one run all are to go back as far.
        """
        with ExitStack() as each:
            shares = self._shares(len(outcomes))
            for run, own in zip(reversed(self._runs), reversed(shares), strict=True):
                each.callback(
                    run.finished,
                    [outcomes[number] for number in own],
                    [token_ids[number] for number in own],
                    [reports[number] for number in own],
                    [texts[number] for number in own],
                    None if back is None else [back[number] for number in own],
                )
