"""`Verifier`: finds in finished text what a policy forbids, in many and long texts as in short ones.


Rules that fold alike are a *lane*: a text is folded once for all of them and searched once for the places that their
conditions leave (`filter`); for lists of thousands of strings that pays in long texts only. Hundreds of rules over few
letters are a *crowd*: one pass of all their machines together tells whether there is anything to be searched for. Many
short texts are laid side by side, so that they share array operations. Long texts can be given piece by piece.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard import arguments
from nco_guard.automata import ProductMachine
from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.spans.folds import FoldedText, Originals, joined
from nco_guard.compiler import CompiledPolicy, CompiledRule, compiled_of
from nco_guard.compiler import crowds as crowds_of
from nco_guard.copies import Shared
from nco_guard.errors import ClosedError, StateLimitError
from nco_guard.policy import Policy
from nco_guard.scan.filter import Codes, Filter, codes_of_text
from nco_guard.scan.findings import Finding, Report, in_text_order
from nco_guard.scan.scanner import OpenRow, Row, RuleScanner, Stretch

__all__ = ["FindingStream", "Verifier", "verify"]

Places = NDArray[np.int64]
_BATCH = 1 << 22
"""So many characters are laid side by side."""
_KEPT_BYTES = 64 << 20  # of states of many rules together
_AT_ONCE = 1 << 8  # characters, by rules, that are read as quickly as conditions are asked for
_FIRST = 1 << 12  # characters that are read as quickly as conditions are made
_SHORT = 1 << 16  # characters, up to which texts are looked through for long lists as they are
_KEPT_TEXTS = 1_000  # that are known to be allowed
_PASS = 1 << 13  # characters of a text, after which it is looked at how large they have grown
_NO_CODES: Codes = np.empty(0, np.uint8)
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
    def _crowds(self) -> list[_Crowd]:
        return [
            _Crowd(rules) for rules in crowds_of(rule for rule in self.compiled.rules if rule.fold.trivial)
        ]

    @cached_property
    def _others(self) -> list[_Lane]:
        crowded = {rule for crowd in self._crowds for rule in crowd.rules}
        return _lanes(RuleScanner.of(rule) for rule in self.compiled.rules if rule not in crowded)

    @property
    def _lanes(self) -> list[_Lane]:
        return [*self._others, *(crowd.lane for crowd in self._crowds)]

    @cached_property
    def _by_context(self) -> dict[bool, list[_Lane]]:
        """The rules by whether they look at the prompt."""
        scanners = [scanner for lane in self._lanes for scanner in lane.scanners]
        return {
            reads: _lanes(s for s in scanners if (s.rule.rule.context == "prompt") == reads)
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

    def verify(self, text: str, *, context: str = "") -> Report:
        """The report on one text; see `nco_guard.verify`."""
        arguments.text("text", text)
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
        parts: list[_Lane | _Crowd] = [*self._others, *self._crowds]
        for part in parts:
            for index, more in part.search(texts).items():
                found.setdefault(index, []).extend(more)
        return found

    def stream(self, *, piece: int = _PIECE) -> FindingStream:
        """A text that is given piece by piece, such as a large file; see `FindingStream`."""
        return FindingStream(
            self, piece=arguments.whole("piece", piece, "give a number of characters", least=1)
        )


def verify(policy: Policy | CompiledPolicy, text: str, *, context: str = "") -> Report:
    """All matches of all rules in a text.

    Matches of one rule do not overlap (leftmost, longest); those of different rules may. `context` is what the text
    continues: rules with `context="prompt"` find matches that begin there too, if they end in the text; only the part
    in the text is reported. The policy keeps its `Verifier`: compiled when it is first seen, it costs only the search
    from then on. Safe to call from several threads. Errors: `ArgumentError` for what is no text; those of compiling.

    Examples:
        >>> report = verify(Policy.from_presets("pii"), "Write to jane.doe@example.com.")
        >>> [(found.rule_id, found.start, found.end) for found in report.findings]
        [('pii.email', 9, 29)]
    """
    return Verifier.of(policy).verify(text, context=context)


def _batches(texts: Sequence[str]) -> Iterator[tuple[int, Sequence[str]]]:
    first, size = 0, 0
    for index, text in enumerate(texts):
        if size + len(text) > _BATCH and index > first:
            yield first, texts[first:index]
            first, size = index, 0
        size += len(text) + 1
    if first < len(texts):
        yield first, texts[first:]


def _lanes(scanners: Iterable[RuleScanner]) -> list[_Lane]:
    groups: dict[tuple[FoldSpec, bool], list[RuleScanner]] = {}
    for scanner in scanners:
        groups.setdefault((scanner.rule.fold, scanner.is_long), []).append(scanner)
    return [_Lane(spec, group) for (spec, _), group in groups.items()]


class _Lane:
    """The rules that fold a text in the same way."""

    def __init__(self, spec: FoldSpec, scanners: Sequence[RuleScanner]) -> None:
        self.spec = spec
        self.scanners = tuple(scanners)
        self._long = any(scanner.is_long for scanner in scanners)
        self._read = 0  # characters, while nobody has asked for conditions

    @cached_property
    def _filter(self) -> Filter:
        return Filter([condition for scanner in self.scanners for condition in scanner.conditions])

    def search(self, texts: Sequence[str], *, beyond: int = -1) -> dict[int, list[Finding]]:
        """The findings in those texts that have any; `beyond`: only those that end after so many characters."""
        folded = None if self.spec.trivial else [FoldedText(self.spec) for _ in texts]
        shown = texts
        if folded is not None:
            shown = [part.feed(text, final=True) for part, text in zip(folded, texts, strict=True)]
        sizes = np.fromiter(map(len, shown), np.int64, len(shown))
        highs = np.cumsum(sizes + 1) - 1
        lows = highs - sizes
        ends: list[int] | None = None
        if beyond >= 0:
            ends = [beyond] * len(texts) if folded is None else [part.upto(beyond) for part in folded]
        row = Row("\0".join(shown), lows, highs, ends)
        firsts = lows.tolist()
        found: dict[int, list[Finding]] = {}
        for scanner, hits, codes in self.places(row.text):
            if hits and not any(map(len, hits)):
                continue
            by_text: dict[int, list[tuple[int, int]]] = {}
            with scanner.rule.lock:
                places = scanner.found(row, codes, hits)
            for index, start, end in places:
                by_text.setdefault(index, []).append((start - firsts[index], end - firsts[index]))
            for index, spans in by_text.items():
                if folded is not None:
                    spans = joined(map(folded[index].original, spans))
                found.setdefault(index, []).extend(_finding(scanner, span) for span in spans)
        return found

    def places(
        self, text: str, *, is_open: bool = False
    ) -> Iterator[tuple[RuleScanner, list[Places] | None, Codes]]:
        """For each rule where its conditions hold in a folded text; None: not asked."""
        if not self._asks(len(text)):
            for scanner in self.scanners:
                yield scanner, None, _NO_CODES
            return
        codes = codes_of_text(text)
        hits = self._filter.hits(codes, is_open=is_open)
        at = 0
        for scanner in self.scanners:
            count = len(scanner.conditions)
            yield scanner, hits[at : at + count], codes
            at += count

    def _asks(self, size: int) -> bool:
        """Whether it pays to ask for the conditions, or to make them, before all rules read so many characters."""
        made = "_filter" in vars(self)
        if self._long:
            return made or size >= _SHORT
        if size * len(self.scanners) < _AT_ONCE:
            return False
        self._read += 0 if made else size
        return made or self._read > _FIRST


class _Crowd:
    """Many rules over few letters: their machines run as one tell in which texts there is anything to be found."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self._lock = threading.Lock()
        self._together: ProductMachine | None = None

    @cached_property
    def lane(self) -> _Lane:
        """The rules one by one."""
        return _Lane(self.rules[0].fold, [RuleScanner.of(rule) for rule in self.rules])

    def search(self, texts: Sequence[str]) -> dict[int, list[Finding]]:
        """As `_Lane.search`."""
        with self._lock:
            some = [index for index, text in enumerate(texts) if self._may_match(text)]
        if not some:
            return {}
        return {some[at]: found for at, found in self.lane.search([texts[i] for i in some]).items()}

    def _may_match(self, text: str) -> bool:
        """Whether there is a match in a text, or too much to find out: then the rules look one by one."""
        try:
            machine = self._together
            if machine is None:
                machine = self._together = ProductMachine([r.machine(every_end=False) for r in self.rules])
            state, step = machine.start, machine.step
            classes = machine.classes.of_text(text)
            for low in range(0, len(classes), _PASS):
                for cls in classes[low : low + _PASS]:
                    state = step(state, cls)
                    if state < 0:
                        return True
                if machine.nbytes > _KEPT_BYTES:
                    self._together = None
                    return True
            return not machine.may_end(state)
        except StateLimitError:
            self._together = None
            return True


