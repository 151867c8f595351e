"""`Verifier`: finds in finished text what a policy forbids, in many and long texts as in short ones.

Rules that fold alike are a *lane*: a text is folded once for all of them and searched once for the places that their
conditions leave (`filter`); for lists of thousands of strings that pays in long texts only. Hundreds of rules over few
letters are a *crowd*: one pass of all their machines together tells whether there is anything to be searched for
(`lanes`). Many short texts are laid side by side, so that they share array operations. Long texts can be given piece
by piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from nco_guard import arguments
from nco_guard.automata import Cutting
from nco_guard.automata.combine.cutting import WHOLE, Region
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.compiler import crowds as crowds_of
from nco_guard.copies import Shared
from nco_guard.errors import ArgumentError
from nco_guard.policy import Policy
from nco_guard.scan.findings import Finding, Report, in_text_order
from nco_guard.scan.lanes import Crowd, Lane, lanes_of
from nco_guard.scan.scanner import RuleScanner
from nco_guard.scan.streams import FindingStream

__all__ = ["Verifier", "verify"]

_BATCH = 1 << 22
"""So many characters are laid side by side."""
_KEPT_TEXTS = 1_000  # that are known to be allowed
_PIECE = 1 << 20
"""A stream is searched when so many characters have come."""


class Verifier(Shared):
    """Searches texts for what a policy forbids; compiled once, for any number of texts.

    Guarantee: the findings are those of `verify`, for every rule: same rules, same spans, same order.

    Cost: making one takes some milliseconds for a preset. Texts: linear in their length for every policy; for ordinary
    text and rules that show somewhere what they are about (`docs/verify.md` has figures) some ten nanoseconds per
    character, and some microseconds per place at which a match could be. Memory: some bytes per character of a text.

    Safe to call from several threads, which take turns within a rule. Errors: those of `compile_policy`;
    `ArgumentError` for what is no text; `StateLimitError` where a single state of a rule, or what one match waits for,
    outgrows the automaton's limit; a long text alone does not. Pickled it is its policy.

    Examples:
        >>> verifier = Verifier(Policy.from_presets("pii"))
        >>> [report.ok for report in verifier.verify_many(["Nothing here.", "Write to jane.doe@example.com."])]
        [True, False]
    """

    def __init__(self, policy: Policy | CompiledPolicy) -> None:
        self.compiled = compiled_of(policy)
        self._allowed: set[str] = set()

    @classmethod
    def of(cls, source: Any) -> Verifier:
        """The verifier of a guard or policy: one for each, made when it is first asked for and kept with it."""
        compiled = compiled_of(source)
        # In the object, not in a table beside it: it holds the compiled policy, and so would never be forgotten.
        kept: dict[str, Any] = vars(compiled)
        found: Verifier = kept.get("_verifier") or kept.setdefault("_verifier", Verifier(compiled))
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.compiled,)

    @cached_property
    def _crowds(self) -> list[Crowd]:
        return [
            Crowd(rules) for rules in crowds_of(rule for rule in self.compiled.rules if rule.fold.trivial)
        ]

    @cached_property
    def _others(self) -> list[Lane]:
        crowded = {rule for crowd in self._crowds for rule in crowd.rules}
        return lanes_of(RuleScanner.of(rule) for rule in self.compiled.rules if rule not in crowded)

    @property
    def _lanes(self) -> list[Lane]:
        return [*self._others, *(crowd.lane for crowd in self._crowds)]

    @cached_property
    def _by_context(self) -> dict[bool, list[Lane]]:
        """The rules by whether they look at the prompt."""
        scanners = [scanner for lane in self._lanes for scanner in lane.scanners]
        return {
            reads: lanes_of(s for s in scanners if (s.rule.rule.context == "prompt") == reads)
            for reads in (False, True)
        }

    @property
    def digest(self) -> str:
        """The policy's digest."""
        return self.compiled.digest

    @property
    def steps(self) -> int:
        """How many characters automata have read so far to confirm matches: what no text may make quadratic."""
        return sum(scanner.steps for lane in self._lanes for scanner in lane.scanners)

    def verify(
        self,
        text: str | None = None,
        *,
        context: str = "",
        parts: Sequence[str] | None = None,
        regions: Cutting | None = None,
    ) -> Report:
        """The report on one text, on one that comes in `parts`, or on a reply in `regions`; see `nco_guard.verify`."""
        if parts is not None:
            if text is not None:
                raise ArgumentError("parts: a text and its parts cannot both be given; give one of them")
            return self._verify_parts(arguments.texts("parts", parts), context)
        text = arguments.text("text", text)
        if regions is not None:
            return self._verify_regions(text, self.compiled.bound_in(regions), context)
        if not arguments.text("context", context):
            return Report.of(self.digest, len(text), self._found((text,)).get(0, ()))
        findings: list[Finding] = []
        for reads_prompt, lanes in self._by_context.items():
            before = len(context) if reads_prompt else 0
            whole = context + text if reads_prompt else text
            for lane in lanes:
                found = lane.search([whole], beyond=before if reads_prompt else -1).get(0, ())
                findings += [
                    Finding(f.rule_id, max(0, f.start - before), f.end - before, f.mode) for f in found
                ]
        return Report.of(self.digest, len(text), findings)

    def _verify_parts(self, parts: Sequence[str], context: str) -> Report:
        """Of each part as a text of its own, and of all joined. A prompt stands before the first."""
        whole = self.verify("".join(parts), context=context)
        alone: dict[Finding, None] = {}
        begin = 0
        for number, part in enumerate(parts):
            report = self.verify(part, context=context if not number else "")
            for found in report.findings:
                start, end = found.start + begin, found.end + begin
                alone[Finding(found.rule_id, start, end, found.mode, number)] = None
            begin += len(part)
        by_themselves = {(found.rule_id, found.start, found.end) for found in alone}
        joined = (f for f in whole.findings if (f.rule_id, f.start, f.end) not in by_themselves)
        return Report.of(self.digest, whole.length, [*joined, *alone])

    def _verify_regions(self, text: str, regions: Cutting, context: str) -> Report:
        """Of each text that is shown of a reply. Offsets are those in the reply."""
        found: dict[tuple[str, int, int], Finding] = {}
        for joined in regions.texts(text):
            before = context if joined[0].name in (*regions.together, WHOLE) else ""
            report = self.verify("".join(region.text for region in joined), context=before)
            for f in report.findings:
                start, end = (
                    _place(joined, f.start),
                    _place(joined, max(f.start, f.end - 1)) + (f.end > f.start),
                )
                if end > 0 or not start:  # else it ends in what the prompt has begun
                    start = max(0, start)
                    found.setdefault((f.rule_id, start, end), Finding(f.rule_id, start, end, f.mode))
        return Report.of(self.digest, len(text), found.values())

    def verify_many(self, texts: Sequence[str]) -> list[Report]:
        """The reports on texts, in their order. Many short texts together take little more time than one long one."""
        arguments.texts("texts", texts)
        reports = [Report(self.digest, len(text), ()) for text in texts]
        for index, findings in self.find_many(texts):
            reports[index] = Report(self.digest, len(texts[index]), tuple(findings))
        return reports

    def broken(self, findings: Iterable[Finding]) -> tuple[str, ...]:
        """The ids of the hard rules that have a match among findings, in the policy's order."""
        return self.compiled.in_order(found.rule_id for found in findings if found.mode == "hard")

    def allows(self, text: str) -> bool:
        """Whether a text that is asked for again and again, as a replacement is, holds no match of a hard rule."""
        allowed = text in self._allowed or self.verify(text).ok
        if allowed and len(self._allowed) < _KEPT_TEXTS:
            self._allowed.add(text)
        return allowed

    def find_many(self, texts: Sequence[str]) -> Iterator[tuple[int, list[Finding]]]:
        """(index, findings) of those texts that have any, in their order: for very many short texts."""
        for first, batch in _batches(arguments.texts("texts", texts)):
            found = self._found(batch)
            for index in sorted(found):
                yield first + index, in_text_order(found[index])

    def _found(self, texts: Sequence[str]) -> dict[int, list[Finding]]:
        """The findings in those texts that have any, in no order."""
        found: dict[int, list[Finding]] = {}
        parts: list[Lane | Crowd] = [*self._others, *self._crowds]
        for part in parts:
            for index, more in part.search(texts).items():
                found.setdefault(index, []).extend(more)
        return found

    def stream(self, *, piece: int = _PIECE) -> FindingStream:
        """A text that is given piece by piece, such as a large file; see `FindingStream`."""
        return FindingStream(
            self._lanes, piece=arguments.whole("piece", piece, "give a number of characters", least=1)
        )


