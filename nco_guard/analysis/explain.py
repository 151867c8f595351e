"""Why tokens are forbidden: each rule run by itself, and where no rule alone forbids, which ones do together.

The masks know that a token is forbidden; that each reason agrees with them is for tests to show. Slow beside a mask,
and bounded: a rule costs its automaton's steps over the text and over the tokens asked about; a dead end, as many masks
of a few rules as it takes to find out which (some log2(rules) for each that takes part). Of text that is cut it is
said which rule forbids what, not where in the text.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nco_guard.analysis.alone import constraints_alone
from nco_guard.analysis.explanation import Code, Explanation, Reason, RuleExplanation, TokenExplanation
from nco_guard.analysis.tracking import Span, Tracker
from nco_guard.compiler import UTF8_RULE, CompiledPolicy, CompiledRule, Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking import JointTables
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.byte_strings import token_bytes
from nco_guard.masking.idsets import holds
from nco_guard.masking.lookahead import HardConstraints
from nco_guard.masking.short_ways import ShortWays, borders_written
from nco_guard.tokens import PrefixTree, ShownText, Vocabulary

__all__ = ["Explainer"]

Ids = NDArray[np.int64]
Flags = NDArray[np.bool_]


class _Rule:
    """One rule by itself: its constraints, and what finds places."""

    def __init__(self, compiled: CompiledPolicy, rule: CompiledRule, vocabulary: Vocabulary) -> None:
        self.compiled = rule
        self.id, self.mode = rule.id, rule.rule.mode
        self.penalty = rule.rule.penalty
        self.reads_prompt = rule.rule.context == "prompt"
        borders = bool(vocabulary.borders)
        self.constraints = constraints_alone(
            compiled, rule, vocabulary.rewriting, borders=borders, regions=vocabulary.regions
        )
        self._trackers: dict[int, Tracker] = {}

    def tracker(self, index: int) -> Tracker:
        """The tracker of one of its patterns: the first is the stop point, if there is one, the second the whole."""
        found = self._trackers.get(index)
        if found is None:
            found = self._trackers[index] = Tracker(self.compiled, stop=index == 0)
        return found


@dataclass(frozen=True)
class _Verdict:
    """What one constraint of a rule says about tokens: bool [tokens] each."""

    completes: Flags
    ends: Flags

    @property
    def any(self) -> Flags:
        return self.completes | self.ends


@dataclass
class _Place:
    """A text so far: the state of each constraint of each rule, and what was read of it."""

    context: bytes
    ids: tuple[int, ...]
    states: list[tuple[int, ...]]
    utf8: int
    text: str
    prompted: str  # the same for rules that read the prompt, which stands before it
    prompt: int  # how many code points of that are the prompt's
    offset: int  # what to take from an offset in `prompted` to get one in the text


class Explainer:
    """Explains the masks of one policy over one vocabulary. Made when somebody asks; safe to share between threads."""

    def __init__(self, compiled: CompiledPolicy, vocabulary: Vocabulary, tree: PrefixTree) -> None:
        self._compiled = compiled
        self._vocabulary = vocabulary
        self._tree = tree
        self._lock = threading.RLock()
        borders = bool(vocabulary.borders)
        self._utf8: Constraint = compiled.constraints(vocabulary.rewriting, borders=borders)[0]
        self._rules = [_Rule(compiled, rule, vocabulary) for rule in compiled.rules]
        self._eos = frozenset(vocabulary.eos_ids)

    # -- the text so far ---------------------------------------------------------------------------------------

    def _place(self, context: bytes, ids: Sequence[int]) -> _Place:
        raw = self._vocabulary.raw_bytes(ids)
        states = [tuple(self._state(c, context, raw) for c in rule.constraints) for rule in self._rules]
        text, prompted = self._read(b"", raw), self._read(context, raw) if context else ""
        prompt = len(self._read(context, b"")) if context else 0
        dropped = self._vocabulary.rewriting is None and self._vocabulary.strips_first_space
        offset = prompt + (dropped and raw[:1] == b" ")
        utf8 = self._state(self._utf8, b"", raw)
        return _Place(context, tuple(ids), states, utf8, text, prompted, prompt, offset)

    def _state(self, constraint: Constraint, context: bytes, raw: bytes) -> int:
        automaton = constraint.automaton
        first = self._vocabulary.strips_first_space or self._vocabulary.rewriting is not None
        state = automaton.spaceless_start if first else automaton.start
        if constraint.reads_prompt and context:
            state = automaton.read_prompt(context)
        for byte in raw:
            state = automaton.step(state, byte)
            state = ~state if state < 0 else state
        return state

    def _read(self, context: bytes, raw: bytes, *, final: bool = False) -> str:
        """The text that automata have been shown of a prompt and of tokens; without an unfinished last character."""
        reading = ShownText.begin(self._vocabulary, after_prompt=bool(context))
        reading, text = reading.read(context + raw)
        return text + reading.rest if final else text

    # -- each rule by itself -----------------------------------------------------------------------------------

    def _verdict(self, constraint: Constraint, state: int, tokens: Ids) -> _Verdict:
        states = token_bytes(self._vocabulary).after(constraint.automaton, state, tokens)
        completes = states < 0
        ends = np.isin(tokens, list(self._eos)) & ~completes
        ends[ends] = ~constraint.automaton.may_end_many(states[ends])
        # A border ends a text too.
        cut = completes & np.isin(tokens, self._vocabulary.borders)
        completes, ends = completes & ~cut, ends | cut
        return _Verdict(completes, ends)

    def _verdicts(self, place: _Place, tokens: Ids) -> tuple[_Verdict, list[list[_Verdict]]]:
        """What well-formedness and each constraint of each rule say about the tokens."""
        rules = [
            [self._verdict(c, s, tokens) for c, s in zip(rule.constraints, states, strict=True)]
            for rule, states in zip(self._rules, place.states, strict=True)
        ]
        return self._verdict(self._utf8, place.utf8, tokens), rules

    def _span(self, rule: _Rule, index: int, place: _Place, token: int, *, at_end: bool) -> Span | None:
        if _is_cut(self._vocabulary):
            return None
        context = place.context if rule.reads_prompt else b""
        before = place.prompted if context else place.text
        raw = self._vocabulary.raw_bytes((*place.ids, token))
        prompt = place.prompt if context else 0
        follow = rule.tracker(index)
        span = (
            follow.at_end(self._read(context, raw, final=True), prompt)
            if at_end
            else follow.completed(self._read(context, raw), len(before), prompt)
        )
        shift = place.offset if context else 0
        return None if span is None else (span[0] - shift, span[1] - shift)

    def _reason(
        self, rule: _Rule, place: _Place, token: int, verdicts: Sequence[_Verdict], at: int
    ) -> Reason | None:
        for index, verdict in enumerate(verdicts):
            if not verdict.any[at]:
                continue
            at_end = not bool(verdict.completes[at])
            span = self._span(rule, index, place, token, at_end=at_end)
            code: Code = "unavoidable" if span is None else "match"
            if at_end or _is_cut(self._vocabulary):
                code = "end" if at_end else "match"
            if rule.mode != "hard":
                code = "penalty" if rule.mode == "soft" else "monitor"
            penalty = rule.penalty if rule.mode == "soft" else 0.0
            start, end = span or (None, None)
            return Reason(code, (rule.id,), start, end, penalty)
        return None

    # -- rules together ----------------------------------------------------------------------------------------

    @cached_property
    def _hard(self) -> list[tuple[int, int]]:
        return [
            (i, j)
            for i, rule in enumerate(self._rules)
            for j in range(len(rule.constraints))
            if rule.mode == "hard"
        ]

    @cached_property
    def _tables(self) -> JointTables:
        constraints = [self._utf8, *(self._rules[i].constraints[j] for i, j in self._hard)]
        return JointTables(constraints, self._vocabulary, self._tree)

    @cached_property
    def _paths(self) -> ShortWays:
        return ShortWays(self._tree, borders_written(self._vocabulary))

    def _forbidden_by(self, place: _Place, rules: Sequence[int], tokens_left: int) -> Ids:
        """The mask if there were only these rules (by number); nothing, where that search meets its bound."""
        chosen = [(n, i, j) for n, (i, j) in enumerate(self._hard, start=1) if i in rules]
        tables = [self._tables.tables[0], *(self._tables.tables[n] for n, _, _ in chosen)]
        states = (place.utf8, *(place.states[i][j] for _, i, j in chosen))
        together = HardConstraints(tables, self._vocabulary, self._tree, self._paths)
        try:
            return together.forbidden(states, tokens_left)[0]
        except StateLimitError:  # no proof that these suffice
            return np.zeros(0, np.int64)

    def _culprits(self, place: _Place, token: int, tokens_left: int) -> tuple[str, ...] | None:
        """Rules that together leave the token no way out, none of them dispensable; None if there are none."""

        def stuck(rules: Sequence[int]) -> bool:
            return holds(self._forbidden_by(place, rules, tokens_left), token)

        rules = list(dict.fromkeys(i for i, _ in self._hard))
        if not stuck(rules):
            return None
        found = sorted(_needed(stuck, [], False, rules)) if not stuck([]) else []
        return tuple(self._rules[i].id for i in found) or (UTF8_RULE,)

    def _together(
        self, place: _Place, token: int, tokens_left: int, known: list[tuple[Reason, Ids]]
    ) -> Reason:
        """Why no rule alone forbids the token and yet it is forbidden. `known`: reasons found for others; extended."""
        for reason, ids in known:
            if token in ids:
                return reason
        code: Code = "dead-end"
        rules = self._culprits(place, token, HORIZON)
        if rules is None and tokens_left < HORIZON:
            code, rules = "token-limit", self._culprits(place, token, tokens_left)
        if rules is None:
            # The rules run as one are more careful than each alone where a search meets its bound.
            return Reason("dead-end", tuple(rule.id for rule in self._rules if rule.mode == "hard"))
        reason = Reason(code, rules)
        numbers = [i for i, rule in enumerate(self._rules) if rule.id in rules]
        left = HORIZON if code == "dead-end" else tokens_left
        alike = self._forbidden_by(place, numbers, left)
        for dropped in numbers:
            fewer = self._forbidden_by(place, [i for i in numbers if i != dropped], left)
            alike = np.setdiff1d(alike, fewer, assume_unique=True)
        if code == "token-limit":
            everyone = [i for i, _ in self._hard]
            alike = np.setdiff1d(alike, self._forbidden_by(place, everyone, HORIZON), assume_unique=True)
        known.append((reason, alike))
        return reason

    # -- answers -----------------------------------------------------------------------------------------------

    def tokens(
        self, context: bytes, ids: Sequence[int], tokens: Ids, forbidden: Flags, tokens_left: int
    ) -> tuple[TokenExplanation, ...]:
        """Each of the tokens explained; `forbidden`, bool [tokens], is what the mask says of them."""
        with self._lock:
            return self._explained(self._place(context, ids), tokens, forbidden, tokens_left)

    def _explained(
        self, place: _Place, tokens: Ids, forbidden: Flags, tokens_left: int
    ) -> tuple[TokenExplanation, ...]:
        unusable = frozenset(self._vocabulary.unusable_ids)
        utf8, verdicts = self._verdicts(place, tokens)
        known: list[tuple[Reason, Ids]] = []
        found: list[TokenExplanation] = []
        for at, token in enumerate(tokens.tolist()):
            if token in unusable:
                found.append(TokenExplanation(token, True, (Reason("unusable"),)))
                continue
            reasons = [Reason("encoding", (UTF8_RULE,))] if utf8.any[at] else []
            for rule, own in zip(self._rules, verdicts, strict=True):
                reason = self._reason(rule, place, token, own, at)
                if reason is not None:
                    reasons.append(reason)
            if forbidden[at] and not any(reason.forbids for reason in reasons):
                reasons.append(self._together(place, token, tokens_left, known))
            found.append(TokenExplanation(token, bool(forbidden[at]), tuple(reasons)))
        return tuple(found)

    def everything(
        self,
        context: bytes,
        ids: Sequence[int],
        forbidden: Ids,
        late: Ids,
        tokens_left: int,
        *,
        ended: bool,
        limit: int,
    ) -> Explanation:
        """The whole mask explained. `forbidden`: its ids; `late`: those that only the number of tokens left forbids."""
        with self._lock:
            place = self._place(context, ids)
            # Soft and monitored rules forbid nothing, so only all tokens show what they would penalise or record.
            every = np.arange(self._vocabulary.width, dtype=np.int64)
            loose = any(rule.mode != "hard" for rule in self._rules)
            asked = every if loose else forbidden
            utf8, verdicts = self._verdicts(place, asked)
            usable = ~np.isin(asked, self._vocabulary.unusable_ids)
            hits = [np.logical_or.reduce([v.any for v in own]) & usable & (not ended) for own in verdicts]
            rules = tuple(
                self._rule(rule, states, place, int(np.count_nonzero(hit)))
                for rule, states, hit in zip(self._rules, place.states, hits, strict=True)
            )
            masked = np.isin(asked, forbidden)
            completes = [np.logical_or.reduce([v.completes for v in own])[masked] for own in verdicts]
            kinds = self._kinds(
                asked[masked], usable[masked], utf8.any[masked], [h[masked] for h in hits], completes, late
            )
            codes = [code for code, _ in kinds]
            counts = {code: codes.count(code) for code in dict.fromkeys(codes)}
            shown = _in_turn(asked[masked], kinds, limit)
            explained = self._explained(place, shown, np.ones(len(shown), bool), tokens_left)
        return Explanation(
            step=len(place.ids),
            length=len(self._vocabulary.text_of(place.ids)),
            ended=ended,
            vocabulary=self._vocabulary.width,
            forbidden=len(forbidden),
            counts=counts,
            rules=rules,
            tokens=explained,
        )

    def _rule(self, rule: _Rule, states: tuple[int, ...], place: _Place, tokens: int) -> RuleExplanation:
        context = place.context if rule.reads_prompt else b""
        text = place.prompted if context else place.text
        prompt = place.prompt if context else 0
        # What blocks is the stop point, but a reader looks for the match that it is to prevent.
        patterns = 1 if rule.compiled.rule.stop_at is None else 2
        if _is_cut(self._vocabulary):
            patterns = 0
        begins = [rule.tracker(i).under_way(text, prompt) for i in range(patterns)]
        known = [begin for begin in begins if begin is not None]
        may_end = all(c.automaton.may_end(s) for c, s in zip(rule.constraints, states, strict=True))
        start = min(known) if known else None
        length = 0 if start is None else len(text) - start
        shift = place.offset if context else 0
        return RuleExplanation(
            rule.id, rule.mode, None if start is None else start - shift, length, tokens, may_end
        )

    def _kinds(
        self,
        tokens: Ids,
        usable: Flags,
        ill_formed: Flags,
        hits: Sequence[Flags],
        completes: Sequence[Flags],
        late: Ids,
    ) -> list[tuple[Code, int]]:
        """For each forbidden token the code of its first reason, and the number of the rule (-1: none)."""
        first = np.full(len(tokens), -1, np.int64)
        for number in reversed(range(len(self._rules))):
            if self._rules[number].mode == "hard":
                first[hits[number]] = number
        limited = np.isin(tokens, late)
        found: list[tuple[Code, int]] = []
        for at, number in enumerate(first.tolist()):
            if not usable[at]:
                found.append(("unusable", -1))
            elif ill_formed[at]:
                found.append(("encoding", -1))
            elif number >= 0:
                found.append(("match" if completes[number][at] else "end", number))
            else:
                found.append(("token-limit" if limited[at] else "dead-end", -1))
        return found


def _is_cut(vocabulary: Vocabulary) -> bool:
    """Whether several texts are shown of one."""
    return bool(vocabulary.borders) or vocabulary.regions is not None


def _needed(
    stuck: Callable[[Sequence[int]], bool], kept: list[int], grown: bool, rules: list[int]
) -> list[int]:
    """Those of `rules` without which `kept` would not be stuck, as few as can be (Junker's QuickXplain)."""
    if grown and stuck(kept):
        return []
    if len(rules) == 1:
        return rules
    half = len(rules) // 2
    second = _needed(stuck, [*kept, *rules[:half]], True, rules[half:])
    return [*_needed(stuck, [*kept, *second], bool(second), rules[:half]), *second]


def _in_turn(tokens: Ids, kinds: Sequence[tuple[Code, int]], limit: int) -> Ids:
    """At most `limit` of the tokens that rules forbid, of each kind in turn, in the order of their ids."""
    groups: dict[tuple[Code, int], list[int]] = {}
    for token, kind in zip(tokens.tolist(), kinds, strict=True):
        if kind[0] not in ("encoding", "unusable"):
            groups.setdefault(kind, []).append(token)
    chosen: list[int] = []
    for depth in range(limit):
        if len(chosen) >= limit:
            break
        row = [group[depth] for group in groups.values() if depth < len(group)]
        if not row:
            break
        chosen.extend(row[: limit - len(chosen)])
    return np.array(sorted(chosen), np.int64)
