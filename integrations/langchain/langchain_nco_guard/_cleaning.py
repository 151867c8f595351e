"""LangChain's values made fit to show, and what was found in them recorded."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AIMessage

import langchain_nco_guard._registered  # noqa: F401  how LangChain's types are read
from nco_guard import Guard, OnMatch
from nco_guard.audit import RunRecorder
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner

__all__ = ["RecordingCleaner"]


class RecordingCleaner(Cleaner):
    """Redacts or refuses values, and records texts in the audit sink. `parsed`: messages are JSON that is parsed."""

    def __init__(
        self,
        guard: Guard,
        action: OnMatch,
        *,
        replacement: Replacement = None,
        where: str = "text",
        record: bool = True,
        parsed: bool = False,
    ) -> None:
        recorder = RunRecorder(guard.log.sink) if record and guard.log.sink is not None else None
        self._parsed = parsed
        super().__init__(guard, action, replacement=replacement, where=where, record=recorder)

    def value(self, value: Any) -> Any:
        """Any Python value. Errors about a message say whether it was in its tool calls."""
        if self.action == "raise" and isinstance(value, AIMessage):
            self.at("tool-call arguments").value([*value.tool_calls, *value.invalid_tool_calls])
        cleaned = super().value(value)
        if not self._parsed or not isinstance(cleaned, AIMessage):
            return cleaned
        text = self.json_text(cleaned.text)
        return cleaned if text == cleaned.text else cleaned.model_copy(update={"content": text})
