"""Rules that are searched for together: *lanes* fold a text alike, *crowds* run as one machine."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import ProductMachine
from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.spans.folds import FoldedText, joined
from nco_guard.compiler import CompiledRule
from nco_guard.errors import StateLimitError
from nco_guard.scan.filter import Codes, Filter, codes_of_text
from nco_guard.scan.findings import Finding
from nco_guard.scan.scanner import Row, RuleScanner

__all__ = ["Crowd", "Lane", "finding", "lanes_of"]

Places = NDArray[np.int64]
_KEPT_BYTES = 64 << 20  # of states of many rules together
_AT_ONCE = 1 << 8  # characters, by rules, that are read as quickly as conditions are asked for
_FIRST = 1 << 12  # characters that are read as quickly as conditions are made
_SHORT = 1 << 16  # characters, up to which texts are looked through for long lists as they are
_PASS = 1 << 13  # characters of a text, after which it is looked at how large they have grown
_NO_CODES: Codes = np.empty(0, np.uint8)


def finding(rule: CompiledRule, span: tuple[int, int]) -> Finding:
    """A match of a rule at a span."""
    return Finding(rule.id, *span, rule.rule.mode)


def lanes_of(scanners: Iterable[RuleScanner]) -> list[Lane]:
    """Rules by how they fold a text, long lists apart."""
    groups: dict[tuple[FoldSpec, bool], list[RuleScanner]] = {}
    for scanner in scanners:
        groups.setdefault((scanner.rule.fold, scanner.is_long), []).append(scanner)
    return [Lane(spec, group) for (spec, _), group in groups.items()]


class Lane:
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
                found.setdefault(index, []).extend(finding(scanner.rule, span) for span in spans)
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


class Crowd:
    """Many rules over few letters: their machines run as one tell in which texts there is anything to be found."""

    def __init__(self, rules: Sequence[CompiledRule]) -> None:
        self.rules = tuple(rules)
        self._lock = threading.Lock()
        self._together: ProductMachine | None = None

    @cached_property
    def lane(self) -> Lane:
        """The rules one by one."""
        return Lane(self.rules[0].fold, [RuleScanner.of(rule) for rule in self.rules])

    def search(self, texts: Sequence[str]) -> dict[int, list[Finding]]:
        """As `Lane.search`."""
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
