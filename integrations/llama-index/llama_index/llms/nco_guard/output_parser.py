"""`NCOGuardOutputParser`: what any LLM wrote, verified before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.types import BaseOutputParser
from llama_index.llms.nco_guard.values import compiled_policy, rules_in

from nco_guard import Guard, Policy
from nco_guard.errors import ViolationError
from nco_guard.redaction import REDACTED, Replacement, redact, require

__all__ = ["NCOGuardOutputParser"]


class NCOGuardOutputParser(BaseOutputParser):
    """Verifies finished output, for LLMs that cannot be guarded while they write.

    Guarantee: what `parse` returns holds no match of a hard rule: not the text, and not a part of what `inner` makes of
    it. It sees finished text only; LlamaIndex refuses output parsers where it streams.

    Args:
        policy: a `Policy` or a `Guard`.
        action: "raise" raises `ViolationError`, "redact" replaces matches.
        inner: a parser that is asked for the format and given the verified text.

    Raises `PolicyError` at construction for a replacement that is itself forbidden, and from `parse` `ViolationError`
    and `RedactionError`, which hold no text. When not to use it: with `NCOGuardLLM`, whose output keeps its policy
    anyway.
    """

    def __init__(
        self,
        policy: Policy | Guard,
        *,
        action: Literal["raise", "redact"] = "raise",
        replacement: Replacement = REDACTED,
        inner: BaseOutputParser | None = None,
    ) -> None:
        if action not in ("raise", "redact"):
            raise ValueError(f"action {action!r}: one of 'raise', 'redact'")
        self._policy = compiled_policy(policy)
        redact(self._policy, "", replacement=replacement)  # a forbidden replacement is refused here
        self._action = action
        self._replacement = replacement
        self._inner = inner

    def parse(self, output: str) -> Any:
        """The verified text, or what the inner parser makes of it."""
        if self._action == "redact":
            output = redact(self._policy, output, replacement=self._replacement).text
        else:
            require(self._policy, output, where="model output")
        if self._inner is None:
            return output
        parsed = self._inner.parse(output)
        # Parsing can bring out what the text hid, by JSON escapes for one.
        if found := rules_in(self._policy, parsed):
            raise ViolationError(found, "parsed model output")
        return parsed

    def format(self, query: str) -> str:
        """The query with the inner parser's instructions."""
        return query if self._inner is None else self._inner.format(query)

    def format_messages(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        """The messages with the inner parser's instructions."""
        return list(messages) if self._inner is None else self._inner.format_messages(list(messages))
