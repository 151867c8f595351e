"""An audit log of what happens in LangChain: runs of models and tools, and what the verifier says about each text."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from nco_guard import Report
from nco_guard.audit import RunRecorder, Sink, outcome_of
from nco_guard.copies import Staying
from nco_guard.guards import GuardSource, as_guard
from nco_guard.values import Cleaner

__all__ = ["NCOGuardAuditHandler"]


class NCOGuardAuditHandler(Staying, BaseCallbackHandler):
    """Writes `nco_guard.audit` events for every run of a chat model, an LLM or a tool: `config={"callbacks":
    [handler]}`.

    Each run is a `run_started`, a `verification` of each text (a tool's: its arguments, then its result) and a
    `run_finished`; its ids are LangChain's. Guarantee: no text enters the log, only names, ids, counts and offsets. It
    records what callbacks are shown, so it belongs beside a guard and does not replace one.

    Args:
        guard: the policy to verify against.
        audit: where events go, see `nco_guard.audit`; the guard's own sink by default. A sink that fails stops the
            run it cannot record (`raise_error`).

    Examples:
        >>> from nco_guard.audit import MemorySink
        >>> sink = MemorySink()
        >>> _ = hosted.invoke("Maria?", config={"callbacks": [NCOGuardAuditHandler("pii", sink)]})
        >>> [event.kind for event in sink.events]
        ['run_started', 'verification', 'run_finished']
    """

    raise_error = True
    run_inline = True

    def __init__(self, guard: GuardSource, audit: Sink | None = None) -> None:
        self.guard = as_guard(guard)
        chosen = self.guard.log.keyed(audit) if audit is not None else self.guard.log.sink
        if chosen is None:
            raise ValueError("audit: pass a sink, or a guard that has one")
        self._sink = chosen
        self._values = Cleaner(self.guard, "report")
        self._runs: dict[UUID, RunRecorder] = {}
        self._lock = threading.Lock()

    # -- models ------------------------------------------------------------------------------------------------

    def on_chat_model_start(
        self,
        serialized: dict[str, Any] | None,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A chat model begins."""
        self._start(run_id, parent_run_id, _model_name(kwargs), len(messages))

    def on_llm_start(
        self,
        serialized: dict[str, Any] | None,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """An LLM begins."""
        self._start(run_id, parent_run_id, _model_name(kwargs), len(prompts))

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """A model is done: verify what it said."""
        run = self._take(run_id)
        if run is None:
            return
        outcomes: list[str] = []
        tokens = 0
        generations = [generation for row in response.generations for generation in row]
        for sequence, generation in enumerate(generations):
            report = self.guard.verify(generation.text)
            run.report(report, sequence=sequence)
            places: list[Any] = [generation.generation_info]
            shown: Any = generation
            if isinstance(generation, ChatGeneration):
                message = shown = generation.message
                places.append(message.response_metadata)
                usage = getattr(message, "usage_metadata", None) or {}
                tokens += int(usage.get("output_tokens", 0))
            found = {one.rule_id for one in report.violations}
            others = [rule for rule in self._values.rules(shown) if rule not in found]
            if others or getattr(shown, "tool_calls", None):
                self._verified_value(run, others, len(repr(shown)), sequence)
            outcomes.append(outcome_of(*places))
        run.finished(outcomes=outcomes, tokens=tokens)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A model failed; of the error only the name of its type is kept."""
        self._failed(run_id, error)

    # -- tools -------------------------------------------------------------------------------------------------

    def on_tool_start(
        self,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool begins: verify its arguments."""
        name = kwargs.get("name") or (serialized or {}).get("name") or "tool"
        run = self._start(run_id, parent_run_id, f"tool:{name}", 1)
        value = input_str if inputs is None else inputs
        self._verified_value(run, self._values.rules(value), len(str(value)))

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool is done: verify its result."""
        run = self._take(run_id)
        if run is not None:
            text = output.text if isinstance(output, BaseMessage) else str(output)
            report = self.guard.verify(text)
            run.report(report, sequence=0)
            found = {one.rule_id for one in report.violations}
            if others := [rule for rule in self._values.rules(output) if rule not in found]:
                self._verified_value(run, others, len(repr(output)))
            run.finished(outcomes=["ended"])

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool failed; of the error only the name of its type is kept."""
        self._failed(run_id, error)

    # -- events ------------------------------------------------------------------------------------------------

    def _start(self, run_id: UUID, parent: UUID | None, model: str, sequences: int) -> RunRecorder:
        run = RunRecorder(self._sink, run_id=run_id, parent_id=None if parent is None else str(parent))
        with self._lock:
            self._runs[run_id] = run
        run.begin(self.guard.policy, sequences=sequences, model_id=model[:512])
        return run

    def _take(self, run_id: UUID) -> RunRecorder | None:
        with self._lock:
            return self._runs.pop(run_id, None)

    def _verified_value(self, run: RunRecorder, rules: Sequence[str], length: int, sequence: int = 0) -> None:
        run.report(Report.somewhere(self.guard.policy.digest, length, rules), sequence=sequence)

    def _failed(self, run_id: UUID, error: BaseException) -> None:
        run = self._take(run_id)
        if run is not None:
            run.finished(outcomes=(), error=error)


def _model_name(kwargs: dict[str, Any]) -> str:
    metadata = kwargs.get("metadata") or {}
    return str(metadata.get("ls_model_name") or kwargs.get("name") or "model")
