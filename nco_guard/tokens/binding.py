"""How a tokenizer is read for a model: what a vocabulary depends on beside the tokenizer itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from nco_guard.arguments import token_ids, truth, whole

__all__ = ["Binding"]


@dataclass(frozen=True, slots=True)
class Binding:
    """The settings that a tokenizer is read with; equal ones give equal vocabularies.

    vocab_width: columns of the model's logits, if wider than the tokenizer; the columns past it are forbidden.
    skip_special_tokens: as the caller will pass it to `decode`.
    eos_token_ids: end-of-sequence ids besides the tokenizer's own (a raw tokenizer has none of its own), sorted.
    """

    vocab_width: int | None = None
    skip_special_tokens: bool = True
    eos_token_ids: tuple[int, ...] = ()

    @classmethod
    def checked(
        cls, vocab_width: int | None, skip_special_tokens: bool, eos_token_ids: Iterable[int] | None
    ) -> Binding:
        """What a caller gave. Errors: `ArgumentError`, naming the argument."""
        truth("skip_special_tokens", skip_special_tokens)
        eos = () if eos_token_ids is None else token_ids("eos_token_ids", eos_token_ids)
        if vocab_width is not None:
            vocab_width = whole("vocab_width", vocab_width, "give the columns of the model's logits")
        return cls(vocab_width, skip_special_tokens, eos)
