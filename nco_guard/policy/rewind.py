"""How far a text goes back where it would come to a match, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from nco_guard.policy._base import Model

__all__ = ["Rewind"]


class Rewind(Model):
    """How a text goes back where it would come to a match.

    Attributes:
        back_to: "match": to the token that holds the first character of the match; "sentence": to the beginning of its
            sentence or line; "text": to the beginning of the text.
        per_match: how often it goes back to one place; None: there is no limit. Beyond a limit the mask acts.
        per_text: how often it goes back in all.

    Examples:
        >>> Rewind(back_to="sentence")
        Rewind(back_to='sentence', per_match=8, per_text=64)
    """

    back_to: Literal["match", "sentence", "text"] = Field(
        default="match", description="To the beginning of the match, of its sentence or line, or of the text."
    )
    per_match: int | None = Field(
        default=8, ge=1, description="How often to go back to one place; null: without limit."
    )
    per_text: int | None = Field(
        default=64, ge=1, description="How often to go back in a text; null: without limit."
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """All fields, for `repr` and `str`: none tells of what is forbidden."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)
