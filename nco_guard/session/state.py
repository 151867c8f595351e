"""Where a text under a guard stands: the joint states of its beginnings, kept as long as their tables are.

A state is a function of the tables, of what the text continues, and of its tokens. Tables are replaced when they are
full, and a state means nothing to others than its own. So whoever looks says which tables it is about, and what has not
been read in these is read then: the last token, or the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar, TypeVarTuple, Unpack

from nco_guard.errors import StateLimitError
from nco_guard.masking import LIMITED, VIOLATED
from nco_guard.masking.answers import Tables
from nco_guard.tokens import Vocabulary

if TYPE_CHECKING:
    from nco_guard.analysis.explain import Explainer

__all__ = ["Bound", "Context", "TextState"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
#: What a text continues: a prompt as text or as token ids.
Context = str | Sequence[int] | None


class Bound(Protocol):
    """What texts need of a `BoundGuard`."""

    vocabulary: Vocabulary
    begun: str

    @property
    def answers(self) -> Tables:
        """The present tables; others once a limit was met."""

    @property
    def needs_context(self) -> bool:
        """Whether any rule looks at the prompt."""

    def context_bytes(self, context: Context) -> bytes:
        """A prompt as the automata are fed it."""

    def prompt_text(self, context: Context) -> str:
        """A prompt as rules read it in finished text."""

    def explaining(self) -> AbstractContextManager[Explainer]:
        """What explains the masks."""


class TextState:
    """A text under a guard: what it continues, its tokens, and the joint states of all its beginnings.

    Tokens may be any. One that the masks forbid was forced by somebody else, and the text goes on from where
    `JointTables.forced` says.

    bound, context: the guard, and what the text continues. ids: its tokens. forced: after how many of them the last is
    forbidden, as far as they were read.
    Cost: one table step a token; in other tables, one for each token of the text. Not to be shared between threads.
    """

    __slots__ = ("_limited", "_states", "_tables", "bound", "context", "forced", "ids")

    def __init__(self, bound: Bound, context: Context = None) -> None:
        self.bound = bound
        self.context = context
        self.ids: list[int] = []
        # The states before and after each token, but for the last ones where these were not read yet.
        self._states: list[int] = []
        self._tables: Tables | None = None
        self.forced: set[int] = set()
        self._limited = False

    def state(self, tables: Tables) -> int:
        """The joint state in these tables.

        Errors: `StateLimitError` where it cannot be found there; they are worn then, and the guard has others.
        """
        if tables is not self._tables:
            if self._limited:
                return LIMITED
            self._tables, self._states = tables, [self._start(tables)]
        states, ids = self._states, self.ids
        while (place := len(states)) <= len(ids):
            state = tables.next(states[-1], ids[place - 1])
            if state == VIOLATED:
                self.forced.add(place)
                state = tables.forced(states, ids[:place])
            states.append(state)
        return states[-1]

    def _start(self, tables: Tables) -> int:
        begun = self.bound.begun
        if not begun and (self.context is None or not self.bound.needs_context):
            return tables.start
        return tables.start_after(self.bound.context_bytes(self.context), begun)

    def ask(self, question: Callable[[Tables, int, Unpack[Ts]], T], *further: *Ts) -> T:
        """Ask the present tables about the state; where a limit is met, fresh ones, once.

        Another thread may replace the tables at any moment: what belongs together is asked in one question. Errors:
        `StateLimitError` where this text alone is too much for a rule; the guard is whole for all others.
        """
        tables = self.bound.answers
        try:
            return question(tables, self.state(tables), *further)
        except StateLimitError:
            tables = self.bound.answers
            return question(tables, self.state(tables), *further)

    def advance(self, token: int) -> tuple[Tables, int, int]:
        """Append a token, unless it is forbidden or the text has ended: the tables, the states before and after it."""
        return self.ask(lambda tables, before: (tables, before, self.step(tables, before, token)))

    def step(self, tables: Tables, state: int, token: int) -> int:
        """`advance` within a question: where the state in its tables is known."""
        after = tables.next(state, token)
        if state >= 0 and after != VIOLATED:
            self.ids.append(token)
            self._states.append(after)
        return after

    def write(self, tables: Tables, place: int, token: int) -> int:
        """Put a token after so many, whatever it is, in place of those that stood there: the state in these tables.

        To do it again changes nothing, nor does a place before the beginning. Errors: as `state`.
        """
        states, ids = self._states, self.ids
        if tables is self._tables and len(ids) == place < len(states):
            # As nearly always.
            state = tables.next(states[place], token)
            if state != VIOLATED:
                ids.append(token)
                states.append(state)
                return state
        if place >= 0:
            self.cut(place)
            ids.append(token)
        return self.state(tables)

    def rewrite(self, tables: Tables, ids: list[int]) -> int:
        """Have these tokens: the state in these tables. Where they go on from what stood there, that is not read again.

        Errors: as `state`.
        """
        if ids[: len(self.ids)] != self.ids:
            self.cut(0)
        self.ids.extend(ids[len(self.ids) :])
        return self.state(tables)

    def cut(self, length: int) -> None:
        """Take back all but the first tokens."""
        # In this order: what is broken off between two lines is read again.
        del self._states[length + 1 :]
        self.forced = {place for place in self.forced if place <= length}
        del self.ids[length:]

    def give_up(self) -> None:
        """From here on the state is `LIMITED`."""
        self._limited, self._tables = True, None

    @property
    def violation(self) -> tuple[int, int] | None:
        """The state before the last token, and that token, if it was read and is forbidden."""
        if self._limited or len(self.ids) not in self.forced:
            return None
        return self._states[-2], self.ids[-1]

    def fork(self) -> TextState:
        """An independent copy."""
        copy = TextState(self.bound, self.context)
        copy.ids, copy._states, copy._tables = self.ids.copy(), self._states.copy(), self._tables
        copy.forced, copy._limited = self.forced.copy(), self._limited
        return copy
