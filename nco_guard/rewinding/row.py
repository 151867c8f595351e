"""One row that goes back to where a match began, and draws again: what is decided, without a model.

Whoever runs the model gives the probabilities after the present prefix (`visit`); the row then writes tokens up to the
next prefix that it knows nothing of (`go`), which may lie behind the one that it was at.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nco_guard.errors import StateLimitError
from nco_guard.policy import Rewind
from nco_guard.rewinding.prefixes import Ids, Probabilities, Visited, drawn
from nco_guard.session.state import TextState

__all__ = ["RewindCounts", "RewindingRow", "Rewound"]


class Prediction(Protocol):
    """What the model says at the present prefix."""

    @property
    def probabilities(self) -> Probabilities:
        """float [width]: after all processors, the guard not among them; their sum is 1."""

    def masked(self) -> Probabilities:
        """float [width]: the same with the guard's mask before what truncates (top-k, ...). Errors: `DeadEndError`."""


class Starts(Protocol):
    """Where matches begin in the row's text; see `MatchStarts`."""

    def begun(self, rules: Sequence[str], token: int) -> int | None:
        """How many tokens of the text stand before the first match of these rules that the token would complete.

        Where it completes none, before the first that is under way. None: none is.
        """

    def sentence(self, place: int, token: int) -> int:
        """How many tokens stand before the sentence of the token at this place, if this one comes next."""

    def cut(self, length: int) -> None:
        """The text is taken back to its first tokens."""


@dataclass(slots=True)
class RewindCounts:
    """What became of one text.

    Attributes:
        rewinds: how often it went back.
        discarded: how many tokens were thrown away.
        fallbacks: how often it could not go back so far: it went back to the match only, or the mask acted.
    """

    rewinds: int = 0
    discarded: int = 0
    fallbacks: int = 0


class Rewound(NamedTuple):
    """What a text went back from.

    step: tokens of the text there. rules: whose match the next would have completed. removed: the probability of all
    that is forbidden there. top_forbidden: whether the most probable token is. rank: of the most probable token that is
    allowed. discarded: tokens that were thrown away.
    """

    step: int
    rules: tuple[str, ...]
    removed: float
    top_forbidden: bool
    rank: int
    discarded: int


