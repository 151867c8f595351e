"""Which row of a batch continues which text.

A decoding engine hands over arrays of token ids and says nothing about where its rows came from: beams are
permuted, finished rows vanish or get pads, prompt lookup and assisted decoding go back and score several
positions, and the next generation begins with the same objects. So a row's state follows from its ids alone,
never from row numbers or from how often something was called.

Where the prompts of a batch have policies of their own, each row inherits its parent's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from nco_guard.errors import GenerationError, StateLimitError
from nco_guard.session.state import Bound, TextState

__all__ = ["Ids", "LimitMet", "RowTracker", "Violation", "in_fresh_tables"]

Ids = npt.NDArray[np.int64]
T = TypeVar("T")


class Violation(NamedTuple):
    """A token that was written although it is forbidden.

    row: of the last call. state: before it. token: its id.
    """

    row: int
    state: int
    token: int


class LimitMet(Exception):
    """A row's state or mask cannot be found in these tables, which are worn: others have to be asked for all rows."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def in_fresh_tables(look: Callable[[], T], give_up: Callable[[int], None], rows: int) -> T:
    """What a look at all rows finds; where it meets a limit (`LimitMet`), the next is one at fresh tables.

    What cannot go on in these either is given up, and it alone. Errors: `StateLimitError` where that is of no use.
    """
    for attempt in range(rows + 2):
        try:
            return look()
        except LimitMet as met:
            if attempt:
                give_up(met.row)
    raise StateLimitError(
        "these texts bring rules to the limits of their automata, one after another; make counted repeats shorter"
    )


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
    place; where they move, one hash per row. All ids are compared, since any of them may be another: whoever looked
    at the last ones alone would take a new prompt for an old text.

    sources: where the tables come from; a bound guard, or one for each prompt. The same one may stand there several
    times.
    reads_prompt: whether rules that look at the prompt get to see it. Not so for encoder-decoder models, whose rows
    begin with a start token and do not continue what the encoder read.
    """

    def __init__(self, sources: Bound | Sequence[Bound], *, reads_prompt: bool = True) -> None:
        given = list(sources) if isinstance(sources, Sequence) else [sources]
        if not given:
            raise ValueError("at least one source of tables is needed")
        distinct = {id(source): source for source in given}
        places = {key: place for place, key in enumerate(distinct)}
        self._sources = list(distinct.values())
        # The policy, a place in `_sources`, of each prompt.
        self._of_prompt = [places[id(source)] for source in given]
        self._reads_prompt = reads_prompt
        self._tables: list[Any] = []
        self.reset()

    def reset(self) -> None:
        """Forget every row: whatever comes next is a prompt."""
        # The ids of the last call, `_length` columns of a buffer; and of each row its prompt's length, policy and text.
        self._ids: Ids = np.zeros((0, 0), dtype=np.int64)
        self._length = 0
        self._prompts: list[int] = []
        self._policies: list[int] = []
        self._texts: list[TextState] = []

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
    def prompt_lengths(self) -> Sequence[int]:
        """How many ids of each row of the last `advance` are its prompt."""
        return self._prompts

    @property
    def violations(self) -> Sequence[Violation]:
        """The rows of the last `advance` whose last token is forbidden."""
        found = [(row, text.violation) for row, text in enumerate(self._texts) if text.forced]
        return [Violation(row, *violation) for row, violation in found if violation is not None]

    @property
    def broken(self) -> list[bool]:
        """Which rows of the last `advance` hold a forbidden token."""
        return [bool(text.forced) for text in self._texts]

    def advance(self, ids: Ids) -> Ids:
        """The states of all rows.

        ids: int64 [rows, length], prompts and pads included. Returns int64 [rows]. Errors: `GenerationError` where
        it cannot be told which policy a row has.
        """
        return np.array(self.follow(ids), dtype=np.int64)

    def follow(self, ids: Ids) -> list[int]:
        """`advance`, for those who want the states one by one."""
        length = ids.shape[1]
        stays = (
            len(ids) == len(self._ids)
            and length == self._length + 1
            and not np.count_nonzero(ids[:, :-1] != self._ids[:, : length - 1])
        )
        if stays:
            self._reserve(length)
            self._ids[:, length - 1 :] = ids[:, -1:]
        else:
            self._rearrange(ids)
        last = ids[:, -1].tolist() if length else [0] * len(ids)
        states = in_fresh_tables(partial(self._states, last, length), self.give_up, len(ids))
        self._length = length  # last: what is broken off before is written again
        return states

    def give_up(self, row: int) -> None:
        """From here on nothing more is said of a row of the last `advance`: its mask cannot be found."""
        self._texts[row].give_up()

    def _states(self, last: Sequence[int], length: int) -> list[int]:
        """The states of texts that end with these tokens, if these are no part of their prompts."""
        self._tables = [source.answers for source in self._sources]
        tables = [self._tables[policy] for policy in self._policies]
        rows = zip(self._texts, tables, self._prompts, last, strict=True)
        states: list[int] = []
        found = states.append
        try:
            for text, own, prompt, token in rows:
                found(text.write(own, length - 1 - prompt, token))
        except StateLimitError as error:
            raise LimitMet(len(states)) from error
        return states

    def _reserve(self, length: int) -> None:
        if length > self._ids.shape[1]:
            grown: Ids = np.empty((len(self._ids), 2 * length + 32), dtype=np.int64)
            grown[:, : self._length] = self._ids[:, : self._length]
            self._ids = grown

    def _rearrange(self, ids: Ids) -> None:
        """Give each row of `ids` the text of the known row that it continues, or make it a new prompt."""
        rows, length = ids.shape
        prompts, policies, texts = list[int](), list[int](), list[TextState]()
        for row, parent in enumerate(self._parents(ids)):
            prompts.append(length if parent < 0 else self._prompts[parent])
            policies.append(self._policy_at(row, rows) if parent < 0 else self._policies[parent])
            texts.append(self._begun(policies[row], ids[row]) if parent < 0 else self._texts[parent].fork())
        known: Ids = np.empty((rows, length + 32), dtype=np.int64)
        known[:, :length] = ids
        found = known, max(length - 1, 0), prompts, policies, texts
        # On one line: whatever breaks off, before or after it, the rows are those of one call.
        self._ids, self._length, self._prompts, self._policies, self._texts = found

    def _begun(self, policy: int, prompt: Ids) -> TextState:
        source = self._sources[policy]
        return TextState(source, prompt.tolist() if self._reads_prompt and source.needs_context else None)

    def _parents(self, ids: Ids) -> list[int]:
        """For each row of `ids` the known row that it continues, or -1."""
        rows, length = ids.shape
        stem = length - 1
        # Rows with the same beginning: the first of each policy.
        stems: dict[bytes, dict[int, int]] = {}
        if 0 <= stem <= self._length:
            for row, prompt in enumerate(self._prompts):
                if prompt <= stem:
                    alike = stems.setdefault(self._ids[row, :stem].tobytes(), {})
                    alike.setdefault(self._policies[row], row)
        parents: list[int] = []
        for row in range(rows):
            alike = stems.get(ids[row, :stem].tobytes(), {}) if stems else {}
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
