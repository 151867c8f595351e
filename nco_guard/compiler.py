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
from functools import cache, cached_property, lru_cache, partial
from itertools import groupby
from typing import Any

import numpy as np

from nco_guard.automata import (
    CHECKSUMS,
    AlternatingMachine,
    Automaton,
    CharMachine,
    ChecksumMachine,
    ClassAutomaton,
    FoldedAhoCorasick,
    FoldedMachine,
    FoldSpec,
    FsmMachine,
    ProductMachine,
    Rewriting,
    RewrittenAutomaton,
    SubstringSearcher,
    Utf8Automaton,
    folds_evenly,
)
from nco_guard.automata.charsets import CharClasses, union
from nco_guard.automata.combine.inclusion import begins_with, escaping_text
from nco_guard.automata.folding import spellings
from nco_guard.automata.patterns import syntax
from nco_guard.automata.patterns.look_alikes import with_look_alikes
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.spans.search import Searcher
from nco_guard.automata.strings.groups import StringGroup, StringKind, StringList, regrouped
from nco_guard.copies import Shared
from nco_guard.errors import PatternError, PolicyError, StateLimitError
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule
from nco_guard.policy.given import checked_policy, no_policy
from nco_guard.policy.rules import canonical_json
from nco_guard.storage.store import Store, digest, made_by

__all__ = [
    "UTF8_RULE",
    "CompiledPolicy",
    "CompiledRule",
    "Constraint",
    "arrived",
    "compile_policy",
    "compiled_of",
    "crowds",
]

UTF8_RULE = "utf-8"

# So many rules are run as one automaton if together they tell at most so many ASCII characters apart: with more letters
# a product would meet a new state at nearly every token. So many kinds of rules are tried to be told apart.
_CROWD = 32
_CROWD_LETTERS = 16
_CROWDS = 8
_EXPLORED_STATES = 64
_HARD = float("inf")
_KEPT_BYTES = 64 << 20  # of what searching finished texts has found of one rule
_ROOMY = 10  # times the usual limits, for one text that is too much for a rule's automaton


@dataclass(frozen=True)
class Constraint:
    """One automaton as the masks see it, and the rule or rules that it stands for.

    `penalty`: infinity for a hard constraint, lambda for a soft one, 0 for one that is only monitored.
    `reads_prompt`: it starts in the state that the prompt leads to.
    `rules_at(state)`: the rules whose match a step into `state` completes; `rules_at_end(state)`: the same for the end
    of the text there. `source`: what it was made of; equal for constraints that do the same (see `constraints`). `key`:
    the same as a digest, for a store; empty where nothing is to be kept.
    """

    rule_ids: tuple[str, ...]
    automaton: Automaton
    penalty: float = _HARD
    monitor: bool = False
    reads_prompt: bool = False
    rules_at: Callable[[int], tuple[str, ...]] | None = field(default=None, compare=False)
    rules_at_end: Callable[[int], tuple[str, ...]] | None = field(default=None, compare=False)
    key: str = field(default="", compare=False, repr=False)
    source: tuple[object, ...] = field(default=(), compare=False, repr=False)

    @property
    def hard(self) -> bool:
        """Whether it masks, rather than penalises or records."""
        return self.penalty == _HARD


class CompiledRule:
    """One rule, read and checked.

    `node` is its pattern, `stop_node` the earlier point from which it blocks, if it names one; both None for a
    ready-made automaton. Both are about the text as `fold` folds it. For lists of strings that are looked for as they
    are written, or up to case, the pattern is made only if somebody asks: masks and verifier do without. So it is for
    rules of which the store says that they were checked. `letters`: the class of each ASCII character, of those that
    the pattern tells apart; empty for strings. `lock` is to be held while `searcher` or `stepper` is used: their states
    are found lazily.
    """

    def __init__(self, rule: Rule, store: Store | None = None) -> None:
        self.rule = rule
        self.id = rule.id
        self.store = store
        self.lock = threading.RLock()
        self._searcher: Searcher | None = None
        self._stepper: AlternatingMachine | FoldedMachine | FsmMachine | None = None
        self.letters: tuple[int, ...] = ()
        self.fold = FoldSpec(rule.normalize, rule.ignore, rule.json_escapes)
        if self._as_written:
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
    def _as_written(self) -> bool:
        return isinstance(self.rule, StringRule) and self.fold.trivial and self.rule.confusables == "none"

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
            if self.stop_node is not None and isinstance(machine, AlternatingMachine):
                stop = AlternatingMachine(self.stop_node)
                if not stop.may_end(stop.start):
                    raise PatternError(
                        "a stop point that matches the empty text forbids everything",
                        construct="an empty match",
                        rule_id=self.id,
                        field="stop_at",
                    )
                proved = self.node is not None and begins_with(self.node, self.stop_node)
                escape = None if proved else escaping_text(machine, stop)
                if escape is not None:
                    raise PolicyError(
                        f"not every match contains a match of stop_at: for example {_described(escape)} gets past it; "
                        "make stop_at less specific",
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

    @property
    def searcher(self) -> Searcher:
        """What finds spans of the whole pattern in finished text.

        Another one once that has grown large, so it is to be asked for anew with every text.
        """
        known = self._searcher
        if known is None or _has_grown(known):
            known = self._searcher = self._new_searcher()
        return known

    def forget(self, *, roomy: bool = False) -> None:
        """Let go of what `searcher` and `stepper` have found. `roomy`: the next ones may find ten times as much."""
        self._searcher = self._stepper = None
        if roomy:
            self._searcher = self._new_searcher(roomy=True)

    def _new_searcher(self, *, roomy: bool = False) -> Searcher:
        rule = self.rule
        if isinstance(rule, StringRule) and self._as_written:
            return SubstringSearcher(rule.strings, caseless=rule.case == "fold", whole_word=rule.whole_word)
        machine = self.machine(every_end=True)
        inner = machine.inner if isinstance(machine, FoldedMachine) else machine
        if roomy and isinstance(inner, AlternatingMachine):
            inner.state_limit *= _ROOMY
            inner.thread_limit *= _ROOMY
        return machine

    @property
    def stepper(self) -> AlternatingMachine | FoldedMachine | FsmMachine:
        """The same for text that arrives piece by piece; for lists of strings a machine of their pattern."""
        searcher = self.searcher
        if not isinstance(searcher, SubstringSearcher):
            return searcher
        if self._stepper is None or _has_grown(self._stepper):
            self._stepper = self.machine(every_end=True)
        return self._stepper

    @cached_property
    def listed(self) -> StringList | None:
        """Its strings and how they are looked for, if the rule is a list of strings fit for Aho-Corasick."""
        rule = self.rule
        if not isinstance(rule, StringRule) or not self._as_written:
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
        """The same as a group with an automaton of its own, for a rule that shares none."""
        return StringGroup.alone(self.listed) if self.listed is not None else None


def _has_grown(searcher: Searcher) -> bool:
    """Whether texts have led a searcher to so much that the next one gets a fresh one."""
    return not isinstance(searcher, SubstringSearcher) and (searcher.crowded or searcher.nbytes > _KEPT_BYTES)


@dataclass(frozen=True, eq=False)
class CompiledPolicy(Shared):
    """A policy whose every rule is known to be enforceable.

    Immutable. `revised`, `with_rules` and `without` give the compiled form of a changed policy and compile only what
    is new in it; compiled rules and groups of strings that stay are the same objects. Pickled it is its policy, which
    is compiled again where it is unpickled; copies within the process are itself.
    """

    policy: Policy
    rules: tuple[CompiledRule, ...]
    groups: tuple[StringGroup, ...]
    store: Store | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return arrived, (self.policy, self.store)

    @property
    def digest(self) -> str:
        """The policy's digest."""
        return self.policy.digest

    def revised(self, policy: Policy) -> CompiledPolicy:
        """The compiled form of another policy, equivalent to `compile_policy(policy)`.

        Rules that are in both policies are not compiled again. Nor are groups of strings that are all still there; new
        strings, also those at the end of a rule's list, come in groups of their own, and small groups are joined, so
        that there are never more than some log2(strings / 128). Removing a string rebuilds its group.

        Cost: comparing the rules, and building the automata for new strings, lazily. Errors: as `compile_policy`.
        """
        checked_policy(policy)
        known = {compiled.id: compiled for compiled in self.rules}
        rules: list[CompiledRule] = []
        for rule in policy.rules:
            before = known.get(rule.id)
            same = before is not None and (before.rule is rule or before.rule == rule)
            rules.append(before if before is not None and same else CompiledRule(rule, self.store))
        return CompiledPolicy(policy, tuple(rules), regrouped(_lists(rules), self.groups), self.store)

    def with_rules(self, *rules: Rule) -> CompiledPolicy:
        """The same policy with more rules at its end. See `revised`."""
        return self.revised(self.policy.with_rules(*rules))

    def without(self, *rule_ids: str) -> CompiledPolicy:
        """The same policy without some rules; `PolicyError` for ids that it does not have. See `revised`."""
        return self.revised(self.policy.without(*rule_ids))

    def constraints(
        self, rewriting: Rewriting | None = None, *, reuse: Iterable[Constraint] = ()
    ) -> tuple[Constraint, ...]:
        """The automata for all rules, with well-formed UTF-8 first.

        Hard strings of all rules that are looked for in the same way share automata (`groups`), which are built once
        and immutable; every other rule has one of its own, which is found lazily and so fresh in every call.
        `rewriting`: what the tokenizer's decoder makes of the bytes that the automata are fed.

        `reuse`: constraints of this policy, or of one that it was revised from, for the same `rewriting`. Those that
        are still wanted are returned as they are, with all the states that they have found. What was found lazily is
        guarded by the lock of whoever steps it, so both must be used under one.
        """
        known = {constraint.source: constraint for constraint in reuse if constraint.source}
        found: list[Constraint] = []
        for source, build in self._sources(rewriting):
            key = (*source, rewriting)
            constraint = known.get(key)
            found.append(replace(build(), source=key) if constraint is None else constraint)
        return tuple(found)

    def _sources(
        self, rewriting: Rewriting | None
    ) -> Iterator[tuple[tuple[object, ...], Callable[[], Constraint]]]:
        """What each constraint is made of, which tells whether one can be reused, and how to make it."""
        # Rewriting neither makes nor breaks characters.
        marks = rewriting.marks if rewriting else b""
        key = digest(made_by(), UTF8_RULE, marks) if self.store is not None else ""
        yield (UTF8_RULE,), lambda: Constraint((UTF8_RULE,), Utf8Automaton(marks), key=key)
        for source, build in self._plain_sources():
            yield source, build if rewriting is None else partial(_rewritten, build, rewriting)

    def _plain_sources(self) -> Iterator[tuple[tuple[object, ...], Callable[[], Constraint]]]:
        together = crowds(
            compiled
            for compiled in self.rules
            if compiled.rule.mode == "hard" and compiled.rule.context == "output"
        )
        crowded = {compiled for crowd in together for compiled in crowd}
        for compiled in self.rules:
            if compiled not in crowded and (compiled.listed is None or compiled.rule.mode != "hard"):
                for stop in _stops(compiled):
                    yield (compiled, stop), partial(_own_constraint, compiled, stop)
        for crowd in together:
            yield (crowd,), partial(_crowd_constraint, crowd)
        for group in self.groups:
            yield (group,), partial(_group_constraint, group, self.store)


def _described(text: str) -> str:
    """A text by what kinds of characters it has, in runs: a match is what no error may repeat."""
    kinds = (
        "digit" if c.isdigit() else "letter" if c.isalpha() else "space" if c.isspace() else "sign"
        for c in text
    )
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    shown = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in runs[:12])
    return f"a text of {len(text)} characters ({shown}{', ...' if len(runs) > 12 else ''})"


