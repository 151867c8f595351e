"""transformers' own `bad_words_ids`: sequences of token ids that are never completed.

Source: `transformers.NoBadWordsLogitsProcessor`. A string is tokenised alone and with a space before it, as its
documentation advises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import NoBadWordsLogitsProcessor

from benchmarks.methods.baselines.base import Baseline, Prepared, Processor, Task
from nco_guard.errors import UnsupportedError

__all__ = ["BadWords", "PreparedBadWords"]


class BadWords(Baseline):
    """The tokenizer's own tokenisation of each string, at the start of a text and after a space, is forbidden."""

    name = "bad_words_ids"
    not_enforced: ClassVar[tuple[str, ...]] = (
        "any other tokenisation of a string, among them all in which a token reaches past an end of it",
        "patterns",
    )

    def prepare(self, task: Task) -> PreparedBadWords:
        """See `Baseline.setup`; tensors move to where the scores are at the first step."""
        if task.patterns:
            raise UnsupportedError("bad_words_ids are sequences of tokens: there are no patterns")
        written = [text for string in task.strings for text in (string, " " + string)]
        ids = task.tokenizer(written, add_special_tokens=False)["input_ids"]
        sequences = [list(sequence) for sequence in dict.fromkeys(map(tuple, ids)) if sequence]
        width = len(task.tokenizer) if task.given is None else task.given.width
        return PreparedBadWords(sequences, task.tokenizer.eos_token_id, width)


class PreparedBadWords(Prepared):
    """`bad_words_ids` of one list of strings: `sequences`, by which `model.generate(bad_words_ids=...)` does the same.

    The processor looks at the prompt as well: a sequence that begins in it is not completed.
    """

    def __init__(self, sequences: list[list[int]], eos_id: int | None, width: int) -> None:
        self.name = BadWords.name
        self.sequences = sequences
        self.width = width
        self._eos_id = eos_id

    @property
    def nbytes(self) -> int:
        """Bytes of the processor's tensors: one bias per token of the vocabulary, and the sequences."""
        return 4 * self.width + sum(8 * len(sequence) + 4 for sequence in self.sequences)

    def logits_processor(self, *, beams: bool = False) -> Processor:
        """See `Prepared.logits_processor`; it has no states, so beams need no care."""
        processor: Processor = NoBadWordsLogitsProcessor(self.sequences, eos_token_id=self._eos_id)
        return processor

    def forbidden(self, ids: Sequence[int]) -> NDArray[np.bool_]:
        """See `Prepared.forbidden`."""
        scores = torch.zeros(1, self.width)
        text = torch.tensor([list(ids)], dtype=torch.int64)
        return np.asarray(torch.isneginf(self.logits_processor()(text, scores)[0]).numpy())
