"""One regular expression as a lazily determinised alternating automaton over character classes.

Lookarounds, boundaries and anchors need intersection and complement inside one automaton; an alternating automaton
has both without building either. Vocabulary:

* A *continuation* is what is still to be matched: an interned linked list of operations.
* A *thread* is a continuation together with its duties: lookaheads met on the way that must still come true
  (`needs`, a set of Ds) and ones that must not (`never`, one D; several merge, because not A and not B is
  not (A or B)).
* A *D* is an interned set of threads, read as OR: "some thread gets through". `FALSE` is the empty set, `TRUE` holds
  the thread that is through without duties.
* A lookbehind is a *runner*: a D seeded at every position, whose value at a position is known when it is stepped.

Assertions are tested at the moment of a step, when the character before and the character after are both known; that
turns `^ $ \\A \\Z \\b \\B` into local tests. A lookahead met during a step is stepped by the same character at once.

When not to use it: for plain strings, Aho-Corasick (`literals`) is smaller and faster.
Cost: about 10 microseconds for a step never taken before, linear in the number of threads; a dictionary look-up
afterwards. States are found lazily, and their number is bounded by `state_limit`.
"""

from __future__ import annotations

import re
from collections import abc, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nco_guard.automata.charsets import NEWLINE, CharClasses, CharSet, word
from nco_guard.automata.syntax import (
    Alternation,
    Assertion,
    Chars,
    Look,
    Node,
    Repeat,
    Sequence,
    is_nullable,
    subnodes,
)
from nco_guard.errors import StateLimitError

__all__ = ["AlternatingMachine"]

FALSE, TRUE = 0, 1  # the two constant Ds
DONE = 0  # the empty continuation: matched
HERE = 1  # the end of a lookbehind, or of a match whose exact end matters: matched if the text stands here
BEFORE = -1  # result of a step from HERE: matched at the position before the character read
NO_LIMIT = -1

# What precedes a position, as bits.
AT_START, AFTER_NEWLINE, AFTER_WORD, AFTER_ASCII_WORD = 1, 2, 4, 8

# Whether \B holds in the empty text (it does from Python 3.14 on).
_EMPTY_HAS_NO_BOUNDARY = re.search(r"\B", "") is not None

# A pending state whose end is not found within this many states counts as alive: then a dead end may come later,
# never a match.
LIVENESS_LIMIT = 20_000

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


