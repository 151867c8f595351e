"""An audit log of what happens in LangChain: runs of models and tools, and what the verifier says about each text."""

from __future__ import annotations

import threading
from typing import Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from nco_guard.audit import RunRecorder, Sink, outcome_of
from nco_guard.copies import Staying
from nco_guard.guards import GuardSource, as_guard
from nco_guard.values.observing import Observer

__all__ = ["NCOGuardAuditHandler"]


class NCOGuardAuditHandler(Staying, BaseCallbackHandler):
    """Writes `nco_guard.audit` events for every run of a chat model, an LLM or a tool: `config={"callbacks":
    [handler]}`.

    Each run is a `run_started`, a `verification` of each text (a tool's: its arguments, then its result), of each call
    of a tool and of what else holds a match, and a `run_finished`; its ids are LangChain's. Guarantee: no text enters
    the log, only names, ids, counts and offsets. It records what callbacks are shown, so it belongs beside a guard and
    does not replace one.

    Args:
        guard: the policy to verify against.
        audit: where events go, see `nco_guard.audit`; the sink of a `Guard` that has one by default, and not beside it.
            A sink that fails stops the run it cannot record (`raise_error`).

    Errors: `AuditError` where nobody would hear of anything, `UnsupportedError` for two sinks.

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
        self.guard = as_guard(guard, audit=audit, enforces=False)
        self.guard.log.recorder()  # a guard that nobody hears is refused here
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
            observer = Observer(self.guard, run, sequence)
            observer.text(generation.text)
            places: list[Any] = [generation.generation_info]
            shown: Any = generation
            if isinstance(generation, ChatGeneration):
                message = shown = generation.message
                places.append(message.response_metadata)
                usage = getattr(message, "usage_metadata", None) or {}
                tokens += int(usage.get("output_tokens", 0))
            for call in (*getattr(shown, "tool_calls", ()), *getattr(shown, "invalid_tool_calls", ())):
                observer.part(call)
            observer.rest(shown)
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
        observer = Observer(self.guard, run)
        if inputs is None:
            observer.text(input_str)
        else:
            observer.part(inputs)

    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool is done: verify its result."""
        run = self._take(run_id)
        if run is not None:
            observer = Observer(self.guard, run)
            observer.text(output.text if isinstance(output, BaseMessage) else str(output))
            observer.rest(output)
            run.finished(outcomes=["ended"])

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A tool failed; of the error only the name of its type is kept."""
        self._failed(run_id, error)

    # -- events ------------------------------------------------------------------------------------------------

    def _start(self, run_id: UUID, parent: UUID | None, model: str, sequences: int) -> RunRecorder:
        parent_id = None if parent is None else str(parent)
        run = self.guard.log.recorder(run_id=run_id, parent_id=parent_id)
        with self._lock:
            self._runs[run_id] = run
        run.begin(self.guard.policy, sequences=sequences, model_id=model[:512])
        return run

    def _take(self, run_id: UUID) -> RunRecorder | None:
        with self._lock:
            return self._runs.pop(run_id, None)

    def _failed(self, run_id: UUID, error: BaseException) -> None:
        run = self._take(run_id)
        if run is not None:
            run.finished(outcomes=(), error=error)


def _model_name(kwargs: dict[str, Any]) -> str:
    metadata = kwargs.get("metadata") or {}
    return str(metadata.get("ls_model_name") or kwargs.get("name") or "model")
