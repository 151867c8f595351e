"""What a model wrote, taken apart as it is written: text, reasoning, and calls of tools.

The engine guarantees the text as the model wrote it. Whatever is cut out of it (a stop string, a call, reasoning)
leaves another text, and parsing brings out what escapes hide; both are checked here before anybody sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from nco_guard import arguments
from nco_guard.errors import RedactionError, UnsupportedError, ViolationError
from nco_guard.policy import Policy
from nco_guard.replies.formats import ReplyFormat, as_reply_format
from nco_guard.replies.guarded_text import GuardedText, UnboundText
from nco_guard.replies.hidden import Beginnings, HiddenTexts
from nco_guard.replies.offering import offered_tools
from nco_guard.replies.parser import CALLS, CONTENT, REASONING, CallReader, RegionPiece, Regions
from nco_guard.values.finding import Finder
from nco_guard.values.texts import texts_of

__all__ = [
    "Event",
    "InvalidCall",
    "Reasoning",
    "ReplyReader",
    "Text",
    "ToolCall",
    "refuse_shown_reasoning",
]

# Ids are shown beside the text: without digits they cannot look like somebody's number.
_LETTERS = str.maketrans("0123456789", "ghijkmnopq")


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


def refuse_shown_reasoning(policy: Policy, form: ReplyFormat | None, why: str = "") -> None:
    """Refuse a policy that hides reasoning where replies are read without telling reasoning apart.

    why: no reasoning is told apart; by default what the format says of that, None for one that is not known. Errors:
    `UnsupportedError`, which names the policy's field.
    """
    if (policy.applies_to is None or policy.applies_to.reasoning != "hidden") or (
        form is not None and form.reasons
    ):
        return
    if not why:
        what = "how this model writes is not known" if form is None else f"the format {form.name} has none"
        why = f"{what}; pass a format with reasoning as reply_format="
    raise UnsupportedError(
        f"applies_to.reasoning: 'hidden' of the policy {policy.name!r}: reasoning is not told apart here, and would be "
        f"shown ({why}, or leave applies_to out: then all of the text is guarded)"
    )


class ReplyReader:
    """Reads the text of one reply as it grows; `feed` and `finish` give what is new.

    Args:
        guard: what nothing that is shown may match, in one of the forms that `Cleaner` takes.
        context: the prompt, for rules that read it.
        stop: strings before which the reply ends; they are no part of it.
        form: how the reply is written; None where it is nothing but text.
        tools: those on offer; None where there are none, and then what looks like a call is text.
        prefix: the prompt, special tokens as their text: a template may open the reasoning there. Of what it ends with
            only a call that it begins is read.
        begun: the beginning of a call that the prompt ends with; it is no part of the guarded text.
        hidden: texts that are left out wherever they stand: special tokens that are no marks, where they are decoded.
        single_call: only the first call counts.
        invalid_as_text: what stands where a call stands and is none stays text, with its marks.
        escapes: somebody may parse the text as JSON, so it is read as that shows it as well: escapes and numbers.

    Guarantee: at any moment the texts given, joined, hold no match of a hard rule, as if they ended there; so do the
    pieces of reasoning, a text of its own; nor does any name, string, key or number of a call, its escapes read and
    arguments cast; nor, with `escapes`, the text with its escapes read and its numbers written out, nor, at its end,
    what the JSON in it parses to. Text that may not end where it was cut loses its tail. A last call may lack its
    closing mark: some models end right after the JSON.

    Where the policy says so (`applies_to`), reasoning is given as it was written ("free"), or not at all ("hidden").
    Where the format has none, or is not known, nothing is free, and "hidden" is an `UnsupportedError`.

    Cost: two steps for each rule and character; with `escapes`, once there is a backslash in the text, or a number
    behind a bracket that reads otherwise, a search of the text so far for each piece, some tenths of a millisecond for
    large policies. Errors: `ArgumentError`, `UnsupportedError` for arguments that cannot be meant; `ViolationError` for
    a call that holds a match, for text that forms one where something was cut out of it (from then on), and for text
    that reads as one.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> reader = ReplyReader("pii", form=shipped_formats()["hermes"], tools=[])
        >>> events = reader.feed('Wait. <tool_call>{"name": "find", "arguments": {"q": "x"}}</tool_call>')
        >>> events[0].text, events[1].arguments
        ('Wait.', {'q': 'x'})
    """

    def __init__(
        self,
        guard: Any,
        *,
        context: str = "",
        stop: Sequence[str] = (),
        form: ReplyFormat | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        prefix: str = "",
        begun: str = "",
        hidden: Sequence[str] = (),
        single_call: bool = False,
        invalid_as_text: bool = False,
        escapes: bool = False,
    ) -> None:
        self._finder = Finder(guard, "")  # nothing is replaced
        context = arguments.text("context", context)
        self._stops = tuple(one for one in arguments.texts("stop", stop) if one)
        silent = tuple(one for one in arguments.texts("hidden", hidden) if one)
        self._hidden = HiddenTexts(silent) if silent else None
        self._stop_beginnings = Beginnings(self._stops)
        self._single = single_call
        self._as_text = invalid_as_text
        self._pending = ""
        self._over = False
        self._text = GuardedText(self._finder, context, escapes=escapes)
        applied = self._finder.compiled.policy.applies_to
        form = None if form is None else as_reply_format(form)
        refuse_shown_reasoning(self._finder.compiled.policy, form)
        self._reasoning: GuardedText | UnboundText
        if applied is None or applied.reasoning == "guarded":
            self._reasoning = GuardedText(self._finder, context, where="model output, reasoning")
        else:
            self._reasoning = UnboundText(told=applied.reasoning == "free")
        self._calls: list[ToolCall] = []
        self.stopped = False
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

    @property
    def content(self) -> str:
        """The text that was given so far."""
        return self._text.shown

    @property
    def reasoning(self) -> str:
        """The reasoning that was given so far."""
        return self._reasoning.shown

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls so far."""
        return tuple(self._calls)

    def feed(self, text: str) -> list[Event]:
        """Take a further piece of the text; what is new."""
        return self._take(arguments.text("text", text), final=False)

    def finish(self) -> list[Event]:
        """Nothing follows; the rest."""
        return self._take("", final=True)

    def _take(self, text: str, *, final: bool) -> list[Event]:
        self._text.refuse_broken()
        self._reasoning.refuse_broken()
        if self._over:
            return []
        shown = self._shown(text, final)
        self._cut_at_stop(shown)
        self._over = final = self._over or final
        keep = 0 if final else self._stop_beginnings.at_end(self._pending)
        cut = len(self._pending) - keep
        new, self._pending = self._pending[:cut], self._pending[cut:]
        return [
            event for event in self._read(new, final) if not isinstance(event, Text | Reasoning) or event.text
        ]

    def _shown(self, text: str, final: bool) -> str:
        """What is new without special tokens, except for what may be the beginning of one."""
        if self._hidden is None:
            return text
        shown = self._hidden.feed(text)
        return shown + self._hidden.finish() if final else shown

    def _cut_at_stop(self, text: str) -> None:
        """End the reply at the stop string that is the first to be there whole; the longest of several that are."""
        before = len(self._pending)
        self._pending += text
        places = [
            (at + len(stop), at)
            for stop in self._stops
            if (at := self._pending.find(stop, max(0, before - len(stop) + 1))) >= 0
        ]
        if places:
            self._pending = self._pending[: min(places)[1]]
            self._over = self.stopped = True

    def _read(self, text: str, final: bool) -> Iterator[Event]:
        if self._regions is None:
            yield Text(self._text.feed(text, final=final))
            return
        pieces = [*self._prompted, *self._regions.feed(text), *(self._regions.finish() if final else ())]
        self._prompted = []
        for piece in pieces:
            if piece.region == CONTENT and piece.kind == "text":
                yield Text(self._text.feed(piece.text))
            elif piece.region == REASONING and piece.kind == "text":
                yield Reasoning(self._reasoning.feed(piece.text))
            elif piece.region == CALLS:
                yield from self._in_call(piece)
        if final:
            yield Reasoning(self._reasoning.feed("", final=True))
            yield Text(self._text.feed("", final=True))

    def _in_call(self, piece: RegionPiece) -> Iterator[Event]:
        if piece.kind == "text":
            self._body += piece.text
            return
        if piece.kind == "open":
            self._opened, self._body = piece.text, ""
            return
        assert self._call_reader is not None
        found = self._call_reader.read(self._opened, self._body, closed=piece.kind == "close")
        if found is None:
            yield from self._invalid(self._opened + self._body + piece.text, closed=piece.kind == "close")
            return
        for name, given in found:
            self._refuse([name, given])
            if not (self._single and self._calls):
                made = ToolCall(self._new_id(), name, given)
                self._calls.append(made)
                yield made

    def _invalid(self, text: str, closed: bool) -> Iterator[Event]:
        assert self._call_reader is not None
        if self._as_text:
            yield Text(self._text.feed(text))
            return
        self._refuse(text)
        kind = self._call_reader.kind
        problem = f"the call is not {kind} with name and arguments" if closed else "the call is not finished"
        yield InvalidCall(self._new_id(), text, problem)

    def _refuse(self, value: Any) -> None:
        if rules := self._finder.rules(texts_of(value)):
            raise ViolationError(rules, "tool call, its JSON escapes read")

    def _new_id(self) -> str:
        for _ in range(8):
            new = f"call_{uuid4().hex[:24].translate(_LETTERS)}"
            if not (left := self._finder.rules([new])):
                return new
        raise RedactionError(left)
