"""What has to be remembered of a run to understand its later events: its model, its policy, where its texts come from.

Memory is bounded: the runs that were heard of least lately are forgotten.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from nco_guard.audit.events import AnyEvent, GuaranteeConfigured, PolicyLoaded, RunStarted
from nco_guard.audit.report.model import Source

__all__ = ["RecordedRun", "Runs", "bounded"]

_REMEMBERED: Final = 100_000
_LARGEST: Final = 2**53 - 1


def bounded(value: int) -> int:
    """A count as a page's script can hold it exactly; a larger one is nobody's, but a line of a log may say it."""
    return min(value, _LARGEST)


@dataclass(slots=True, eq=False)
class RecordedRun:
    """One run so far.

    next_number: what its next event should have. changed: there was an intervention. in_progress: began, has not ended.
    verified: the sequences that were, until it ends.
    """

    run_id: UUID
    source: Source
    request_id: str | None = None
    parent_id: str | None = None
    model_id: str | None = None
    policy_digest: str | None = None
    next_number: int = 0
    changed: bool = False
    in_progress: bool = False
    verified: set[int] = field(default_factory=set)


class Runs:
    """The runs in progress, and what their numbers show: events that are lost, and runs without a beginning."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        self._remembered = remembered
        self._runs: OrderedDict[UUID, RecordedRun] = OrderedDict()
        # Guards speak seldom, and for as long as a process lives; generations must not push them out.
        self._guards: OrderedDict[UUID, RecordedRun] = OrderedDict()
        self.lost = 0
        self.out_of_order = 0
        self.cut = 0
        self.set_aside = 0

    def of(self, event: AnyEvent) -> RecordedRun:
        """The run of an event, which is taken note of."""
        runs = self._guards if isinstance(event, PolicyLoaded | GuaranteeConfigured) else self._runs
        run = runs.get(event.run_id)
        if run is None:
            run = runs[event.run_id] = self._new(event)
            if len(runs) > self._remembered:
                runs.popitem(last=False)
                self.set_aside += 1
        else:
            runs.move_to_end(event.run_id)
        if event.number < run.next_number:
            self.out_of_order += 1
        else:
            self.lost += bounded(event.number - run.next_number)
            run.next_number = event.number + 1
        if isinstance(event, RunStarted):
            run.source = "observed" if event.tokenizer_digest is None else "guarded"
            run.model_id = None if event.model_id is None else sys.intern(event.model_id)
            run.policy_digest = sys.intern(event.policy_digest)
        return run

    def _new(self, event: AnyEvent) -> RecordedRun:
        cut = event.number > 0
        self.cut += cut
        return RecordedRun(
            run_id=event.run_id,
            source="cut" if cut else "apart",
            request_id=None if event.request_id is None else sys.intern(event.request_id),
            parent_id=None if event.parent_id is None else sys.intern(event.parent_id),
            next_number=event.number,
        )
