"""Writes the events of one run: adds the run's id, consecutive numbers and the time, and calls a sink.

Cost: some ten microseconds an event, plus the sink's.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID, uuid4

from pydantic import ValidationError

from nco_guard.arguments import function
from nco_guard.arguments import text as checked_text
from nco_guard.audit.digests import checked_key
from nco_guard.audit.events import (
    Action,
    DeadEnd,
    DecodeView,
    Event,
    GuaranteeConfigured,
    Intervention,
    PolicyLoaded,
    RewindTarget,
    RunFinished,
    RunStarted,
    Span,
    Verification,
    value_hmac,
)
from nco_guard.audit.sinks import Sink
from nco_guard.copies import Staying
from nco_guard.errors import AuditError
from nco_guard.policy import Policy

if TYPE_CHECKING:
    from nco_guard.scan.findings import Exposure, Report

__all__ = ["RunRecorder", "correlated"]

E = TypeVar("E", bound=Event)
_ROUNDED = 1.001
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_ids: ContextVar[tuple[str | None, str | None]] = ContextVar("nco_guard_audit_ids", default=(None, None))


@contextmanager
def correlated(*, request_id: str | None = None, parent_id: str | None = None) -> Iterator[None]:
    """Runs that begin inside of this block carry these ids of yours: a request's, a conversation's, a trace's.

    Follows threads and tasks as context variables do. Inside of another such block, the id that is not given is the
    other's.

    Examples:
        >>> sink = MemorySink()
        >>> with correlated(request_id="request-18"):
        ...     _ = RunRecorder(sink).verification(ok=True, length=12)
        >>> sink.events[0].request_id
        'request-18'
    """
    for name, given in (("request_id", request_id), ("parent_id", parent_id)):
        if given is not None:
            checked_text(name, given)
    around = _ids.get()
    token = _ids.set((request_id or around[0], parent_id or around[1]))
    try:
        yield
    finally:
        _ids.reset(token)


class RunRecorder(Staying):
    """Records one run; events reach the sink one at a time, in the order of their numbers, from any thread.

    A sink that raises makes the recording method raise `AuditError` with the sink's error as its cause, unless it
    is made `tolerant`. The event's number stays used, so that the gap shows. Each method returns the event it recorded.

    Without `request_id` and `parent_id` those of an enclosing `correlated` block are taken. With a
    `correlation_key` (16 bytes or more) findings hold a keyed hash of what matched. `steps` says whether
    anybody wants the events of single steps, which cost an engine a pass over its scores.

    Examples:
        >>> sink = MemorySink()
        >>> run = RunRecorder(sink, request_id="request-17")
        >>> _ = run.verification(ok=False, length=120, findings=[("email", 40, 58)])
        >>> sink.events[0].request_id
        'request-17'
    """

    def __init__(
        self,
        sink: Sink,
        *,
        run_id: UUID | None = None,
        parent_id: str | None = None,
        request_id: str | None = None,
        correlation_key: bytes | None = None,
        steps: bool = True,
    ) -> None:
        self.run_id = run_id if run_id is not None else uuid4()
        self.steps = steps
        self._sink = function("sink", sink, "a function that takes an event")
        self._key = checked_key("correlation_key", correlation_key)
        around = _ids.get()
        request_id = around[0] if request_id is None else request_id
        parent_id = around[1] if parent_id is None else parent_id
        self._ids: dict[str, Any] = {"run_id": self.run_id, "parent_id": parent_id, "request_id": request_id}
        self._lock = threading.Lock()
        self._number = 0
        self._made = time.perf_counter()

    # -- of what the library has -------------------------------------------------------------------------------

    def begin(
        self,
        policy: Policy,
        *,
        sequences: int,
        tokenizer_digest: str | None = None,
        model_id: str | None = None,
        decode_view: DecodeView | None = None,
    ) -> RunStarted:
        """Record that generation under a policy begins."""
        return self.started(
            policy_name=policy.name,
            policy_digest=policy.digest,
            rule_ids=[rule.id for rule in policy.rules],
            sequences=sequences,
            tokenizer_digest=tokenizer_digest,
            model_id=model_id,
            decode_view=decode_view,
        )

    def report(
        self,
        report: Report,
        *,
        sequence: int | None = None,
        text: str | None = None,
        exposures: Sequence[Exposure] | None = None,
        ok: bool | None = None,
    ) -> Verification:
        """Record a report of the verifier, on `text`, which is never recorded (see `verification`).

        `exposures`: what `nco_guard.scan.exposure` gives. `ok`: the verdict on more than the report is about.

        Examples:
            >>> sink = MemorySink()
            >>> _ = RunRecorder(sink).report(Guard.from_presets("pii").verify("Write to jane.doe@example.com."))
            >>> [(found.rule_id, found.start, found.end) for found in sink.events[0].findings]
            [('pii.email', 9, 29)]
        """
        return self.verification(
            ok=report.ok if ok is None else ok,
            length=report.length,
            findings=[(found.rule_id, found.start, found.end) for found in report.findings],
            sequence=sequence,
            policy_digest=report.policy_digest,
            text=text,
            exposures=None if exposures is None else [(one.rule_id, one.start, one.end) for one in exposures],
        )

    # -- event by event ----------------------------------------------------------------------------------------

    def policy_loaded(
        self,
        *,
        policy_name: str,
        policy_digest: str,
        rules: Sequence[tuple[str, str, str]],
        on_dead_end: str,
        on_audit_failure: str,
    ) -> PolicyLoaded:
        """Record that a policy is compiled; its rules as (id, "strings" | "regex" | "fsm", mode) each."""
        return self._record(
            PolicyLoaded,
            policy_name=policy_name,
            policy_digest=policy_digest,
            rules=tuple(
                {"rule_id": rule_id, "type": kind, "mode": mode}
                for rule_id, kind, mode in _threes("rules", rules)
            ),
            on_dead_end=on_dead_end,
            on_audit_failure=on_audit_failure,
        )

    def guarantee_configured(
        self, *, policy_digest: str, tokenizer_digest: str, vocabulary_size: int, decode_view: DecodeView
    ) -> GuaranteeConfigured:
        """Record what the guarantee is about: the policy, through a tokenizer, in a decode view."""
        return self._record(
            GuaranteeConfigured,
            policy_digest=policy_digest,
            tokenizer_digest=tokenizer_digest,
            vocabulary_size=vocabulary_size,
            decode_view=decode_view,
        )

    def started(
        self,
        *,
        policy_name: str,
        policy_digest: str,
        rule_ids: Sequence[str],
        sequences: int,
        tokenizer_digest: str | None = None,
        model_id: str | None = None,
        decode_view: DecodeView | None = None,
    ) -> RunStarted:
        """Record that generation begins."""
        return self._record(
            RunStarted,
            policy_name=policy_name,
            policy_digest=policy_digest,
            rule_ids=_several("rule_ids", rule_ids),
            sequences=sequences,
            tokenizer_digest=tokenizer_digest,
            model_id=model_id,
            decode_view=decode_view,
        )

    def intervention(
        self,
        *,
        sequence: int,
        step: int,
        action: Action = "masked",
        rule_ids: Sequence[str] = (),
        removed_probability: float | None = None,
        first_choice_forbidden: bool | None = None,
        first_allowed_rank: int | None = None,
        discarded: int | None = None,
    ) -> Intervention:
        """Record that the guard changed the choice at one step of one sequence."""
        return self._record(
            Intervention,
            sequence=sequence,
            step=step,
            action=action,
            rule_ids=_several("rule_ids", rule_ids),
            removed_probability=_probability(removed_probability),
            first_choice_forbidden=first_choice_forbidden,
            first_allowed_rank=first_allowed_rank,
            discarded=discarded,
        )

    def dead_end(self, *, sequence: int, step: int, resolution: str, rule_ids: Sequence[str] = ()) -> DeadEnd:
        """Record that nothing was allowed at one step of one sequence, and what was done."""
        return self._record(
            DeadEnd,
            sequence=sequence,
            step=step,
            resolution=resolution,
            rule_ids=_several("rule_ids", rule_ids),
        )

    def finished(
        self,
        *,
        outcomes: Sequence[str],
        interventions: int = 0,
        tokens: int = 0,
        seconds: float | None = None,
        error: BaseException | None = None,
        back_to: RewindTarget | None = None,
        fallbacks: Sequence[int] | None = None,
    ) -> RunFinished:
        """Record that generation is over; of an error only the name of its type is kept.

        `seconds` are those since this recorder was made, where none are given. `back_to` and `fallbacks` (one number
        for each outcome) are for texts that could go back: see `RunFinished`.
        """
        kind = None if error is None else _TYPE_NAME.search(type(error).__name__)
        return self._record(
            RunFinished,
            outcomes=_several("outcomes", outcomes),
            interventions=interventions,
            tokens=tokens,
            seconds=time.perf_counter() - self._made if seconds is None else seconds,
            error=None if error is None else kind[0] if kind is not None else "Exception",
            back_to=back_to,
            fallbacks=None if fallbacks is None else _several("fallbacks", fallbacks),
        )

    def verification(
        self,
        *,
        ok: bool,
        length: int,
        findings: Sequence[tuple[str, int, int]] = (),
        sequence: int | None = None,
        policy_digest: str | None = None,
        text: str | None = None,
        exposures: Sequence[tuple[str, int, int]] | None = None,
    ) -> Verification:
        """Record what the verifier found in a text of `length` code points: (rule id, start, end) each.

        `text` is never recorded; it is read only where the recorder has a correlation key. `exposures`, where they
        were measured, have the same form.
        """
        if text is not None and not isinstance(text, str):
            raise AuditError(f"text: a str is needed, not {type(text).__name__}")
        try:
            spans = tuple(
                Span(
                    rule_id=rule,
                    start=start,
                    end=end,
                    value_hmac=None
                    if self._key is None or text is None
                    else value_hmac(self._key, text[start:end]),
                )
                for rule, start, end in _threes("findings", findings)
            )
            stretches = (
                None
                if exposures is None
                else tuple(
                    Span(rule_id=rule, start=start, end=end)
                    for rule, start, end in _threes("exposures", exposures)
                )
            )
        except ValidationError as error:
            raise _refused(Span, error) from None
        return self._record(
            Verification,
            ok=ok,
            length=length,
            findings=spans,
            exposures=stretches,
            sequence=sequence,
            policy_digest=policy_digest,
        )

    def _record(self, kind: type[E], **fields: Any) -> E:
        with self._lock:
            try:
                event = kind(
                    number=self._number,
                    time=datetime.now(UTC),
                    monotonic_ns=time.monotonic_ns(),
                    **self._ids,
                    **fields,
                )
            except ValidationError as error:
                raise _refused(kind, error) from None
            self._number += 1
            try:
                self._sink(event)
            except (
                Exception
            ) as error:  # a sink is anybody's callable, so this is the one place that catches all
                if isinstance(error, AuditError):
                    raise
                raise AuditError(
                    f"the audit sink failed on event {event.number} ({event.kind}): {type(error).__name__}"
                ) from error
            return event


def _several(field: str, values: Any) -> tuple[Any, ...]:
    """Several values of a field. A single text is none: it would be recorded letter by letter."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise AuditError(f"{field}: a list is needed, not {type(values).__name__}")
    return tuple(values)


def _threes(field: str, values: Any) -> tuple[Any, ...]:
    found = _several(field, values)
    for number, one in enumerate(found):
        if len(_several(f"{field}[{number}]", one)) != 3:
            raise AuditError(f"{field}[{number}]: three values are needed, as (rule id, ..., ...)")
    return found


def _probability(given: Any) -> Any:
    # A sum of float32 probabilities can come out a little above one.
    return 1.0 if isinstance(given, float) and 1.0 < given < _ROUNDED else given


def _refused(kind: type[Any], error: ValidationError) -> AuditError:
    """The error for a field that an event does not accept: names the field, never the value."""
    first = error.errors(include_input=False, include_url=False)[0]
    field = ".".join(map(str, first["loc"])) or "fields"
    return AuditError(f"{kind.__name__}.{field}: {first['msg']}")
