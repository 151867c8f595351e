"""Tokenizers of a model's width. Nothing is downloaded."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from nco_guard.errors import NCOGuardError
from tools.demo_model.corpus import documents

__all__ = ["read_tokenizer", "synthetic_tokenizer"]


def synthetic_tokenizer(width: int) -> Any:
    """A byte-level BPE of `width` tokens: merges learned from the shipped corpus, then merges of what there is."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=min(width - 1, 4000), initial_alphabet=alphabet, show_progress=False
    )
    texts = (d.text or "\n".join(str(m.get("content") or "") for m in d.messages) for d in documents(2000))
    learned.train_from_iterator(texts, trainer)
    state = json.loads(learned.to_str())["model"]
    vocabulary: dict[str, int] = state["vocab"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in state["merges"]]
    names, rng = list(vocabulary), random.Random(0)
    while len(vocabulary) < width - 1:
        left, right = rng.choice(names), rng.choice(names)
        if left + right not in vocabulary and len(left + right) <= 16:
            vocabulary[left + right] = len(vocabulary)
            names.append(left + right)
            merges.append((left, right))
    full = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    full.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    full.decoder = decoders.ByteLevel()
    end = "<|end|>"
    full.add_special_tokens([end])
    return PreTrainedTokenizerFast(tokenizer_object=full, eos_token=end, pad_token=end)


def read_tokenizer(folder: Path | None, width: int) -> Any:
    """The tokenizer of a folder, or a synthetic one. Raises `NCOGuardError` for one that does not fit the width."""
    if folder is None:
        return synthetic_tokenizer(width)
    if not folder.is_dir():
        raise NCOGuardError(f"{folder}: no such folder")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if len(tokenizer) > width:
        raise NCOGuardError(f"{folder}: {len(tokenizer)} tokens do not fit a model of {width} columns")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer
