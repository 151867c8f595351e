"""LangChain's values made fit to show, and what was found in them recorded."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage

import langchain_nco_guard._registered  # noqa: F401  how LangChain's types are read
from nco_guard import Guard, OnMatch, Report
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner

__all__ = ["RecordingCleaner"]


class RecordingCleaner(Cleaner):
    """Redacts or refuses values, and records texts in the guard's sink.

    `parsed`: messages are JSON that is parsed. `again`: of values that were recorded before, only what is found is.
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
    ) -> None:
        self._parsed, self._again = parsed, again
        record = guard.log.own_recorder()
        super().__init__(guard, action, replacement=replacement, where=where, record=record)

    def value(self, value: Any) -> Any:
        """Any Python value. Errors about a message say whether it was in its tool calls."""
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
