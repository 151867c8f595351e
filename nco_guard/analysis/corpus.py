"""Over-blocking: what a policy would have forbidden of texts that are as they should be, and what would forbid less.

Give it text that a model should be able to write. Whatever a rule forbids of it is forbidden for nothing. Each piece of
advice was tried on the same texts: a rule with one field changed, or one string of a list by itself as a whole word.

Cost: some 30 ms a rule and MiB of text in short lines, and the same for each change that is tried; tokens cost a step
of the masks each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nco_guard.analysis.alone import constraints_alone
from nco_guard.analysis.policies import HasTables
from nco_guard.automata.strings.substrings import SubstringSearcher, fold_case
from nco_guard.compiler import CompiledPolicy, CompiledRule, Constraint, compile_policy
from nco_guard.errors import PolicyError
from nco_guard.masking import VIOLATED
from nco_guard.masking.byte_strings import ByteStrings
from nco_guard.policy import AutomatonRule, Policy, Rule, StringRule

__all__ = [
    "Advice",
    "Overblocking",
    "RuleBlocking",
    "TokenBlocking",
    "overblocking",
    "refused_tokens",
]

Flags = NDArray[np.bool_]

_WORTH = 0.001  # share of the texts from which on a rule is worth a change
_BETTER = 0.5  # of what it forbids, at most so much is left after a change worth naming
_STRINGS = 5  # strings of a list that are named, those that forbid most


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that was tried: what it is, and how many of the texts the rule forbids before and after it.

    `string`: the number of the string in the rule's list that it is about; None for the whole rule.
    """

    rule_id: str
    change: str
    before: int
    after: int
    texts: int
    string: int | None = None

    @property
    def message(self) -> str:
        """The advice as a sentence; no text in it."""
        what = (
            f"rule {self.rule_id!r}" if self.string is None else f"strings[{self.string}] of {self.rule_id!r}"
        )
        return (
            f"{what} forbids {_percent(self.before, self.texts)} of the texts: with {self.change} it would forbid "
            f"{_percent(self.after, self.texts)}"
        )


@dataclass(frozen=True, slots=True)
class RuleBlocking:
    """What one rule does to the texts. `forbidden`: how many it forbids (a soft or monitored rule: matches in).

    `strings`: of a list, the numbers of the strings that occur in most of these, with in how many. `examples`: numbers
    of some of these texts. `advice`: changes by which it would forbid far less.
    """

    rule_id: str
    mode: Literal["hard", "soft", "monitor"]
    forbidden: int
    strings: tuple[tuple[int, int], ...]
    examples: tuple[int, ...]
    advice: tuple[Advice, ...]


@dataclass(frozen=True, slots=True)
class TokenBlocking:
    """How many tokens of the texts the masks refuse. After a refused token the rest is read as a text of its own."""

    tokens: int
    refused: int
    by_rule: Mapping[str, int]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"tokens": self.tokens, "refused": self.refused, "by_rule": dict(self.by_rule)}


@dataclass(frozen=True, slots=True)
class Overblocking:
    """What a policy does to some texts. Holds numbers, never text. `forbidden`: texts that some hard rule forbids."""

    texts: int
    forbidden: int
    rules: tuple[RuleBlocking, ...]

    @property
    def advice(self) -> tuple[Advice, ...]:
        """All advice, what saves most first."""
        found = [advice for rule in self.rules for advice in rule.advice]
        return tuple(sorted(found, key=lambda advice: advice.after - advice.before))

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = asdict(self)
        for rule, written in zip(self.rules, plain["rules"], strict=True):
            written["share"] = rule.forbidden / self.texts if self.texts else 0.0
            for advice, described in zip(rule.advice, written["advice"], strict=True):
                described["message"] = advice.message
        return plain


def _percent(count: int, of: int) -> str:
    share = 100 * count / of if of else 0.0
    return f"{share:.1f} %" if share >= 1 or not share else f"{share:.2g} %"


def overblocking(policy: Policy | CompiledPolicy, texts: Sequence[str], *, examples: int = 0) -> Overblocking:
    """Which share of some texts each rule forbids, and which changes would make it less.

    A text is forbidden if the rule could not have let a model write it and end: it holds a match of the rule's stop
    point, or of its pattern if it has none. `examples`: so many texts a rule are named by their numbers. Errors: those
    of compiling; `ValueError` without any text.

    Examples:
        >>> policy = Policy(name="rude", rules=[StringRule(id="rude", strings=["ass"])])
        >>> overblocking(policy, ["The class met.", "An ass brays.", "Nothing here."]).rules[0].forbidden
        2
    """
    if not texts:
        raise ValueError("a share needs at least one text")
    compiled = compile_policy(policy) if isinstance(policy, Policy) else policy
    pieces = ByteStrings([text.encode("utf-8", "replace") for text in texts])
    forbidden = np.zeros(len(texts), bool)
    rules: list[RuleBlocking] = []
    for rule in compiled.rules:
        blocked = _blocked(constraints_alone(compiled, rule)[0], pieces)
        if rule.rule.mode == "hard":
            forbidden |= blocked
        rules.append(_of_rule(rule, blocked, texts, pieces, examples))
    return Overblocking(len(texts), int(np.count_nonzero(forbidden)), tuple(rules))