class RewindingRow:
    """A text that is drawn from the model's distribution given that it holds no match, as far as budgets allow.

    Guarantee: no token is written that the masks forbid. With `back_to="text"` and no budgets the text is a sample of
    exactly that conditional distribution; with budgets, the distance is at most the probability that `fallbacks` is
    not 0. Cost: a pass over the vocabulary for each token, and for each going back one for each token gone back over.

    text: the row's state, at the beginning of its text. limit: of its tokens; None: there is none. greedy: the token
    with the most mass is written; else one is drawn. uniform: a new number in [0, 1) each time. stops:
    whether a text is to end, whatever may follow. on_rewind: told of each going back. shown: so many tokens
    were shown and stay. most: bytes of probabilities that are kept; what is let go of costs a pass where it is needed.
    """

    def __init__(
        self,
        text: TextState,
        starts: Starts,
        settings: Rewind,
        *,
        limit: int | None,
        greedy: bool,
        uniform: Callable[[], float],
        stops: Callable[[Sequence[int]], bool] | None = None,
        on_rewind: Callable[[Rewound], None] | None = None,
        most: int = 64 << 20,
    ) -> None:
        self.text = text
        self.counts = RewindCounts()
        self.shown = 0
        self.is_over = False
        self._starts = starts
        self._settings = settings
        self._limit = limit
        self._greedy = greedy
        self._uniform = uniform
        self._stops = stops
        self._on_rewind = on_rewind
        self._ends = frozenset(text.bound.vocabulary.eos_ids)
        self._path = [Visited()]
        self._filled: deque[Visited] = deque()
        self._held, self._most = 0, most

    @property
    def ids(self) -> list[int]:
        """The text so far."""
        return self.text.ids

    def penalties(self) -> tuple[Ids, NDArray[np.float32]]:
        """What soft rules subtract from the scores here: of which tokens, and how much."""
        try:
            return self.text.ask(lambda tables, state: tables.penalties(state))
        except StateLimitError:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)

    # -- at a prefix -------------------------------------------------------------------------------------------

    def visit(self, look: Prediction) -> None:
        """Be told what the model says here, and go back if what is forbidden would have been written."""
        node = self._path[-1]
        try:
            forbidden = self.forbidden()
        except StateLimitError:
            self._fall_back(look)
            return
        probabilities = look.probabilities
        is_new = not node.is_seen
        node.fill(probabilities, forbidden)
        self._keep(node)
        token = self._blocked(probabilities, forbidden) if is_new else None
        if token is None:
            if node.is_spent:
                self._fall_back(look)
            return
        rules = self.text.ask(lambda tables, state: tables.rules_at_fault(state, token))
        for tried, place in enumerate(self._targets(token, rules)):
            self.counts.fallbacks += tried == 1
            if place >= len(self.ids):
                return  # nothing to take back: another token is drawn here
            if self._may_go_back(place):
                if self._on_rewind is not None:
                    self._on_rewind(self._told(probabilities, forbidden, rules, place))
                self._go_back(place)
                return
        self.counts.fallbacks += self._settings.back_to == "match"
        self._write_masked(look)

    def forbidden(self) -> Ids:
        """The tokens that the masks forbid here. Errors: `StateLimitError`."""
        left = None if self._limit is None else self._limit - len(self.ids) - 1
        return self.text.ask(lambda tables, state: tables.forbidden(state, left))

    def _blocked(self, probabilities: Probabilities, forbidden: Ids) -> int | None:
        """The forbidden token that would have been written here; None: an allowed one would have been."""
        if self._greedy:
            best = int(probabilities.argmax())
            return best if best in forbidden else None
        among = probabilities[forbidden]
        removed = float(among.sum(dtype=np.float64))
        if self._uniform() * float(probabilities.sum(dtype=np.float64)) >= removed:
            return None
        place = drawn(among, self._uniform())
        return None if place is None else int(forbidden[place])

    def _targets(self, token: int, rules: Sequence[str]) -> Iterator[int]:
        """How many tokens stay if it goes back: as far as it should; where that was done too often, to the match."""
        if self._settings.back_to == "text":
            yield self._settled(0)
        begun = self._starts.begun(rules, token)
        if begun is None:
            begun = len(self.ids)
        elif self._settings.back_to == "sentence":
            yield self._settled(self._starts.sentence(begun, token))
        yield self._settled(begun)

    def _settled(self, place: int) -> int:
        """The first place, from this one on, that may be gone back to and from which the text would go on otherwise."""
        place = max(place, self.shown)
        return self._changed(place) if self._greedy else place

    def _changed(self, target: int) -> int:
        """The first prefix, not before the target, after which another token has the most mass now; else the last."""
        self._carry(target)
        for place in range(target, len(self.ids)):
            node = self._path[place]
            if not node.is_filled or node.best() != self.ids[place]:
                return place
        return len(self.ids)

    def _carry(self, target: int) -> None:
        """Take what was found out here back to a prefix and all between."""
        for node in reversed(self._path[target:]):
            node.carry()

    def _may_go_back(self, target: int) -> bool:
        settings = self._settings
        if settings.per_text is not None and self.counts.rewinds >= settings.per_text:
            return False
        return settings.per_match is None or self._path[target].tries < settings.per_match

    def _go_back(self, target: int) -> None:
        self._carry(target)
        self._path[target].tries += 1
        self.counts.rewinds += 1
        self.counts.discarded += len(self.ids) - target
        self.text.cut(target)
        self._starts.cut(target)
        del self._path[target + 1 :]

    def _told(
        self, probabilities: Probabilities, forbidden: Ids, rules: tuple[str, ...], place: int
    ) -> Rewound:
        allowed = np.delete(probabilities, forbidden)
        best = allowed.max(initial=0.0)
        return Rewound(
            step=len(self.ids),
            rules=rules,
            removed=min(1.0, float(probabilities[forbidden].sum(dtype=np.float64))),
            top_forbidden=bool(probabilities[forbidden].max(initial=0.0) > best),
            rank=int(np.count_nonzero(probabilities > best)),
            discarded=len(self.ids) - place,
        )

    def _keep(self, node: Visited) -> None:
        """Let go of the oldest probabilities where all together hold too much."""
        self._filled.append(node)
        self._held += node.nbytes
        while self._held > self._most and len(self._filled) > 1:
            oldest = self._filled.popleft()
            self._held -= oldest.nbytes
            oldest.forget()

    def forget_cut(self) -> None:
        """Let go of the probabilities of all prefixes that are none of this text: coming again costs a pass."""
        own = set(self._path)
        for node in [node for node in self._filled if node not in own]:
            self._held -= node.nbytes
            self._filled.remove(node)
            node.forget()

    def _fall_back(self, look: Prediction) -> None:
        """Let the mask act, since nothing else is left."""
        self.counts.fallbacks += 1
        self._write_masked(look)

    def _write_masked(self, look: Prediction) -> None:
        masked = look.masked()
        token = int(masked.argmax()) if self._greedy else drawn(masked, self._uniform())
        if token is None:
            raise ValueError("a masked distribution has no mass")
        self._write(token)

    # -- on to the next ----------------------------------------------------------------------------------------

    def go(self) -> None:
        """Write tokens, up to a prefix whose probabilities are not known, or the end."""
        while not self.is_over and (node := self._path[-1]).is_filled:
            token = self._choice(node)
            if token is None:
                # The mask has to act, which needs the model's scores.
                self._held -= node.nbytes
                self._filled.remove(node)
                node.forget()
                return
            self._write(token)

    def _choice(self, node: Visited) -> int | None:
        return node.best() if self._greedy else node.draw(self._uniform())

    def _write(self, token: int) -> None:
        place = len(self.ids)
        self.text.advance(token)
        if len(self.ids) == place:  # an end where the text may not end, which is all that was left
            self.ids.append(token)
        self._path.append(self._path[-1].child(token))
        self.is_over = (
            token in self._ends
            or len(self.ids) == self._limit
            or (self._stops is not None and self._stops(self.ids))
        )