def _stops(compiled: CompiledRule) -> tuple[bool, ...]:
    """Which patterns of a rule are watched: the one it stops at (True), the whole one (False), or both."""
    # A match that is complete within the prompt may go on in the output, so every end counts; and a prompt may
    # hold the stop point already, so the whole pattern is watched too.
    rule = compiled.rule
    stops = isinstance(rule, RegexRule) and rule.stop_at is not None
    twice = stops and rule.mode == "hard" and rule.context == "prompt"
    return (True, False) if twice else (True,)


def _own_constraint(compiled: CompiledRule, stop: bool) -> Constraint:
    rule, strings = compiled.rule, compiled.strings
    hard = rule.mode == "hard"
    automaton: Automaton
    if strings is not None:
        automaton = strings.automaton()
    else:
        every_end = not hard or rule.context == "prompt"
        automaton = _searching_automaton(compiled, every_end=every_end, stop=stop)
    monitor = rule.mode == "monitor"
    penalty = 0.0 if monitor else rule.penalty
    key = digest(compiled.key, stop) if compiled.store is not None else ""
    return Constraint(
        (rule.id,), automaton, penalty, monitor=monitor, reads_prompt=rule.context == "prompt", key=key
    )


def _searching_automaton(compiled: CompiledRule, *, every_end: bool, stop: bool) -> ClassAutomaton:
    """The automaton of a pattern."""
    make = partial(compiled.machine, every_end=every_end, stop=stop)
    key = digest(compiled.key, stop) if compiled.store is not None else ""
    hard = compiled.rule.mode == "hard"
    return _kept_automaton(make, key, compiled.store, absorbing=hard, rule_id=compiled.id)


