"""What is asked of tables, whatever they hold: those of a policy (`joint`), or of a policy and a shape (`shapes`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nco_guard.tokens import Vocabulary

__all__ = ["Tables"]


class Tables(Protocol):
    """Masks, penalties and transitions over one vocabulary; see `JointTables`, which says what is promised."""

    vocabulary: Vocabulary
    start: int

    def start_after(self, context: bytes, begun: str = "") -> int:
        """The state of an empty output after a prompt; `begun`: what it ends with that belongs to the output."""

    def next(self, state: int, token: int) -> int:
        """The state after a token; `VIOLATED` if it is forbidden, `ENDED` if it ends the text."""

    def forced(self, states: Sequence[int], tokens: Sequence[int]) -> int:
        """The state of a text whose last token the mask forbids."""

    def may_end(self, state: int) -> bool:
        """Whether the text may end here."""

    def may_show(self, state: int) -> bool:
        """Whether what was written so far may be seen, though the text is to go on."""

    def forbidden(self, state: int, remaining: int | None = None) -> NDArray[np.int64]:
        """Sorted ids of the tokens forbidden here."""

    def penalties(self, state: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Ids and what soft rules subtract from their logits."""

    def stuck(self, state: int, remaining: int | None = None) -> bool:
        """Whether a text cannot go on here because a limit was met."""

    def rules_at_fault(self, state: int, token: int) -> tuple[str, ...]:
        """Why a token is forbidden here."""
