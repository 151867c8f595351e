"""What a rule blocks, as a question to a finished text, and proofs about it within a bound.

A rule blocks a text that holds a match of its stop point, or of its pattern if it has none. Of rules that read the
prompt nothing is proved: whether their matches count depends on where the prompt ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from string import ascii_uppercase

from nco_guard.automata import AlternatingMachine, FoldedMachine
from nco_guard.automata.combine.inclusion import escaping_text, matching_text
from nco_guard.automata.patterns import syntax
from nco_guard.automata.patterns.searching import Machine, plain
from nco_guard.automata.spans.definition import matches
from nco_guard.automata.spans.follower import follow, source_of, spans_at
from nco_guard.compiler import CompiledRule
from nco_guard.errors import StateLimitError
from nco_guard.policy import RegexRule, Rule, StringRule

__all__ = ["PROOF_STATES", "Blocked", "Work"]

PROOF_STATES = 3_000  # pairs of states that a proof may visit
_PROOF_PAIRS = 2_000_000  # of threads that a machine may compare: of `a{8000}` a state has thousands
_LONGEST = 100_000  # characters of an example that is spelled out
_LIST = 100  # strings of which a pattern is made for a proof; of more, only those that matter


class Work:
    """Work that may be done, counted as it is: pairs of threads compared and characters read, and no clock.

    `within`: what is done here counts there too. Errors, from the call that goes beyond: `StateLimitError`.
    """

    def __init__(self, units: int, within: Work | None = None) -> None:
        self.units = units
        self.done = 0
        self._within = within

    @property
    def is_over(self) -> bool:
        """Whether the bound was met."""
        return self.done > self.units

    def __call__(self, units: int) -> None:
        """So much is to be done now."""
        self.done += units
        if self.is_over:
            raise StateLimitError(f"this was not decided within {self.units:,} steps of work")
        if self._within is not None:
            self._within(units)


class Blocked:
    """The texts that one rule blocks. `work`: of a whole review, in which this counts. Not for several threads."""

    def __init__(self, compiled: CompiledRule, work: Work | None = None) -> None:
        self.compiled = compiled
        self.work = work
        self.rule = compiled.rule
        self.id = compiled.id
        self.hard = compiled.rule.mode == "hard"
        self.provable = compiled.rule.context == "output"

    @property
    def as_written(self) -> StringRule | None:
        """The rule, if it is a list of strings that nothing is folded for but case."""
        return self.compiled.as_written

    @cached_property
    def machine(self) -> Machine:
        """A machine for what is blocked. Large for long lists of strings.

        It raises `StateLimitError` where it has compared too many threads, see `fresh_machine`.
        """
        return self.fresh_machine()

    def fresh_machine(self) -> Machine:
        """Another one, which has found nothing yet. What it may do is bounded by a count, never by a clock."""
        machine = self.compiled.machine(every_end=False, stop=True)
        inner, _ = plain(machine)
        if isinstance(inner, AlternatingMachine):
            inner.charge = Work(_PROOF_PAIRS, self.work)
        return machine

    def __call__(self, text: str) -> bool:
        """Whether the text is blocked."""
        if self.as_written is not None:
            source, _ = source_of(self.compiled.searcher)
            follower = follow(source, text)
            return next(spans_at(follower, follower.candidates(0)), None) is not None
        if self.work is not None:
            self.work(len(text))
        return matches(self.machine, text)

    @cached_property
    def example(self) -> str | None:
        """A text that is blocked, a shortest one where that is soon found; None if there is none.

        Errors: `StateLimitError` beyond the bound.
        """
        rule = self.as_written
        if rule:
            return min(rule.strings, key=len)
        try:
            return matching_text(self.machine, limit=PROOF_STATES)
        except StateLimitError:
            # Too much to go through in order, but what the pattern spells out may do.
            node = self.compiled.stop_node or self.compiled.node
            for text in _candidates(_spelled(node) if node is not None else "", self.rule):
                if _matches_from_its_start(self.fresh_machine(), text):
                    return text
            raise

    @cached_property
    def examples(self) -> tuple[str, ...]:
        """Some texts that are blocked, of different shapes: to show that another rule does not block them."""
        rule = self.as_written
        seeds = rule.strings[:: max(1, len(rule.strings) // 12)] if rule else (self.example or "",)
        found: dict[str, None] = {}
        for seed in seeds:
            for text in (
                seed,
                f"Z{seed}Z",
                f" {seed} ",
                f"\n{seed}\n",
                f"0{seed}",
                seed.swapcase(),
                seed + seed[-1:],
            ):
                if text not in found and self(text):
                    found[text] = None
        return tuple(found)

    @property
    def large(self) -> bool:
        """Whether a machine of all its strings is out of the question."""
        rule = self.rule
        return isinstance(rule, StringRule) and len(rule.strings) > _LIST

    def narrowed(self, text: str) -> Blocked | None:
        """The rule with those of its strings alone that block this text; None if they are too many."""
        rule = self.as_written
        if rule is None or not self.large:
            return None if self.large else self
        folded = text.casefold()
        close = tuple(s for s in rule.strings if s.casefold() in folded)
        if not 0 < len(close) <= _LIST:
            return None
        return Blocked(CompiledRule(rule.model_copy(update={"strings": close})), self.work)

    def within(self, other: Blocked) -> bool | None:
        """Whether the other rule blocks every text that this one does; None where that was not decided.

        Exact where it is True or False. Errors: `StateLimitError` beyond the bound.
        """
        if not all(other(text) for text in self.examples):
            return False
        if self.large:
            return None
        narrowed = other.narrowed(self.examples[0])
        if narrowed is None:
            return None
        text = escaping_text(self.machine, narrowed.machine, limit=PROOF_STATES)
        if text is None:
            return True
        return None if narrowed is not other and other(text) else False


def _matches_from_its_start(machine: Machine, text: str) -> bool:
    """Whether some match begins where the text does: only that one is followed, so it costs little however long it is.

    Of a folded pattern all matches are followed.
    """
    if isinstance(machine, FoldedMachine):
        return matches(machine, text)
    state = machine.start
    for cls in machine.classes.of_text(text):
        state = machine.step(state, cls, seed=False)
        if state < 0:
            return True
    return not machine.may_end(state)


def _candidates(spelled: str, rule: Rule) -> Iterator[str]:
    yield from (spelled, f" {spelled} ", f" {spelled}", f"{spelled} ")
    if isinstance(rule, RegexRule) and rule.checksum != "none":
        # Of all ends of two digits, some pass; of sums that are declared, of most that end so, or in a letter.
        yield from (f"{spelled[:-2]}{digits:02d}" for digits in range(100))
        if spelled[-1:].isalpha():
            yield from (f"{spelled[:-1]}{letter}" for letter in ascii_uppercase)


def _spelled(node: syntax.Node) -> str:
    """A text that the pattern reads, if its assertions and lookarounds happen to hold there."""
    if isinstance(node, syntax.Chars):
        plain = next((low for low, high in node.ranges if 0x20 < low < 0x7F or 0x20 < high < 0x7F), None)
        if plain is not None:
            return chr(max(plain, 0x21))
        return next((chr(low) for low, _ in node.ranges if not 0xD800 <= low <= 0xDFFF), "")
    if isinstance(node, syntax.Sequence):
        return "".join(map(_spelled, node.items))
    if isinstance(node, syntax.Alternation):
        return _spelled(node.options[0]) if node.options else ""
    if isinstance(node, syntax.Repeat):
        text = _spelled(node.body)
        return text * min(node.low, _LONGEST // max(1, len(text)))
    return ""
