"""Events as OpenTelemetry spans and span events; all names are in this module, for none of them is settled yet.

Where the open proposal for guardrails in the GenAI conventions has a name it is used (semantic-conventions-genai
#427: `gen_ai.security.*`); the rest is under `nco_guard.*`. Content capture is off in the strongest sense:
events hold no content, so nothing of it can reach a span.

Needs the extra `otel`. Cost: that of the tracer's exporter.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from nco_guard.audit.events import (
    DeadEnd,
    Event,
    GuaranteeConfigured,
    Intervention,
    PolicyLoaded,
    RunFinished,
    RunStarted,
    Verification,
)
from nco_guard.copies import Staying
from nco_guard.errors import MissingExtraError

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

__all__ = ["SPAN_NAME", "OpenTelemetrySink"]

SPAN_NAME: Final = "run_guardrail nco-guard"
_FINDING: Final = "gen_ai.security.finding"
_OPEN_SPANS = 1024


class OpenTelemetrySink(Staying):
    """One span for each run, from its start to its end, with the run's events on it.

    The span is a child of the one that is current when the run starts. Findings and dead ends are
    `gen_ai.security.finding` events; a run that ended by an error has the status ERROR and the error's type.
    What belongs to no run (a policy loaded, a guarantee configured, a verification alone) is a span of no
    length. Of runs that never end, the oldest are ended after 1024.

    tracer: the global provider's by default.
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise MissingExtraError("the OpenTelemetry sink", "otel") from error
        self._tracer = tracer if tracer is not None else trace.get_tracer("nco_guard")
        self._error = trace.Status(trace.StatusCode.ERROR)
        self._lock = threading.Lock()
        self._spans: OrderedDict[UUID, Span] = OrderedDict()

    def __call__(self, event: Event) -> None:
        """Put the event on its run's span."""
        when = _nanoseconds(event.time)
        fields = attributes(event)
        with self._lock:
            if isinstance(event, RunStarted):
                span = self._tracer.start_span(SPAN_NAME, start_time=when, attributes=fields)
                self._spans[event.run_id] = span
                while len(self._spans) > _OPEN_SPANS:
                    self._spans.popitem(last=False)[1].end()
                return
            if isinstance(event, RunFinished):
                finished = self._spans.pop(event.run_id, None)
                if finished is not None:
                    finished.set_attributes(fields)
                    if event.error is not None:
                        finished.set_status(self._error)
                    finished.end(end_time=when)
                return
            running = self._spans.get(event.run_id)
        if running is not None:
            for name, values in _span_events(event, fields):
                running.add_event(name, values, timestamp=when)
            return
        alone = self._tracer.start_span(f"nco_guard.{event.kind}", start_time=when, attributes=fields)
        for name, values in _span_events(event, fields)[1:]:
            alone.add_event(name, values, timestamp=when)
        alone.end(end_time=when)


def attributes(event: Event) -> dict[str, Any]:
    """An event's attributes: the mapping, in one place."""
    fields: dict[str, Any] = {
        "gen_ai.operation.name": "run_guardrail",
        "gen_ai.security.guardrail.name": "nco-guard",
        "nco_guard.run.id": str(event.run_id),
        "nco_guard.event.number": event.number,
        "nco_guard.request.id": event.request_id,
        "nco_guard.parent.id": event.parent_id,
    }
    if isinstance(event, PolicyLoaded | RunStarted):
        fields["gen_ai.security.policy.name"] = event.policy_name
    if isinstance(event, PolicyLoaded | RunStarted | GuaranteeConfigured | Verification):
        fields["gen_ai.security.policy.id"] = event.policy_digest
    if isinstance(event, RunStarted | GuaranteeConfigured):
        fields["nco_guard.tokenizer.digest"] = event.tokenizer_digest
        if event.decode_view is not None:
            fields["nco_guard.guarantee.skip_special_tokens"] = event.decode_view.skip_special_tokens
            fields["nco_guard.guarantee.covered_ends"] = event.decode_view.covered_ends
    if isinstance(event, RunStarted):
        fields["gen_ai.request.model"] = event.model_id
        fields["gen_ai.request.choice.count"] = event.sequences
    if isinstance(event, Intervention | DeadEnd):
        fields["gen_ai.security.policy.rule.id"] = event.rule_ids
        fields["nco_guard.sequence"] = event.sequence
        fields["nco_guard.step"] = event.step
    if isinstance(event, Intervention):
        fields["gen_ai.security.action.type"] = "audit" if event.action == "recorded" else "modify"
        fields["nco_guard.intervention.action"] = event.action
        fields["nco_guard.intervention.removed_probability"] = event.removed_probability
        fields["nco_guard.intervention.first_allowed_rank"] = event.first_allowed_rank
        fields["nco_guard.intervention.discarded"] = event.discarded
    if isinstance(event, DeadEnd):
        fields["nco_guard.dead_end.resolution"] = event.resolution
    if isinstance(event, Verification):
        fields["gen_ai.security.verdict.type"] = "allow" if event.ok else "deny"
        fields["nco_guard.text.length"] = event.length
        fields["nco_guard.sequence"] = event.sequence
        fields["nco_guard.findings"] = len(event.findings)
    if isinstance(event, RunFinished):
        fields["gen_ai.usage.output_tokens"] = event.tokens
        fields["nco_guard.interventions"] = event.interventions
        fields["nco_guard.outcomes"] = event.outcomes
        fields["error.type"] = event.error
        fields["nco_guard.rewind.back_to"] = event.back_to
        fields["nco_guard.rewind.fallbacks"] = event.fallbacks
    return {name: value for name, value in fields.items() if value is not None}


def _span_events(event: Event, fields: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The event itself, and one more for each finding."""
    own = {name: value for name, value in fields.items() if not name.startswith("gen_ai.operation")}
    if not isinstance(event, Verification):
        return [(_FINDING if isinstance(event, DeadEnd) else f"nco_guard.{event.kind}", own)]
    findings = [
        (
            _FINDING,
            {
                "gen_ai.security.policy.rule.id": [span.rule_id],
                "nco_guard.finding.start": span.start,
                "nco_guard.finding.end": span.end,
            },
        )
        for span in event.findings
    ]
    return [(f"nco_guard.{event.kind}", own), *findings]


def _nanoseconds(moment: datetime) -> int:
    # By seconds and microseconds apart: a float of nanoseconds would be off by a hundred.
    return int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000
