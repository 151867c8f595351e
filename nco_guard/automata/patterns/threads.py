"""Threads and sets of threads: the working parts of `alternating`.

* A *continuation* is what is still to be matched: an interned linked list of operations.
* A *thread* is a continuation together with its duties: lookaheads met on the way that must still come true
  (`needs`, a set of Ds) and ones that must not (`never`, one D; several merge, because not A and not B is
  not (A or B)).
* A *D* is an interned set of threads, read as OR: "some thread gets through". `FALSE` is the empty set, `TRUE` holds
  the thread that is through without duties.
* A lookbehind is a *runner*: a D seeded at every position, whose value at a position is known when it is stepped.

Assertions are tested at the moment of a step, when the character before and the character after are both known; that
turns `^ $ \\A \\Z \\b \\B` into local tests. A lookahead met during a step is stepped by the same character at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from nco_guard.automata.charsets import NEWLINE, CharClasses, CharSet, word
from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.syntax import (
    Alternation,
    Assertion,
    Chars,
    Lookaround,
    Node,
    Repeat,
    Sequence,
    is_nullable,
    subnodes,
)
from nco_guard.errors import StateLimitError

__all__ = ["ThreadSets"]

FALSE, TRUE = 0, 1  # the two constant Ds
DONE = 0  # the empty continuation: matched
HERE = 1  # the end of a lookbehind, or of a match whose exact end matters: matched if the text stands here
BEFORE = -1  # result of a step from HERE: matched at the position before the character read
NO_LIMIT = -1
_MANY = 1 << 30  # in place of longer lengths

# What precedes a position, as bits.
AT_START, AFTER_NEWLINE, AFTER_WORD, AFTER_ASCII_WORD = 1, 2, 4, 8
# What precedes is a prompt: matches that end at this position do not count.
PAST_PROMPT = 16

# Whether \B holds in the empty text (it does from Python 3.14 on).
_EMPTY_HAS_NO_BOUNDARY = re.search(r"\B", "") is not None

Thread = tuple[int, frozenset[int], int]
_THROUGH: Thread = (DONE, frozenset(), FALSE)
# A thread within a step, with the repeats entered at this position (and whether their minimum was met by then).
_Pending = tuple[int, frozenset[int], int, frozenset[tuple[int, bool]]]


@dataclass(frozen=True, slots=True)
class _CharOp:
    mask: int


# Operations name their parts by number (`_number`), so that hashing one is cheap however large the parts are.
@dataclass(frozen=True, slots=True)
class _SequenceOp:
    items: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _AltOp:
    options: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _RepeatOp:
    body: int
    low: int
    high: int  # NO_LIMIT: without


@dataclass(frozen=True, slots=True)
class _TestOp:
    kind: str
    ascii_only: bool


@dataclass(frozen=True, slots=True)
class _AheadOp:
    body: int
    negative: bool


@dataclass(frozen=True, slots=True)
class _BehindOp:
    runner: int
    negative: bool


@dataclass(frozen=True, slots=True)
class _HereOp:
    pass


_Op = _CharOp | _SequenceOp | _AltOp | _RepeatOp | _TestOp | _AheadOp | _BehindOp | _HereOp


_OF_CONTINUATIONS = (
    *("_ops", "_rests", "_nullable", "_least", "_shapes", "_counters", "_cell_ids", "_shape_ids"),
    *("_parts", "_part_ids", "_part_nullable", "_part_least", "_part_cells"),
)


class ThreadSets:
    """The alphabet, continuations and Ds of one pattern, and how a character moves them.

    With `every_end=False` what may be skipped at the end of the pattern is dropped: it decides nothing about whether a
    match exists. `thread_limit` bounds the sum of threads of all Ds, and so the memory; `rule_id` names the rule in
    errors.
    """

    def __init__(self, node: Node, *, every_end: bool, thread_limit: int, rule_id: str | None) -> None:
        self.node = node
        self.every_end = every_end
        self.thread_limit = thread_limit
        # Told how many pairs of threads are compared, where somebody bounds that; it raises at its bound.
        self.charge: Callable[[int], None] | None = None
        self.rule_id = rule_id
        self._thread_count = 0
        self._collect(node)

        # Continuations: operation and rest of each, whether it may be empty, its shape and counters.
        self._ops: list[_Op | None] = [None, _HereOp()]
        self._rests: list[int] = [DONE, DONE]
        self._nullable: list[bool] = [True, True]
        self._least: list[int] = [0, 0]  # characters it reads at least
        self._shapes: list[int] = [0, 1]
        self._counters: list[tuple[int, ...]] = [(), ()]
        self._cell_ids: dict[tuple[_Op, int], int] = {}
        self._shape_ids: dict[tuple[object, int], int] = {}
        self._parts: list[_Op] = []
        self._part_ids: dict[_Op, int] = {}
        self._part_nullable: list[bool] = []
        self._part_least: list[int] = []
        self._part_cells: dict[tuple[int, int], int] = {}

        # Ds.
        self._sets: Numbered[frozenset[Thread]] = Numbered([frozenset(), frozenset([_THROUGH])])
        self._advanced: dict[tuple[int, int, int, tuple[int, ...]], tuple[Thread, ...]] = {}
        self._stepped: dict[tuple[int, int, int, tuple[int, ...]], int] = {}
        self._looked_behind: dict[
            tuple[tuple[int, ...], int, int], tuple[tuple[int, ...], tuple[int, ...]]
        ] = {}

        root = self._cons(self._number(node), HERE if every_end else DONE)
        self._root: Thread = (root, frozenset(), FALSE)
        self._seeds = [
            (self._cons(self._number(body), HERE), frozenset[int](), FALSE) for body in self._runner_bodies
        ]

    @property
    def nbytes(self) -> int:
        """Bytes held by continuations, Ds and what they become, estimated from their numbers."""
        kept = len(self._advanced) + len(self._stepped) + len(self._looked_behind)
        return 150 * self._thread_count + 400 * (len(self._sets) + kept + len(self._ops))

    # -- starting over -----------------------------------------------------------------------------------------

    def _start_over(self) -> None:
        """Of a fresh copy: continuations of its own, and no Ds."""
        for name in _OF_CONTINUATIONS:
            setattr(self, name, getattr(self, name).copy())
        self._sets = Numbered([frozenset(), frozenset([_THROUGH])])
        self._advanced, self._stepped, self._looked_behind = {}, {}, {}
        self._thread_count = 0

    def _carry(self, source: ThreadSets, roots: Iterable[int]) -> dict[int, int]:
        """Take over Ds of the machine that this one is a copy of: their numbers here, those within them included."""
        needed, waiting = {FALSE, TRUE}, list(roots)
        while waiting:
            found = waiting.pop()
            if found not in needed:
                needed.add(found)
                waiting.extend(d for _, needs, never in source._sets[found] for d in (*needs, never))
        numbers = {FALSE: FALSE, TRUE: TRUE}
        # A D is made of those that were there before it.
        for old in sorted(needed - numbers.keys()):
            key = frozenset(self._renumbered(thread, numbers) for thread in source._sets[old])
            numbers[old] = self._sets.add(key)
            self._thread_count += len(key)
        return numbers

    @staticmethod
    def _renumbered(thread: Thread, numbers: Mapping[int, int]) -> Thread:
        cell, needs, never = thread
        return cell, frozenset(numbers[d] for d in needs), numbers[never]

    # -- the alphabet ------------------------------------------------------------------------------------------

    def _collect(self, node: Node) -> None:
        sets: list[CharSet] = []
        kinds: set[tuple[str, bool]] = set()
        self._runner_bodies: list[Node] = []
        self._runner_of: dict[Node, int] = {}
        for part in subnodes(node):
            if isinstance(part, Chars):
                sets.append(part.ranges)
            elif isinstance(part, Assertion):
                kinds.add((part.kind, part.ascii_only))
        self._register_runners(node)
        lines = any(kind in ("line_start", "line_end") for kind, _ in kinds)
        words = {ascii_only for kind, ascii_only in kinds if "boundary" in kind or "word" in kind}
        extra = ([NEWLINE] if lines else []) + [word(ascii_only) for ascii_only in sorted(words)]
        self.classes = CharClasses([*sets, *extra])
        self.end = self.classes.count  # the end of the text as one more symbol
        self._newlines = self.classes.mask(NEWLINE) if lines else 0
        self._words = {ascii_only: self.classes.mask(word(ascii_only)) for ascii_only in words}
        starts = any(k in ("text_start", "line_start", "boundary", "not_boundary") for k, _ in kinds)
        self._before_mask = (
            (AT_START if starts else 0)
            | (AFTER_NEWLINE if lines else 0)
            | (AFTER_WORD if False in words else 0)
            | (AFTER_ASCII_WORD if True in words else 0)
        )
        self._before = [
            (AFTER_NEWLINE if self._newlines >> c & 1 else 0)
            | (AFTER_WORD if self._words.get(False, 0) >> c & 1 else 0)
            | (AFTER_ASCII_WORD if self._words.get(True, 0) >> c & 1 else 0)
            for c in range(self.classes.count)
        ]

    def _register_runners(self, node: Node) -> None:
        """Number the lookbehinds, inner ones first, so that each finds the values it needs."""
        if isinstance(node, Sequence):
            for item in node.items:
                self._register_runners(item)
        elif isinstance(node, Alternation):
            for option in node.options:
                self._register_runners(option)
        elif isinstance(node, (Repeat, Lookaround)):
            self._register_runners(node.body)
            if isinstance(node, Lookaround) and node.behind and node.body not in self._runner_of:
                self._runner_of[node.body] = len(self._runner_bodies)
                self._runner_bodies.append(node.body)

    # -- continuations -----------------------------------------------------------------------------------------

    def _number(self, node: Node) -> int:
        """The number of a part of the pattern; equal parts share one."""
        op: _Op
        if isinstance(node, Chars):
            op = _CharOp(self.classes.mask(node.ranges))
        elif isinstance(node, Sequence):
            op = _SequenceOp(tuple(map(self._number, node.items)))
        elif isinstance(node, Alternation):
            op = _AltOp(tuple(map(self._number, node.options)))
        elif isinstance(node, Repeat):
            op = _RepeatOp(self._number(node.body), node.low, NO_LIMIT if node.high is None else node.high)
        elif isinstance(node, Assertion):
            op = _TestOp(node.kind, node.ascii_only)
        elif node.behind:
            op = _BehindOp(self._runner_of[node.body], node.negative)
        else:
            op = _AheadOp(self._number(node.body), node.negative)
        part = self._part_ids.get(op)
        if part is None:
            part = len(self._parts)
            # What a step that broke off has left of the same number is overwritten.
            self._part_nullable[part:] = [is_nullable(node)]
            self._part_least[part:] = [self._least_of(op)]
            self._parts.append(op)
            self._part_ids[op] = part
        return part

    def _least_of(self, op: _Op) -> int:
        """How many characters a part of the pattern reads at least."""
        if isinstance(op, _SequenceOp):
            return sum(self._part_least[item] for item in op.items)
        if isinstance(op, _AltOp):
            return min((self._part_least[option] for option in op.options), default=_MANY)
        if isinstance(op, _RepeatOp):
            return min(op.low * self._part_least[op.body], _MANY)
        return int(isinstance(op, _CharOp))

    def _cons(self, part: int, rest: int) -> int:
        """The continuation: this part of the pattern, then rest."""
        key = (part, rest)
        cell = self._part_cells.get(key)
        if cell is None:
            op = self._parts[part]
            if isinstance(op, _SequenceOp):
                cell = rest
                for item in reversed(op.items):
                    cell = self._cons(item, cell)
            else:
                cell = self._cell(op, rest, self._part_nullable[part])
            self._part_cells[key] = cell
        return cell

    def _cell(self, op: _Op, rest: int, optional: bool) -> int:
        if optional and rest == DONE:
            return DONE  # what may be skipped at the very end decides nothing about whether a match exists
        key = (op, rest)
        cell = self._cell_ids.get(key)
        if cell is None:
            cell = len(self._ops)
            # What a step that broke off has left of the same number is overwritten.
            self._rests[cell:] = [rest]
            self._nullable[cell:] = [optional and self._nullable[rest]]
            self._least[cell:] = [min(self._least_of(op) + self._least[rest], _MANY)]
            kind: object = op
            counters = self._counters[rest]
            if isinstance(op, _RepeatOp):
                kind = ("repeat", op.body)
                counters = (op.low, op.high if op.high != NO_LIMIT else 1 << 62, *counters)
            self._counters[cell:] = [counters]
            shape = self._shape_ids.setdefault((kind, self._shapes[rest]), len(self._shape_ids) + 2)
            self._shapes[cell:] = [shape]
            self._ops.append(op)
            self._cell_ids[key] = cell
        return cell

    # -- Ds ----------------------------------------------------------------------------------------------------

    def _intern(self, threads: set[Thread]) -> int:
        if _THROUGH in threads:
            return TRUE
        threads = self._inline(threads)
        if _THROUGH in threads:
            return TRUE
        if len(threads) > 1:
            threads = self._subsume(threads)
        key = frozenset(threads)
        found = self._sets.find(key)
        if found is None:
            self._thread_count += len(key)
            if self._thread_count > self.thread_limit:
                raise StateLimitError(
                    f"the automaton of this pattern passed its limit of {self.thread_limit:,} threads; make counted "
                    "repeats shorter or split the rule",
                    rule_id=self.rule_id,
                )
            if self.charge is not None:
                self.charge(len(key) ** 2)
            found = self._sets.add(key)
        return found

    def _inline(self, threads: set[Thread]) -> set[Thread]:
        """A thread that only waits for one D is that D; one that only waits for not (not D) is D."""
        out: set[Thread] = set()
        for thread in threads:
            cell, needs, never = thread
            if cell == DONE and needs and len(needs) == 1 and never == FALSE:
                out |= self._sets[next(iter(needs))]
            elif cell == DONE and not needs and never != FALSE:
                inner = self._sets[never]
                if len(inner) == 1:
                    inner_cell, inner_needs, inner_never = next(iter(inner))
                    if inner_cell == DONE and not inner_needs and inner_never != FALSE:
                        out |= self._sets[inner_never]
                        continue
                out.add(thread)
            else:
                out.add(thread)
        return out

    def _subsume(self, threads: set[Thread]) -> set[Thread]:
        """Drop threads that another of the same shape outdoes: wider counters, fewer duties."""
        groups: dict[int, list[Thread]] = {}
        for thread in threads:
            groups.setdefault(self._shapes[thread[0]], []).append(thread)
        if len(groups) == len(threads):
            return threads
        kept: set[Thread] = set()
        for group in groups.values():
            if len(group) > 1:
                group.sort(key=self._width, reverse=True)
                best: list[Thread] = []
                for thread in group:
                    if not any(self._outdoes(other, thread) for other in best[-32:]):
                        best.append(thread)
                group = best
            kept.update(group)
        return kept

    def _width(self, thread: Thread) -> tuple[int, int]:
        counters = self._counters[thread[0]]
        return sum(counters[1::2]) - sum(counters[0::2]), -len(thread[1]) - (thread[2] != FALSE)

    def _outdoes(self, wide: Thread, narrow: Thread) -> bool:
        if wide[1] - narrow[1]:
            return False
        if wide[2] != narrow[2] and self._sets[wide[2]] - self._sets[narrow[2]]:
            return False
        a, b = self._counters[wide[0]], self._counters[narrow[0]]
        return all(a[i] <= b[i] and a[i + 1] >= b[i + 1] for i in range(0, len(a), 2))

    def _either(self, a: int, b: int) -> int:
        if a == b or b == FALSE:
            return a
        if a == FALSE:
            return b
        if TRUE in (a, b):
            return TRUE
        return self._intern(set(self._sets[a] | self._sets[b]))

    def _least_ahead(self, d: int) -> int:
        """How many characters are read at least until some thread of a D may be through."""
        return min((self._least[cell] for cell, _, _ in self._sets[d]), default=_MANY)

    # -- one step ----------------------------------------------------------------------------------------------

    def _holds(self, test: _TestOp, before: int, cls: int) -> bool:
        kind = test.kind
        if kind == "text_end":
            return cls == self.end
        if kind == "text_start":
            return bool(before & AT_START)
        if kind == "line_start":
            return bool(before & (AT_START | AFTER_NEWLINE))
        if kind == "line_end":
            return cls == self.end or bool(self._newlines >> cls & 1)
        after = cls != self.end and bool(self._words[test.ascii_only] >> cls & 1)
        if kind == "no_word_after":
            return not after
        earlier = bool(before & (AFTER_ASCII_WORD if test.ascii_only else AFTER_WORD))
        if kind == "no_word_before":
            return not earlier
        if kind == "boundary":
            return earlier != after
        if before & AT_START and cls == self.end:
            return _EMPTY_HAS_NO_BOUNDARY
        return earlier == after

    def _advance(self, cell: int, before: int, cls: int, values: tuple[int, ...]) -> tuple[Thread, ...]:
        """The threads that one continuation becomes by reading `cls`.

        A result (DONE, ...) means matched, (BEFORE, ...) matched exactly at the position before the character; the
        duties of all results have read the character already.
        """
        key = (cell, before, cls, values)
        known = self._advanced.get(key)
        if known is not None:
            return known
        results: dict[Thread, None] = {}
        seen: set[_Pending] = set()
        nothing: frozenset[int] = frozenset()
        stack: list[_Pending] = [(cell, nothing, FALSE, frozenset())]
        while stack:
            item = stack.pop()
            if item in seen:
                continue
            seen.add(item)
            cell, needs, never, entered = item
            op = self._ops[cell]
            if op is None or isinstance(op, _HereOp):
                results[(DONE if op is None else BEFORE, needs, never)] = None
                continue
            rest = self._rests[cell]
            if isinstance(op, _CharOp):
                if cls != self.end and op.mask >> cls & 1:
                    results[(rest, needs, never)] = None
            elif isinstance(op, _AltOp):
                stack.extend((self._cons(option, rest), needs, never, entered) for option in op.options)
            elif isinstance(op, _RepeatOp):
                self._enter_repeat(stack, item, op)
            elif isinstance(op, _TestOp):
                if self._holds(op, before, cls):
                    stack.append((rest, needs, never, entered))
            elif isinstance(op, (_AheadOp, _BehindOp)):
                if isinstance(op, _AheadOp):
                    ahead = (self._cons(op.body, DONE), nothing, FALSE)
                    value = self._step_set(self._intern({ahead}), before, cls, values)
                else:
                    value = values[op.runner]
                if op.negative:
                    if value != TRUE:
                        stack.append((rest, needs, self._either(never, value), entered))
                elif value == TRUE:
                    stack.append((rest, needs, never, entered))
                elif value != FALSE:
                    stack.append((rest, needs | {value}, never, entered))
        found = self._advanced[key] = tuple(results)
        return found

    def _enter_repeat(self, stack: list[_Pending], item: _Pending, op: _RepeatOp) -> None:
        """Put the ways on from a repeat on the stack: leave it, or go through its body once more."""
        cell, needs, never, entered = item
        rest, low = self._rests[cell], op.low
        if (cell, True) in entered:
            return  # an iteration that read nothing, and none was missing: no news
        if (cell, False) in entered:
            low = 0  # one empty iteration can stand for all that are missing
        if low == 0:
            stack.append((rest, needs, never, entered))
        if op.high != 0:
            high = op.high if op.high == NO_LIMIT else op.high - 1
            again = self._cell(_RepeatOp(op.body, max(0, low - 1), high), rest, low <= 1)
            stack.append((self._cons(op.body, again), needs, never, entered | {(again, low == 0)}))

    def _step_threads(
        self, source: int, before: int, cls: int, values: tuple[int, ...]
    ) -> Iterator[tuple[int, Thread]]:
        """All threads that a D becomes, unsimplified, each with the continuation that it came from."""
        for thread in self._sets[source]:
            yield from self._step_thread(thread, before, cls, values)

    def _step_thread(
        self, thread: Thread, before: int, cls: int, values: tuple[int, ...]
    ) -> Iterator[tuple[int, Thread]]:
        cell, needs, never = thread
        left: set[int] = set()
        for need in needs:
            value = self._step_set(need, before, cls, values)
            if value == FALSE:
                return
            if value != TRUE:
                left.add(value)
        still_never = FALSE if never == FALSE else self._step_set(never, before, cls, values)
        if still_never == TRUE:
            return
        for next_cell, more, ban in self._advance(cell, before, cls, values):
            barred = self._either(still_never, ban)
            if barred != TRUE:
                yield cell, (next_cell, more | left if left else more, barred)

    def _step_set(self, source: int, before: int, cls: int, values: tuple[int, ...]) -> int:
        if source <= TRUE:
            return source
        key = (source, before, cls, values)
        known = self._stepped.get(key)
        if known is None:
            known = self._stepped[key] = self._intern(
                {thread for _, thread in self._step_threads(source, before, cls, values)}
            )
        return known

    def _run_behinds(
        self, runners: tuple[int, ...], before: int, cls: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Step all lookbehinds: their next Ds, and the value of each at this position (a D that has read `cls`)."""
        key = (runners, before, cls)
        found = self._looked_behind.get(key)
        if found is None:
            found = self._looked_behind[key] = self._find_behinds(runners, before, cls)
        return found

    def _find_behinds(
        self, runners: tuple[int, ...], before: int, cls: int
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        values: list[int] = []
        following: list[int] = []
        for index, runner in enumerate(runners):
            # Inner lookbehinds come first; pad so that keys have one length.
            known = (*values, *([FALSE] * (len(runners) - len(values))))
            here: set[Thread] = set()
            ahead: set[Thread] = set()
            for _, (cell, needs, never) in self._step_threads(runner, before, cls, known):
                if cell == BEFORE:
                    here.add((DONE, needs, never))
                else:
                    ahead.add((cell, needs, never))
            values.append(self._intern(here))
            following.append(self._intern(ahead | {self._seeds[index]}))
        return tuple(following), tuple(values)
