"""Text that comes piece by piece is held back until it is certain what may be shown of it.

The definition is `redact` on the finished text: `StreamVerifier` gives the same and shows nothing before it is
certain.
"""

from __future__ import annotations

from typing import Protocol

from nco_guard import arguments
from nco_guard.arguments import OnMatch
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.copies import Begun
from nco_guard.errors import ClosedError, ViolationError
from nco_guard.policy import Policy
from nco_guard.scan.findings import Finding, Report
from nco_guard.scan.replacing import Placed, Replacement, Replacer
from nco_guard.scan.safe_ends import SafeEnds
from nco_guard.scan.streams import RuleStreams

__all__ = ["HeldText", "Search", "StreamVerifier"]


class Search(Protocol):
    """What finds matches in a text that comes piece by piece, such as `RuleStreams`."""

    def feed(self, text: str, *, final: bool = False) -> list[Finding]:
        """Read on; what is certain now. `final`: the text ends here."""

    @property
    def safe(self) -> int:
        """Every match of a hard rule that is yet to be found begins here or later."""

    @property
    def matched(self) -> set[str]:
        """The hard rules of which a match is complete, though its end is not certain."""


class HeldText:
    """A text in pieces, what was found in it, and what of it is held back; see `StreamVerifier`.

    `search` finds the matches: what has to be replaced, or refused. What is shown knows where it comes from.
    """

    def __init__(
        self,
        compiled: CompiledPolicy,
        search: Search,
        action: OnMatch,
        *,
        replacement: Replacement = None,
        context: str = "",
        where: str = "text",
    ) -> None:
        self.action = action
        self._compiled = compiled
        self._search = search
        self._where = where
        self._replacer = Replacer(compiled, replacement)
        self._ends = SafeEnds(compiled, context=context)
        self._waiting: list[Placed] = []  # replaced, and not yet where the text may end
        self._length = 0
        self._findings: dict[Finding, None] = {}
        self._altered: int | None = None  # where the first match begins

    @property
    def clear(self) -> int:
        """No match touches what comes before this place, however the text goes on."""
        return self.decided if self._altered is None else min(self.decided, self._altered)

    @property
    def decided(self) -> int:
        """What comes before this place is shown, or never will be."""
        if self.action == "report":
            return self._length
        return self._waiting[0].place if self._waiting else self._replacer.decided

    @property
    def held(self) -> int:
        """How many characters were fed whose fate is open."""
        return self._replacer.held + len(self._ends.held)

    @property
    def report(self) -> Report:
        """What was found so far; spans are those of the text as it was fed."""
        return Report.of(self._compiled.digest, self._length, self._findings)

    def read(self, text: str, *, final: bool) -> list[Placed]:
        """Read on; what may be shown now. `final`: the text ends here."""
        first = self._length
        self._length += len(text)
        new = [one for one in self._search.feed(text, final=final) if one not in self._findings]
        self._findings.update(dict.fromkeys(new))
        if self.action == "report":
            return [Placed(first, text)] if text else []
        hard = [one for one in new if one.mode == "hard"]
        if hard:
            first_match = min(one.start for one in hard)
            self._altered = first_match if self._altered is None else min(self._altered, first_match)
        if self.action == "raise" and (broken := {one.rule_id for one in hard} | self._search.matched):
            raise ViolationError(self._compiled.in_order(broken), self._where)
        safe = self._length if final else self._search.safe
        self._waiting += self._replacer.feed(text, hard, safe=safe, final=final)
        return self._fit(final)

    def _fit(self, final: bool) -> list[Placed]:
        """Of what is replaced, as much as may be shown if the text ended there."""
        new = "".join(piece.text for piece in self._waiting)[len(self._ends.held) :]
        size = len(self._ends.feed(new, final=final))
        shown: list[Placed] = []
        while self._waiting and size:
            piece = self._waiting.pop(0)
            if len(piece.text) > size:
                piece, rest = piece.cut(size)
                self._waiting.insert(0, rest)
            shown.append(piece)
            size -= len(piece.text)
        return shown


class StreamVerifier(Begun):
    """Text in, piece by piece; out comes what may be shown, as soon as that is certain.

    `feed` returns text that is safe to show, `finish` the rest. What is held back is the text from the first place at
    which a match of a hard rule began that could still be completed: the automata know where that is, there is no
    window.

    Args:
        action: "redact": all pieces joined are `redact(policy, whole).text`, however the text was cut. "raise": the
            same for a text without a match, else `ViolationError` from the call that completes one. "report": all text
            passes at once.

    Guarantee ("redact", "raise"): the pieces joined hold no match of a hard rule at any moment, as if the text ended
    there. `report` is exactly `verify(policy, whole)` once `finish` has returned.

    Cost: some microseconds per rule and character; `verify` on finished text is ten times faster. Memory: what is held.
    Errors: as `redact`; after an error nothing more is taken.

    Examples:
        >>> stream = StreamVerifier(Policy.from_presets("pii"))
        >>> shown = [stream.feed(piece) for piece in ("Write to jane.d", "oe@example.com", ", please.")]
        >>> "".join(shown) + stream.finish()
        'Write to [redacted], please.'
    """

    def __init__(
        self,
        policy: Policy | CompiledPolicy,
        *,
        action: OnMatch = "redact",
        replacement: Replacement = None,
        context: str = "",
        where: str = "text",
    ) -> None:
        arguments.choice("action", action, ("redact", "raise", "report"))
        arguments.text("context", context)
        compiled = compiled_of(policy)
        search = RuleStreams(compiled.rules, context)
        self._text = HeldText(compiled, search, action, replacement=replacement, context=context, where=where)
        self._closed = False

    def feed(self, text: str) -> str:
        """Read on; the text that may be shown now, often less than what was read."""
        return self._read(text, final=False)

    def finish(self) -> str:
        """The text ends here; what is left of it to be shown."""
        return self._read("", final=True)

    @property
    def report(self) -> Report:
        """What was found so far, in the text as it was fed."""
        return self._text.report

    @property
    def held(self) -> int:
        """How many characters were fed whose fate is open."""
        return self._text.held

    def _read(self, text: str, *, final: bool) -> str:
        arguments.text("text", text)
        if self._closed:
            raise ClosedError("this text is over; use a new StreamVerifier for another one")
        self._closed = True
        shown = self._text.read(text, final=final)
        self._closed = final
        return "".join(piece.text for piece in shown)
