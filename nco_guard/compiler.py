"""From a policy to automata: the only bridge between `policy` and `automata`.

Compiling checks everything that can be checked without a tokenizer (dialect, empty matches, stop points), so that a
policy that compiles is a policy that can be enforced.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property

from nco_guard.automata import (
    CHECKSUMS,
    AhoCorasick,
    AlternatingMachine,
    Automaton,
    ChecksumMachine,
    ClassAutomaton,
    FoldedMachine,
    FoldSpec,
    FsmMachine,
    Rewriting,
    RewrittenAutomaton,
    Utf8Automaton,
    syntax,
)
from nco_guard.automata.charsets import union
from nco_guard.automata.folding import spellings
from nco_guard.automata.inclusion import escaping_text
from nco_guard.automata.look_alikes import with_look_alikes
from nco_guard.errors import PatternError, PolicyError, StateLimitError
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule

__all__ = ["UTF8_RULE", "CompiledPolicy", "CompiledRule", "Constraint", "compile_policy"]

UTF8_RULE = "utf-8"
_HARD = float("inf")


@dataclass(frozen=True)
class Constraint:
    """One automaton as the masks see it, and the rule or rules that it stands for.

    `penalty`: infinity for a hard constraint, lambda for a soft one, 0 for one that is only monitored.
    `reads_prompt`: it starts in the state that the prompt leads to.
    `rules_at(state)`: the rules whose match a step into `state` completes; `rules_at_end(state)`: the same for the end
    of the text there.
    """

    rule_ids: tuple[str, ...]
    automaton: Automaton
    penalty: float = _HARD
    monitor: bool = False
    reads_prompt: bool = False
    rules_at: Callable[[int], tuple[str, ...]] | None = field(default=None, compare=False)
    rules_at_end: Callable[[int], tuple[str, ...]] | None = field(default=None, compare=False)

    @property
    def hard(self) -> bool:
        """Whether it masks, rather than penalises or records."""
        return self.penalty == _HARD


class CompiledRule:
    """One rule, read and checked.

    `node` is its pattern, `stop_node` the earlier point from which it blocks, if it names one; both None for a
    ready-made automaton. Both are about the text as `fold` folds it. `lock` is to be held while `searcher` is stepped:
    its states are found lazily.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.id = rule.id
        self.lock = threading.RLock()
        self.node: syntax.Node | None = None
        self.stop_node: syntax.Node | None = None
        self.fold = FoldSpec(rule.normalize, rule.ignore, rule.json_escapes)
        if isinstance(rule, StringRule):
            self.node = syntax.alternation(
                [self._string(text, index, rule.case == "fold") for index, text in enumerate(rule.strings)]
            )
        elif isinstance(rule, RegexRule):
            flags = re.IGNORECASE if rule.case == "fold" else 0
            self.node = self._parse(rule.regex, flags, "regex")
            if rule.stop_at is not None:
                self.stop_node = self._parse(rule.stop_at, flags, "stop_at")
        if self.node is not None and rule.whole_word:
            self.node = syntax.whole_word(self.node)
        self._check()

    def _parse(self, pattern: str, flags: int, name: str) -> syntax.Node:
        try:
            node = syntax.parse(pattern, flags)
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
            return
        with self._naming():
            machine = self._searching(every_end=False)
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
            if self.stop_node is not None and isinstance(machine, AlternatingMachine):
                stop = AlternatingMachine(self.stop_node)
                if not stop.may_end(stop.start):
                    raise PatternError(
                        "a stop point that matches the empty text forbids everything",
                        construct="an empty match",
                        rule_id=self.id,
                        field="stop_at",
                    )
                escape = escaping_text(machine, stop)
                if escape is not None:
                    raise PolicyError(
                        "not every match contains a match of stop_at: for example a text of the shape "
                        f"{escape!r} gets past it; make stop_at less specific",
                        rule_id=self.id,
                        field="stop_at",
                    )

    def machine(
        self, *, every_end: bool, stop: bool = False
    ) -> AlternatingMachine | FoldedMachine | FsmMachine:
        """A fresh machine for the rule's pattern, or for its stop point, over the original text."""
        machine = self._searching(every_end=every_end, stop=stop)
        if self.fold.trivial or isinstance(machine, FsmMachine):
            return machine
        return FoldedMachine(machine, self.fold)

    def _searching(self, *, every_end: bool, stop: bool = False) -> AlternatingMachine | FsmMachine:
        """The same over the folded text."""
        if isinstance(self.rule, AutomatonRule):
            return FsmMachine(self.rule.fsm)
        node = self.stop_node if stop and self.stop_node is not None else self.node
        if node is None:
            raise PolicyError("the rule has no pattern", rule_id=self.id)
        if isinstance(self.rule, RegexRule) and self.rule.checksum != "none":
            return ChecksumMachine(node, CHECKSUMS[self.rule.checksum])
        return AlternatingMachine(node, every_end=every_end, rule_id=self.id)

    @cached_property
    def searcher(self) -> AlternatingMachine | FoldedMachine | FsmMachine:
        """The machine that finds spans of the whole pattern in finished text."""
        return self.machine(every_end=True)

    @property
    def plain(self) -> bool:
        """Whether the rule is a list of exact substrings, fit for Aho-Corasick."""
        rule = self.rule
        return (
            isinstance(rule, StringRule)
            and rule.case == "exact"
            and rule.confusables == "none"
            and self.fold.trivial
            and not rule.whole_word
        )


