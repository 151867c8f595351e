"""All joint states of a policy at once, as plain arrays; what an accelerator is given (`device`).

`joint` finds a state when a text meets it. An accelerator cannot wait for that, so here everything is found beforehand:

1. The constraints that can change a score are run side by side over bytes: one automaton, whose states that no
   continuation tells apart are merged.
2. A token is a function on its states. The prefix tree is walked level by level, and equal functions are kept once: a
   *class* of tokens. There are few: LDNOOBW's 403 strings make 9,000 out of 128,000 tokens, the paper's four PII
   patterns 500.
3. The table of all functions is the transition table, and with how far each state is from an allowed end it is all the
   masks as well. The definition of a mask is met literally, with no search: `bruteforce` with the tokens of a class
   taken together.

Cost: time and memory go with states times classes. Policies with many patterns that count ("up to 30 characters, then")
have too many joint states and are refused with `StateLimitError`; they stay with `joint`, which meets few of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nco_guard.compiler import Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.joint import ENDED, VIOLATED
from nco_guard.masking.quotients import joint_classes
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = [
    "MAX_BYTES",
    "MAX_STATES",
    "ByteAutomaton",
    "TokenTable",
    "byte_automaton",
    "first_states",
    "token_table",
]

MAX_STATES = 65_536
MAX_BYTES = 1 << 30

_DEAD = -1  # a match of a hard constraint has completed
_ENTRIES_AT_ONCE = 1 << 22
_SOFT_LIMIT = 31  # soft rules are bits of a word


def _too_large(what: str, needed: str, bound: str) -> StateLimitError:
    return StateLimitError(
        f"the tables of an accelerator would hold {needed} {what}, and at most {bound} are allowed: raise the limit, "
        f"or keep to the tables of the host"
    )


@dataclass(frozen=True)
class ByteAutomaton:
    """Constraints that can change a score, as one automaton over bytes; state 0 is that of the empty text.

    byte_class: uint8 [256]; bytes of one class act alike.
    following: int32 [states, classes], -1 where a match of a hard constraint completes.
    soft: int32 [states, classes], the soft constraints of which a match completes, as bits.
    may_end: bool [states], whether every hard constraint lets the text end. soft_end: int32 [states], the soft
    constraints of which the end of the text completes a match, as bits.
    penalties: what each soft constraint costs, in the order of the constraints.
    """

    byte_class: NDArray[np.uint8]
    following: NDArray[np.int32]
    soft: NDArray[np.int32]
    may_end: NDArray[np.bool_]
    soft_end: NDArray[np.int32]
    penalties: tuple[float, ...]
    _steps: tuple[tuple[int, NDArray[np.int32], dict[int, int] | None], ...] = ()

    def state_of(self, states: Sequence[int]) -> int:
        """The state here of the constraints' states, one for each constraint that this was made from."""
        found = 0
        for constraint, number_of, pairs in self._steps:
            own = int(number_of[states[constraint]])
            found = own if pairs is None else pairs[found * int(number_of[-1]) + own]
        return found


def first_states(constraints: Sequence[Constraint], vocabulary: Vocabulary) -> list[int]:
    """The states of the constraints before the first token."""
    skips = vocabulary.strips_first_space or vocabulary.rewriting is not None
    return [c.automaton.spaceless_start if skips else c.automaton.start for c in constraints]


def byte_automaton(
    constraints: Sequence[Constraint], first: Sequence[int], *, max_states: int = MAX_STATES
) -> ByteAutomaton:
    """Run constraints side by side from their states `first`, merging what no continuation tells apart.

    They are joined one by one, small ones first, and merged each time: most states of counting patterns, and of pairs
    of patterns, differ in nothing that matters. Rules that are only monitored are left out. The automata find states
    meanwhile; hold their lock if they have one.
    Errors: `StateLimitError` for more than `max_states` states before merging, or more than 31 soft rules.
    """
    tracked = [i for i, c in enumerate(constraints) if c.hard or c.penalty]
    soft = [i for i in tracked if not constraints[i].hard]
    if len(soft) > _SOFT_LIMIT:
        raise _too_large("soft rules", str(len(soft)), str(_SOFT_LIMIT))
    parts = []
    for i in tracked:
        bit = 0 if constraints[i].hard else 1 << soft.index(i)
        part, number_of = _single(constraints[i], first[i], bit, max_states)
        parts.append((i, number_of, part))
    parts.sort(key=lambda part: len(part[2].following))
    (i, number_of, joined), *others = parts
    steps: list[tuple[int, NDArray[np.int32], dict[int, int] | None]] = [(i, number_of, None)]
    for i, number_of, part in others:
        joined, pairs = _joined(joined, part, max_states)
        steps.append((i, np.append(number_of, np.int32(len(part.following))), pairs))
    return replace(joined, penalties=tuple(constraints[i].penalty for i in soft), _steps=tuple(steps))


