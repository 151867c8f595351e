"""What a reply says, taken apart and guarded by nobody yet: text up to a stop string, reasoning, calls of tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nco_guard import arguments
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.found import as_reply_format
from nco_guard.replies.hidden import Beginnings, HiddenTexts
from nco_guard.replies.offering import offered_tools
from nco_guard.replies.parser import CALLS, CONTENT, REASONING, CallReader, RegionPiece, Regions

__all__ = ["Event", "InvalidCall", "Reasoning", "Said", "Text", "ToolCall"]


@dataclass(frozen=True, slots=True)
class Text:
    """A further piece of the text outside of calls and reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A further piece of what the model reasoned before it answered."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool that the model asked for; its arguments are parsed and checked."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class InvalidCall:
    """What stands where a call stands and is none: it cannot be read, or it breaks off. The text is with its marks."""

    id: str
    text: str
    problem: str


Event = Text | Reasoning | ToolCall | InvalidCall


class Said:
    """Takes one reply apart as it grows; `feed` and `finish` give what is new. Nothing of it is guarded, ids are empty.

    Arguments: as of `ReplyReader`. A stop string is looked for in the text outside of calls and reasoning, joined; with
    it the reply is `over`, and `stopped`. Guarantee: the pieces of each kind, joined, do not depend on how a reply is
    cut. Cost: that of the parser. Errors: `ArgumentError`, `UnsupportedError` for arguments that cannot be meant.
    """

    def __init__(
        self,
        *,
        stop: Sequence[str] = (),
        form: ReplyFormat | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        prefix: str = "",
        begun: str = "",
        hidden: Sequence[str] = (),
        invalid_as_text: bool = False,
    ) -> None:
        self._stops = tuple(one for one in arguments.texts("stop", stop) if one)
        silent = tuple(one for one in arguments.texts("hidden", hidden) if one)
        self._hidden = HiddenTexts(silent) if silent else None
        self._stop_beginnings = Beginnings(self._stops)
        self._as_text = invalid_as_text
        self._pending = ""  # text that may be the beginning of a stop string
        self.over = self.stopped = False
        form = None if form is None else as_reply_format(form)
        offered = None if tools is None else offered_tools(tools)
        calls = form is not None and offered is not None and form.reads_calls
        self._call_reader = CallReader(form, offered or ()) if form is not None and calls else None
        self._opened = self._body = ""
        self._regions: Regions | None = None
        self._prompted: list[RegionPiece] = []  # of a call that the prompt begins
        prefix, begun = arguments.text("prefix", prefix), arguments.text("begun", begun)
        if form is not None:
            self._regions = Regions(form, calls=calls, prefix=prefix, begun=begun)
            self._prompted = [piece for piece in self._regions.prompted if piece.region == CALLS]

    def feed(self, text: str) -> Iterator[Event]:
        """Take a further piece of the reply; what is new."""
        return self._take(text, final=False)

    def finish(self) -> Iterator[Event]:
        """Nothing follows; the rest."""
        return self._take("", final=True)

    def _take(self, text: str, *, final: bool) -> Iterator[Event]:
        for event in () if self.over else self._read(self._shown(text, final), final):
            if isinstance(event, Text):
                event = Text(self._before_stop(event.text))
            if not isinstance(event, Text | Reasoning) or event.text:
                yield event
            if self.over:
                return
        if final and not self.over:
            self.over = True
            if self._pending:
                yield Text(self._pending)

    def _shown(self, text: str, final: bool) -> str:
        """What is new without special tokens, except for what may be the beginning of one."""
        if self._hidden is None:
            return text
        shown = self._hidden.feed(text)
        return shown + self._hidden.finish() if final else shown

    def _before_stop(self, text: str) -> str:
        """What is certain before a stop string: the first to be there whole; of several that are, the longest."""
        before = len(self._pending)
        self._pending += text
        places = [
            (at + len(stop), at)
            for stop in self._stops
            if (at := self._pending.find(stop, max(0, before - len(stop) + 1))) >= 0
        ]
        if places:
            self.over = self.stopped = True
            cut = min(places)[1]
        else:
            cut = len(self._pending) - self._stop_beginnings.at_end(self._pending)
        certain, self._pending = self._pending[:cut], self._pending[cut:]
        return certain

    def _read(self, text: str, final: bool) -> Iterator[Event]:
        if self._regions is None:
            yield Text(text)
            return
        pieces = [*self._prompted, *self._regions.feed(text), *(self._regions.finish() if final else ())]
        self._prompted = []
        for piece in pieces:
            if piece.region == CONTENT and piece.kind == "text":
                yield Text(piece.text)
            elif piece.region == REASONING and piece.kind == "text":
                yield Reasoning(piece.text)
            elif piece.region == CALLS:
                yield from self._in_call(piece)

    def _in_call(self, piece: RegionPiece) -> Iterator[Event]:
        if piece.kind == "text":
            self._body += piece.text
            return
        if piece.kind == "open":
            self._opened, self._body = piece.text, ""
            return
        assert self._call_reader is not None
        closed = piece.kind == "close"
        found = self._call_reader.read(self._opened, self._body, closed=closed)
        if found is not None:
            yield from (ToolCall("", name, given) for name, given in found)
            return
        text = self._opened + self._body + piece.text
        if self._as_text:
            yield Text(text)
        kind = self._call_reader.kind
        problem = f"the call is not {kind} with name and arguments" if closed else "the call is not finished"
        if not self.over:
            yield InvalidCall("", text, problem)
