"""What was found of few tokens in a state of one constraint: after which of them it bars a text."""

from __future__ import annotations

from nco_guard.masking.idsets import Ids

__all__ = ["FewBarred"]

_TOKENS = 512
_ANSWERS = 50_000


class FewBarred:
    """Answers by constraint, state, set of tokens and text; all forgotten where they become too many.

    States of all constraints together differ in few of them, mostly: of the others the answers are here.
    """

    def __init__(self) -> None:
        self._sets: dict[bytes, int] = {}
        self._count = 0
        self._known: dict[tuple[int, int, int, bytes], Ids] = {}

    def number_of(self, tokens: Ids) -> int:
        """A number for a set of tokens; -1 for one that is too large to be remembered."""
        if len(tokens) > _TOKENS:
            return -1
        if len(self._known) > _ANSWERS:
            self._known.clear()
            self._sets.clear()
        # No number comes again: who was given one before all was forgotten may still keep something by it.
        self._count += 1
        return self._sets.setdefault(tokens.tobytes(), self._count)

    def get(self, index: int, state: int, number: int, text: bytes) -> Ids | None:
        """The tokens of a set after which a constraint bars a text; None: not known."""
        return self._known.get((index, state, number, text))

    def keep(self, index: int, state: int, number: int, text: bytes, shut: Ids) -> None:
        """Remember it, for a set that has a number."""
        if number >= 0:
            self._known[index, state, number, text] = shut

    @property
    def nbytes(self) -> int:
        """Bytes held, estimated."""
        return 250 * len(self._known) + sum(map(len, self._sets))
