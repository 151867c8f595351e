"""The last runs of a guard, in memory: what happened lately, without a log to be read."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from nco_guard.arguments import whole
from nco_guard.audit.events import DeadEnd, Event, Intervention, RunFinished, RunStarted, Verification
from nco_guard.copies import Staying

__all__ = ["History", "RunSummary"]


@dataclass
class RunSummary:
    """One run, as far as it has come. Holds ids and counts, never text.

    interventions: by rule, how often the guard changed what the model would have chosen (one step may count for
        several rules); `steps_changed` counts the steps. Both stay empty where nobody records steps: a guard
        without an audit sink does not look at scores more than it must.
    findings: by rule, matches that the verifier found: of soft and monitor rules, as hard ones have none.
    outcomes, tokens, seconds, error, fallbacks: as in the event that ends a run; None, or empty, until then.
    """

    run_id: UUID
    started: datetime
    request_id: str | None
    policy_digest: str
    sequences: int
    interventions: Counter[str] = field(default_factory=Counter)
    steps_changed: int = 0
    dead_ends: int = 0
    findings: Counter[str] = field(default_factory=Counter)
    outcomes: tuple[str, ...] = ()
    tokens: int | None = None
    seconds: float | None = None
    error: str | None = None
    fallbacks: tuple[int, ...] | None = None


class History(Staying):
    """A sink that keeps a summary of the last `size` runs, and counts per rule of all runs since `reset()`.

    Thread-safe. Cost: a microsecond an event; memory is bounded by `size` and the number of rules.

    Examples:
        >>> history = History()
        >>> _ = RunRecorder(history).verification(ok=False, length=12, findings=[("email", 0, 5)])
        >>> history.findings
        {'email': 1}
    """

    def __init__(self, size: int = 64) -> None:
        self._size = whole("size", size, "give how many runs are kept", least=1)
        self._lock = threading.Lock()
        self._runs: OrderedDict[UUID, RunSummary] = OrderedDict()
        self._interventions: Counter[str] = Counter()
        self._findings: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"History(runs={len(self)}, size={self._size})"

    def __len__(self) -> int:
        with self._lock:
            return len(self._runs)

    @property
    def runs(self) -> tuple[RunSummary, ...]:
        """The last runs, the oldest first; that of a run in progress still changes."""
        with self._lock:
            return tuple(self._runs.values())

    @property
    def last(self) -> RunSummary | None:
        """The run that began last."""
        with self._lock:
            return next(reversed(self._runs.values()), None)

    @property
    def interventions(self) -> dict[str, int]:
        """Interventions per rule, of all runs since the last reset, those no longer kept included."""
        with self._lock:
            return dict(self._interventions)

    @property
    def findings(self) -> dict[str, int]:
        """The verifier's findings per rule, likewise."""
        with self._lock:
            return dict(self._findings)

    def reset(self) -> None:
        """Forget everything."""
        with self._lock:
            self._runs.clear()
            self._interventions.clear()
            self._findings.clear()

    def __call__(self, event: Event) -> None:
        """Take note of an event."""
        with self._lock:
            if isinstance(event, RunStarted):
                self._runs[event.run_id] = RunSummary(
                    event.run_id, event.time, event.request_id, event.policy_digest, event.sequences
                )
                while len(self._runs) > self._size:
                    self._runs.popitem(last=False)
                return
            run = self._runs.get(event.run_id)
            if isinstance(event, Intervention):
                self._interventions.update(event.rule_ids)
                if run is not None:
                    run.interventions.update(event.rule_ids)
                    run.steps_changed += 1
            elif isinstance(event, Verification):
                rules = [span.rule_id for span in event.findings]
                self._findings.update(rules)
                if run is not None:
                    run.findings.update(rules)
            elif run is not None and isinstance(event, DeadEnd):
                run.dead_ends += 1
            elif run is not None and isinstance(event, RunFinished):
                run.outcomes, run.tokens = event.outcomes, event.tokens
                run.seconds, run.error = event.seconds, event.error
                run.fallbacks = event.fallbacks