def _kept_automaton(
    make: Callable[[], CharMachine],
    key: str,
    store: Store | None,
    *,
    absorbing: bool,
    rule_id: str | None = None,
) -> ClassAutomaton:
    """The automaton of a machine, which is made when it is needed, if the store knows which bytes it tells apart."""
    if store is None:
        return ClassAutomaton(make(), absorbing=absorbing, rule_id=rule_id)
    kept = store.load("bytes", key)
    classes = None if kept is None else kept["classes"]
    kinds = None if kept is None else CharClasses.of_ranges(kept["starts"], kept["kinds"])
    automaton = ClassAutomaton(make, absorbing=absorbing, rule_id=rule_id, byte_classes=classes, kinds=kinds)
    if kept is None:
        found = automaton.kinds
        arrays = {"starts": found.starts, "kinds": found.range_classes}
        store.save("bytes", key, {"classes": automaton.byte_classes, **arrays})
    return automaton


def crowds(rules: Iterable[CompiledRule]) -> list[tuple[CompiledRule, ...]]:
    """Those of the rules that are many and tell few characters apart, in groups that can be run as one automaton."""
    fit = [
        compiled
        for compiled in rules
        if 0 < len(set(compiled.letters)) <= _CROWD_LETTERS and isinstance(compiled.rule, RegexRule)
    ]
    found: list[tuple[tuple[int, ...], list[CompiledRule]]] = []
    for compiled in fit if len(fit) >= _CROWD else ():
        for place, (letters, members) in enumerate(found):
            numbers: dict[tuple[int, int], int] = {}
            pairs = zip(letters, compiled.letters, strict=True)
            joint = tuple([numbers.setdefault(pair, len(numbers)) for pair in pairs])
            if len(numbers) <= _CROWD_LETTERS:
                members.append(compiled)
                found[place] = (joint, members)
                break
        else:
            if len(found) < _CROWDS:
                found.append((compiled.letters, [compiled]))
    return [tuple(members) for _, members in found if len(members) >= _CROWD]


def _crowd_constraint(crowd: tuple[CompiledRule, ...]) -> Constraint:
    @cache
    def product() -> ProductMachine:
        made = ProductMachine([compiled.machine(every_end=False, stop=True) for compiled in crowd])
        made.explore(_EXPLORED_STATES)
        return made

    store = crowd[0].store
    key = digest("crowd", *(compiled.key for compiled in crowd)) if store is not None else ""
    automaton = _kept_automaton(product, key, store, absorbing=True)
    ids = tuple(compiled.id for compiled in crowd)

    def named(state: int, which: Callable[[int], list[int]]) -> tuple[str, ...]:
        members = sorted({i for inner in automaton.machine_states(state) for i in which(inner)})
        return tuple([ids[i] for i in members])

    return Constraint(
        ids,
        automaton,
        rules_at=lambda state: named(state, product().completed_by),
        rules_at_end=lambda state: named(state, product().pending_in),
        key=key,
    )


