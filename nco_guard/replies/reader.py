"""What a model wrote, taken apart as it is written: text, reasoning, and calls of tools.

The engine guarantees the text as the model wrote it. Whatever is cut out of it (a stop string, a call, reasoning)
leaves another text, and parsing brings out what escapes hide; both are checked here before anybody sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from secrets import choice
from string import ascii_lowercase
from typing import Any

from nco_guard import arguments
from nco_guard.errors import UnsupportedError, ViolationError
from nco_guard.policy import Policy
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.found import as_reply_format
from nco_guard.replies.guarded_text import GuardedText, UnboundText
from nco_guard.replies.said import Event, InvalidCall, Reasoning, Said, Text, ToolCall
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
_LETTERS = "abcdefghijkmnopq"


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
        stop: strings before which the reply ends; they are no part of it. They count in the text outside of calls and
            reasoning as it is given, joined: not in a mark, nor in what is hidden.
        form: how the reply is written; None where it is nothing but text.
        tools: those on offer; None where there are none, and then what looks like a call is text.
        prefix: the prompt, special tokens as their text: a template may open the reasoning there. Of what it ends with
            only a call that it begins is read.
        begun: the beginning of a call that the prompt ends with; it is no part of the guarded text.
        hidden: texts that are left out wherever they stand: special tokens that are no marks, where they are decoded.
        single_call: only the first call counts.
        invalid_as_text: what stands where a call stands and is none is text, too, with its marks.
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
        policy, context = self._finder.compiled.policy, arguments.text("context", context)
        form = None if form is None else as_reply_format(form)
        refuse_shown_reasoning(policy, form)
        self._said = Said(
            stop=stop,
            form=form,
            tools=tools,
            prefix=prefix,
            begun=begun,
            hidden=hidden,
            invalid_as_text=invalid_as_text,
        )
        self._single, self._as_text = single_call, invalid_as_text
        self._over = False
        self._text = GuardedText(self._finder, context, escapes=escapes)
        self._reasoning: GuardedText | UnboundText
        if policy.applies_to is None or policy.applies_to.reasoning == "guarded":
            self._reasoning = GuardedText(self._finder, context, where="model output, reasoning")
        else:
            self._reasoning = UnboundText(told=policy.applies_to.reasoning == "free")
        self._calls: list[ToolCall] = []

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it."""
        return self._said.stopped

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
        self._refuse_broken()
        return self._taken(self._said.feed(arguments.text("text", text)))

    def finish(self) -> list[Event]:
        """Nothing follows; the rest."""
        self._refuse_broken()
        return self._taken(self._said.finish())

    def _refuse_broken(self) -> None:
        self._text.refuse_broken()
        self._reasoning.refuse_broken()

    def _taken(self, said: Iterator[Event]) -> list[Event]:
        return [
            event for event in self._guarded(said) if not isinstance(event, Text | Reasoning) or event.text
        ]

    def _guarded(self, said: Iterator[Event]) -> Iterator[Event]:
        for event in said:
            if isinstance(event, Text):
                yield Text(self._text.feed(event.text))
            elif isinstance(event, Reasoning):
                yield Reasoning(self._reasoning.feed(event.text))
            elif isinstance(event, ToolCall):
                self._refuse([event.name, event.arguments])
                if not (self._single and self._calls):
                    self._calls.append(replace(event, id=self._new_id()))
                    yield self._calls[-1]
            elif not self._as_text:
                self._refuse(event.text)
                yield replace(event, id=self._new_id())
            elif not self._finder.rules(texts_of(event.text)):  # else it is text that is shown up to there
                yield replace(event, id=self._new_id())
        if self._said.over and not self._over:
            self._over = True
            yield Reasoning(self._reasoning.feed("", final=True))
            yield Text(self._text.feed("", final=True))

    def _refuse(self, value: Any) -> None:
        if rules := self._finder.rules(texts_of(value)):
            raise ViolationError(rules, "tool call, its JSON escapes read")

    def _new_id(self) -> str:
        left: tuple[str, ...] = ()
        # A policy may forbid what all of them would begin with, or single letters.
        for begin, letters in (("call_", _LETTERS), ("", _LETTERS), ("", "")):
            among = (
                letters
                or [one for one in ascii_lowercase if not self._finder.rules([one])]
                or ascii_lowercase
            )
            for _ in range(8):
                new = begin + "".join(choice(among) for _ in range(24))
                if not (left := self._finder.rules([new])):
                    return new
        raise ViolationError(left, "any id that a tool call could be given")
