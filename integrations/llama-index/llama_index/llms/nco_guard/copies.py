"""What pickling does to components that hold a guard."""

from __future__ import annotations

from typing import Any, cast

from llama_index.core.bridge.pydantic import BaseModel

__all__ = ["Travelling"]


class Travelling:
    """Travels to another process with all that it holds, or says that it cannot when it is pickled.

    LlamaIndex's components leave out what cannot be pickled, and miss it when they are used: a component without its
    guard must not exist. Stands before the framework's class.
    """

    def __getstate__(self) -> dict[Any, Any]:
        return BaseModel.__getstate__(cast(BaseModel, self))

    def __setstate__(self, state: dict[Any, Any]) -> None:
        BaseModel.__setstate__(cast(BaseModel, self), state)
