"""`NCOGuardOutputParser`: what any LLM wrote, verified before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.types import BaseOutputParser

from nco_guard import OnMatch, arguments
from nco_guard.guards import GuardSource, as_guard, check_replacement
from nco_guard.scan import Replacement
from nco_guard.values import Cleaner

__all__ = ["NCOGuardOutputParser"]


class NCOGuardOutputParser(BaseOutputParser):
    """Verifies finished output, for LLMs that cannot be guarded while they write.

    Guarantee: what `parse` returns holds no match of a hard rule: not the text, and not a part of what `inner` makes of
    it. It sees finished text only; LlamaIndex refuses output parsers where it streams.

    Args:
        guard: a `Guard`, a `Policy`, a preset's name or several, or the path of a policy file (`nco_guard.guards`).
        action: "raise" raises `ViolationError`, "redact" replaces matches.
        inner: a parser that is asked for the format and given the verified text.

    Raises `PolicyError` at construction for a replacement that is itself forbidden, and from `parse` `ViolationError`
    and `RedactionError`, which hold no text. The guard's sink hears of each text that is parsed. When not to use it:
    with `NCOGuardLLM`, whose output keeps its policy anyway.

    Examples:
        >>> NCOGuardOutputParser("pii", action="redact").parse("Write to jane.doe@example.com.")
        'Write to [redacted].'
    """

    def __init__(
        self,
        guard: GuardSource,
        *,
        action: OnMatch = "raise",
        replacement: Replacement = None,
        inner: BaseOutputParser | None = None,
    ) -> None:
        arguments.choice("action", action, ("raise", "redact"))
        self._guard = as_guard(guard)
        check_replacement(self._guard, replacement)
        self._new_cleaner = partial(
            Cleaner, self._guard, action, replacement=replacement, where="model output"
        )
        self._inner = inner

    def parse(self, output: str) -> Any:
        """The verified text, or what the inner parser makes of it."""
        cleaner = self._new_cleaner(record=self._guard.log.own_recorder())
        output = cleaner.text(output)
        if self._inner is None:
            return output
        # Parsing can bring out what the text hid.
        return cleaner.at("parsed model output").value(self._inner.parse(output))

    def format(self, query: str) -> str:
        """The query with the inner parser's instructions."""
        return query if self._inner is None else self._inner.format(query)

    def format_messages(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """The messages with the inner parser's instructions."""
        return list(messages) if self._inner is None else self._inner.format_messages(list(messages))
