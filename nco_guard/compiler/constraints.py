"""What the masks are given: automata, each with the rule or rules that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from nco_guard.automata import (
    BESIDE_JSON,
    LITERALS,
    Automaton,
    BorderedAutomaton,
    CallValuesAutomaton,
    CharMachine,
    ClassAutomaton,
    Cutting,
    DialectValuesAutomaton,
    FoldedAhoCorasick,
    FoldSpec,
    JsonField,
    JsonValuesAutomaton,
    PythonValuesAutomaton,
    RegionsAutomaton,
    Rewriting,
    RewrittenAutomaton,
    StringMarks,
    Utf8Automaton,
    ValuesIn,
    differs_alone,
    forbids_literals,
)
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.patterns import syntax
from nco_guard.automata.strings.groups import StringGroup
from nco_guard.compiler.compiled_rule import CompiledRule
from nco_guard.policy import AutomatonRule, RegexRule
from nco_guard.storage.store import Store, digest, made_by

__all__ = [
    "UTF8_RULE",
    "Constraint",
    "bordered",
    "by_regions",
    "group_constraint",
    "kept_automaton",
    "own_constraint",
    "rewritten",
    "stops",
    "utf8_constraint",
    "value_constraint",
]


UTF8_RULE = "utf-8"

_HARD = float("inf")


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


def utf8_constraint(marks: bytes, *, kept: bool) -> Constraint:
    """Well-formed UTF-8. `marks`: bytes that may stand between characters. `kept`: whether a store takes it."""
    return Constraint(
        (UTF8_RULE,), Utf8Automaton(marks), key=digest(made_by(), UTF8_RULE, marks) if kept else ""
    )


def own_constraint(compiled: CompiledRule, stop: bool) -> Constraint:
    """A rule by itself. `stop`: from where it blocks, if it names a stop point; else its whole pattern."""
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
    return kept_automaton(make, key, compiled.store, absorbing=hard, rule_id=compiled.id)


def kept_automaton(
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


def group_constraint(group: StringGroup, store: Store | None) -> Constraint:
    """The automaton that lists of strings share, and whose string a step completes."""
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


def rewritten(build: Callable[[], Constraint], rewriting: Rewriting) -> Constraint:
    """A constraint over what a tokenizer's decoder makes of the bytes that are fed to it."""
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


def bordered(build: Callable[[], Constraint]) -> Constraint:
    """A constraint over text with borders, read as nothing and as ends and beginnings of texts."""
    constraint = build()
    automaton = BorderedAutomaton(constraint.automaton)
    inner, inner_end = constraint.rules_at, constraint.rules_at_end

    def named(state: int) -> tuple[str, ...]:
        return (
            tuple(dict.fromkeys(rule for own in automaton.readings(state) for rule in inner(own)))
            if inner
            else ()
        )

    def named_at_end(state: int) -> tuple[str, ...]:
        pending = [own for own in automaton.readings(state) if not automaton.inner.may_end(own)]
        return tuple(dict.fromkeys(rule for own in pending for rule in inner_end(own))) if inner_end else ()

    return replace(
        constraint,
        automaton=automaton,
        rules_at=None if inner is None else named,
        rules_at_end=None if inner_end is None else named_at_end,
    )


def by_regions(build: Callable[[], Constraint], regions: Cutting) -> Constraint:
    """A constraint over a reply that is cut into fields."""
    constraint = build()
    automaton = RegionsAutomaton(constraint.automaton, regions, regions.cutter())
    inner, inner_end, everything = constraint.rules_at, constraint.rules_at_end, constraint.rule_ids

    def named(hits: Iterable[tuple[int, bool]]) -> tuple[str, ...]:
        found = [(inner_end if ended else inner, state) for state, ended in hits]
        return (
            tuple(dict.fromkeys(rule for names, state in found if names for rule in names(state)))
            or everything
        )

    return replace(
        constraint,
        automaton=automaton,
        rules_at=None if inner is None else lambda state: named(automaton.hits(state)),
        rules_at_end=None if inner is None else lambda state: named(automaton.ended(state)),
    )


