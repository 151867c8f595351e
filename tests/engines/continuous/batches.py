"""Batches that the tests of continuous batching generate."""

from __future__ import annotations

from typing import Any

from transformers import ContinuousBatchingConfig

from nco_guard import Guard

PROMPTS = [
    "what the",
    "a class of passengers said",
    "f",
    "Write to jo",
    "The quick brown fox jumps over the lazy",
]
BUDGETS = [20, 7, 33, 1, 12]
DEMO_PROMPTS = ["Dear Maria, my phone", "Call me at", "The card number is 4", "Write to", "Hello, this is "]


def small(**options: Any) -> ContinuousBatchingConfig:
    return ContinuousBatchingConfig(**{"page_size": 16, "num_blocks": 64, "max_batch_tokens": 128} | options)


def singles(
    guard: Guard, model: Any, tokenizer: Any, prompts: list[Any], budgets: list[int]
) -> list[list[int]]:
    return [
        guard.generate(model, tokenizer, prompt, max_new_tokens=budget).token_ids[0]
        for prompt, budget in zip(prompts, budgets, strict=True)
    ]
