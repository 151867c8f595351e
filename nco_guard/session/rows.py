"""Which row of a batch continues which text.

A decoding engine hands over arrays of token ids and says nothing about where its rows came from: beams are
permuted, finished rows vanish or get pads, prompt lookup and assisted decoding go back and score several
positions, and the next generation begins with the same objects. So a row's state follows from its ids alone,
never from row numbers or from how often something was called.

Where the prompts of a batch have policies of their own, each row inherits its parent's.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from nco_guard.errors import GenerationError, StateLimitError
from nco_guard.masking import ENDED, LIMITED, VIOLATED

__all__ = ["RowTracker", "Tables", "TablesSource", "Violation"]

Ids = npt.NDArray[np.int64]

_NEVER = sys.maxsize


class Tables(Protocol):
    """What the tracker needs of `masking.JointTables`; negative states are final, but for `VIOLATED`, which is none."""

    @property
    def start(self) -> int:
        """The state of the empty text."""

    def next(self, state: int, token: int) -> int:
        """The state after one more token; `VIOLATED` if that is forbidden."""

    def forced(self, states: Sequence[int], tokens: Sequence[int]) -> int:
        """The state of a text whose last token is forbidden; `states` are those before each of its tokens."""

    def start_after(self, context: bytes) -> int:
        """The state of the empty text after a prompt, for rules that look at it."""


class TablesSource(Protocol):
    """What the tracker needs of `session.BoundGuard`."""

    @property
    def tables(self) -> Any:
        """The present `Tables`; another object once a memory limit was reached."""

    @property
    def needs_context(self) -> bool:
        """Whether any rule looks at the prompt."""

    def context_bytes(self, context: list[int]) -> bytes:
        """The text of a prompt, as rules read it."""


class Violation(NamedTuple):
    """A token that was written although it is forbidden.

    row: of the last call. state: before it. token: its id.
    """

    row: int
    state: int
    token: int


class _LimitMet(Exception):
    """A row's state could not be found in these tables."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


@contextmanager
def _naming(row: int) -> Iterator[None]:
    try:
        yield
    except StateLimitError as error:
        raise _LimitMet(row) from error


