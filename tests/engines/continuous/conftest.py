"""Models that long for what is forbidden, in continuous batching; and a quicker end of each batch."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nco_guard.demo import load


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """transformers collects all garbage at the end of each batch, twice; what lives on anyhow need not be looked at."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def demo() -> tuple[Any, Any]:
    return load()


@pytest.fixture
def wanting(model_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A model that longs for what is forbidden; it needs all positions' logits to tell which token came last."""

    def of(tokenizer: Any, seed: int = 1) -> Any:
        model = model_of(tokenizer, seed)
        monkeypatch.setattr(model, "_supports_logits_to_keep", lambda: False)
        return model

    return of