def _finding(scanner: RuleScanner, span: tuple[int, int]) -> Finding:
    return Finding(scanner.rule.id, *span, scanner.rule.rule.mode)


class FindingStream:
    """One text, piece by piece: `feed` and `finish` give findings as soon as nothing to come can change them.

    Joined and sorted they are the findings of `Verifier.verify` on the whole text, however it is cut. Offsets count
    from the start of the text. Findings come in order of their start for each rule, not across rules.

    Memory: the characters from the first place on at which a match may have begun that is still open, and a piece; for
    a rule such as `(?s)begin.*end` that can be all from the first "begin" on. Cost: as `Verifier.verify`.

    Examples:
        >>> stream = Verifier(Policy.from_presets("pii")).stream()
        >>> found = [one for piece in ("Write to jane.d", "oe@example.com, please.") for one in stream.feed(piece)]
        >>> [(one.start, one.end) for one in found + stream.finish()]
        [(9, 29)]
    """

    def __init__(self, verifier: Verifier, *, piece: int = _PIECE) -> None:
        self._lanes = [_LaneStream(lane, piece) for lane in verifier._lanes]
        self._digest = verifier.digest
        self._closed = False
        self.length = 0

    def feed(self, text: str) -> list[Finding]:
        """Read on; what is certain now and was not before."""
        arguments.text("text", text)
        self._check_open()
        self.length += len(text)
        return [found for lane in self._lanes for found in lane.feed(text, final=False)]

    def finish(self) -> list[Finding]:
        """The text ends here; the rest of the findings."""
        self._check_open()
        self._closed = True
        return [found for lane in self._lanes for found in lane.feed("", final=True)]

    @property
    def safe(self) -> int:
        """Every finding that is yet to come starts here or later."""
        return self.length if self._closed else min((lane.safe for lane in self._lanes), default=self.length)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("this text is over; use a new stream for another one")


