"""Where events go: plain callables that take one event. Those that write files stand in modules of their own.

A sink is any `Callable[[Event], None]`. A sink that cannot record raises, and the run stops: an unrecorded
run is not taken for a recorded one (`on_audit_failure: warn` in the policy is the way to choose otherwise).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from nco_guard.arguments import function
from nco_guard.audit.events import DeadEnd, Event, RunFinished, Verification
from nco_guard.copies import Staying

__all__ = ["LoggingSink", "MemorySink", "Sink", "checked_sink", "fan_out", "tolerant"]

_log = logging.getLogger("nco_guard.audit")

Sink = Callable[[Event], None]
"""Any callable that takes one event; it raises where it cannot record it."""


class MemorySink(Staying):
    """Keeps events in memory, in the order of arrival; for tests and for reading a run right after it.

    Examples:
        >>> sink = MemorySink()
        >>> guard = Guard.from_presets("pii", audit=sink)
        >>> [event.kind for event in sink.events]
        ['policy_loaded']
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: list[Event] = []

    def __call__(self, event: Event) -> None:
        """Keep the event."""
        with self._lock:
            self._events.append(event)

    @property
    def events(self) -> tuple[Event, ...]:
        """The events so far."""
        with self._lock:
            return tuple(self._events)


class LoggingSink(Staying):
    """Hands each event to `logging` as its line of JSON.

    Dead ends, failed verifications and runs that ended by an error are warnings; everything else has `level`.
    The event itself is at `record.audit_event`. Handlers swallow their own errors: where a record must not be
    lost, use `JsonLinesSink`.

    Examples:
        >>> guard = Guard.from_presets("pii", audit=LoggingSink("my.audit"))
    """

    def __init__(
        self, logger: logging.Logger | str = "nco_guard.audit", *, level: int = logging.INFO
    ) -> None:
        self._logger = logging.getLogger(logger) if isinstance(logger, str) else logger
        self._level = level

    def __call__(self, event: Event) -> None:
        """Log the event."""
        worrying = (
            isinstance(event, DeadEnd)
            or (isinstance(event, Verification) and not event.ok)
            or (isinstance(event, RunFinished) and event.error is not None)
        )
        level = max(logging.WARNING, self._level) if worrying else self._level
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event.to_json(), extra={"audit_event": event})


def checked_sink(sink: Sink) -> Sink:
    """What is given as `audit=`. Errors: `ArgumentError` for what is no function."""
    function("audit", sink, "a function that takes an event, as nco_guard.audit.JsonLinesSink(path) is")
    return sink


def fan_out(*sinks: Sink) -> Sink:
    """One sink that hands each event to all of `sinks`, in order; the first that raises stops the rest.

    Examples:
        >>> one, other = MemorySink(), MemorySink()
        >>> _ = RunRecorder(fan_out(one, other)).verification(ok=True, length=12)
        >>> len(one.events), len(other.events)
        (1, 1)
    """

    for number, one in enumerate(sinks):
        function(f"sinks[{number}]", one, "a function that takes an event")

    def everywhere(event: Event) -> None:
        for sink in sinks:
            sink(event)

    return everywhere


def tolerant(sink: Sink) -> Sink:
    """A sink that hands events to `sink` and logs what that raises, by the type of the error; the event is lost.

    What `on_audit_failure: warn` in a policy means. The gap in the run's numbers shows.

    Examples:
        >>> def full(event):
        ...     raise OSError("the disk is full")
        >>> RunRecorder(tolerant(full)).verification(ok=True, length=12).length
        12
    """

    function("sink", sink, "a function that takes an event")

    def tolerating(event: Event) -> None:
        try:
            sink(event)
        except Exception as error:  # a sink is anybody's callable
            _log.warning(
                "audit event %d (%s) of run %s lost: %s",
                event.number,
                event.kind,
                event.run_id,
                type(error).__name__,
            )

    return tolerating
