"""How a tokenizer is read for a model: what a vocabulary depends on beside the tokenizer itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nco_guard.arguments import token_ids, truth, whole
from nco_guard.automata import Cutting
from nco_guard.errors import ArgumentError, ArgumentValueError

__all__ = ["Binding", "Borders"]

#: The ids of tokens that cut a text into parts; "special": all special tokens; None: none.
Borders = Iterable[int] | Literal["special"] | None


@dataclass(frozen=True, slots=True)
class Binding:
    """The settings that a tokenizer is read with; equal ones give equal vocabularies.

    vocab_width: columns of the model's logits, if wider than the tokenizer; the columns past it are forbidden.
    skip_special_tokens: as the caller will pass it to `decode`.
    eos_token_ids: end-of-sequence ids besides the tokenizer's own (a raw tokenizer has none of its own), sorted.
    borders: the ids of tokens that cut a text into parts, sorted; "special": those of all special tokens.
    regions: how marks cut texts into fields.
    """

    vocab_width: int | None = None
    skip_special_tokens: bool = True
    eos_token_ids: tuple[int, ...] = ()
    borders: tuple[int, ...] | Literal["special"] = ()
    regions: Cutting | None = None

    @classmethod
    def checked(
        cls,
        vocab_width: int | None,
        skip_special_tokens: bool,
        eos_token_ids: Iterable[int] | None,
        borders: Borders = None,
        regions: Cutting | None = None,
    ) -> Binding:
        """What a caller gave. Errors: `ArgumentError`, naming the argument."""
        truth("skip_special_tokens", skip_special_tokens)
        eos = () if eos_token_ids is None else token_ids("eos_token_ids", eos_token_ids)
        if vocab_width is not None:
            vocab_width = whole("vocab_width", vocab_width, "give the columns of the model's logits")
        if isinstance(borders, str) and borders != "special":
            raise ArgumentValueError(
                'borders: give the ids of the tokens that cut a text, or "special" for all special tokens'
            )
        cutting: tuple[int, ...] | Literal["special"] = "special"
        if not isinstance(borders, str):
            cutting = () if borders is None else token_ids("borders", borders)
        if regions is not None and not isinstance(regions, Cutting):
            raise ArgumentError(
                f"regions: {type(regions).__name__} says not how marks cut a reply; give nco_guard.automata.ReplyFields"
            )
        return cls(vocab_width, skip_special_tokens, eos, cutting, regions)
