"""To which fields of a reply the rules of a policy apply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field

from nco_guard.policy._base import Model

__all__ = ["AppliesTo"]


class AppliesTo(Model):
    """To which fields of a reply rules apply, where marks cut it into fields. All others are guarded.

    Attributes:
        reasoning: "guarded": as all else. "free": it is shown, and no rule looks at it. "hidden": it is shown to
            nobody, so no rule looks at it either; whoever reads the reply leaves it out.

    Examples:
        >>> AppliesTo(reasoning="hidden")
        AppliesTo(reasoning='hidden')
    """

    reasoning: Literal["guarded", "hidden", "free"] = Field(
        default="guarded",
        description="guarded: rules look at it; free: shown and not looked at; hidden: shown to nobody, not looked at.",
    )

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """All fields, for `repr` and `str`: none tells of what is forbidden."""
        return ((name, getattr(self, name)) for name in type(self).model_fields)
