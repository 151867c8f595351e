"""A record of what the guard did: events without text, sinks that keep them, and a chain that shows tampering.

SQLite and OpenTelemetry stand in modules of their own: `nco_guard.audit.sqlite`, `nco_guard.audit.otel`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nco_guard.audit.chain import log_schema
from nco_guard.audit.digests import (
    keyed_digests,
    policy_hmac,
)
from nco_guard.audit.events import (
    OUTCOMES,
    SCHEMA_VERSION,
    AnyEvent,
    DeadEnd,
    DecodeView,
    Event,
    GuaranteeConfigured,
    Intervention,
    LoadedRule,
    PolicyLoaded,
    RunFinished,
    RunStarted,
    Span,
    Verification,
    event_schema,
    outcome_of,
    parse_event,
    value_hmac,
)
from nco_guard.audit.history import (
    History,
    RunSummary,
)
from nco_guard.audit.jsonl import (
    EventLog,
    JsonLinesSink,
    log_files,
    read_events,
)
from nco_guard.audit.policy_log import (
    PolicyLog,
)
from nco_guard.audit.recorder import (
    RunRecorder,
    correlated,
)
from nco_guard.audit.signing import (
    Ed25519Signer,
    Ed25519Verifier,
    HmacSigner,
    load_signer,
    load_verifier,
)
from nco_guard.audit.sinks import (
    LoggingSink,
    MemorySink,
    Sink,
    fan_out,
    tolerant,
)

if TYPE_CHECKING:
    from nco_guard.audit.anchors import Anchor, Head, read_anchors
    from nco_guard.audit.integrity import ChainSummary, IntegrityReport, Problem, make_anchor, verify_log

__all__ = [
    "OUTCOMES",
    "SCHEMA_VERSION",
    "Anchor",
    "AnyEvent",
    "ChainSummary",
    "DeadEnd",
    "DecodeView",
    "Ed25519Signer",
    "Ed25519Verifier",
    "Event",
    "EventLog",
    "GuaranteeConfigured",
    "Head",
    "History",
    "HmacSigner",
    "IntegrityReport",
    "Intervention",
    "JsonLinesSink",
    "LoadedRule",
    "LoggingSink",
    "MemorySink",
    "PolicyLoaded",
    "PolicyLog",
    "Problem",
    "RunFinished",
    "RunRecorder",
    "RunStarted",
    "RunSummary",
    "Sink",
    "Span",
    "Verification",
    "correlated",
    "event_schema",
    "fan_out",
    "keyed_digests",
    "load_signer",
    "load_verifier",
    "log_files",
    "log_schema",
    "make_anchor",
    "outcome_of",
    "parse_event",
    "policy_hmac",
    "read_anchors",
    "read_events",
    "tolerant",
    "value_hmac",
    "verify_log",
]

# What checks logs is loaded once somebody asks for it: nothing that writes one needs it.
_LATE = {
    **dict.fromkeys(("Anchor", "Head", "read_anchors"), "anchors"),
    **dict.fromkeys(("ChainSummary", "IntegrityReport", "Problem", "make_anchor", "verify_log"), "integrity"),
}


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)
