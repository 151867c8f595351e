"""Mistral's own tokenizers, which come with the package mistral-common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers.utils.import_utils import is_mistral_common_available

__all__ = ["MISTRAL", "mistral", "needs_mistral"]

MISTRAL = ["tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3", "tekken_240911.json"]
needs_mistral = pytest.mark.skipif(not is_mistral_common_available(), reason="needs a recent mistral-common")


def mistral(name: str) -> Any:
    """One of `MISTRAL`, as transformers reads it."""
    import mistral_common
    from transformers.tokenization_mistral_common import MistralCommonBackend

    return MistralCommonBackend(Path(mistral_common.__file__).parent / "data" / name)
