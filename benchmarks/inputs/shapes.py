"""The shapes of the models that whole generations are measured with."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MODELS", "SHAPES", "SHIPPED", "ModelShape"]


@dataclass(frozen=True)
class ModelShape:
    """What a Llama is made of, besides its vocabulary. Source of real ones: the models' own `config.json`."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    key_value_heads: int


SHAPES: dict[str, ModelShape] = {
    # Most of its work is the last layer's: the least that a model with a large vocabulary can do.
    "small Llama": ModelShape(3, 512, 1408, 8, 4),
    "Qwen2.5-0.5B shape": ModelShape(24, 896, 4864, 14, 2),
}
"""Models of random weights that whole generations are measured with, by name."""

SHIPPED = "shipped"
MODELS = (SHIPPED, *SHAPES)
"""What generates, by name: the model that ships, and those of random weights."""
