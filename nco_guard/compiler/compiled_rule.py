"""One rule, read and checked: its patterns, its machines, and what finds its matches in finished text."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby

import numpy as np

from nco_guard.automata import (
    AlternatingMachine,
    ChecksumMachine,
    FoldedMachine,
    FoldSpec,
    FsmMachine,
    SubstringSearcher,
    folds_evenly,
)
from nco_guard.automata.charsets import union
from nco_guard.automata.combine.inclusion import begins_with, escaping_text
from nco_guard.automata.folding import spellings
from nco_guard.automata.patterns import syntax
from nco_guard.automata.patterns.look_alikes import with_look_alikes
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.patterns.searching import Machine, Plain, plain
from nco_guard.automata.spans.follower import Searcher
from nco_guard.automata.strings.groups import StringGroup, StringKind, StringList
from nco_guard.compiler.checksums import checksum_of
from nco_guard.errors import PatternError, PolicyError, StateLimitError
from nco_guard.policy import AutomatonRule, RegexRule, Rule, StringRule
from nco_guard.policy.rules import canonical_json
from nco_guard.storage.store import Store, digest, made_by

__all__ = ["CompiledRule"]


_KEPT_BYTES = 64 << 20  # of what searching finished texts has found of one rule

_ROOMY = 10  # times the usual limits, for one text that is too much for a rule's automaton


class CompiledRule:
    """One rule, read and checked.

    `node` is its pattern, `stop_node` the earlier point from which it blocks, if it names one; both None for a
    ready-made automaton. Both are about the text as `fold` folds it. For lists of strings that are looked for as they
    are written, or up to case, the pattern is made only if somebody asks: masks and verifier do without. So it is for
    rules of which the store says that they were checked. `letters`: the class of each ASCII character, of those that
    the pattern tells apart; empty for strings. `lock` is to be held while `searcher` is used: its states are found
    lazily.
    """

    def __init__(self, rule: Rule, store: Store | None = None) -> None:
        self.rule = rule
        self.id = rule.id
        self.store = store
        self.lock = threading.RLock()
        self._searcher: Searcher | None = None
        self._blocking: Searcher | None = None
        self.letters: tuple[int, ...] = ()
        self.fold = FoldSpec(rule.normalize, rule.ignore, rule.json_escapes)
        if self.as_written is not None:
            return
        checked = store.load("rule", self.key) if store is not None else None
        if checked is not None:
            self.letters = tuple(checked["letters"].tolist())
            return
        # The order decides which fault is named first.
        _ = self.node, self.stop_node
        self._check()
        if store is not None:
            store.save("rule", self.key, {"letters": np.array(self.letters, np.int32)})

    @cached_property
    def key(self) -> str:
        """A digest of the rule, of the code that compiles it and of the versions that it depends on, for a store."""
        return digest(made_by(), canonical_json(self.rule.model_dump(mode="json")))

    @property
    def as_written(self) -> StringRule | None:
        """The rule, if it is a list of strings that nothing is folded for but case."""
        rule = self.rule
        return (
            rule
            if isinstance(rule, StringRule) and self.fold.trivial and rule.confusables == "none"
            else None
        )

    @property
    def _flags(self) -> int:
        return re.IGNORECASE if self.rule.case == "fold" else 0

    @cached_property
    def stop_node(self) -> syntax.Node | None:
        """The pattern of the stop point."""
        rule = self.rule
        if not isinstance(rule, RegexRule) or rule.stop_at is None:
            return None
        return self._parse(rule.stop_at, self._flags, "stop_at")

    @cached_property
    def node(self) -> syntax.Node | None:
        """The rule's pattern."""
        rule = self.rule
        if isinstance(rule, StringRule):
            node = syntax.alternation(
                [self._string(text, index, rule.case == "fold") for index, text in enumerate(rule.strings)]
            )
        elif isinstance(rule, RegexRule):
            node = self._parse(rule.regex, self._flags, "regex")
        else:
            return None
        return syntax.whole_word(node) if rule.whole_word else node

    def _parse(self, pattern: str, flags: int, name: str) -> syntax.Node:
        try:
            node = parse(pattern, flags)
        except PatternError as error:
            raise error.named(self.id, name) from None
        self._check_occurs(node, name)
        return self._accepting(node)

    def _string(self, text: str, index: int, caseless: bool) -> syntax.Node:
        if self.fold.trivial:
            return self._accepting(syntax.literal(text, fold=caseless))
        pieces = spellings(text, self.fold)
        if not pieces:
            raise PolicyError(
                "all of its characters are ignored, so it would forbid every text; remove it, or ignore fewer",
                rule_id=self.id,
                field=f"strings[{index}]",
            )
        options = ([syntax.literal(option, fold=caseless) for option in piece] for piece in pieces)
        return self._accepting(syntax.sequence(map(syntax.alternation, options)))

    def _accepting(self, node: syntax.Node) -> syntax.Node:
        kind = self.rule.confusables
        return node if kind == "none" else with_look_alikes(node, kind)

    def _check_occurs(self, node: syntax.Node, name: str) -> None:
        """Refuse a pattern that waits for a character which folding removes: it would silently never match."""
        vanished = self.fold.vanished
        for part in syntax.subnodes(node) if vanished else ():
            if isinstance(part, syntax.Chars) and part.ranges and union(part.ranges, vanished) == vanished:
                raise PatternError(
                    "folding removes or replaces it, so it occurs in no folded text; write what it folds to, or "
                    "leave it out",
                    construct=f"U+{part.ranges[0][0]:04X}",
                    rule_id=self.id,
                    field=name,
                )

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """State limits are met while stepping; name the rule that met them."""
        try:
            yield
        except StateLimitError as error:
            raise StateLimitError(error.message, rule_id=self.id) from None

    def _check(self) -> None:
        if isinstance(self.rule, StringRule):
            return  # reading it was the check
        with self._naming():
            machine = self._searching(every_end=False)
            self.letters = tuple(machine.classes.of(np.arange(0x80, dtype=np.uint32)).tolist())
            name = "fsm" if isinstance(self.rule, AutomatonRule) else "regex"
            empty = (
                machine.accepts_empty
                if isinstance(machine, FsmMachine)
                else not machine.may_end(machine.start)
            )
            if empty:
                raise PatternError(
                    "a rule that matches the empty text forbids everything; make at least one character necessary",
                    construct="an empty match",
                    rule_id=self.id,
                    field=name,
                )
            if self.node is not None and self.stop_node is not None:
                self._check_stop(self.node, self.stop_node)

    def _check_stop(self, node: syntax.Node, stop_node: syntax.Node) -> None:
        """Refuse a stop point that some match gets past; of a checked number too, whether it passes or not."""
        stop = AlternatingMachine(stop_node)
        if not stop.may_end(stop.start):
            raise PatternError(
                "a stop point that matches the empty text forbids everything",
                construct="an empty match",
                rule_id=self.id,
                field="stop_at",
            )
        proved = begins_with(node, stop_node)
        escape = None if proved else escaping_text(AlternatingMachine(node), stop)
        if escape is not None:
            raise PolicyError(
                f"not every match contains a match of stop_at: for example {_described(escape)} gets past it; "
                "make stop_at less specific",
                rule_id=self.id,
                field="stop_at",
            )

    def machine(self, *, every_end: bool, stop: bool = False) -> Machine:
        """A fresh machine for the rule's pattern, or for its stop point, over the original text."""
        machine = self._searching(every_end=every_end, stop=stop)
        if self.fold.trivial or isinstance(machine, FsmMachine):
            return machine
        return FoldedMachine(machine, self.fold)

    def _searching(self, *, every_end: bool, stop: bool = False) -> Plain:
        """A fresh machine for the pattern, or for the stop point, over the folded text."""
        if isinstance(self.rule, AutomatonRule):
            return FsmMachine(self.rule.fsm)
        stops = stop and self.stop_node is not None
        node = self.stop_node if stops else self.node
        if node is None:
            raise PolicyError("the rule has no pattern", rule_id=self.id)
        # At the stop point no check digit is known.
        if isinstance(self.rule, RegexRule) and self.rule.checksum != "none" and not stops:
            return ChecksumMachine(node, checksum_of(self.rule.checksum))
        return AlternatingMachine(node, every_end=every_end, rule_id=self.id)

    @property
    def searcher(self) -> Searcher:
        """What finds spans of the whole pattern, in finished text and in what arrives piece by piece.

        Another one once that has grown large, so it is to be asked for anew with every text.
        """
        known = self._searcher
        if known is None or _has_grown(known):
            known = self._searcher = self._new_searcher()
        return known

    @property
    def blocking_searcher(self) -> Searcher:
        """As `searcher`, of what the rule blocks: its stop point, if it names one."""
        if self.stop_node is None:
            return self.searcher
        known = self._blocking
        if known is None or _has_grown(known):
            known = self._blocking = self.machine(every_end=True, stop=True)
        return known

    def forget(self, *, roomy: bool = False) -> None:
        """Let go of what `searcher` has found. `roomy`: the next one may find ten times as much."""
        self._searcher = self._new_searcher(roomy=True) if roomy else None

    def _new_searcher(self, *, roomy: bool = False) -> Searcher:
        if (rule := self.as_written) is not None:
            return SubstringSearcher(rule.strings, caseless=rule.case == "fold", whole_word=rule.whole_word)
        machine = self.machine(every_end=True)
        inner, _ = plain(machine)
        if roomy and isinstance(inner, AlternatingMachine):
            inner.state_limit *= _ROOMY
            inner.thread_limit *= _ROOMY
        return machine

    @cached_property
    def listed(self) -> StringList | None:
        """Its strings and how they are looked for, if the rule is a list of strings fit for Aho-Corasick."""
        if (rule := self.as_written) is None:
            return None
        kind = StringKind(rule.context == "prompt", rule.case == "fold", rule.whole_word)
        return StringList(rule.id, kind, rule.strings) if self._folds_evenly(rule.strings, kind) else None

    def _folds_evenly(self, strings: tuple[str, ...], kind: StringKind) -> bool:
        if not (kind.caseless or kind.whole_word):
            return True
        kept = self.store.load("rule", self.key) if self.store is not None else None
        if kept is not None:
            return bool(kept["even"][0])
        even = folds_evenly(strings, caseless=kind.caseless, whole_word=kind.whole_word)
        if self.store is not None:
            self.store.save("rule", self.key, {"even": np.array([even])})
        return even

    @cached_property
    def strings(self) -> StringGroup | None:
        """The strings as a group with an automaton of its own, for a rule that shares none."""
        return StringGroup.alone(self.listed) if self.listed is not None else None


def _has_grown(searcher: Searcher) -> bool:
    """Whether texts have led a searcher to so much that the next one gets a fresh one."""
    return searcher.crowded or searcher.nbytes > _KEPT_BYTES


def _described(text: str) -> str:
    """A text by what kinds of characters it has, in runs: a match is what no error may repeat."""
    kinds = (
        "digit" if c.isdigit() else "letter" if c.isalpha() else "space" if c.isspace() else "sign"
        for c in text
    )
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    shown = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in runs[:12])
    return f"a text of {len(text)} characters ({shown}{', ...' if len(runs) > 12 else ''})"
