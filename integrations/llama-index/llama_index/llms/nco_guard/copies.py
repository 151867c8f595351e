"""What pickling does to components that hold a guard, and what is read of a component that was written down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from llama_index.core.bridge.pydantic import BaseModel

from nco_guard.errors import UnsupportedError

__all__ = ["Travelling", "settings_of"]


class Travelling:
    """Travels to another process with all that it holds, or says that it cannot when it is pickled.

    LlamaIndex's components leave out what cannot be pickled, and miss it when they are used: a component without its
    guard must not exist. Stands before the framework's class.
    """

    def __getstate__(self) -> dict[Any, Any]:
        return BaseModel.__getstate__(cast(BaseModel, self))

    def __setstate__(self, state: dict[Any, Any]) -> None:
        BaseModel.__setstate__(cast(BaseModel, self), state)


def settings_of(data: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments from what `to_dict` wrote and what is given on top. Raises `UnsupportedError` without a guard."""
    if given.get("guard") is None:
        raise UnsupportedError(
            "guard: it is not written down with an LLM; give it as from_dict(data, guard=...)"
        )
    written = {
        name: part
        for name, part in data.items()
        if name not in ("class_name", "policy_name", "policy_digest")
    }
    return {**written, **given}
