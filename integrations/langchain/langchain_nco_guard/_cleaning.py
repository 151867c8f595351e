"""LangChain's values made fit to show, and what was found in them recorded."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage

import langchain_nco_guard._registered  # noqa: F401  how LangChain's types are read
from nco_guard import Guard, OnMatch, Report
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner
from nco_guard.values.blocks import kind_of_block

__all__ = ["RecordingCleaner"]


_THOUGHT = ("reason", "think")


class RecordingCleaner(Cleaner):
    """Redacts or refuses values, and records texts in the guard's sink.

    `parsed`: messages are JSON that is parsed. `again`: of values that were recorded before, only what is found is.
    `read`: messages are replies whose reasoning was treated as the policy says (`applies_to`).
    """

    def __init__(
        self,
        guard: Guard,
        action: OnMatch,
        *,
        replacement: Replacement = None,
        where: str = "text",
        again: bool = False,
        parsed: bool = False,
        read: bool = False,
    ) -> None:
        self._parsed, self._again = parsed, again
        applied = guard.policy.applies_to if read else None
        self._reasoning = "guarded" if applied is None else applied.reasoning
        record = guard.log.own_recorder()
        super().__init__(guard, action, replacement=replacement, where=where, record=record)

    def value(self, value: Any) -> Any:
        """Any Python value. Errors about a message say whether it was in its tool calls."""
        if isinstance(value, AIMessage) and self._reasoning != "guarded" and isinstance(value.content, list):
            return self._but_reasoning(value, value.content)
        return self._whole(value)

    def _but_reasoning(self, message: AIMessage, blocks: list[Any]) -> AIMessage:
        """A message cleaned but for its reasoning, which is as it was or left out."""
        thought = [kind_of_block(block) in _THOUGHT for block in blocks]
        said = [block for block, apart in zip(blocks, thought, strict=True) if not apart]
        cleaned: AIMessage = self._whole(
            message.model_copy(update={"content": said}) if any(thought) else message
        )
        if self._reasoning == "hidden" or not isinstance(cleaned.content, list):
            return cleaned
        left = iter(cleaned.content)
        together = [block if apart else next(left) for block, apart in zip(blocks, thought, strict=True)]
        return cleaned.model_copy(update={"content": together})

    def _whole(self, value: Any) -> Any:
        if self.action == "raise" and isinstance(value, AIMessage):
            self.at("tool-call arguments").value([*value.tool_calls, *value.invalid_tool_calls])
        if not self._parsed or not isinstance(value, AIMessage):
            return super().value(value)
        # First as what is parsed: a number that is replaced where it stands leaves no JSON.
        if isinstance(value.content, str):
            value = self._as_parsed(value)
        return self._as_parsed(super().value(value))

    def _as_parsed(self, message: AIMessage) -> AIMessage:
        text = self.json_text(message.text)
        return message if text == message.text else message.model_copy(update={"content": text})

    def _record_report(self, report: Report, text: str | None = None) -> None:
        if not (self._again and report.ok):
            super()._record_report(report, text)
