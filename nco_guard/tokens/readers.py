"""What all readers of tokenizers share: the form of what they give, and the settings of transformers that they heed.

A setting that decides what `decode` returns is read here, for the readers and for `sharing.state_of` alike: what a
reader heeds and `state_of` does not see would leave a changed tokenizer with its old vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from nco_guard.automata import Rewriting

__all__ = ["CleanUp", "VocabularyParts"]


@dataclass(frozen=True, slots=True)
class VocabularyParts:
    """What a vocabulary is made of; see `Vocabulary`."""

    tokens: list[bytes]
    special_ids: set[int]
    unusable_ids: set[int]
    strips_first_space: bool
    family: str
    rewriting: Rewriting | None


class CleanUp(NamedTuple):
    """Whether transformers is told to clean decoded text up, and whether it is told so for BPE models too."""

    wanted: bool
    of_bpe: bool

    @classmethod
    def of(cls, tokenizer: Any) -> CleanUp:
        """What a tokenizer is told; False for one that knows no such setting."""
        return cls(
            bool(getattr(tokenizer, "clean_up_tokenization_spaces", False)),
            bool(
                getattr(
                    tokenizer,
                    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
                    False,
                )
            ),
        )
