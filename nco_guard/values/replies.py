"""What a model wrote, taken apart as it is written: text, and calls of tools between two marks.

The engine guarantees the text as the model wrote it. Whatever is cut out of it (a stop string, a call) leaves another
text, and parsing brings out what escapes hide; both are checked here before anybody sees them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from nco_guard import arguments
from nco_guard.automata.folding import settled_length
from nco_guard.errors import RedactionError, UnsupportedError, ViolationError
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.values.finding import Finder
from nco_guard.values.readings import readings
from nco_guard.values.texts import texts_of

__all__ = ["Event", "InvalidCall", "ReplyReader", "Text", "ToolCall"]

_WHERE = "model output"
_READ = "model output, its JSON escapes read"
# Ids are shown beside the text: without digits they cannot look like somebody's number.
_LETTERS = str.maketrans("0123456789", "ghijkmnopq")


@dataclass(frozen=True, slots=True)
class Text:
    """A further piece of the text outside of calls."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool that the model asked for; its arguments are parsed and checked."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """What stands between the marks and is no call: no JSON with a name and arguments, or it breaks off."""

    id: str
    text: str
    problem: str


Event = Text | ToolCall | InvalidCall


class ReplyReader:
    """Reads the text of one reply as it grows; `feed` and `finish` give what is new.

    Args:
        guard: what nothing that is shown may match, in one of the forms that `Cleaner` takes.
        context: the prompt, for rules that read it.
        stop: strings before which the reply ends; they are no part of it.
        marks: what a call begins and ends with; None where the text is nothing but text.
        begun: the beginning of a call that the prompt ends with; it is no part of the guarded text.
        single_call: only the first call counts.
        invalid_as_text: what is between marks and no call stays text, with its marks.
        escapes: somebody may parse the text as JSON, so its escapes are read as well.

    Guarantee: at any moment the texts given, joined, hold no match of a hard rule, as if they ended there; nor does any
    name, string, key or number of a call, its JSON escapes read; nor, with `escapes`, the text with its own read. Text
    that may not end where it was cut loses its tail. A last call may lack its closing mark: some models end right after
    the JSON.

    Cost: two steps for each rule and character; with `escapes`, once there is a backslash in the text, a search of the
    text so far for each piece, some tenths of a millisecond for large policies. Errors: `UnsupportedError` for empty
    marks; `ViolationError` for a call that holds a match, for text that forms one where something was cut out of it
    (from then on), and for escapes that read as one.

    Examples:
        >>> reader = ReplyReader("pii")
        >>> events = reader.feed('Wait. <tool_call>{"name": "find", "arguments": {"q": "x"}}</tool_call>')
        >>> events[0].text, events[1].arguments
        ('Wait. ', {'q': 'x'})
    """

    def __init__(
        self,
        guard: Any,
        *,
        context: str = "",
        stop: Sequence[str] = (),
        marks: tuple[str, str] | None = ("<tool_call>", "</tool_call>"),
        begun: str = "",
        single_call: bool = False,
        invalid_as_text: bool = False,
        escapes: bool = False,
    ) -> None:
        if marks is not None and not (
            isinstance(marks, list | tuple)
            and len(marks) == 2
            and all(isinstance(m, str) and m for m in marks)
        ):
            raise UnsupportedError("marks: two strings that are not empty, or None where there are no calls")
        self._finder = Finder(guard, "")  # nothing is replaced
        self._context = arguments.text("context", context)
        self._stops = tuple(one for one in arguments.texts("stop", stop) if one)
        self._marks = marks
        self._single = single_call
        self._as_text = invalid_as_text
        self._escapes = escapes
        self._pending = arguments.text("begun", begun)
        self._begun = len(begun)
        self._inside = False
        self._over = False
        # Text outside of calls: what is new, what may be shown as it is written, and what was shown.
        self._ends = SafeEnds(self._finder.compiled, context=context)
        self._new = self._ready = ""
        self._shown: list[str] = []
        self._escaped = False  # whether it holds escapes that somebody reads
        self._broken: tuple[str, ...] | None = None  # the rules that it breaks
        self._looked = 0  # where the closing mark of a call is looked for
        self._calls: list[ToolCall] = []
        self.stopped = False

    @property
    def content(self) -> str:
        """The text that was given so far."""
        return "".join(self._shown)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far."""
        return tuple(self._calls)

    def feed(self, text: str) -> list[Event]:
        """Take a further piece of the text; what is new."""
        arguments.text("text", text)
        self._refuse_broken()
        if self._over:
            return []
        before = len(self._pending)
        self._pending += text
        self._cut_at_stop(before)
        return [*self._read(final=self._over)]

    def finish(self) -> list[Event]:
        """Nothing follows; the rest."""
        self._refuse_broken()
        if self._over:
            return []
        self._over = True
        return [*self._read(final=True)]

    def _cut_at_stop(self, before: int) -> None:
        """End the reply at a stop string; of what is pending, so many characters were looked at before."""
        found = [
            at
            for stop in self._stops
            if (at := self._pending.find(stop, max(self._begun, before - len(stop) + 1))) >= 0
        ]
        if found:
            self._pending = self._pending[: min(found)]
            self._over = self.stopped = True

    def _read(self, *, final: bool) -> Iterator[Event]:
        while True:
            if not self._inside and not self._read_text(final):
                break
            # A call is told when the text before it is.
            if self._inside:
                closed, body = self._body(final)
                if body is None:
                    break
                yield from self._text(final=False)
                yield from self._call(body, closed)
        yield from self._text(final=final)

    def _read_text(self, final: bool) -> bool:
        """Read on to the next opening mark, or to where one may begin; whether there is one."""
        opening = self._marks[0] if self._marks is not None else None
        at = self._pending.find(opening) if opening is not None else -1
        if opening is not None and at >= 0:
            self._new += self._pending[:at]
            self._pending = self._pending[at + len(opening) :]
            self._begun = max(0, self._begun - at - len(opening))
            self._inside, self._looked = True, 0
            return True
        marks = self._stops if opening is None else (*self._stops, opening)
        keep = 0 if final else longest_overlap(self._pending, marks)
        cut = len(self._pending) - keep
        self._new += self._pending[:cut]
        self._pending = self._pending[cut:]
        self._begun = max(0, self._begun - cut)
        return False

    def _body(self, final: bool) -> tuple[bool, str | None]:
        """Whether the call that is read is closed, and its text; None if it goes on."""
        assert self._marks is not None
        mark = self._marks[1]
        at = self._pending.find(mark, self._looked)
        if at < 0 and not final:
            self._looked = max(0, len(self._pending) - len(mark) + 1)
            return False, None
        body, rest = (self._pending, "") if at < 0 else (self._pending[:at], self._pending[at + len(mark) :])
        self._pending, self._begun, self._inside = rest, 0, False
        return at >= 0, body

    def _call(self, body: str, closed: bool) -> Iterator[Event]:
        call = parse_call(body)
        if call is None:
            yield from self._invalid(body, closed)
            return
        self._refuse([call[0], call[1]])
        if not (self._single and self._calls):
            made = ToolCall(self._new_id(), *call)
            self._calls.append(made)
            yield made

    def _invalid(self, body: str, closed: bool) -> Iterator[Event]:
        assert self._marks is not None
        if self._as_text:
            self._new += self._marks[0] + body + (self._marks[1] if closed else "")
            return
        self._refuse(body)
        problem = "the call is not JSON with name and arguments" if closed else "the call is not finished"
        yield InvalidCall(self._new_id(), body, problem)

    def _refuse(self, value: Any) -> None:
        if rules := self._finder.rules(texts_of(value)):
            raise ViolationError(rules, "tool call, its JSON escapes read")

    def _new_id(self) -> str:
        for _ in range(8):
            new = f"call_{uuid4().hex[:24].translate(_LETTERS)}"
            if not (left := self._finder.rules([new])):
                return new
        raise RedactionError(left)

    def _text(self, *, final: bool) -> Iterator[Text]:
        """What may be shown of the text outside of calls and was not."""
        new, self._new = self._new, ""
        try:
            self._ready += self._ends.feed(new)
        except RedactionError as error:
            self._broken = error.rule_ids
        self._refuse_broken()
        end = len(self._ready)
        self._escaped = self._escaped or (self._escapes and "\\" in self._ready)
        if end and self._escaped:
            shown = self.content
            end = self._place_as_read(shown + self._ready, final) - len(shown)
        if end > 0:
            shown, self._ready = self._ready[:end], self._ready[end:]
            self._shown.append(shown)
            yield Text(shown)

    def _refuse_broken(self) -> None:
        if self._broken is not None:
            raise ViolationError(self._broken, _WHERE)

    def _place_as_read(self, text: str, final: bool) -> int:
        """Up to where a text may be shown to somebody who reads its escapes; its end is one as it is written."""
        end = len(text)
        while True:
            text = text[: self._showable_as_read(text, final)]
            if len(text) < end and not self._finder.verifier.verify(text, context=self._context).ok:
                text = self._showable(text, self._context)  # it may not end there as it is written
            if len(text) == end:
                return end
            end = len(text)

    def _showable(self, text: str, context: str = "", where: str = _WHERE) -> str:
        """A text up to where it may end. Errors: `ViolationError` for a match that is complete before that."""
        try:
            return SafeEnds(self._finder.compiled, context=context).feed(text)
        except RedactionError as error:
            raise ViolationError(error.rule_ids, where) from None

    def _showable_as_read(self, text: str, final: bool) -> int:
        """Up to where a text may be shown to somebody who reads its escapes. What has begun like one is no border."""
        end = len(text)
        if not final:
            for reading in readings(text):
                if (settled := settled_length(reading.text)) < len(reading.text):
                    end = min(end, reading.original(settled, len(reading.text))[0])
        for reading in [*readings(text[:end])][1:]:
            if not (rules := self._finder.rules([reading.text])):
                continue
            if final:
                raise ViolationError(rules, _READ)
            shown = len(self._showable(reading.text, where=_READ))
            end = min(end, reading.original(0, shown)[1] if shown else 0)
        return end


def parse_call(body: str) -> tuple[str, dict[str, Any]] | None:
    """Name and arguments of the call in a text, `{"name": ..., "arguments": {...}}`; None if it is none."""
    try:
        data = json.loads(body)
        arguments = data.get("arguments", data.get("parameters", {})) if isinstance(data, dict) else None
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    if not isinstance(arguments, dict) or not isinstance(data.get("name"), str):
        return None
    return data["name"], arguments


def longest_overlap(text: str, marks: Sequence[str]) -> int:
    """How many characters at the end of the text could be the beginning of one of the marks."""
    longest = 0
    for mark in marks:
        for size in range(min(len(text), len(mark) - 1), longest, -1):
            if text.endswith(mark[:size]):
                longest = size
                break
    return longest
