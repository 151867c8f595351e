"""`NCOGuardAuditHandler`: what LLMs wrote, verified and recorded through LlamaIndex's instrumentation."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse, TextBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatInProgressEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionInProgressEvent,
    LLMCompletionStartEvent,
)
from llama_index.llms.nco_guard import registered  # noqa: F401  how responses are read
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.events.span import SpanDropEvent

from nco_guard import Guard
from nco_guard.audit import RunRecorder, Sink, outcome_of
from nco_guard.copies import Staying
from nco_guard.errors import AuditError, GenerationError
from nco_guard.guards import GuardSource, as_guard
from nco_guard.values.observing import Observer

__all__ = ["NCOGuardAuditHandler"]

_log = logging.getLogger("nco_guard.audit")
Response = ChatResponse | CompletionResponse


@dataclass
class _Run:
    """One call, and what its reader was shown of it so far."""

    recorder: RunRecorder
    shown: Response | None = None
    deltas: list[str] = field(default_factory=list)
    outcome: str = "answered"


def _outcome(response: Response | None) -> str:
    if response is None:
        return "answered"
    beside = response.message.additional_kwargs if isinstance(response, ChatResponse) else None
    return outcome_of(response.raw, response.additional_kwargs, beside)


class NCOGuardAuditHandler(Staying, BaseEventHandler):
    """Records every call of every LLM: that it began, what the verifier found in its text, and how it ended.

        get_dispatcher().add_event_handler(NCOGuardAuditHandler(guard, JsonLinesSink("audit.jsonl")))

    One run per call, with LlamaIndex's span id as `parent_id`, as the runs of a guarded LLM have that are recorded at
    decoding: the two belong together. Everything that a response shows is verified: its text, thoughts, citations, tool
    calls with their ids and arguments, and what the provider says beside. Of a stream that fails, or that its reader
    leaves, what was shown is. No event holds text.

    It observes: it neither changes nor stops anything, and LlamaIndex drops whatever a handler raises. A record that
    could not be written is therefore counted in `failures` and logged by the type of the error. Where an unrecorded
    call must not go on, give the LLM itself the sink (`NCOGuardLLM(..., audit=sink)`).

    Args:
        guard: the policy to verify against.
        audit: where events go, see `nco_guard.audit`; the sink of a `Guard` that has one by default, and not beside it.

    Errors: `AuditError` where nobody would hear of anything, `UnsupportedError` for two sinks.

    Examples:
        >>> from llama_index.core.instrumentation import get_dispatcher
        >>> from nco_guard.audit import MemorySink
        >>> sink, dispatcher = MemorySink(), get_dispatcher()
        >>> dispatcher.add_event_handler(NCOGuardAuditHandler("pii", sink))
        >>> _ = hosted.complete("Maria?")
        >>> _ = dispatcher.event_handlers.pop()
        >>> [event.kind for event in sink.events]
        ['run_started', 'verification', 'run_finished']
    """

    _guard: Guard = PrivateAttr()
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _runs: dict[str, _Run] = PrivateAttr(default_factory=dict)
    _failures: int = PrivateAttr(default=0)

    def __init__(self, guard: GuardSource, audit: Sink | None = None) -> None:
        super().__init__()
        self._guard = as_guard(guard, audit=audit, enforces=False)
        self._guard.log.recorder()  # a guard that nobody hears is refused here

    @classmethod
    def class_name(cls) -> str:
        """LlamaIndex's name of this class."""
        return "NCOGuardAuditHandler"

    @property
    def failures(self) -> int:
        """How many events could not be recorded."""
        return self._failures

    def handle(self, event: BaseEvent, **kwargs: Any) -> None:
        """Record an event of LlamaIndex, if it is about an LLM."""
        try:
            self._handle(event)
        except AuditError as error:
            self._failures += 1
            _log.error(
                "an event of an LLM could not be recorded: %s", type(error.__cause__ or error).__name__
            )
            raise

    def _handle(self, event: BaseEvent) -> None:
        if isinstance(event, LLMChatStartEvent | LLMCompletionStartEvent):
            self._started(event)
        elif isinstance(event, LLMChatInProgressEvent | LLMCompletionInProgressEvent):
            self._went_on(event)
        elif isinstance(event, LLMChatEndEvent | LLMCompletionEndEvent):
            self._ended(event)
        elif isinstance(event, ExceptionEvent):
            self._failed(event.span_id, event.exception)
        elif isinstance(event, SpanDropEvent):
            # Its text may quote anything; that the call failed is all that is recorded.
            self._failed(event.span_id, GenerationError())

    def _started(self, event: LLMChatStartEvent | LLMCompletionStartEvent) -> None:
        recorder = self._guard.log.recorder(parent_id=event.span_id or None)
        with self._lock:
            self._runs[event.span_id or ""] = _Run(recorder)
        name = event.model_dict.get("model_name") or event.model_dict.get("model")
        recorder.begin(self._guard.policy, sequences=1, model_id=str(name)[:512] if name else None)

    def _went_on(self, event: LLMChatInProgressEvent | LLMCompletionInProgressEvent) -> None:
        with self._lock:
            run = self._runs.get(event.span_id or "")
        if run is not None:
            run.shown = event.response
            if (outcome := _outcome(event.response)) != "answered":
                run.outcome = outcome  # chunks with other news may follow
            run.deltas.append(event.response.delta or "")

    def _ended(self, event: LLMChatEndEvent | LLMCompletionEndEvent) -> None:
        run = self._take(event.span_id) or _Run(self._guard.log.recorder(parent_id=event.span_id or None))
        response = event.response
        self._verified(run, response)
        outcome = _outcome(response)
        if outcome == "answered":
            outcome = run.outcome
        tokens = (response.additional_kwargs if response is not None else {}).get("completion_tokens")
        run.recorder.finished(
            outcomes=[outcome] if response is not None else [],
            tokens=tokens if isinstance(tokens, int) and tokens > 0 else 0,
        )

    def _failed(self, span_id: str | None, error: BaseException) -> None:
        run = self._take(span_id)
        if run is not None:
            self._verified(run, run.shown)
            run.recorder.finished(outcomes=(), error=error)

    def _verified(self, run: _Run, response: Response | None) -> None:
        """Record what the verifier finds in a response, and in the pieces of a stream that it does not repeat."""
        observer = Observer(self._guard, run.recorder)
        if isinstance(response, ChatResponse):
            text = response.message.content or ""
            observer.text(text)
            for block in response.message.blocks:
                if not isinstance(block, TextBlock):
                    observer.part(block)
            observer.rest([response.message.additional_kwargs, response.additional_kwargs])
        elif response is not None:
            text = response.text
            observer.text(text)
            observer.rest([response.additional_kwargs])
        else:
            return
        if (streamed := "".join(run.deltas)) != text:
            observer.text(streamed)

    def _take(self, span_id: str | None) -> _Run | None:
        with self._lock:
            return self._runs.pop(span_id or "", None)