def value_constraint(compiled: CompiledRule, stop: bool, values: ValuesIn) -> Constraint | None:
    """A rule over each value by itself; None where that says no more than the rule over the text.

    Values of JSON are read with their escapes resolved; true, false and null also as Python prints them.
    """
    rule = compiled.rule
    if rule.mode != "hard":
        return None
    build = _value_in_text if values.read == "text" else _value_in_json
    made = build(compiled, stop, values.beside)
    if made is None or values.regions is None:
        return made
    of = made.automaton
    if isinstance(of, JsonValuesAutomaton):
        made = replace(made, automaton=_in_calls(of, values))
    return by_regions(lambda: made, values.regions)


def _in_calls(of: JsonValuesAutomaton, values: ValuesIn) -> Automaton:
    """What watches what stands in fields, by what watches the JSON that it says."""
    if isinstance(values.call, JsonField):
        return CallValuesAutomaton(of, values.call)
    if isinstance(values.call, StringMarks):
        return DialectValuesAutomaton(of, values.call)
    return PythonValuesAutomaton(of) if values.read == "python" else of


def _value_in_text(compiled: CompiledRule, stop: bool, beside: str) -> Constraint | None:
    if not _differs_in_values(compiled, beside):
        return None
    return replace(own_constraint(compiled, stop), reads_prompt=False, key="")


def _value_in_json(compiled: CompiledRule, stop: bool, beside: str) -> Constraint | None:
    rule = compiled.rule
    if rule.json_escapes:
        compiled = CompiledRule(rule.model_copy(update={"json_escapes": False}), compiled.store)
    differs = _differs_in_values(compiled, beside + BESIDE_JSON)
    read = compiled if differs else _in_literals(compiled)
    if read is None:
        return None
    own = own_constraint(read, stop)
    if not differs and not forbids_literals(own.automaton):
        return None
    return replace(own, automaton=JsonValuesAutomaton(own.automaton), reads_prompt=False, key="")


def _differs_in_values(compiled: CompiledRule, beside: str) -> bool:
    """Whether a rule may match a value alone though it matches nothing where that stands, with this beside it."""
    rule = compiled.rule
    if compiled.listed is not None:
        return False
    if isinstance(rule, AutomatonRule):
        return True
    nodes = [node for node in (compiled.node, compiled.stop_node) if node is not None]
    if not FoldSpec(rule.normalize, rule.ignore).trivial:
        # What stands beside a value may be folded away, and its neighbours come beside it.
        tests = syntax.Assertion | syntax.Lookaround
        return any(isinstance(part, tests) for node in nodes for part in syntax.subnodes(node))
    return any(differs_alone(node, beside) for node in nodes)


def _in_literals(compiled: CompiledRule) -> CompiledRule | None:
    """A rule that may match true, false or null: of a list of strings those that may stand in one of them."""
    listed = compiled.listed
    if listed is None:
        return compiled
    words = [text.casefold() for pair in LITERALS.items() for text in pair]
    strings = [text for text in listed.strings if any(text.casefold() in word for word in words)]
    if not strings:
        return None
    return CompiledRule(compiled.rule.model_copy(update={"strings": tuple(strings)}), compiled.store)


def stops(compiled: CompiledRule) -> tuple[bool, ...]:
    """Which patterns of a rule are watched: the one it stops at (True), the whole one (False), or both."""
    # A match that is complete within the prompt may go on in the output, so every end counts; and a prompt may
    # hold the stop point already, so the whole pattern is watched too.
    rule = compiled.rule
    stops = isinstance(rule, RegexRule) and rule.stop_at is not None
    twice = stops and rule.mode == "hard" and rule.context == "prompt"
    return (True, False) if twice else (True,)
