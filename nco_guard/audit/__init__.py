"""A record of what the guard did: events without text, and sinks that keep them."""

from __future__ import annotations

from nco_guard.audit.events import (
    SCHEMA_VERSION,
    AnyEvent,
    DeadEnd,
    DecodeView,
    Event,
    Intervention,
    RunFinished,
    RunStarted,
    Span,
    Verification,
    event_schema,
    parse_event,
)
from nco_guard.audit.recorder import RunRecorder
from nco_guard.audit.sinks import (
    EventLog,
    JsonLinesSink,
    LoggingSink,
    MemorySink,
    Sink,
    fan_out,
    read_events,
)

__all__ = [
    "SCHEMA_VERSION",
    "AnyEvent",
    "DeadEnd",
    "DecodeView",
    "Event",
    "EventLog",
    "Intervention",
    "JsonLinesSink",
    "LoggingSink",
    "MemorySink",
    "RunFinished",
    "RunRecorder",
    "RunStarted",
    "Sink",
    "Span",
    "Verification",
    "event_schema",
    "fan_out",
    "parse_event",
    "read_events",
]
