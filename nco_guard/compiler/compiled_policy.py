"""From a policy to its compiled form, whose constraints the masks are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

from nco_guard.automata import BORDER, Cutting, Rewriting, ValuesIn
from nco_guard.automata.strings.groups import StringGroup, StringList, regrouped
from nco_guard.compiler.compiled_rule import CompiledRule
from nco_guard.compiler.constraints import (
    UTF8_RULE,
    Constraint,
    bordered,
    by_regions,
    group_constraint,
    own_constraint,
    rewritten,
    stops,
    utf8_constraint,
    value_constraint,
)
from nco_guard.compiler.crowds import crowd_constraint, crowds
from nco_guard.copies import Shared
from nco_guard.policy import Policy, Rule
from nco_guard.policy.given import checked_policy, no_policy
from nco_guard.policy.twins import JSON_SUFFIX
from nco_guard.storage.store import Store

__all__ = ["CompiledPolicy", "arrived", "compile_policy", "compiled_of"]


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

    @cached_property
    def order(self) -> dict[str, int]:
        """Of each rule's id its place in the policy."""
        return {rule.id: place for place, rule in enumerate(self.rules)}

    def in_order(self, rule_ids: Iterable[str]) -> tuple[str, ...]:
        """Ids of rules in the policy's order, each once."""
        return tuple(sorted(set(rule_ids), key=self.order.__getitem__))

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
        """This policy with more rules at its end. See `revised`."""
        return self.revised(self.policy.with_rules(*rules))

    def without(self, *rule_ids: str) -> CompiledPolicy:
        """This policy without some rules; `PolicyError` for ids that it does not have. See `revised`."""
        return self.revised(self.policy.without(*rule_ids))

    def constraints(
        self,
        rewriting: Rewriting | None = None,
        *,
        borders: bool = False,
        regions: Cutting | None = None,
        reuse: Iterable[Constraint] = (),
    ) -> tuple[Constraint, ...]:
        """The automata for all rules, with well-formed UTF-8 first.

        Hard strings of all rules that are looked for in the same way share automata (`groups`), which are built once
        and immutable; every other rule has one of its own, which is found lazily and so fresh in every call.
        `rewriting`: what the tokenizer's decoder makes of the bytes that the automata are fed. `borders`: these bytes
        have borders, and each rule is followed twice (`automata.BorderedAutomaton`). `regions`: they are a reply, and
        each rule is followed in its fields (`automata.RegionsAutomaton`), but for those that the policy leaves free.

        `reuse`: constraints of this policy, or of one that it was revised from, for the same of both. Those that
        are still wanted are returned as they are, with all the states that they have found. What was found lazily is
        guarded by the lock of whoever steps it, so both must be used under one.
        """
        known = {constraint.source: constraint for constraint in reuse if constraint.source}
        found: list[Constraint] = []
        regions = regions and self.bound_in(regions)
        for source, build in self._sources(rewriting, borders, regions):
            key = (*source, rewriting, borders, regions)
            constraint = known.get(key)
            found.append(replace(build(), source=key) if constraint is None else constraint)
        return tuple(found)

    def value_constraints(
        self, reuse: Iterable[Constraint] = (), places: Iterable[ValuesIn] = (ValuesIn("json"),)
    ) -> tuple[Constraint, ...]:
        """Hard rules on each value by itself, where that says more than on all of the text.

        places: where values stand. Those of JSON are strings, keys, numbers as they print, and true, false and null as
        they are written and as Python prints them. A rule and its twin with JSON escapes (`policy.twins`) are one here.
        `reuse`: as of `constraints`.
        """
        known = {constraint.source: constraint for constraint in reuse if constraint.source}
        found: list[Constraint] = []
        for place in places:
            regions = place.regions and self.bound_in(place.regions)
            values = place._replace(regions=regions)
            for compiled in self.rules:
                twin = compiled.id.removesuffix(JSON_SUFFIX)
                if twin != compiled.id and twin in self.order:
                    continue
                for stop in stops(compiled):
                    key = (compiled, stop, "values", values)
                    if key in known:
                        found.append(known[key])
                    elif (made := value_constraint(compiled, stop, values)) is not None:
                        found.append(replace(made, source=key))
        return tuple(found)

    def bound_in(self, regions: Cutting) -> Cutting:
        """These regions, with those fields free that the policy does not look at."""
        return regions.freed(*self.policy.unbound_fields)

    def _sources(
        self, rewriting: Rewriting | None, borders: bool, regions: Cutting | None
    ) -> Iterator[tuple[tuple[object, ...], Callable[[], Constraint]]]:
        """What each constraint is made of, which tells whether one can be reused, and how to make it."""
        # Rewriting neither makes nor breaks characters.
        marks = (rewriting.marks if rewriting else b"") + (bytes([BORDER]) if borders else b"")
        yield (UTF8_RULE,), partial(utf8_constraint, marks, kept=self.store is not None)
        for source, build in self._plain_sources():
            made = build if rewriting is None else partial(rewritten, build, rewriting)
            if regions is not None:
                made = partial(by_regions, made, regions)
            yield source, partial(bordered, made) if borders else made

    def _plain_sources(self) -> Iterator[tuple[tuple[object, ...], Callable[[], Constraint]]]:
        together = crowds(
            compiled
            for compiled in self.rules
            if compiled.rule.mode == "hard" and compiled.rule.context == "output"
        )
        crowded = {compiled for crowd in together for compiled in crowd}
        for compiled in self.rules:
            if compiled not in crowded and (compiled.listed is None or compiled.rule.mode != "hard"):
                for stop in stops(compiled):
                    yield (compiled, stop), partial(own_constraint, compiled, stop)
        for crowd in together:
            yield (crowd,), partial(crowd_constraint, crowd)
        for group in self.groups:
            yield (group,), partial(group_constraint, group, self.store)


def _lists(rules: Iterable[CompiledRule]) -> Iterator[StringList]:
    """The lists of strings that share automata: those of hard rules, of which no penalty needs to be told apart."""
    for compiled in rules:
        if compiled.rule.mode == "hard" and compiled.listed is not None:
            yield compiled.listed


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
    """A compiled policy: this one, that of a guard, or that of a policy, which keeps it. Errors: `ArgumentError`."""
    if isinstance(source, Policy):
        # In the object, which never changes: a table beside it would keep both, since each holds the other.
        kept: dict[str, Any] = vars(source)
        found: CompiledPolicy = kept.get("_compiled") or kept.setdefault("_compiled", compile_policy(source))
        return found
    verifier = getattr(source, "verifier", source)
    compiled = getattr(verifier, "compiled", verifier)
    if not isinstance(compiled, CompiledPolicy):
        raise no_policy("policy: a Guard, a Policy or a compiled policy is needed", source)
    return compiled


def arrived(policy: Policy, store: Store | None) -> CompiledPolicy:
    """`compile_policy` for a policy that another process sent. The last ones are kept: it may come with every task."""
    return _arrived(policy, None if store is None else (str(store.folder), store.limit))


@lru_cache(4)
def _arrived(policy: Policy, store: tuple[str, int] | None) -> CompiledPolicy:
    return compile_policy(policy, store=None if store is None else Store(store[0], limit=store[1]))