def _blocked(constraint: Constraint, pieces: ByteStrings) -> Flags:
    automaton = constraint.automaton
    states = pieces.after(automaton, automaton.start, np.arange(len(pieces)))
    blocked: Flags = states < 0
    blocked[~blocked] = ~automaton.may_end_many(states[~blocked])
    return blocked


def _of_rule(
    rule: CompiledRule, blocked: Flags, texts: Sequence[str], pieces: ByteStrings, examples: int
) -> RuleBlocking:
    count = int(np.count_nonzero(blocked))
    strings: tuple[tuple[int, int], ...] = ()
    found: list[Advice] = []
    if count and isinstance(rule.rule, StringRule) and rule.listed is not None:
        counts = _occurring(rule.rule, [texts[i] for i in np.flatnonzero(blocked).tolist()])
        strings = tuple(counts.most_common(_STRINGS))
    if count >= _WORTH * len(texts):
        found.extend(_tried(rule.rule, None, count, pieces))
        if isinstance(rule.rule, StringRule) and len(rule.rule.strings) > 1:
            for number, times in strings:
                if times >= _WORTH * len(texts):
                    alone = rule.rule.model_copy(update={"strings": (rule.rule.strings[number],)})
                    found.extend(_tried(alone, number, times, pieces))
    shown = tuple(np.flatnonzero(blocked)[:examples].tolist())
    return RuleBlocking(rule.id, rule.rule.mode, count, strings, shown, tuple(found))


def _tried(rule: Rule, string: int | None, before: int, pieces: ByteStrings) -> Iterator[Advice]:
    """The changes to a rule that forbid far less. Of one string, only what concerns it alone."""
    for change, variant in _variants(rule):
        try:
            compiled = compile_policy(Policy(name="tried", rules=(variant,)))
        except PolicyError:  # what is left of it cannot be enforced, so it is no advice
            continue
        after = int(np.count_nonzero(_blocked(compiled.constraints()[1], pieces)))
        if after <= _BETTER * before:
            yield Advice(rule.id, change, before, after, len(pieces), string)


def _variants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    if isinstance(rule, AutomatonRule):
        return
    if rule.stop_at is not None:
        yield "no stop_at", rule.model_copy(update={"stop_at": None})
    elif not rule.whole_word:
        yield "whole_word: true", rule.model_copy(update={"whole_word": True})
    if rule.case == "fold":
        yield "case: exact", rule.model_copy(update={"case": "exact"})
    if rule.confusables == "leet":
        yield "confusables: letters", rule.model_copy(update={"confusables": "letters"})
    if rule.confusables != "none":
        yield "confusables: none", rule.model_copy(update={"confusables": "none"})
    if rule.ignore:
        yield "nothing ignored", rule.model_copy(update={"ignore": ()})
    if rule.normalize != "none":
        yield "normalize: none", rule.model_copy(update={"normalize": "none"})


def _occurring(rule: StringRule, texts: Sequence[str]) -> Counter[int]:
    """In how many of the texts each string of a list occurs, by its number."""
    first: dict[str, int] = {}
    for number, string in enumerate(rule.strings):
        first.setdefault(fold_case(string) if rule.case == "fold" else string, number)
    searcher = SubstringSearcher(rule.strings, caseless=rule.case == "fold", whole_word=rule.whole_word)
    counts: Counter[int] = Counter()
    for text in texts:
        counts.update({first[string] for _, _, string in searcher.occurrences(text)})
    return counts


def refused_tokens(
    bound: HasTables, encode: Callable[[str], Sequence[int]], texts: Sequence[str], *, limit: int = 20_000
) -> TokenBlocking:
    """Which share of the tokens of some texts the masks refuse. `encode`: text to ids, without special tokens.

    Each text is read as an output of its own, its end included. `limit`: tokens that are read at most, texts in order.
    Cost: a step a token, some milliseconds for a state not met before.

    Examples:
        >>> bound = Guard.from_presets("pii").bind(tokenizer)
        >>> found = refused_tokens(bound, lambda text: tokenizer(text, add_special_tokens=False).input_ids, ["Hello."])
        >>> found.refused
        0
    """
    read = refused = 0
    by_rule: Counter[str] = Counter()
    for text in texts:
        if read >= limit:
            break
        tables = bound.tables
        state = tables.start
        ids = list(encode(text))
        eos = tables.vocabulary.eos_ids
        for token in [*ids, *eos[:1]]:
            following = tables.next(state, token)
            if following == VIOLATED:
                refused += 1
                by_rule.update(tables.rules_at_fault(state, token))
                following = tables.start
            state = following
        read += len(ids) + len(eos[:1])
    return TokenBlocking(read, refused, dict(by_rule.most_common()))