def _group_constraint(group: StringGroup, store: Store | None) -> Constraint:
    key = _kept_group(group, store) if store is not None else ""
    automaton = group.automaton()
    at_end = automaton.patterns_ending_with_text if isinstance(automaton, FoldedAhoCorasick) else None
    return Constraint(
        group.rule_ids,
        automaton,
        reads_prompt=group.kind.reads_prompt,
        rules_at=lambda state: group.names(automaton.patterns_ending(state)),
        rules_at_end=None if at_end is None else lambda state: group.names(at_end(state)),
        key=key,
    )


def _kept_group(group: StringGroup, store: Store) -> str:
    """See to it that the automaton of a group of strings is built, or loaded; its key."""
    strings = "\0".join(string for piece in group.pieces for string in piece.strings)
    lengths = np.array([len(string) for piece in group.pieces for string in piece.strings], np.int64)
    kind = (*group.kind, group.names_hits)
    key = digest(made_by(), strings.encode("utf-8", "surrogatepass"), lengths.tobytes(), repr(kind))
    if not group.built:
        kept = store.load("strings", key)
        if kept is None:
            store.save("strings", key, group.automaton().to_arrays())
        else:
            group.take(kept)
    return key


def _lists(rules: Iterable[CompiledRule]) -> Iterator[StringList]:
    """The lists of strings that share automata: those of hard rules, of which no penalty needs to be told apart."""
    for compiled in rules:
        if compiled.rule.mode == "hard" and compiled.listed is not None:
            yield compiled.listed


def _rewritten(build: Callable[[], Constraint], rewriting: Rewriting) -> Constraint:
    constraint = build()
    automaton = RewrittenAutomaton(constraint.automaton, rewriting, absorbing=constraint.hard)
    inner, everything = constraint.rules_at, constraint.rule_ids
    inner_end = constraint.rules_at_end
    if inner is None:
        return replace(constraint, automaton=automaton, key="")

    def named(states: Iterable[int]) -> tuple[str, ...]:
        # None: no match is complete yet, but none can be avoided any more.
        return tuple(dict.fromkeys(rule for state in states for rule in inner(state))) or everything

    def named_at_end(state: int) -> tuple[str, ...]:
        last = automaton.inner_end(state)
        # What was held back may complete a match, else the end of the text does.
        return inner(last) or (inner_end(last) if inner_end is not None else ()) or everything

    return replace(
        constraint,
        automaton=automaton,
        key="",
        rules_at=lambda state: named(automaton.inner_hits(state)),
        rules_at_end=named_at_end,
    )


def compile_policy(policy: Policy, *, store: Store | None = None) -> CompiledPolicy:
    """Read and check every rule. `store`: where it is kept which rules were checked, and the automata of strings.

    Errors: `PatternError` for a construct that cannot be enforced or a pattern that matches the empty text,
    `PolicyError` for a stop point that a match can get past, `StateLimitError` for a rule whose automaton is too
    large; each names the rule.
    """
    checked_policy(policy)
    rules = tuple(CompiledRule(rule, store) for rule in policy.rules)
    return CompiledPolicy(policy, rules, regrouped(_lists(rules), ()), store)


def compiled_of(source: Any) -> CompiledPolicy:
    """A compiled policy: this one, that of a guard, or that of a policy, compiled now. Errors: `ArgumentError`."""
    if isinstance(source, Policy):
        return compile_policy(source)
    compiled = getattr(source, "compiled", source)
    if not isinstance(compiled, CompiledPolicy):
        raise no_policy("policy: a Guard, a Policy or a compiled policy is needed", source)
    return compiled


def arrived(policy: Policy, store: Store | None) -> CompiledPolicy:
    """`compile_policy` for a policy that another process sent. The last ones are kept: it may come with every task."""
    return _arrived(policy, None if store is None else (str(store.folder), store.limit))


@lru_cache(4)
def _arrived(policy: Policy, store: tuple[str, int] | None) -> CompiledPolicy:
    return compile_policy(policy, store=None if store is None else Store(store[0], limit=store[1]))
