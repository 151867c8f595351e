"""Text that comes piece by piece is held back until it is certain what may be shown of it.

The definition is `redact` on the finished text: `StreamVerifier` gives the same and shows nothing before it is
certain.
"""

from __future__ import annotations

from collections.abc import Sequence

from nco_guard import arguments
from nco_guard.arguments import OnMatch
from nco_guard.automata.spans.streaming import SpanStream, span_stream
from nco_guard.compiler import CompiledPolicy, CompiledRule, compiled_of
from nco_guard.copies import Begun
from nco_guard.errors import ClosedError, ViolationError
from nco_guard.policy import Policy
from nco_guard.scan.findings import Finding, Report
from nco_guard.scan.replacing import Replacement, Replacer
from nco_guard.scan.safe_ends import SafeEnds

__all__ = ["StreamVerifier"]


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
        self._compiled = compiled = compiled_of(policy)
        self._action = action
        self._where = where
        self._replacer = Replacer(compiled, replacement)
        self._streams: list[tuple[CompiledRule, SpanStream]] = []
        for rule in compiled.rules:
            with rule.lock:
                stream = span_stream(rule.stepper, context if rule.rule.context == "prompt" else "")
            self._streams.append((rule, stream))
        self._hard = [(rule.id, stream) for rule, stream in self._streams if rule.rule.mode == "hard"]
        self._watch = SafeEnds(compiled, context=context)
        self._findings: list[Finding] = []
        self._violated: set[str] = set()
        self._length = 0
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
        found = sorted(self._findings, key=lambda f: (f.start, f.end, f.rule_id))
        return Report(self._compiled.digest, self._length, tuple(found))

    @property
    def held(self) -> int:
        """How many characters were fed whose fate is open."""
        return self._replacer.held + len(self._watch.held)

    def _read(self, text: str, *, final: bool) -> str:
        arguments.text("text", text)
        if self._closed:
            raise ClosedError("this text is over; use a new StreamVerifier for another one")
        self._closed = True
        self._length += len(text)
        hard: list[Finding] = []
        for rule, stream in self._streams:
            with rule.lock:
                found = stream.feed(text) if text else []
                if final:
                    found += stream.finish()
            findings = [Finding(rule.id, start, end, rule.rule.mode) for start, end in found]
            self._findings += findings
            if rule.rule.mode == "hard":
                hard += findings
        if self._action == "report":
            self._closed = final
            return text
        if self._action == "raise":
            self._refuse(hard)
        safe = self._length
        if not final:
            safe = min((stream.safe for _, stream in self._hard), default=safe)
        shown = self._watch.feed(self._replacer.feed(text, hard, safe=safe, final=final), final=final)
        self._closed = final
        return shown

    def _refuse(self, found: Sequence[Finding]) -> None:
        self._violated.update(finding.rule_id for finding in found)
        broken = self._violated | {rule_id for rule_id, stream in self._hard if stream.matched}
        if broken:
            raise ViolationError(self._compiled.in_order(broken), self._where)
