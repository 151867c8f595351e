"""`NCOGuardAuditHandler`: what LLMs wrote, verified and recorded through LlamaIndex's instrumentation."""

from __future__ import annotations

import logging
import re
import threading
import time
from typing import Any

from llama_index.core.base.llms.types import ChatResponse, CompletionResponse, ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events.exception import ExceptionEvent
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMChatStartEvent,
    LLMCompletionEndEvent,
    LLMCompletionStartEvent,
)
from llama_index.llms.nco_guard.values import compiled_policy, texts_in
from llama_index_instrumentation.base import BaseEvent
from llama_index_instrumentation.events.span import SpanDropEvent

from nco_guard import Guard, Policy
from nco_guard.audit import RunRecorder, Sink
from nco_guard.compiler import CompiledPolicy
from nco_guard.copies import Staying
from nco_guard.errors import AuditError, GenerationError
from nco_guard.verify import verify

__all__ = ["NCOGuardAuditHandler"]

_log = logging.getLogger("nco_guard.audit")
_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")


class NCOGuardAuditHandler(Staying, BaseEventHandler):
    """Records every call of every LLM: that it began, what the verifier found in its text, and how it ended.

        get_dispatcher().add_event_handler(NCOGuardAuditHandler(policy, JsonLinesSink("audit.jsonl")))

    One run per call, with LlamaIndex's span id as `parent_id`, as the runs of a guarded LLM have that are recorded at
    decoding: the two belong together. Texts of messages and completions are verified whole, tool calls' arguments part
    by part. No event holds text.

    It observes: it neither changes nor stops anything, and LlamaIndex drops whatever a handler raises. A record that
    could not be written is therefore counted in `failures` and logged by the type of the error. Where an unrecorded
    call must not go on, give the LLM itself the sink (`NCOGuardLLM(..., audit=sink)`).
    """

    _policy: CompiledPolicy = PrivateAttr()
    _sink: Sink = PrivateAttr()
    _lock: threading.Lock = PrivateAttr(default_factory=threading.Lock)
    _runs: dict[str, tuple[RunRecorder, float]] = PrivateAttr(default_factory=dict)
    _failures: int = PrivateAttr(default=0)

    def __init__(self, policy: Policy | Guard, sink: Sink) -> None:
        super().__init__()
        self._policy, self._sink = compiled_policy(policy), sink

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
        elif isinstance(event, LLMChatEndEvent | LLMCompletionEndEvent):
            self._ended(event)
        elif isinstance(event, ExceptionEvent):
            self._failed(event.span_id, event.exception)
        elif isinstance(event, SpanDropEvent):
            # Its text may quote anything; that the call failed is all that is recorded.
            self._failed(event.span_id, GenerationError())

    def _started(self, event: LLMChatStartEvent | LLMCompletionStartEvent) -> None:
        recorder = RunRecorder(self._sink, parent_id=event.span_id or None)
        with self._lock:
            self._runs[event.span_id or ""] = recorder, time.perf_counter()
        name = event.model_dict.get("model_name") or event.model_dict.get("model")
        recorder.started(
            policy_name=self._policy.policy.name,
            policy_digest=self._policy.digest,
            rule_ids=[rule.id for rule in self._policy.rules],
            sequences=1,
            model_id=str(name)[:512] if name else None,
        )

    def _ended(self, event: LLMChatEndEvent | LLMCompletionEndEvent) -> None:
        recorder, begun = self._take(event.span_id)
        if recorder is None:
            recorder = RunRecorder(self._sink, parent_id=event.span_id or None)
        response = event.response
        for text in _texts(response):
            report = verify(self._policy, text)
            recorder.verification(
                ok=report.ok,
                length=report.length,
                findings=[(hit.rule_id, hit.start, hit.end) for hit in report.findings],
                sequence=0,
                policy_digest=report.policy_digest,
            )
        raw = response.raw if response is not None and isinstance(response.raw, dict) else {}
        outcome = raw.get("outcome")
        ended = outcome if isinstance(outcome, str) and _LABEL.fullmatch(outcome) else "answered"
        tokens = (response.additional_kwargs if response is not None else {}).get("completion_tokens")
        recorder.finished(
            outcomes=[ended] if response is not None else [],
            interventions=0,
            tokens=tokens if isinstance(tokens, int) and tokens > 0 else 0,
            seconds=time.perf_counter() - begun,
        )

    def _failed(self, span_id: str | None, error: BaseException) -> None:
        recorder, begun = self._take(span_id)
        if recorder is not None:
            seconds = time.perf_counter() - begun
            recorder.finished(outcomes=(), interventions=0, tokens=0, seconds=seconds, error=error)

    def _take(self, span_id: str | None) -> tuple[RunRecorder | None, float]:
        with self._lock:
            return self._runs.pop(span_id or "", (None, time.perf_counter()))


def _texts(response: ChatResponse | CompletionResponse | None) -> list[str]:
    """Everything in a response that may be shown: its text, and each part of its tool calls."""
    if response is None:
        return []
    if isinstance(response, CompletionResponse):
        return [response.text]
    calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
    parts = texts_in([[call.tool_name, call.tool_kwargs] for call in calls])
    return [response.message.content or "", *parts]
