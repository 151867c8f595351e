"""Which row of a batch continues which text.

A decoding engine hands over arrays of token ids and says nothing about where its rows came from: beams are
permuted, finished rows vanish or get pads, prompt lookup and assisted decoding go back and score several
positions, and the next generation begins with the same objects. So a row's state follows from its ids alone,
never from row numbers or from how often something was called.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["RowTracker", "Tables", "TablesSource"]

Ids = npt.NDArray[np.int64]


class Tables(Protocol):
    """What the tracker needs of `masking.JointTables`; negative states are final."""

    @property
    def start(self) -> int:
        """The state of the empty text."""

    def next(self, state: int, token: int) -> int:
        """The state after one more token."""

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


class RowTracker:
    """Follows the joint state of every row of the batches that an engine shows.

    Guarantee: the state returned for a row is that of its generated text, which is the row after its prompt.
    A row continues a known text iff the row without its last token is a known row, or the beginning of one,
    and includes all of that one's prompt. Every other row is a new prompt, whole.

    Ambiguity: a new prompt that equals an earlier prompt with some or all of its output (and at most one
    token more) cannot be told from a continuation and is taken as one. Call `reset` between generations where
    that can happen.

    Only the rows of the last call are known, with the states at all their positions, since every engine call
    extends or cuts those. Cost: one comparison of the ids and one table step per row where rows stay in
    place; where they move, one hash per row. When the tables were replaced, states are replayed from the ids.

    source: where the tables come from; a bound guard.
    reads_prompt: whether rules that look at the prompt get to see it. Not so for encoder-decoder models, whose rows
    begin with a start token and do not continue what the encoder read.
    """

    def __init__(self, source: TablesSource, *, reads_prompt: bool = True) -> None:
        self._source = source
        self._reads_prompt = reads_prompt and source.needs_context
        self.reset()

    def reset(self) -> None:
        """Forget every row: whatever comes next is a prompt."""
        self._tables: Tables | None = None
        self._ids: Ids = np.zeros((0, 0), dtype=np.int64)
        self._lengths: Ids = np.zeros(0, dtype=np.int64)
        # Column n holds the states after n tokens; columns before a row's prompt length mean nothing.
        self._states: Ids = np.zeros((0, 1), dtype=np.int64)

    @property
    def tables(self) -> Any:
        """The tables that the states of the last `advance` belong to."""
        return self._tables

    @property
    def prompt_lengths(self) -> Ids:
        """int64 [rows]: how many ids of each row of the last `advance` are its prompt."""
        return self._lengths

    def advance(self, ids: Ids) -> Ids:
        """The states of all rows.

        ids: int64 [rows, length], prompts and pads included. Returns int64 [rows].
        """
        rows, length = ids.shape
        tables = self._source.tables
        if tables is not self._tables:
            self._tables = tables
            self._replay(tables)
        known = self._ids
        if known.shape == (rows, length - 1) and np.array_equal(ids[:, :-1], known):
            self._reserve(length)
        else:
            self._rearrange(tables, ids)
        for row, prompt_length in enumerate(self._lengths.tolist()):
            if prompt_length == length:
                state = self._begin(tables, ids[row])
            else:
                state = int(self._states[row, length - 1])
                if state >= 0:
                    state = tables.next(state, int(ids[row, -1]))
            self._states[row, length] = state
        self._ids = ids.copy()
        return self._states[:, length].copy()

    def _begin(self, tables: Tables, prompt: Ids) -> int:
        if not self._reads_prompt:
            return tables.start
        return tables.start_after(self._source.context_bytes(prompt.tolist()))

    def _rearrange(self, tables: Tables, ids: Ids) -> None:
        """Give each row of `ids` the states of the known row that it continues, or make it a new prompt."""
        rows, length = ids.shape
        known = self._ids
        parents = np.full(rows, -1, dtype=np.int64)
        stem = length - 1
        if 0 <= stem <= known.shape[1]:
            stems: dict[bytes, int] = {}
            for row in range(len(known)):
                if self._lengths[row] <= stem:
                    stems.setdefault(known[row, :stem].tobytes(), row)
            if stems:
                parents[:] = [stems.get(row[:stem].tobytes(), -1) for row in ids]
        old_states, old_lengths = self._states, self._lengths
        width = max(length, old_states.shape[1] - 1) + 1
        states = np.full((rows, width), -1, dtype=np.int64)
        continued = parents >= 0
        states[continued, : old_states.shape[1]] = old_states[parents[continued]]
        self._states = states
        self._lengths = np.full(rows, length, dtype=np.int64)
        self._lengths[continued] = old_lengths[parents[continued]]

    def _reserve(self, length: int) -> None:
        states = self._states
        if length >= states.shape[1]:
            grown = np.full((len(states), max(2 * states.shape[1], length + 32)), -1, dtype=np.int64)
            grown[:, : states.shape[1]] = states
            self._states = grown

    def _replay(self, tables: Tables) -> None:
        """Recompute all states of the known rows; those of other tables mean nothing."""
        for row, (ids, prompt) in enumerate(zip(self._ids, self._lengths.tolist(), strict=True)):
            state = self._begin(tables, ids[:prompt])
            self._states[row, prompt] = state
            for position, token in enumerate(ids[prompt:].tolist(), start=prompt):
                if state >= 0:
                    state = tables.next(state, token)
                self._states[row, position + 1] = state
