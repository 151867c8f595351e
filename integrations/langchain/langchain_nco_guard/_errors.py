"""Errors of this library as they are, where pydantic would wrap them: its error repeats what it was given."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError

from nco_guard.arguments import meant, near
from nco_guard.errors import ArgumentValueError, NCOGuardError

__all__ = ["TypedErrors"]


class TypedErrors:
    """Mix-in for pydantic models; comes first among the bases."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refused: NCOGuardError | None = None
        try:
            super().__init__(*args, **kwargs)
        except ValidationError as error:
            refused = self._typed(error)
        if refused is not None:
            raise refused  # here, where pydantic's error is not its context

    @classmethod
    def _typed(cls, error: ValidationError) -> NCOGuardError:
        for detail in error.errors():
            cause = detail.get("ctx", {}).get("error")
            if isinstance(cause, NCOGuardError):
                return cause
        return cls._refused(error)

    @classmethod
    def _refused(cls, error: ValidationError) -> ArgumentValueError:
        """The first of pydantic's complaints, without what was given; a name that is not known explains others."""
        details = error.errors(include_url=False, include_input=False)
        first = next((each for each in details if each["type"] == "extra_forbidden"), details[0])
        name = ".".join(map(str, first["loc"]))
        if first["type"] != "extra_forbidden":
            return ArgumentValueError(f"{name}: {first['msg'][:1].lower()}{first['msg'][1:]}")
        known = cls.model_fields  # type: ignore[attr-defined]
        end = meant(near(name, known), "; leave it out")
        return ArgumentValueError(f"{name}: {cls.__name__} has no such argument{end}")
