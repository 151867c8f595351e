"""All rules over one text that comes piece by piece: what has matched, and where a match may still begin."""

from __future__ import annotations

from collections.abc import Iterable

from nco_guard.automata.spans.span_stream import SpanStream
from nco_guard.compiler import CompiledRule
from nco_guard.scan.findings import Finding

__all__ = ["RuleStreams"]


class RuleStreams:
    """Each match of each rule as soon as its end is certain. `context`: what the text continues."""

    def __init__(self, rules: Iterable[CompiledRule], context: str = "") -> None:
        self._streams: list[tuple[CompiledRule, SpanStream]] = []
        for rule in rules:
            with rule.lock:
                stream = SpanStream(rule.searcher, context if rule.rule.context == "prompt" else "")
            self._streams.append((rule, stream))
        self._hard = [(rule, stream) for rule, stream in self._streams if rule.rule.mode == "hard"]
        self._length = 0

    def feed(self, text: str, *, final: bool = False) -> list[Finding]:
        """Read on; what is certain now and was not before. `final`: the text ends here."""
        self._length += len(text)
        found: list[Finding] = []
        for rule, stream in self._streams:
            with rule.lock:
                spans = stream.feed(text) if text else []
                if final:
                    spans += stream.finish()
            found += [Finding(rule.id, start, end, rule.rule.mode) for start, end in spans]
        return found

    @property
    def safe(self) -> int:
        """Every match of a hard rule that is yet to be found begins here or later."""
        return min((stream.safe for _, stream in self._hard), default=self._length)

    @property
    def matched(self) -> set[str]:
        """The hard rules of which a match is complete, though its end is not certain."""
        found: set[str] = set()
        for rule, stream in self._hard:
            with rule.lock:
                if stream.matched:
                    found.add(rule.id)
        return found