def _single(
    constraint: Constraint, first: int, bit: int, max_states: int
) -> tuple[ByteAutomaton, NDArray[np.int32]]:
    """One constraint, and the number here of each state of its automaton (-1: not reached)."""
    automaton = constraint.automaton
    classes, letters = _numbered(automaton.byte_classes)
    frontier = np.array([first], np.int32)
    found, following, matches = [frontier], [], []
    number_of: NDArray[np.int32] = np.full(first + 1, -1, np.int32)
    number_of[first] = 0
    count = 1
    while len(frontier):
        fresh = []
        for begin in range(0, len(frontier), max(1, _ENTRIES_AT_ONCE // len(letters))):
            chunk = frontier[begin : begin + max(1, _ENTRIES_AT_ONCE // len(letters))]
            reached = automaton.step_many(np.repeat(chunk, len(letters)), np.tile(letters, len(chunk)))
            matched = reached < 0
            if constraint.hard:
                reached[matched] = _DEAD
            else:
                reached[matched] = ~reached[matched]
            following.append(reached.reshape(-1, len(letters)))
            matches.append(matched.reshape(-1, len(letters)))
            distinct = np.unique(reached[reached >= 0])
            if len(distinct) and distinct[-1] >= len(number_of):
                longer = np.full(2 * int(distinct[-1]) + 1, -1, np.int32)
                longer[: len(number_of)] = number_of
                number_of = longer
            distinct = distinct[number_of[distinct] < 0]
            number_of[distinct] = np.arange(count, count + len(distinct))
            count += len(distinct)
            fresh.append(distinct)
            if count > max_states:
                raise _too_large("states", f"more than {max_states}", str(max_states))
        frontier = np.concatenate(fresh)
        found.append(frontier)
    states = np.concatenate(found)
    table = np.concatenate(following)
    table = np.where(table < 0, _DEAD, number_of[table])
    ends = automaton.may_end_many(states)
    completing = np.where(np.concatenate(matches), bit, 0)
    always = np.ones(len(states), bool)
    none = np.zeros(len(states), np.int32)
    merged, numbers = _smallest(
        classes,
        table,
        completing,
        ends if constraint.hard else always,
        none if constraint.hard else np.where(ends, 0, bit),
    )
    return merged, np.where(number_of < 0, _DEAD, numbers[number_of])


def _joined(
    left: ByteAutomaton, right: ByteAutomaton, max_states: int
) -> tuple[ByteAutomaton, dict[int, int]]:
    """Both at once, and the number of each pair that is reached; a pair is left * (states of the right) + right."""
    classes, letters = _numbered(joint_classes(left.byte_class, right.byte_class))
    above, below = left.following[:, left.byte_class[letters]], right.following[:, right.byte_class[letters]]
    width = len(below)
    frontier: NDArray[np.int64] = np.zeros(1, np.int64)
    known = frontier
    while len(frontier):
        after = _pairs(above[frontier // width], below[frontier % width], width)
        distinct = np.unique(after[after >= 0])
        place = np.minimum(np.searchsorted(known, distinct), len(known) - 1)
        frontier = distinct[known[place] != distinct]
        known = np.union1d(known, frontier)
        if len(known) > max_states:
            raise _too_large("joint states", f"more than {max_states}", str(max_states))
    one, other = known // width, known % width
    after = _pairs(above[one], below[other], width)
    table = np.where(after < 0, _DEAD, np.searchsorted(known, after)).astype(np.int32)
    marks = left.soft[one][:, left.byte_class[letters]] | right.soft[other][:, right.byte_class[letters]]
    merged, numbers = _smallest(
        classes,
        table,
        marks,
        left.may_end[one] & right.may_end[other],
        left.soft_end[one] | right.soft_end[other],
    )
    return merged, dict(zip(known.tolist(), numbers.tolist(), strict=True))


def _pairs(above: NDArray[np.int32], below: NDArray[np.int32], width: int) -> NDArray[np.int64]:
    pairs = above.astype(np.int64) * width + below
    pairs[(above < 0) | (below < 0)] = _DEAD
    return pairs


def _numbered(classes: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Classes of bytes numbered from 0, and a byte of each."""
    _, some, numbers = np.unique(classes, return_index=True, return_inverse=True)
    return numbers.ravel().astype(np.uint8), some.astype(np.uint8)


def _smallest(
    classes: NDArray[np.uint8],
    table: NDArray[np.int32],
    marks: NDArray[np.int32],
    may_end: NDArray[np.bool_],
    soft_end: NDArray[np.int32],
) -> tuple[ByteAutomaton, NDArray[np.int32]]:
    """The automaton with equivalent states and bytes merged, and the new number of each state."""
    marks = np.where(table < 0, 0, marks).astype(np.int32)
    merged = _merged(table, marks, may_end, soft_end)
    _, some = np.unique(merged, return_index=True)
    table = np.where(table[some] < 0, _DEAD, merged[table[some]]).astype(np.int32)
    marks = marks[some]
    columns: dict[bytes, int] = {}
    both = np.concatenate([table, marks]).T
    alike = np.array([columns.setdefault(column.tobytes(), len(columns)) for column in both], np.uint8)
    _, kept = np.unique(alike, return_index=True)
    smallest = ByteAutomaton(
        alike[classes],
        np.ascontiguousarray(table[:, kept]),
        np.ascontiguousarray(marks[:, kept]),
        may_end[some],
        soft_end[some].astype(np.int32),
        (),
    )
    return smallest, merged


def _merged(
    table: NDArray[np.int32],
    marks: NDArray[np.int32],
    may_end: NDArray[np.bool_],
    soft_end: NDArray[np.int32],
) -> NDArray[np.int32]:
    """The number of each state once equivalent ones are merged (Moore's algorithm); state 0 keeps its number.

    Rows are compared by a random sum, and the outcome is then compared exactly.
    """
    seed = 0
    plain = np.concatenate([may_end[:, None], soft_end[:, None], marks], axis=1)
    while True:
        random = np.random.default_rng(seed)
        weights = random.integers(1, 2**63, plain.shape[1] + table.shape[1] + 1, np.uint64) | np.uint64(1)
        own = plain.astype(np.uint64) @ weights[: plain.shape[1]]
        letters = weights[plain.shape[1] : -1]
        scatter = random.integers(0, 2**63, len(table) + 1, np.uint64)  # of each class, the dead state last
        labels = np.zeros(len(table), np.int64)
        count = 0
        while True:
            drawn = np.append(scatter[labels], scatter[-1])
            keys = own + drawn[table] @ letters + weights[-1] * drawn[:-1]
            distinct, labels = np.unique(keys, return_inverse=True)
            labels = labels.ravel()
            if len(distinct) == count:
                break
            count = len(distinct)
        _, some = np.unique(labels, return_index=True)
        after = np.append(labels, len(table))[table]  # the dead state, -1, is the last entry
        alike = some[labels]
        if (plain == plain[alike]).all() and (after == after[alike]).all():
            break
        seed += 1
    # Numbered by first occurrence, so that the start stays 0.
    order = np.argsort(np.argsort(some))
    return order[labels].astype(np.int32)


@dataclass(frozen=True)
class TokenTable:
    """What every token does in every state. State 0 is that of the empty text.

    token_class: int32 [width + 1]; the last entry is for numbers that are no token.
    following: int32 [states, classes]: the next state; `VIOLATED` for forbidden tokens, `ENDED` for those
    that end the text.
    mask_of: int32 [levels, states], which row of `masks` applies where `level` tokens may follow the next one, or, at
    the last level, as many as it takes. masks: bool [distinct masks, classes], True: forbidden.
    penalty_of: int32 [states]; penalties: float32 [distinct rows, classes], or no rows where no rule is soft.
    may_end: bool [states].
    """

    token_class: NDArray[np.int32]
    following: NDArray[np.int32]
    mask_of: NDArray[np.int32]
    masks: NDArray[np.bool_]
    penalty_of: NDArray[np.int32]
    penalties: NDArray[np.float32]
    may_end: NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays."""
        arrays = (self.token_class, self.following, self.mask_of, self.masks, self.penalty_of, self.penalties)
        return sum(a.nbytes for a in arrays) + self.may_end.nbytes


def token_table(
    automaton: ByteAutomaton, vocabulary: Vocabulary, tree: PrefixTree, *, max_bytes: int = MAX_BYTES
) -> TokenTable:
    """See `TokenTable`. `tree` holds the tokens that add text and do not end it. Errors: `StateLimitError`."""
    states = len(automaton.following)
    node_class, functions, marks = _functions(automaton, tree, max_bytes)
    text_classes = len(functions)
    token_class = np.full(vocabulary.width + 1, -1, np.int32)
    token_class[tree.order] = node_class[tree.node_of]

    # Classes besides: tokens without text, each end of the text, and what is no token.
    silent, never = text_classes, text_classes + 1
    ends = {token: never + 1 + n for n, token in enumerate(vocabulary.eos_ids)}
    token_class[token_class < 0] = silent
    token_class[[*vocabulary.unusable_ids, vocabulary.width]] = never
    token_class[list(ends)] = list(ends.values())

    text = functions.T  # [states, text classes]
    distance = _distance_to_end(automaton.may_end, text)
    count = never + 1 + len(ends)
    end_forbidden, end_marks = _ends(automaton, vocabulary)

    following = np.full((states, count), VIOLATED, np.int32)
    reachable = np.append(distance, np.int8(HORIZON + 1))  # dead, -1, is the last entry
    late = reachable[text]
    following[:, :text_classes] = np.where(late > HORIZON, VIOLATED, text)
    following[:, silent] = np.where(distance > HORIZON, VIOLATED, np.arange(states))
    following[:, never + 1 :] = np.where(end_forbidden, VIOLATED, ENDED)

    nearest = distance[distance <= HORIZON]
    levels = int(nearest.max(initial=0)) + 1
    mask_of = np.zeros((levels, states), np.int32)
    known: dict[bytes, int] = {}
    for level in range(levels):
        forbidden = following < 0
        forbidden[:, never + 1 :] = end_forbidden
        if level < levels - 1:
            forbidden[:, :text_classes] |= late > level
            forbidden[:, silent] |= distance > level
        packed = np.packbits(forbidden, axis=1)
        mask_of[level] = [known.setdefault(row.tobytes(), len(known)) for row in packed]
    rows = np.frombuffer(b"".join(known), np.uint8).reshape(len(known), -1)
    masks = np.unpackbits(rows, axis=1, count=count).astype(bool)

    penalty_of, penalties = _penalties(automaton, marks, end_marks, count)
    return TokenTable(token_class, following, mask_of, masks, penalty_of, penalties, automaton.may_end)


def _functions(
    automaton: ByteAutomaton, tree: PrefixTree, max_bytes: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]:
    """The class of each node of the tree (-1 where no token ends), and what tokens of each class do.

    Returns int32 [nodes]; int32 [classes, states], the state after the token; int32 [classes, states], the soft
    constraints of which a match completes, as bits, or [classes, 0] where there are none.
    """
    states, letters = automaton.following.shape
    # A function is a vector over states; what it leads to is numbered state + states * bits, and dead.
    soft = len(automaton.penalties)
    symbols = automaton.byte_class[tree.byte].astype(np.int64)
    dtype = np.int16 if not soft and states < 2**15 else np.int32
    transitions = np.vstack([automaton.following, np.full((1, letters), _DEAD, np.int32)]).astype(dtype)
    wide = np.int64 if soft else dtype
    itemsize = np.dtype(wide).itemsize
    identity = np.arange(states, dtype=wide)
    known: dict[bytes, int] = {identity.tobytes(): 0}
    vectors = [identity]
    function_of = np.zeros(len(tree), np.int32)
    for first, last in tree.levels:
        keys = function_of[tree.parent[first:last]].astype(np.int64) * letters + symbols[first:last]
        distinct, which = np.unique(keys, return_inverse=True)
        numbers = np.empty(len(distinct), np.int32)
        at_once = max(1, _ENTRIES_AT_ONCE // states)
        for begin in range(0, len(distinct), at_once):
            chunk = distinct[begin : begin + at_once]
            before = np.stack([vectors[f] for f in (chunk // letters).tolist()])
            symbol = (chunk % letters)[:, None]
            if soft:
                state, bits = np.where(before < 0, states, before % states), before // states
                after = transitions[state, symbol].astype(np.int64)
                bits |= np.vstack([automaton.soft, automaton.soft[:1]])[state, symbol]
                after = np.where(after < 0, _DEAD, after + states * bits)
            else:
                after = transitions[before, symbol]
            for row, vector in enumerate(after):
                key = vector.tobytes()
                number = known.get(key)
                if number is None:
                    number = known[key] = len(vectors)
                    vectors.append(np.frombuffer(key, wide))
                numbers[begin + row] = number
            if len(vectors) * states * itemsize > max_bytes:
                raise _too_large(
                    "bytes", f"{states} states x more than {len(vectors)} classes of tokens", f"{max_bytes}"
                )
        function_of[first:last] = numbers[which.ravel()]
    ending = tree.exact > 0
    used, node_class = np.unique(function_of[ending], return_inverse=True)
    classes = np.full(len(tree), -1, np.int32)
    classes[ending] = node_class.ravel()
    chosen = np.stack([vectors[f] for f in used.tolist()]) if len(used) else np.zeros((0, states), wide)
    if not soft:
        return classes, chosen.astype(np.int32), np.zeros((len(chosen), 0), np.int32)
    dead = chosen < 0
    bits = np.where(dead, 0, chosen // states).astype(np.int32)
    return classes, np.where(dead, _DEAD, chosen % states).astype(np.int32), bits


def _distance_to_end(may_end: NDArray[np.bool_], text: NDArray[np.int32]) -> NDArray[np.int8]:
    """How many tokens each state needs at least to where the text may end; `HORIZON + 1` for more than `HORIZON`."""
    distance = np.where(may_end, 0, HORIZON + 1).astype(np.int8)
    for tokens in range(1, HORIZON + 1):
        waiting = np.flatnonzero(distance > HORIZON)
        if not len(waiting):
            break
        known = np.append(distance, np.int8(HORIZON + 1))
        nearer = waiting[(known[text[waiting]] < tokens).any(axis=1)]
        if not len(nearer):
            break
        distance[nearer] = tokens
    return distance


def _ends(automaton: ByteAutomaton, vocabulary: Vocabulary) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """For each state and end-of-sequence token: whether it is forbidden, and which soft constraints it completes."""
    states = len(automaton.following)
    forbidden = np.zeros((states, len(vocabulary.eos_ids)), bool)
    marks = np.zeros((states, len(vocabulary.eos_ids)), np.int32)
    for column, token in enumerate(vocabulary.eos_ids):
        current = np.arange(states)
        for byte in vocabulary.tokens[token]:
            symbol = automaton.byte_class[byte]
            marks[:, column] |= np.where(current < 0, 0, automaton.soft[current, symbol])
            current = np.where(current < 0, _DEAD, automaton.following[current, symbol])
        forbidden[:, column] = (current < 0) | ~automaton.may_end[current]
        marks[:, column] |= np.where(current < 0, 0, automaton.soft_end[current])
    return forbidden, marks


def _penalties(
    automaton: ByteAutomaton, marks: NDArray[np.int32], end_marks: NDArray[np.int32], count: int
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Which row of penalties applies in each state, and the rows."""
    states = len(automaton.following)
    if not len(automaton.penalties):
        return np.zeros(states, np.int32), np.zeros((0, count), np.float32)
    bits = np.zeros((states, count), np.int32)
    bits[:, : len(marks)] = marks.T
    bits[:, count - end_marks.shape[1] :] = end_marks
    known: dict[bytes, int] = {}
    penalty_of = np.array([known.setdefault(row.tobytes(), len(known)) for row in bits], np.int32)
    rows = np.frombuffer(b"".join(known), np.int32).reshape(len(known), -1)
    amounts = np.zeros(rows.shape, np.float64)
    # In the order of the rules, as the host adds them up: the same sum to the last bit.
    for n, penalty in enumerate(automaton.penalties):
        amounts[(rows >> n & 1).astype(bool)] += penalty
    return penalty_of, amounts.astype(np.float32)
