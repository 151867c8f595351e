"""From guarded text, piece by piece, to what may be shown: content and finished tool calls.

The engine guarantees the text as the model wrote it. Whatever is cut out of it (a stop string, a tool call) leaves
another text, which is checked here before anybody sees it. Cost: linear in the text; a check only where something was
cut.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from nco_guard.compiler import CompiledPolicy
from nco_guard.errors import ViolationError
from nco_guard.redaction import violated_rules
from nco_guard.verify import verify

__all__ = ["ReplyReader", "ToolCall", "parse_call"]

# Ids are shown beside the text: without digits they cannot look like somebody's number.
_LETTERS = str.maketrans("0123456789", "ghijkmnopq")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool that the model asked for; its arguments are parsed and checked."""

    id: str
    name: str
    arguments: dict[str, Any]


class ReplyReader:
    """Reads the text of one reply as it grows.

    policy, context: what no text shown may match; `context` is the prompt, for rules that read it.
    stop: strings before which the reply ends; they are no part of it.
    marks: what a tool call begins and ends with, or None where the text is nothing but text.
    begun: the beginning of a tool call that the prompt ends with; it is no part of the guarded text.
    single_call: only the first call counts.

    Guarantee: after every `feed`, `content` holds no match of a hard rule, nor does any string, key or number in
    `calls`. Content is what stands before the first call. Raises `ViolationError` for a call that holds a match once it
    is parsed: JSON escapes can hide one from rules without `json_escapes`; with it, such a call cannot be written.
    """

    def __init__(
        self,
        policy: CompiledPolicy,
        *,
        context: str = "",
        stop: Sequence[str] = (),
        marks: tuple[str, str] | None = None,
        begun: str = "",
        single_call: bool = False,
    ) -> None:
        self._policy = policy
        self._context = context
        self._stop = tuple(stop)
        self._marks = marks
        self._text = self._begun = begun
        self._single = single_call
        self._shown = 0
        self._calls: list[ToolCall] = []
        self._limit: int | None = None  # where content ends: at the first call
        self._next = 0  # where the search for the next call begins
        self._over = False

    @property
    def content(self) -> str:
        """What may be shown so far."""
        return self._text[: self._shown]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The finished calls so far."""
        return tuple(self._calls)

    def feed(self, piece: str, *, final: bool = False) -> str:
        """Take a further piece of text, and return what it adds to the content; `final`: nothing follows it."""
        if self._over:
            return ""
        before = len(self._text)
        self._text += piece
        stopped = self._cut_at_stop(before)
        self._over = final or stopped
        opened = self._read_calls()
        shown = self._shown
        self._release(opened, whole=not stopped)
        return self._text[shown : self._shown]

    def _cut_at_stop(self, before: int) -> bool:
        reach = max(map(len, self._stop), default=0)
        since = max(len(self._begun), before - reach)
        found = [at for stop in self._stop if (at := self._text.find(stop, since)) >= 0]
        if found:
            self._text = self._text[: min(found)]
        return bool(found)

    def _read_calls(self) -> int | None:
        """Read finished calls; where one has begun and not ended, its position."""
        if self._marks is None:
            return None
        opening, closing = self._marks
        while (start := self._text.find(opening, self._next)) >= 0:
            end = self._text.find(closing, start + len(opening))
            if end < 0 and not self._over:
                return start
            # The last call may lack its closing mark: some models end right after the JSON.
            call = parse_call(self._text[start + len(opening) : end if end >= 0 else None])
            self._next = end + len(closing) if end >= 0 else len(self._text)
            if call is None:
                continue
            broken = violated_rules(self._policy, call.arguments) or violated_rules(self._policy, call.name)
            if broken:
                raise ViolationError(broken, "tool call, its JSON escapes read")
            if self._limit is None:
                self._limit = start
            if not (self._single and self._calls):
                self._calls.append(call)
        return None

    def _release(self, opened: int | None, *, whole: bool) -> None:
        if self._limit is not None:
            target = self._limit
        elif opened is not None:
            target = opened
        else:
            target = len(self._text) - (0 if self._over else self._held())
        if target <= self._shown:
            return
        # The engine vouches for the text up to each piece's end, and for nothing in between.
        if (target == len(self._text) and whole) or self._check(self._text[:target]):
            self._shown = target
        elif self._over or self._limit is not None:
            # The text may not end where it was cut: back to where it may.
            ends = range(target - 1, self._shown, -1)
            self._shown = next((end for end in ends if self._check(self._text[:end])), self._shown)

    def _check(self, text: str) -> bool:
        return verify(self._policy, text, context=self._context).ok

    def _held(self) -> int:
        """How much of the text's end could be the beginning of a mark or of a stop string."""
        marks = [*self._stop, *(self._marks[:1] if self._marks is not None else ())]
        return max(
            (
                size
                for mark in marks
                for size in range(1, min(len(mark), len(self._text) + 1))
                if self._text.endswith(mark[:size])
            ),
            default=0,
        )


def parse_call(body: str) -> ToolCall | None:
    """The call that stands between two marks, `{"name": ..., "arguments": {...}}`; None if it is none."""
    try:
        data = json.loads(body)
        arguments = data.get("arguments", data.get("parameters")) if isinstance(data, dict) else None
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict) or not isinstance(data.get("name"), str):
        return None
    return ToolCall(f"call_{uuid4().hex[:16].translate(_LETTERS)}", data["name"], arguments)