class _LaneStream:
    """What one lane has read of a text."""

    def __init__(self, lane: _Lane, piece: int) -> None:
        self._lane = lane
        self._piece = piece
        self._waiting: list[str] = []
        self._waits = 0
        self._folded = FoldedText(lane.spec)
        self._text = ""  # folded, from `_base` on
        self._base = 0
        self._cursors = dict.fromkeys(lane.scanners, 0)
        self._originals = {scanner: Originals(self._folded) for scanner in lane.scanners}

    @property
    def safe(self) -> int:
        """Every span that is yet to come starts here or later, in characters of the original."""
        first = self._folded.place(min(self._cursors.values()))
        return min((first, *(each.kept for each in self._originals.values() if each.kept is not None)))

    def feed(self, text: str, *, final: bool) -> list[Finding]:
        self._waiting.append(text)
        self._waits += len(text)
        # Where much is held, much has to come before it is read again: so all reading together stays linear.
        if not final and self._waits < max(self._piece, len(self._text)):
            return []
        self._text += self._folded.feed("".join(self._waiting), final=final)
        self._waiting, self._waits = [], 0
        found: list[Finding] = []
        for scanner, hits, codes in self._lane.places(self._text, is_open=not final):
            cursor = self._cursors[scanner] - self._base
            stretch = Stretch(0, len(self._text), self._base == 0, final, cursor)
            with scanner.rule.lock:
                spans = scanner.found(OpenRow(self._text, stretch), codes, hits)
            left = len(self._text) if stretch.left is None else stretch.left
            self._cursors[scanner] = place = self._base + left
            folded = ((self._base + start, self._base + end) for _, start, end in spans)
            found += [_finding(scanner, s) for s in self._originals[scanner].of(folded, place, final=final)]
        self._forget()
        return found

    def _forget(self) -> None:
        reach = max((scanner.reach for scanner in self._lane.scanners), default=0)
        done = max(0, min(self._cursors.values()) - reach - 1 - self._base)
        if done:
            self._text = self._text[done:]
            self._base += done
            self._folded.forget(self._base)
