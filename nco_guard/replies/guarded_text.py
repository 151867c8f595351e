"""One text that is made of pieces of another and shown as it grows, up to where it may end."""

from __future__ import annotations

import re

from nco_guard.errors import RedactionError, ViolationError
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.values.finding import Finder
from nco_guard.values.jsontext import json_parts
from nco_guard.values.readings import readings
from nco_guard.values.roles import Role
from nco_guard.values.texts import texts_of

__all__ = ["GuardedText", "UnboundText"]

_READ = "model output, read as JSON"
# Without these a text reads as it is written.
_OTHERWISE = re.compile(r"[\\{\[]")


class GuardedText:
    """The text outside of calls, or the reasoning, of one reply.

    Args:
        finder: finds what may not be shown.
        context: the prompt, for rules that read it.
        escapes: somebody may parse the text as JSON, so it is read as that shows it as well: escapes and numbers.
        where: what it is, in errors.

    Guarantee: at any moment the texts given, joined, hold no match of a hard rule, as if they ended there. Errors:
    `ViolationError` for a match that no further text undoes, from then on.
    """

    def __init__(
        self, finder: Finder, context: str, *, escapes: bool = False, where: str = "model output"
    ) -> None:
        self._finder = finder
        self._context = context
        self._escapes = escapes
        self._where = where
        self._ends = SafeEnds(finder.compiled, context=context)
        self._ready = ""  # may be shown as it is written
        self._shown: list[str] = []
        self._parsed = False  # whether somebody may parse it and read it otherwise
        self._broken: tuple[str, ...] | None = None  # the rules that it breaks

    @property
    def shown(self) -> str:
        """All that was shown so far."""
        return "".join(self._shown)

    def refuse_broken(self) -> None:
        """`ViolationError` if it has come to hold a match."""
        if self._broken is not None:
            raise ViolationError(self._broken, self._where)

    def feed(self, text: str, *, final: bool = False) -> str:
        """Take a further piece; what may be shown now and was not."""
        try:
            self._ready += self._ends.feed(text)
        except RedactionError as error:
            self._broken = error.rule_ids
        self.refuse_broken()
        end = len(self._ready)
        self._parsed = self._parsed or (self._escapes and _OTHERWISE.search(self._ready) is not None)
        if end and self._parsed:
            shown = self.shown
            end = self._place_as_read(shown + self._ready, final) - len(shown)
        if final and self._escapes:
            self._refuse_parsed(self.shown + self._ready[:end])
        if end <= 0:
            return ""
        new, self._ready = self._ready[:end], self._ready[end:]
        self._shown.append(new)
        return new

    def _refuse_parsed(self, text: str) -> None:
        """What a whole text parses to may hold no match however it is shown."""
        if json_parts(text) and (rules := self._finder.rules(texts_of(text, Role.JSON))):
            raise ViolationError(rules, _READ)

    def _place_as_read(self, text: str, final: bool) -> int:
        """Up to where a text may be shown to somebody who parses it; its end is one as it is written."""
        end = len(text)
        while True:
            text = text[: self._showable_as_read(text, final)]
            if len(text) < end and not self._finder.verifier.verify(text, context=self._context).ok:
                text = self._showable(
                    text, self._context, self._where
                )  # it may not end there as it is written
            if len(text) == end:
                return end
            end = len(text)

    def _showable(self, text: str, context: str, where: str) -> str:
        """A text up to where it may end. Errors: `ViolationError` for a match that is complete before that."""
        try:
            return SafeEnds(self._finder.compiled, context=context).feed(text)
        except RedactionError as error:
            raise ViolationError(error.rule_ids, where) from None

    def _showable_as_read(self, text: str, final: bool) -> int:
        """Up to where a text may be shown to somebody who reads its escapes and numbers. What may grow is no border."""
        end = len(text)
        if not final:
            end = min(end, *(reading.settled for reading in readings(text)))
        for reading in [*readings(text[:end])][1:]:
            if not (rules := self._finder.rules([reading.text])):
                continue
            if final:
                raise ViolationError(rules, _READ)
            shown = len(self._showable(reading.text, "", _READ))
            end = min(end, reading.original(0, shown)[1] if shown else 0)
        return end


class UnboundText:
    """The reasoning of a reply, where a policy says that no rule looks at it; not `told`: nobody is shown it."""

    def __init__(self, *, told: bool) -> None:
        self._told = told
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        """All that was shown so far."""
        return "".join(self._shown)

    def refuse_broken(self) -> None:
        """Nothing is refused."""

    def feed(self, text: str, *, final: bool = False) -> str:
        """Take a further piece; what is shown of it."""
        del final
        if not self._told:
            return ""
        self._shown.append(text)
        return text