def verify(
    policy: Policy | CompiledPolicy,
    text: str | None = None,
    *,
    context: str = "",
    parts: Sequence[str] | None = None,
    regions: Cutting | None = None,
) -> Report:
    """All matches of all rules in a text.

    Matches of one rule do not overlap (leftmost, longest); those of different rules may. `context` is what the text
    continues: rules with `context="prompt"` find matches that begin there too, if they end in the text; only the part
    in the text is reported. The policy keeps its `Verifier`: compiled when it is first seen, it costs only the search
    from then on. Safe to call from several threads. Errors: `ArgumentError` for what is no text; those of compiling.

    `parts`, in place of the text: one that is shown in parts, as a reply is that was cut at special tokens. Found is
    what is in any of them, as a text of its own (`Finding.part` is its number), and what is in all of them, joined.

    `regions`: the text is a raw reply that marks cut into fields. Found is what is in any text that is shown of it: in
    each region by itself, and in the joined field as far as it is each time that another begins. Fields that the policy
    does not look at (`applies_to`) are left out. Offsets are those in the reply.

    Examples:
        >>> report = verify(Policy.from_presets("pii"), "Write to jane.doe@example.com.")
        >>> [(found.rule_id, found.start, found.end) for found in report.findings]
        [('pii.email', 9, 29)]
        >>> report = verify(Policy.from_presets("pii"), parts=["Write to jane.", "doe@example.com"])
        >>> [(found.start, found.end, found.part) for found in report.findings]
        [(9, 29, None), (14, 29, 1)]
    """
    return Verifier.of(policy).verify(text, context=context, parts=parts, regions=regions)


def _place(regions: Sequence[Region], place: int) -> int:
    """Where in a reply a place in the text of some regions is."""
    for region in regions:
        if place < len(region.text):
            return region.start + place
        place -= len(region.text)
    return regions[-1].start + len(regions[-1].text) + place


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    first, size = 0, 0
    for index, text in enumerate(texts):
        if size + len(text) > _BATCH and index > first:
            yield first, texts[first:index]
            first, size = index, 0
        size += len(text) + 1
    if first < len(texts):
        yield first, texts[first:]