class AlternatingMachine:
    """Searches for one pattern, a character class at a time.

    `start` is the state of the empty text. `step(state, cls)` gives the next state, or `~next` where a match completes
    with this character; `may_end(state)` is False while the end of the text would complete one.

    With `every_end=False` the shortest way to see that a match exists is taken: nothing is watched beyond the first
    end of a match. With `every_end=True` each position at which some match ends is reported (for soft rules, which
    count completions, and for finding spans).

    `doomed(state)`: no continuation, ending here included, avoids a match.
    """

    def __init__(self, node: Node, *, every_end: bool = False, state_limit: int = 200_000) -> None:
        self.node = node
        self.every_end = every_end
        self.state_limit = state_limit
        self.liveness_capped = False
        self._collect(node)

        # Continuations: operation and rest of each, whether it may be empty, its shape and counters.
        self._ops: list[_Op | None] = [None, _HereOp()]
        self._rests: list[int] = [DONE, DONE]
        self._nullable: list[bool] = [True, True]
        self._shapes: list[int] = [0, 1]
        self._counters: list[tuple[int, ...]] = [(), ()]
        self._cell_ids: dict[tuple[_Op, int], int] = {}
        self._shape_ids: dict[tuple[object, int], int] = {}
        self._parts: list[_Op] = []
        self._part_ids: dict[_Op, int] = {}
        self._part_nullable: list[bool] = []
        self._part_cells: dict[tuple[int, int], int] = {}

        # Ds.
        self._sets: list[frozenset[Thread]] = [frozenset(), frozenset([_THROUGH])]
        self._set_ids: dict[frozenset[Thread], int] = {s: i for i, s in enumerate(self._sets)}
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

        # States: (main D, runner Ds, what precedes).
        self._states: list[tuple[int, tuple[int, ...], int]] = []
        self._state_ids: dict[tuple[int, tuple[int, ...], int], int] = {}
        self._steps: dict[int, int] = {}
        self._alive: dict[int, bool] = {}
        self._may_end: dict[int, bool] = {}
        runners = tuple(self._intern({seed}) for seed in self._seeds)
        self.start = self._state((self._plant(), runners, AT_START & self._before_mask))

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
        elif isinstance(node, (Repeat, Look)):
            self._register_runners(node.body)
            if isinstance(node, Look) and node.behind and node.body not in self._runner_of:
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
            part = self._part_ids[op] = len(self._parts)
            self._parts.append(op)
            self._part_nullable.append(is_nullable(node))
        return part

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
            cell = self._cell_ids[key] = len(self._ops)
            self._ops.append(op)
            self._rests.append(rest)
            self._nullable.append(optional and self._nullable[rest])
            kind: object = op
            counters = self._counters[rest]
            if isinstance(op, _RepeatOp):
                kind = ("repeat", op.body)
                counters = (op.low, op.high if op.high != NO_LIMIT else 1 << 62, *counters)
            self._counters.append(counters)
            self._shapes.append(
                self._shape_ids.setdefault((kind, self._shapes[rest]), len(self._shape_ids) + 2)
            )
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
        found = self._set_ids.get(key)
        if found is None:
            found = self._set_ids[key] = len(self._sets)
            self._sets.append(key)
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

    def step(self, state: int, cls: int, *, seed: bool = True) -> int:
        """The next state, or `~next` if a match completes with this character.

        `seed=False`: no new match may start here (see `planted`).
        """
        key = (state * self.end + cls) * 2 + seed
        reached = self._steps.get(key)
        if reached is None:
            reached = self._steps[key] = self._find_step(state, cls, seed)
        return reached

    def _find_step(self, state: int, cls: int, seed: bool) -> int:
        main, runners, before = self._states[state]
        following: tuple[int, ...] = ()
        values: tuple[int, ...] = ()
        if runners:
            following, values = self._run_behinds(runners, before, cls)
        matched, rest = self._step_main(main, before, cls, values)
        if seed:
            rest.add(self._root)
        reached = self._state((self._intern(rest), following, self._before[cls]))
        return ~reached if matched else reached

    @property
    def bare_start(self) -> int:
        """The state of the empty text in which no match has started yet; step it with `seed=False`."""
        _, runners, before = self._states[self.start]
        return self._state((FALSE, runners, before))

    def is_bare(self, state: int) -> bool:
        """Whether no match is under way in this state."""
        return self._states[state][0] == FALSE

    def under_way(self, state: int) -> tuple[frozenset[object], object]:
        """The matches that are under way in a state, and all else that the state holds.

        Of two states that agree in the rest, the one whose matches are a subset completes a match at most as early.
        """
        main, runners, before = self._states[state]
        return frozenset(self._sets[main]), (runners, before)

    def planted(self, state: int) -> int:
        """The state with one match started at this very position and none elsewhere."""
        _, runners, before = self._states[state]
        return self._state((self._plant(), runners, before))

    def _plant(self) -> int:
        return self._intern({self._root})

    def _step_main(
        self, main: int, before: int, cls: int, values: tuple[int, ...]
    ) -> tuple[bool, set[Thread]]:
        matched = False
        rest: set[Thread] = set()
        for source, (cell, needs, never) in self._step_threads(main, before, cls, values):
            if cell == BEFORE and self._nullable[source]:
                continue  # this end was reported when the position was reached
            ended = cell in (DONE, HERE, BEFORE)
            if ended or self._nullable[cell]:
                # The match is complete as soon as its duties are.
                if not needs and never == FALSE:
                    matched = True
                else:
                    rest.add((DONE, needs, never))
            if not ended:
                rest.add((cell, needs, never))
        return matched, rest

    # -- states ------------------------------------------------------------------------------------------------

    def _state(self, key: tuple[int, tuple[int, ...], int]) -> int:
        state = self._state_ids.get(key)
        if state is None:
            if len(self._states) >= self.state_limit:
                raise StateLimitError(
                    f"the automaton of this pattern passed its limit of {self.state_limit:,} states; make counted "
                    "repeats shorter or split the rule"
                )
            state = self._state_ids[key] = len(self._states)
            self._states.append(key)
        return state

    @property
    def state_count(self) -> int:
        """States found so far."""
        return len(self._states)

    def may_end(self, state: int) -> bool:
        """Whether the text may end here: no match is completed by its end."""
        known = self._may_end.get(state)
        if known is None:
            main, runners, before = self._states[state]
            values = self._run_behinds(runners, before, self.end)[1] if runners else ()
            known = self._may_end[state] = not self._step_main(main, before, self.end, values)[0]
        return known

    def doomed(self, state: int) -> bool:
        """Whether every continuation, ending here included, completes a match.

        Looks for a way out: first one class repeated, then breadth-first over new states, at most `LIVENESS_LIMIT`
        of them.
        """
        if state not in self._alive:
            self._alive[state] = self._find_end(state)
        return not self._alive[state]

    def _find_end(self, state: int) -> bool:
        if self.may_end(state):
            return True
        for cls in range(self.classes.count):
            current = state
            for _ in range(80):
                current = self.step(current, cls)
                if current < 0:
                    break
                if self._alive.get(current) or self.may_end(current):
                    return True
        seen = {state}
        queue = deque([state])
        while queue:
            current = queue.popleft()
            for cls in range(self.classes.count):
                reached = self.step(current, cls)
                if reached < 0 or reached in seen:
                    continue
                if self._alive.get(reached) or self.may_end(reached):
                    return True
                if self._alive.get(reached) is False:
                    continue
                seen.add(reached)
                queue.append(reached)
            if len(seen) > LIVENESS_LIMIT:
                self.liveness_capped = True
                return True
        for dead in seen:
            self._alive[dead] = False
        return False

    def _in_pattern(self, cls: int) -> int:
        """The class, of those that the pattern tells apart, that a class of `classes` lies in."""
        return cls

    # -- matches from one position -----------------------------------------------------------------------------

    def longest_from(
        self,
        state: int,
        classes: abc.Sequence[int],
        position: int,
        *,
        passes: Callable[[int], bool] | None = None,
    ) -> int | None:
        """The end of the longest match that starts at `position`, where the search is in `state`; None: no match.

        Needs `every_end=True`. Stops as soon as no match that starts here is alive. `passes`: only ends for which it
        is true count.
        """
        _, runners, before = self._states[state]
        open_main = self._intern({self._root})
        waiting: list[tuple[int, int]] = []  # (end, D): matched at `end`, if D comes true
        best: int | None = None
        while open_main != FALSE or waiting:
            cls = self._in_pattern(classes[position]) if position < len(classes) else self.end
            values: tuple[int, ...] = ()
            if runners:
                runners, values = self._run_behinds(runners, before, cls)
            still: list[tuple[int, int]] = []
            for end, duty in waiting:
                value = self._step_set(duty, before, cls, values)
                if value == TRUE:
                    best = max(best or 0, end)
                elif value != FALSE:
                    still.append((end, value))
            waiting = still
            ahead: set[Thread] = set()
            for source, (cell, needs, never) in self._step_threads(open_main, before, cls, values):
                if cell == BEFORE:
                    if not self._nullable[source] and (passes is None or passes(position)):
                        best = self._ended(position, needs, never, best, waiting)
                    continue
                if self._nullable[cell] and (passes is None or passes(position + 1)):
                    best = self._ended(position + 1, needs, never, best, waiting)
                if cell != HERE:
                    ahead.add((cell, needs, never))
            if position >= len(classes):
                break
            open_main = self._intern(ahead)
            before = self._before[cls]
            position += 1
        return best

    def _ended(
        self, end: int, needs: frozenset[int], never: int, best: int | None, waiting: list[tuple[int, int]]
    ) -> int | None:
        if not needs and never == FALSE:
            return max(best or 0, end)
        waiting.append((end, self._intern({(DONE, needs, never)})))
        return best
