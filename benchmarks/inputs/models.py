"""Models to measure beside: the shipped one, and random weights in the shape of a real one that "write" given text.

Random weights write noise, and noise is not what a guard meets. `Replay` adds a constant to the logit of the next token
of a text, row by row, after the last layer: the model does all its work, and what comes out is the text (a forbidden
token of it gives way to whatever is next best). The same for every method and for the unguarded model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from benchmarks.inputs.shapes import ModelShape

__all__ = ["Replay", "random_llama", "random_weights"]

_PUSH = 1e4


class Replay:
    """A forward hook of a model's last layer. texts: int64 [rows, steps]; call `restart` before each generation."""

    def __init__(self, texts: torch.Tensor) -> None:
        self._texts = texts
        self._rows = torch.arange(len(texts), device=texts.device)
        self._step = 0

    def restart(self) -> None:
        """The next pass of the model reads a prompt."""
        self._step = 0

    def __call__(self, module: Any, inputs: Any, logits: torch.Tensor) -> None:
        """Prefer the next token; logits [rows, positions, width], changed in place. No synchronisation."""
        logits[self._rows, -1, self._texts[:, self._step % self._texts.shape[1]]] += _PUSH
        self._step += 1


def random_weights(
    family: str, config: Mapping[str, Any], device: str = "cpu", dtype: torch.dtype = torch.float32
) -> Any:
    """Random weights, made on the device, in evaluation mode. `family`: as transformers names its configuration."""
    import transformers

    made = getattr(transformers, f"{family}Config")(
        **config, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=dtype)
    return model.eval()


def random_llama(width: int, shape: ModelShape) -> tuple[Any, str]:
    """A Llama with random weights in float32, in evaluation mode, and what it is, in words. `width`: its vocabulary."""
    config = {
        "vocab_size": width,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.key_value_heads,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": True,
    }
    model = random_weights("Llama", config)
    millions = sum(parameter.numel() for parameter in model.parameters()) / 1e6
    words = (
        f"Llama, {shape.layers} layers of {shape.hidden}, vocabulary {width:,}, {millions:,.0f} M random weights, "
        f"float32"
    )
    return model, words
