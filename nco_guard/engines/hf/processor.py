"""The logits processor: forbidden columns become -inf, the rest stay as they are, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from transformers import LogitsProcessor

from nco_guard.batch import Ids, RowTracker
from nco_guard.engines.hf.rows import LiveRow, RowMasker, StepReport
from nco_guard.errors import TokenizerError, UnsupportedError
from nco_guard.masking import ENDED
from nco_guard.session import BoundGuard

__all__ = ["GuardLogitsProcessor", "StepReport"]


class GuardLogitsProcessor(LogitsProcessor):  # type: ignore[misc]
    """Makes `model.generate` unable to select a token after which the text could not end well.

    Guarantee: the columns of forbidden tokens are -inf, penalties of soft rules are subtracted, and every
    other score is bit-identical; nothing is renormalised. The state of a row follows from its ids alone
    (`batch.RowTracker`), so one object serves beams, batches, assisted decoding and one generation after
    another. After the end of its text a row may add no more text. Put it last among the custom processors.

    With `max_length` or `max_new_tokens` given as they are given to `generate`, a text that is cut there may
    end there; without them (or with stop strings) a text can be cut where it may not end.
    `engines.hf.generate` cares for all that.

    Cost: ids are read by the host once a call (a synchronisation on accelerators), then a sparse write of the
    forbidden ids.

    Args:
        bound: the guard, bound to the tokenizer and to the width of the logits.
        max_length: total length, prompt included, at which generation stops.
        max_new_tokens: the same without the prompt.
        in_place: write into `scores` instead of into a copy; transformers keeps that tensor under
            `output_logits=True`.
        beams: with beam search, the number of beams: a dead end of some beams of a group is then no error.
        reads_prompt: whether the ids before the first call are the text's beginning, for rules that look at it; False
            for encoder-decoder models.
        engine_ends: the engine is known to stop at all end-of-sequence ids of the vocabulary.
        sink: receives a `StepReport` for every call; it costs a pass over the scores, so it is off by default.

    `__call__(input_ids, scores)`: int64 [rows, length] and float [rows, width] -> float [rows, width]. Raises
    `TokenizerError` if the width is another than the vocabulary's, `DeadEndError` if no token is left, and
    `UnsupportedError` under continuous batching, which shows no sequences.
    """

    def __init__(
        self,
        bound: BoundGuard,
        *,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        in_place: bool = False,
        beams: int = 1,
        engine_ends: bool = False,
        reads_prompt: bool = True,
        sink: Callable[[StepReport], None] | None = None,
    ) -> None:
        self._bound = bound
        self._max_length = max_length
        self._max_new_tokens = max_new_tokens
        self._in_place = in_place
        self._sink = sink
        self._tracker = RowTracker(bound, reads_prompt=reads_prompt)
        self._width = bound.vocabulary.width
        self._after_end = None if engine_ends else self._ids_that_add_text()
        self._masker = RowMasker(bound, beams=beams, engine_ends=engine_ends, sink=sink)

    def reset(self) -> None:
        """Forget all rows; needed only before a prompt that repeats an earlier prompt with its answer."""
        self._tracker.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask one step; see the class."""
        if input_ids.ndim != 2:
            # Continuous batching would show the last token of each request, and nothing of which text it continues.
            raise UnsupportedError(
                "logits_processor: this one needs whole sequences; for continuous batching use guard.generate_batch or "
                "guard.continuous"
            )
        width = self._width
        if scores.shape[-1] != width:
            raise TokenizerError(
                f"the model's logits have {scores.shape[-1]} columns but the guard is bound to {width}; "
                f"bind it with vocab_width={scores.shape[-1]}"
            )
        ids: Ids = input_ids.detach().to("cpu", torch.int64).numpy()
        states = self._tracker.advance(ids).tolist()
        raw = scores.clone() if self._in_place and self._sink is not None else scores
        result = scores if self._in_place else scores.clone(memory_format=torch.contiguous_format)
        length = ids.shape[1]
        prompts = self._tracker.prompt_lengths.tolist()
        live: list[LiveRow] = []
        for row, state in enumerate(states):
            if state == ENDED and self._after_end is not None:
                self._silence(result, row, self._after_end)
            if state < 0:
                continue
            remaining = self._remaining(row, length)
            if remaining is not None and remaining < 0:
                # Assisted decoding scores positions past the limit, and never takes a token there.
                continue
            live.append(LiveRow(row, state, remaining, length - prompts[row], int(ids[row, -1])))
        self._masker.apply(result, raw, self._tracker.tables, live)
        return result

    def _remaining(self, row: int, length: int) -> int | None:
        """How many tokens may still follow the one that is being chosen; None: no limit is known."""
        limit = math.inf if self._max_length is None else self._max_length
        if self._max_new_tokens is not None:
            limit = min(limit, int(self._tracker.prompt_lengths[row]) + self._max_new_tokens)
        return None if limit == math.inf else int(limit) - length - 1

    def _ids_that_add_text(self) -> torch.Tensor:
        vocabulary = self._bound.vocabulary
        loud = [index not in vocabulary.silent_ids for index in range(vocabulary.width)]
        if all(loud):
            for index in vocabulary.eos_ids:
                loud[index] = False
        return torch.tensor(loud)

    @staticmethod
    def _silence(result: torch.Tensor, row: int, loud: torch.Tensor) -> None:
        """After the end of the text: only tokens that add nothing. Engines that stopped ignore the row."""
        loud = loud.to(result.device)
        quiet = result[row].masked_fill(loud, -math.inf)
        if bool((quiet.amax() == -math.inf).item()):
            quiet = torch.zeros_like(quiet).masked_fill(loud, -math.inf)
        result[row] = quiet