class RowTracker:
    """Follows the joint state of every row of the batches that an engine shows.

    Guarantee: the state returned for a row is that of its generated text, which is the row after its prompt.
    A row continues a known text iff the row without its last token is a known row, or the beginning of one,
    and includes all of that one's prompt. Every other row is a new prompt, whole.

    Ambiguity: a new prompt that equals an earlier prompt with some or all of its output (and at most one
    token more) cannot be told from a continuation and is taken as one. Call `reset` between generations where
    that can happen.

    A forbidden token that stands in a row was forced by somebody else: `violations` names it in the call that first
    shows it, `broken` for as long as it stands in the row, and the row has the state of its text all the same.

    A text that brings an automaton to its limit is read again in fresh tables. Where that does not do either its
    state is `LIMITED`, for ever; the other rows have theirs.

    Several policies: of R rows for n prompts, row r of a new batch belongs to prompt r * n // R (each prompt's beams
    or sequences stand together). From then on a row has the policy of the row it continues, wherever it stands. Only
    where the same ids are known under several policies does its place decide, and then R must be as it was; what
    cannot be told apart is a `GenerationError`, never a guess.

    Only the rows of the last call are known, with the states at all their positions, since every engine call
    extends or cuts those. Cost: one comparison of the ids and one table step per row where rows stay in
    place; where they move, one hash per row. When the tables were replaced, states are replayed from the ids.

    sources: where the tables come from; a bound guard, or one for each prompt. The same one may stand there several
    times.
    reads_prompt: whether rules that look at the prompt get to see it. Not so for encoder-decoder models, whose rows
    begin with a start token and do not continue what the encoder read.
    """

    def __init__(self, sources: TablesSource | Sequence[TablesSource], *, reads_prompt: bool = True) -> None:
        given = list(sources) if isinstance(sources, Sequence) else [sources]
        if not given:
            raise ValueError("at least one source of tables is needed")
        distinct = {id(source): source for source in given}
        places = {key: place for place, key in enumerate(distinct)}
        self._sources = list(distinct.values())
        # The policy, a place in `_sources`, of each prompt.
        self._of_prompt = [places[id(source)] for source in given]
        self._reads_prompt = [reads_prompt and source.needs_context for source in self._sources]
        self.reset()

    def reset(self) -> None:
        """Forget every row: whatever comes next is a prompt."""
        self._tables: list[Any] = []
        # The ids of the last call, `_length` columns of a buffer.
        self._ids: Ids = np.zeros((0, 0), dtype=np.int64)
        self._length = 0
        self._lengths: Ids = np.zeros(0, dtype=np.int64)
        self._policies: list[int] = []
        # Column n holds the states after n tokens; columns before a row's prompt length mean nothing.
        self._states: Ids = np.zeros((0, 1), dtype=np.int64)
        # After how many tokens each row held its first forbidden one; `_NEVER`: it holds none.
        self._broken: list[int] = []
        self._violations: list[Violation] = []

    @property
    def tables(self) -> Any:
        """The tables that the states of the last `advance` belong to, where there is one source."""
        return self._tables[0]

    @property
    def all_tables(self) -> Sequence[Any]:
        """The tables that the states of the last `advance` belong to, by policy (see `policies`)."""
        return self._tables

    @property
    def policies(self) -> Sequence[int]:
        """The policy of each row of the last `advance`: the number of its source among the distinct ones, in order."""
        return self._policies

    @property
    def prompt_lengths(self) -> Ids:
        """int64 [rows]: how many ids of each row of the last `advance` are its prompt."""
        return self._lengths

    @property
    def violations(self) -> Sequence[Violation]:
        """The rows of the last `advance` whose last token is forbidden."""
        return self._violations

    @property
    def broken(self) -> list[bool]:
        """Which rows of the last `advance` hold a forbidden token."""
        length = self._length
        return [at <= length for at in self._broken]

    def advance(self, ids: Ids) -> Ids:
        """The states of all rows.

        ids: int64 [rows, length], prompts and pads included. Returns int64 [rows]. Errors: `GenerationError` where
        it cannot be told which policy a row has.
        """
        return np.array(self.follow(ids), dtype=np.int64)

    def follow(self, ids: Ids) -> list[int]:
        """`advance`, for those who want the states one by one."""
        retried = False
        given_up: set[int] = set()
        while True:
            try:
                return self._follow(ids, given_up)
            except _LimitMet as met:
                # The tables are worn now, and their source has fresh ones, in which all rows are read again.
                if retried:
                    self._states[met.row] = LIMITED
                    given_up.add(met.row)
                retried = True

    def give_up(self, row: int) -> None:
        """From here on nothing more is said of a row of the last `advance`: its mask cannot be found."""
        self._states[row] = LIMITED

    def _follow(self, ids: Ids, given_up: set[int]) -> list[int]:
        rows, length = ids.shape
        tables = [source.tables for source in self._sources]
        if not self._tables or any(map(operator.is_not, tables, self._tables)):
            before, self._tables = self._tables, tables
            try:
                self._replay(before)
            except _LimitMet:
                self._tables = [None] * len(tables)  # whichever come next, all rows are read again
                raise
        stays = (
            rows == len(self._ids)
            and length == self._length + 1
            and not np.count_nonzero(ids[:, :-1] != self._ids[:, : length - 1])
        )
        fresh: list[int] = []
        if stays:
            self._reserve(length)
            self._ids[:, length - 1] = ids[:, -1]
        else:
            self._rearrange(ids)
            fresh = np.flatnonzero(self._lengths == length).tolist()
        self._length = length
        states = self._states[:, length - 1].tolist() if len(fresh) < rows else [ENDED] * rows
        for row in fresh:
            states[row] = ENDED  # it begins here
        last = ids[:, -1].tolist() if length else states
        reached = self._stepped(states, last)
        for row in fresh:
            if row in given_up:
                reached[row] = LIMITED
                continue
            with _naming(row):
                reached[row] = self._begin(self._policies[row], ids[row])
        self._violations = []
        if VIOLATED in reached:
            for row in [row for row, state in enumerate(reached) if state == VIOLATED]:
                self._violations.append(Violation(row, states[row], last[row]))
                with _naming(row):
                    reached[row] = self._forced(row, length)
                self._broken[row] = min(self._broken[row], length)
        self._states[:, length] = reached
        return reached

    def _stepped(self, states: Sequence[int], last: Sequence[int]) -> list[int]:
        """The states after one more token in each row."""
        steps: list[Callable[[int, int], int]] = [tables.next for tables in self._tables]
        try:
            if len(steps) == 1:
                step = steps[0]
                return [
                    step(state, token) if state >= 0 else state
                    for state, token in zip(states, last, strict=True)
                ]
            return [
                steps[policy](state, token) if state >= 0 else state
                for policy, state, token in zip(self._policies, states, last, strict=True)
            ]
        except StateLimitError as error:
            for row, (policy, state, token) in enumerate(zip(self._policies, states, last, strict=True)):
                with _naming(row):
                    _ = steps[policy](state, token) if state >= 0 else state
            raise _LimitMet(0) from error

    def _forced(self, row: int, length: int) -> int:
        """The state of a known row after so many tokens, the last of which is forbidden."""
        prompt = int(self._lengths[row])
        states, tokens = self._states[row, prompt:length], self._ids[row, prompt:length]
        reached: int = self._tables[self._policies[row]].forced(states.tolist(), tokens.tolist())
        return reached

    def _begin(self, policy: int, prompt: Ids) -> int:
        tables = self._tables[policy]
        if not self._reads_prompt[policy]:
            return int(tables.start)
        return int(tables.start_after(self._sources[policy].context_bytes(prompt.tolist())))

    def _rearrange(self, ids: Ids) -> None:
        """Give each row of `ids` the states of the known row that it continues, or make it a new prompt."""
        rows, length = ids.shape
        parents = self._parents(ids)
        continued = np.array(parents, dtype=np.int64) >= 0
        old_states, old_lengths, old_policies = self._states, self._lengths, self._policies
        width = max(length, old_states.shape[1] - 1) + 1
        states = np.full((rows, width), -1, dtype=np.int64)
        kept = [parent for parent in parents if parent >= 0]
        states[continued, : old_states.shape[1]] = old_states[kept]
        lengths: Ids = np.full(rows, length, dtype=np.int64)
        lengths[continued] = old_lengths[kept]
        policies = [
            old_policies[parent] if parent >= 0 else self._policy_at(row, rows)
            for row, parent in enumerate(parents)
        ]
        self._broken = [
            # From `length` on it was taken back.
            self._broken[parent] if parent >= 0 and self._broken[parent] < length else _NEVER
            for parent in parents
        ]
        self._states, self._lengths, self._policies = states, lengths, policies
        self._ids = np.empty((rows, width - 1), dtype=np.int64)
        self._ids[:, :length] = ids

    def _parents(self, ids: Ids) -> list[int]:
        """For each row of `ids` the known row that it continues, or -1."""
        rows, length = ids.shape
        stem = length - 1
        # Rows with the same beginning: the first of each policy.
        stems: dict[bytes, dict[int, int]] = {}
        if 0 <= stem <= self._length:
            for row in np.flatnonzero(self._lengths <= stem).tolist():
                alike = stems.setdefault(self._ids[row, :stem].tobytes(), {})
                alike.setdefault(self._policies[row], row)
        if not stems:
            return [-1] * rows
        parents: list[int] = []
        for row in range(rows):
            alike = stems.get(ids[row, :stem].tobytes(), {})
            if len(alike) > 1:
                policy = self._policy_at(row, rows) if rows == len(self._ids) else -1
                if policy not in alike:
                    raise GenerationError(
                        f"row {row}: its ids are those of texts under several guards, and its place does not tell "
                        f"which of them it continues"
                    )
                parents.append(alike[policy])
            else:
                parents.extend(alike.values() or (-1,))
        return parents

    def _policy_at(self, row: int, rows: int) -> int:
        """The policy of a row by its place in a batch."""
        if len(self._sources) == 1:
            return 0
        prompts = len(self._of_prompt)
        if rows % prompts:
            raise GenerationError(
                f"{rows} rows cannot belong to {prompts} prompts with a guard each: every prompt needs as many rows "
                f"as the others"
            )
        return self._of_prompt[row * prompts // rows]

    def _reserve(self, length: int) -> None:
        states = self._states
        if length >= states.shape[1]:
            grown = np.full((len(states), max(2 * states.shape[1], length + 32)), -1, dtype=np.int64)
            grown[:, : states.shape[1]] = states
            self._states = grown
        if length > self._ids.shape[1]:
            ids: Ids = np.empty((len(states), self._states.shape[1] - 1), dtype=np.int64)
            ids[:, : self._length] = self._ids[:, : self._length]
            self._ids = ids

    def _replay(self, before: Sequence[Tables]) -> None:
        """Recompute the states of known rows whose tables were replaced; those of other tables mean nothing."""
        known = zip(self._policies, self._ids[:, : self._length], self._lengths.tolist(), strict=True)
        for row, (policy, ids, prompt) in enumerate(known):
            tables = self._tables[policy]
            if tables is before[policy] or self._states[row, prompt] == LIMITED:
                continue
            with _naming(row):
                self._replay_row(tables, row, ids, prompt)

    def _replay_row(self, tables: Tables, row: int, ids: Ids, prompt: int) -> None:
        state = self._begin(self._policies[row], ids[:prompt])
        self._states[row, prompt] = state
        for position, token in enumerate(ids[prompt:].tolist(), start=prompt):
            if state >= 0:
                state = tables.next(state, token)
            if state == VIOLATED:
                state = self._forced(row, position + 1)
            self._states[row, position + 1] = state
