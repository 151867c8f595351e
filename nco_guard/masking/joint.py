"""All constraints of a policy together, joined lazily.

A joint state is a tuple of constraint states, interned as an integer when first seen, with its mask and its transitions
kept: one look-up a step afterwards, as if there were one automaton, though no product is ever built (the paper's
reason for simulation, section 4.2).

Cost: a joint state seen before, one dictionary look-up; a new one, a few microseconds per constraint plus the walks of
constraint states not met before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import AhoCorasick, Automaton, BorderedAutomaton, RegionsAutomaton
from nco_guard.compiler import Constraint
from nco_guard.errors import StateLimitError
from nco_guard.masking.bordered import BorderedTable, RegionTable, rules_completed
from nco_guard.masking.bruteforce import HORIZON
from nco_guard.masking.forced import ForgivingAutomaton, LostRules, RulesLeft
from nco_guard.masking.idsets import NO_IDS, holds, union
from nco_guard.masking.lookahead import HardConstraints
from nco_guard.masking.quotients import Quotients
from nco_guard.masking.short_ways import ShortWays, borders_written
from nco_guard.masking.strings import StringTable
from nco_guard.masking.tables import ConstraintTable
from nco_guard.masking.turns import Turns
from nco_guard.storage.store import Store
from nco_guard.tokens import PrefixTree, Vocabulary

__all__ = ["ENDED", "LIMITED", "VIOLATED", "JointTables"]

# Beginnings of text after which the first masks are worked out when tables are made, rather than in the first steps.
_EVERYWHERE = (b"e", b"E", b"1", b" ", b".", b"\n", "\u00f6".encode())

VIOLATED = -1
ENDED = -2
LIMITED = -3


def _uncut(automaton: Automaton) -> Automaton:
    return automaton.inner if isinstance(automaton, BorderedAutomaton | RegionsAutomaton) else automaton


def _mask_key(state: int, remaining: int | None) -> tuple[int, int]:
    return state, HORIZON if remaining is None else min(remaining, HORIZON)


class JointTables:
    """Masks, penalties and transitions of a whole policy over one vocabulary.

    `start`: the joint state of the empty text. Besides joint states (>= 0) there are two answers of `next`: `VIOLATED`
    for a token that the mask forbids, which is no state, and `ENDED` after end-of-sequence, where nothing is masked. Of
    a text that holds a forbidden token all the same, `forced` has the state.

    `LIMITED` is what others write in place of a state that could not be found: nothing is allowed there.

    `full`: the memory limit was passed. Everything still works; whoever owns the tables replaces them by fresh ones,
    and sequences replay their tokens (a state is a function of the text). `worn`: some automaton met a limit of its own
    and cannot go on (`StateLimitError`); then fresh ones are needed with fresh automata. Tables that are worn are full.

    Safe to share between threads: look-ups take no lock, first visits do.
    """

    def __init__(
        self,
        constraints: Sequence[Constraint],
        vocabulary: Vocabulary,
        tree: PrefixTree,
        *,
        memory_limit: int = 512 << 20,
        like: JointTables | None = None,
        forget: bool = False,
        store: Store | None = None,
    ) -> None:
        """`tree` holds the tokens that add text and do not end it; `memory_limit` in bytes, see `full`.

        `like`: tables over the same vocabulary and tree. What they found about constraints that are also among these
        (the same objects) is shared with them, and so is their lock; with `forget`, only the root runs are. `store`:
        where it is kept what each constraint by itself comes to, see `save`.
        """
        self.vocabulary = vocabulary
        self.memory_limit = memory_limit
        self.full = False
        self.worn = False
        self.constraints = tuple(constraints)
        self._turns: Turns = Turns() if like is None else like._turns
        self._tree = tree
        self._paths: ShortWays = ShortWays(tree, borders_written(vocabulary)) if like is None else like._paths
        self._quotients: Quotients = Quotients(tree, vocabulary, store) if like is None else like._quotients
        self._store: Store | None = store if like is None else like._store
        with self._turns.taken():
            known = {} if like is None else {id(t.constraint): t for t in like.tables}
            if forget:
                known = {key: table.emptied() for key, table in known.items()}
            self.tables: tuple[ConstraintTable, ...] = self._tables_of(vocabulary, known)
        self._followings = [table.next for table in self.tables]
        self._hard = [i for i, c in enumerate(self.constraints) if c.hard]
        self._soft = [i for i, c in enumerate(self.constraints) if not c.hard and c.penalty]
        self._join_hard(None if like is None or forget else like._together)
        self._eos = frozenset(vocabulary.eos_ids)
        self._unusable = frozenset(vocabulary.unusable_ids)

        self._states: list[tuple[int, ...]] = []
        # Of states after a forced token: the rules that do not count there.
        self._lost: dict[int, tuple[int, ...]] = {}
        self._ids: dict[tuple[int, ...], int] = {}
        self._next: list[dict[int, int]] = []
        self._forbidden: dict[tuple[int, int], NDArray[np.int64]] = {}
        self._may_end: dict[int, bool] = {}
        self._penalties: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        self._undecided: dict[tuple[int, int], int] = {}
        self._mask_bytes = 0
        self._additions = 0
        self._links = 0
        self._automata = {id(t.automaton): t.automaton for t in self.tables}.values()
        self._automata_bytes = self._held_by_automata()
        self.start = self._intern(tuple(self._first(c) for c in self.constraints))
        if like is None:
            self._look_ahead()

    def _join_hard(self, like: HardConstraints | None) -> None:
        hard = [self.tables[i] for i in self._hard]
        with self._turns.taken():  # automata that others step meanwhile may be among these
            self._together: HardConstraints = HardConstraints(
                hard, self.vocabulary, self._tree, self._paths, like, self._turns.give_way
            )
        self._lost_rules = LostRules(
            self.tables, self._together, self.vocabulary, self._tree, self._paths, self._quotients
        )

    def _tables_of(
        self, vocabulary: Vocabulary, known: dict[int, ConstraintTable]
    ) -> tuple[ConstraintTable, ...]:
        partitions = {
            id(c): (
                _uncut(c.automaton) if isinstance(c.automaton, RegionsAutomaton) else c.automaton
            ).byte_classes
            for c in self.constraints
            if id(c) not in known and not isinstance(_uncut(c.automaton), AhoCorasick)
        }
        self._quotients.plan(partitions.values())
        found: list[ConstraintTable] = []
        for constraint in self.constraints:
            table = known.get(id(constraint))
            if table is None:
                classes = partitions.get(id(constraint))
                tree = self._tree if classes is None else self._quotients.of(classes)
                scratch = self._quotients.scratch(tree)
                automaton = _uncut(constraint.automaton)
                # What others share is found by the constraint, so it stays the same object where it can.
                cut = automaton is not constraint.automaton
                plain = replace(constraint, automaton=automaton) if cut else constraint
                kind = StringTable if isinstance(automaton, AhoCorasick) else ConstraintTable
                table = kind(plain, tree, vocabulary, self._paths, scratch, self._store)
                if cut:
                    of = RegionTable if isinstance(constraint.automaton, RegionsAutomaton) else BorderedTable
                    table = of(constraint, table, tree, vocabulary, self._paths)
            found.append(table)
        return tuple(found)

    def _first(self, constraint: Constraint) -> int:
        automaton, vocabulary = constraint.automaton, self.vocabulary
        first = vocabulary.strips_first_space or vocabulary.rewriting is not None
        return automaton.spaceless_start if first else automaton.start

    def _look_ahead(self) -> None:
        """Meet the states that all texts meet: after a letter, a digit, a space, a full stop, the end of a line."""
        for written in _EVERYWHERE:
            reached = [t.automaton.read(t.root, written) for t in self._together.tables]
            if min(reached, default=0) >= 0:
                self._together.forbidden(tuple(reached))

    def _intern(self, states: tuple[int, ...], lost: tuple[int, ...] = ()) -> int:
        """The number of a joint state; `lost`: the rules in it whose match under way does not count (see `forced`)."""
        if lost:
            states, lost = self._lost_rules.without_past(states, lost)
        key = (*states, -1, *lost) if lost else states
        found = self._ids.get(key)
        if found is None:
            with self._turns.taken():
                found = self._ids.get(key)
                if found is None:
                    # Nothing is known of a number before all that it stands for is there.
                    found = len(self._states)
                    self._next[found:] = [{}]
                    if lost:
                        self._lost[found] = lost
                    self._states.append(states)
                    self._ids[key] = found
                    self._grown()
        return found

    def _grown(self) -> None:
        """A state or a transition was added. Sizes are looked at now and then: doubling at first, then every 256."""
        self._additions += 1
        if self._additions % 256 == 0 or self._additions & (self._additions - 1) == 0:
            self.full = self.full or self.nbytes > self.memory_limit

    def _held_by_automata(self) -> int:
        return sum(automaton.nbytes for automaton in self._automata)

    def _looked(self) -> None:
        """A mask was found. That can meet many states of automata at once, so their growth is looked at each time."""
        held = self._held_by_automata()
        if (held - self._automata_bytes) * 16 > self.memory_limit:
            self._automata_bytes = held
            self.full = self.full or self.nbytes > self.memory_limit

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Hold the lock while something is found; where an automaton can go no further, these tables are worn."""
        with self._turns.taken():
            try:
                yield
            except StateLimitError:
                self.full = self.worn = True
                raise

    def components(self, state: int) -> tuple[int, ...]:
        """The states of the single constraints in a joint state, in the order of `constraints`."""
        return self._lost_rules.inner_states(self._states[state], self.lost(state))

    def lost(self, state: int) -> tuple[int, ...]:
        """Which of the constraints do not count in a joint state, until the match that they are in is past."""
        return self._lost.get(state, ())

    def start_after(self, context: bytes, begun: str = "") -> int:
        """The joint state of an empty output after a prompt, for rules that read the prompt.

        `begun`: what the prompt ends with that belongs to a reply which is cut into fields.

        Matches within the prompt do not count; one that the output would complete does. `context` is well-formed
        UTF-8.
        """
        states: list[int] = []
        for constraint in self.constraints:
            state = self._first(constraint)
            read = context if constraint.reads_prompt else b""
            if begun and isinstance(constraint.automaton, RegionsAutomaton):
                first = self.vocabulary.strips_first_space
                with self._working():
                    state = constraint.automaton.begin(begun, context=read, spaceless=first)
            elif read:
                with self._working():
                    state = constraint.automaton.read_prompt(context)
            states.append(state)
        return self._intern(tuple(states))

    # -- steps -------------------------------------------------------------------------------------------------

    def next(self, state: int, token: int) -> int:
        """The joint state after a token; `VIOLATED` if it is forbidden, `ENDED` if it ends the text."""
        if state < 0:
            return state
        known = self._next[state].get(token)
        if known is None:
            with self._working():
                known = self._next[state][token] = self._find_next(state, token)
                self._links += 1
                self._grown()
        return known

    def _find_next(self, state: int, token: int) -> int:
        if not 0 <= token < self.vocabulary.width or token in self._unusable:
            return VIOLATED
        mask = self._forbidden.get((state, HORIZON))
        if mask is not None and holds(mask, token):
            return VIOLATED
        ends = token in self._eos
        if ends and mask is not None:
            return ENDED
        following = self._following(state, token)
        if following is None:
            return VIOLATED
        # Where the mask is not at hand, most tokens can be told from the states they lead to.
        together = self._left(state).together
        if mask is None and (ends or not together.may_end(tuple([following[i] for i in self._hard]))):
            if holds(self.forbidden(state), token):
                return VIOLATED
            if ends:
                return ENDED
        return self._intern(following, self.lost(state))

    def _left(self, state: int) -> RulesLeft:
        return self._lost_rules.left(self.lost(state))

    def forced(self, states: Sequence[int], tokens: Sequence[int]) -> int:
        """The joint state of a text whose last token the mask forbids; `ENDED` if that token ends it.

        `states` are those before each of its tokens (>= 0), beginning between two characters. A rule whose match
        completes is in the state past it; after a token without text nothing is changed; ill-formed bytes read as
        U+FFFD. A rule that is lost already, by itself or because all together would leave no token, does not count
        until its match is past: as long as the policy lets anything be written, something may be written here. Cost:
        a mask, and some milliseconds for each set of lost rules.
        """
        if tokens[-1] in self._eos:
            return ENDED
        rules = self._lost_rules
        with self._working():
            at = max(i for i, s in enumerate(states) if not i or rules.between_characters(self._states[s]))
            before, lost = self._states[states[at]], self.lost(states[at])
            found = self._intern(rules.read(before, lost, tokens[at:]), lost)
            settled, lost = self._states[found], self.lost(found)
            for fewer, more in rules.more_lost(settled, lost):
                if len(self.forbidden(found)) < self.vocabulary.width:
                    break
                found = self._intern(fewer, more)
        return found

    def _following(self, state: int, token: int) -> tuple[int, ...] | None:
        """The constraints' states after a token; None if a match of a hard one completes."""
        found: list[int] = []
        followings = self._left(state).followings if state in self._lost else self._followings
        for following, own in zip(followings, self._states[state], strict=True):
            reached = following(own, token)
            if reached < 0:
                return None
            found.append(reached)
        return tuple(found)

    def may_end(self, state: int) -> bool:
        """Whether the text may end here."""
        if state < 0:
            return state != LIMITED
        known = self._may_end.get(state)
        if known is None:
            with self._working():
                known = self._may_end[state] = self._left(state).together.may_end(self._hard_states(state))
        return known

    def may_show(self, state: int) -> bool:
        """Whether what was written so far may be seen: where the text may end."""
        return self.may_end(state)

    # -- masks -------------------------------------------------------------------------------------------------

    def forbidden(self, state: int, remaining: int | None = None) -> NDArray[np.int64]:
        """Sorted int64 ids of the tokens forbidden here. The array is shared and read-only.

        `remaining`: how many more tokens may follow the one about to be chosen, where that is known. Tokens from which
        the text could not be brought to an allowed end in time are forbidden too.
        """
        if state < 0:
            return np.arange(self.vocabulary.width) if state == LIMITED else NO_IDS
        key = _mask_key(state, remaining)
        known = self._forbidden.get(key)
        if known is None:
            with self._working():
                known = self._forbidden.get(key)
                if known is None:
                    known = self._find_forbidden(key)
        return known

    @contextmanager
    def hard(self, state: int) -> Iterator[tuple[HardConstraints, tuple[int, ...]]]:
        """The hard constraints together, and their states in a joint state, held by one thread at a time.

        For whoever asks more of them than masks. Errors: `StateLimitError`, after which these tables are worn.
        """
        with self._working():
            yield self._left(state).together, self._hard_states(state)

    def tokens_needed(self, text: bytes) -> int:
        """The fewest tokens that a text can be written in; `short_ways.NEVER` where it cannot."""
        return self._paths.tokens_needed(text)

    def ids_of(self, text: bytes) -> list[int]:
        """The tokens that are a text."""
        return self._paths.ids_of(text)

    def _find_forbidden(self, key: tuple[int, int]) -> NDArray[np.int64]:
        state, tokens_left = key
        found, undecided = self._left(state).together.forbidden(self._hard_states(state), tokens_left)
        found.flags.writeable = False
        if undecided:
            self._undecided[key] = undecided
        # In a long search others have their turns, and may have found the same.
        if key not in self._forbidden:
            self._mask_bytes += found.nbytes
            self._forbidden[key] = found
        self._looked()
        return self._forbidden[key]

    def undecided(self, state: int, remaining: int | None = None) -> int:
        """In how many states that tokens lead to from here it was not decided within the bound whether the text could
        still be brought to an end; these tokens are forbidden. Of masks that were asked for.
        """
        return self._undecided.get(_mask_key(state, remaining), 0)

    @property
    def undecided_masks(self) -> int:
        """How many masks forbid some token because that was not decided."""
        return len(self._undecided)

    def _hard_states(self, state: int) -> tuple[int, ...]:
        states = self._states[state]
        return tuple([states[i] for i in self._hard])

    def penalties(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids (int64, sorted) and what soft rules subtract from their logits (float32), once per rule."""
        if state < 0 or not self._soft:
            return NO_IDS, NO_IDS.astype(np.float32)
        known = self._penalties.get(state)
        if known is None:
            with self._working():
                known = self._penalties[state] = self._find_penalties(state)
                self._mask_bytes += known[0].nbytes + known[1].nbytes
        return known

    def _find_penalties(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        amounts = np.zeros(self.vocabulary.width, np.float64)
        for i in self._soft:
            amounts[self.completing(state, i)] += self.constraints[i].penalty
        ids = np.flatnonzero(amounts)
        return ids, amounts[ids].astype(np.float32)

    def completing(self, state: int, index: int) -> NDArray[np.int64]:
        """Sorted ids of the tokens that complete a match of constraint `index` here, end-of-sequence included."""
        own = self._states[state][index]
        with self._working():
            table = self._left(state).tables[index]
            ids = table.view(own).completing
            ends = [t for t in self.vocabulary.eos_ids if table.completes_end(own, t)]
        return union([ids, np.array(ends, np.int64)], self.vocabulary.width) if ends else ids

    def stuck(self, state: int, remaining: int | None = None) -> bool:
        """Whether a text cannot go on here because a limit was met.

        Its state or its mask could not be found, or no token is left and for some of them it was not decided whether
        the text could end after them.
        """
        if state < 0:
            return state == LIMITED
        try:
            nothing = len(self.forbidden(state, remaining)) == self.vocabulary.width
        except StateLimitError:
            return True
        return nothing and self.undecided(state, remaining) > 0

    def rules_at_fault(self, state: int, token: int) -> tuple[str, ...]:
        """Why a token is forbidden here: the rules whose match it completes, else those it leaves without a way out."""
        completing, pending = self._rules(state, token)
        return completing or pending

    def _rules(self, state: int, token: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The rules of any mode whose match a token completes, and those it leaves pending; by feeding its bytes."""
        if state < 0 or not 0 <= token < self.vocabulary.width or token in self._unusable:
            return (), ()
        found: dict[str, None] = {}
        pending: dict[str, None] = {}
        # Whose match a token completes is for people to know; where an automaton can go no further it is not said.
        with suppress(StateLimitError), self._working():
            for table, own in zip(self._left(state).tables, self._states[state], strict=True):
                constraint, automaton, current = table.constraint, table.automaton, own
                own_state = automaton.inner_state if isinstance(automaton, ForgivingAutomaton) else int
                for byte in self.vocabulary.tokens[token]:
                    before, current = current, automaton.step(current, byte)
                    if current < 0:
                        current = ~current
                        found.update(dict.fromkeys(rules_completed(constraint, automaton, before, byte)))
                if not automaton.may_end(current):
                    named = constraint.rules_at_end
                    at_end = named(own_state(current)) if named else constraint.rule_ids
                    (found if token in self._eos else pending).update(dict.fromkeys(at_end))
        return tuple(found), tuple(pending)

    def save(self, growth: float = 0.0) -> None:
        """Keep in the store, if there is one, what has been found of constraints whose automata grew by so much.

        Cost: up to a millisecond a constraint that has grown. Steps of other threads wait for a part of it.
        """
        if self._store is None:
            return
        for table in self.tables:
            with self._turns.taken():
                kept = table.to_keep(growth)
            if kept is not None:
                self._store.save("table", *kept)

    # -- sizes -------------------------------------------------------------------------------------------------

    @property
    def state_count(self) -> int:
        """Joint states met so far."""
        return len(self._states)

    @property
    def nbytes(self) -> int:
        """Bytes held by tables, masks and transitions (those of dictionaries estimated)."""
        found = sum(t.view_bytes for t in self.tables) + self._together.nbytes + self._mask_bytes
        found += self._lost_rules.nbytes
        return self.base_nbytes + found + 100 * self._links + 300 * len(self._states)

    @property
    def base_nbytes(self) -> int:
        """Bytes that tables `like` these would hold from the start: root runs, quotient trees, automata."""
        return sum(t.nbytes - t.view_bytes for t in self.tables) + self._quotients.nbytes
