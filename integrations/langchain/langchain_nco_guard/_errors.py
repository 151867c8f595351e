"""Errors of this library as they are, where pydantic would wrap them: its error repeats what it was given."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from nco_guard.errors import NCOGuardError

__all__ = ["TypedErrors"]


class TypedErrors:
    """Mix-in for pydantic models; comes first among the bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        try:
            super().__init__(*args, **kwargs)
        except ValidationError as error:
            for detail in error.errors():
                cause = detail.get("ctx", {}).get("error")
                if isinstance(cause, NCOGuardError):
                    raise cause from None
            raise
