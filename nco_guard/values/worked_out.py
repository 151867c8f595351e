"""What a pydantic model shows that it does not hold: its computed fields, and what its serializers make of it."""

from __future__ import annotations

import contextlib
from typing import Any

from pydantic import BaseModel

from nco_guard.values.held import per_class

__all__ = ["worked_out"]

_TOO_DEEP = "depth exceeded"


def worked_out(value: Any, vouched: type = object) -> list[Any]:
    """Computed fields by name, and the model dumped as JSON, by its aliases; empty where these show its fields alone.

    vouched: a class whose own ways are known to show fields alone. What cannot be computed or dumped, nobody is shown.
    Errors: `RecursionError` for a model that computes ever new ones.
    """
    kind = type(value)
    if not isinstance(value, BaseModel) or _ways(kind) <= _ways(vouched):
        return []
    computed: dict[str, Any] = {}
    for name in kind.model_computed_fields:
        with _nobody_is_shown():
            computed[name] = getattr(value, name)
    dumped: list[Any] = []
    with _nobody_is_shown():
        dumped.append(value.model_dump(mode="json", by_alias=True, warnings=False))
    return [*([computed] if computed else []), *dumped]


class _nobody_is_shown(contextlib.AbstractContextManager[None]):
    """What fails within shows nothing; what runs out of room is another matter."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        if isinstance(error, ValueError) and _TOO_DEEP in str(error):
            raise RecursionError("a model that computes ever new ones")
        return isinstance(error, Exception) and not isinstance(error, (RecursionError, MemoryError))


@per_class
def _ways(kind: type) -> frozenset[object]:
    """What a class has beside its fields to show them by: names of computed ones, serializers, aliases."""
    if not issubclass(kind, BaseModel):
        return frozenset()
    found: set[object] = {*kind.model_computed_fields}
    left: list[Any] = [kind.__pydantic_core_schema__]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            way = part.get("serialization")
            made = way.get("function") if isinstance(way, dict) else None
            if made is not None and not str(getattr(made, "__module__", "")).startswith("pydantic"):
                found.add(made)
            if isinstance(alias := part.get("serialization_alias"), str):
                found.add(alias)
            left += part.values()
        elif isinstance(part, (list, tuple)):
            left += part
    return frozenset(found)