@dataclass(frozen=True)
class CompiledPolicy:
    """A policy whose every rule is known to be enforceable."""

    policy: Policy
    rules: tuple[CompiledRule, ...]

    @property
    def digest(self) -> str:
        """The policy's digest."""
        return self.policy.digest

    def constraints(self, rewriting: Rewriting | None = None) -> tuple[Constraint, ...]:
        """Fresh automata for all rules, with well-formed UTF-8 first.

        Plain hard strings of all rules share one Aho-Corasick automaton; every other rule has its own. `rewriting`:
        what the tokenizer's decoder makes of the bytes that the automata are fed.
        """
        found = [Constraint((UTF8_RULE,), Utf8Automaton(rewriting.marks if rewriting else b""))]
        shared: dict[bool, list[CompiledRule]] = {}
        for compiled in self.rules:
            rule = compiled.rule
            mode = rule.mode
            reads_prompt = rule.context == "prompt"
            if compiled.plain and mode == "hard":
                shared.setdefault(reads_prompt, []).append(compiled)
                continue
            penalty = 0.0 if mode == "monitor" else rule.penalty
            found.extend(
                Constraint(
                    (rule.id,), automaton, penalty, monitor=mode == "monitor", reads_prompt=reads_prompt
                )
                for automaton in self._automata(compiled)
            )
        for reads_prompt, members in shared.items():
            found.append(_strings_constraint(members, reads_prompt))
        if rewriting is not None:
            # Rewriting neither makes nor breaks characters.
            found[1:] = [_rewritten(constraint, rewriting) for constraint in found[1:]]
        return tuple(found)

    @staticmethod
    def _automata(compiled: CompiledRule) -> list[Automaton]:
        rule = compiled.rule
        hard = rule.mode == "hard"
        if compiled.plain and isinstance(rule, StringRule):
            return [AhoCorasick([s.encode() for s in rule.strings])]
        if rule.context == "output":
            return [
                ClassAutomaton(
                    compiled.machine(every_end=not hard, stop=True), absorbing=hard, rule_id=rule.id
                )
            ]
        # A match that is complete within the prompt may go on in the output, so every end counts; and a prompt may
        # hold the stop point already, so the whole pattern is watched too.
        stops = (True, False) if compiled.stop_node is not None and hard else (True,)
        return [
            ClassAutomaton(compiled.machine(every_end=True, stop=stop), absorbing=hard, rule_id=rule.id)
            for stop in stops
        ]


def _strings_constraint(members: list[CompiledRule], reads_prompt: bool) -> Constraint:
    patterns: list[bytes] = []
    owners: list[str] = []
    for compiled in members:
        if isinstance(compiled.rule, StringRule):
            patterns.extend(s.encode() for s in compiled.rule.strings)
            owners.extend([compiled.id] * len(compiled.rule.strings))
    automaton = AhoCorasick(patterns)

    def rules_at(state: int) -> tuple[str, ...]:
        return tuple(dict.fromkeys(owners[i] for i in automaton.patterns_ending(state)))

    return Constraint(
        tuple(compiled.id for compiled in members), automaton, reads_prompt=reads_prompt, rules_at=rules_at
    )


def _rewritten(constraint: Constraint, rewriting: Rewriting) -> Constraint:
    automaton = RewrittenAutomaton(constraint.automaton, rewriting, absorbing=constraint.hard)
    inner, everything = constraint.rules_at, constraint.rule_ids
    if inner is None:
        return replace(constraint, automaton=automaton)

    def named(states: Iterable[int]) -> tuple[str, ...]:
        # None: no match is complete yet, but none can be avoided any more.
        return tuple(dict.fromkeys(rule for state in states for rule in inner(state))) or everything

    return replace(
        constraint,
        automaton=automaton,
        rules_at=lambda state: named(automaton.inner_hits(state)),
        rules_at_end=lambda state: named([automaton.inner_end(state)]),
    )


def compile_policy(policy: Policy) -> CompiledPolicy:
    """Read and check every rule.

    Errors: `PatternError` for a construct that cannot be enforced or a pattern that matches the empty text,
    `PolicyError` for a stop point that a match can get past, `StateLimitError` for a rule whose automaton is too
    large; each names the rule.
    """
    return CompiledPolicy(policy, tuple(CompiledRule(rule) for rule in policy.rules))
