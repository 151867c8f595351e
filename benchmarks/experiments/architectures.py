"""Models of real shapes, by their configurations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["ARCHITECTURES", "Architecture", "small_config"]


@dataclass(frozen=True)
class Architecture:
    """A model by its configuration. small: what is different in the form for a CPU."""

    title: str
    family: str
    config: dict[str, Any]
    small: dict[str, Any]


ARCHITECTURES = {
    "llama3": Architecture(
        "Llama-3.1-8B shape",
        "Llama",
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
        {"num_attention_heads": 4, "num_key_value_heads": 2},
    ),
    "qwen2.5": Architecture(
        "Qwen2.5-7B shape",
        "Qwen2",
        {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
        {"num_attention_heads": 4, "num_key_value_heads": 2},
    ),
    "gpt-neo": Architecture(
        "GPT-Neo-2.7B shape",
        "GPTNeo",
        {
            "vocab_size": 50257,
            "hidden_size": 2560,
            "num_layers": 32,
            "num_heads": 20,
            "attention_types": [[["global", "local"], 16]],
            "max_position_embeddings": 2048,
        },
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    ),
}


def small_config(shape: Architecture) -> dict[str, Any]:
    """The configuration of the CPU's form: two layers of 128, a vocabulary of 4,096."""
    small = {"vocab_size": 4096, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    known = {name: value for name, value in small.items() if name in shape.config}
    return {**shape.config, **known, **shape.small}
