"""The logits processor: forbidden columns become -inf, the rest stay as they are, bit by bit."""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from transformers import LogitsProcessor

from nco_guard.arguments import function
from nco_guard.copies import Begun
from nco_guard.engines.calls import common_vocabulary
from nco_guard.engines.hf.kinds import count
from nco_guard.engines.rows import LiveRows, OnStep, RowMasker, forced_token, kept_limit, tokens_left
from nco_guard.engines.tensors import scores_of
from nco_guard.errors import (
    ArgumentError,
    ForcedTokenWarning,
    TokenizerError,
    UnsupportedError,
)
from nco_guard.masking import LIMITED
from nco_guard.session import BoundGuard
from nco_guard.session.rows import Ids, LimitMet, RowTracker, Violation, in_fresh_tables

__all__ = ["GuardLogitsProcessor", "check_step"]


class GuardLogitsProcessor(Begun, LogitsProcessor):  # type: ignore[misc]
    """Makes `model.generate` unable to select a token after which the text could not end well.

    Guarantee: the columns of forbidden tokens are -inf, penalties of soft rules are subtracted, and every
    other score is bit-identical; nothing is renormalised. The state of a row follows from its ids alone
    (`session.RowTracker`), so one object serves beams, batches, assisted decoding and one generation after
    another. After the end of its text a row may add no more text. Put it last among the custom processors: a
    forbidden token that is forced after it is reported (`on_forced`), and the row is guarded on.

    With `max_length` or `max_new_tokens` given as they are given to `generate`, a text that is cut there may
    end there; without them (or with stop strings) a text can be cut where it may not end.
    `engines.hf.generate` cares for all that. Past a limit the masks are those of a text without one. A text that is
    continued with the same object has a new budget where that can be told (its ids are more than the next step would
    show); else the old one runs out first. `reset` begins anew in any case.

    Cost: ids are read by the host once a call (a synchronisation on accelerators), then a sparse write of the
    forbidden ids.

    Args:
        bound: the guard, bound to the tokenizer and to the width of the logits; or one for each prompt of a batch,
            all with one vocabulary. Of R rows for n prompts, row r of a new batch belongs to prompt r * n // R;
            from then on a row keeps the policy of the row that it continues, see `session.RowTracker`.
        max_length: total length, prompt included, at which generation stops.
        max_new_tokens: the same without the prompt.
        in_place: write into `scores` instead of into a copy; transformers keeps that tensor under
            `output_logits=True`.
        beams: with beam search, the number of beams: a dead end of some beams of a group is then no error.
        reads_prompt: whether the ids before the first call are the text's beginning, for rules that look at it; False
            for encoder-decoder models.
        engine_ends: the engine is known to stop at all end-of-sequence ids of the vocabulary.
        on_step: receives a `StepReport` for every call; it costs passes over the scores, so it is off by default.
        changes_only: it is called only where something changed, with the rows in which it did: the model's first
            choice was forbidden or penalised, no token was left, or a forbidden one was forced. It costs an arg-max.
        on_forced: called once for each token that stands in a row although the masks forbade it, with a sentence that
            names the row and the rules; by default that is a `ForcedTokenWarning`. A processor that runs after this one
            can do that, and so do the drafts of assisted decoding, which are then thrown away.

    `__call__(input_ids, scores)`: int64 [rows, length] and float [rows, width] -> float [rows, width]. Raises
    `TokenizerError` if the width is another than the vocabulary's, `DeadEndError` if no token is left,
    `StateLimitError` where a limit was met and the engine is not known to end the row, and `UnsupportedError` under
    continuous batching, which shows no sequences. Guards of different vocabularies are a `TokenizerError` when it is
    made.

    Examples:
        >>> bound = Guard.from_presets("pii").bind(tokenizer, vocab_width=model.config.vocab_size)
        >>> processor = GuardLogitsProcessor(bound, max_new_tokens=8)
        >>> ids = tokenizer("Write to", return_tensors="pt").input_ids
        >>> model.generate(ids, logits_processor=[processor], max_new_tokens=8).shape[0]
        1
    """

    def __init__(
        self,
        bound: BoundGuard | Sequence[BoundGuard],
        *,
        max_length: int | None = None,
        max_new_tokens: int | None = None,
        in_place: bool = False,
        beams: int = 1,
        engine_ends: bool = False,
        reads_prompt: bool = True,
        on_step: OnStep | None = None,
        changes_only: bool = False,
        on_forced: Callable[[str], None] | None = None,
    ) -> None:
        bounds = list(bound) if isinstance(bound, Sequence) else [bound]
        self._vocabulary = common_vocabulary(bounds)
        # In the order in which the tracker numbers them.
        self._bounds = list({id(each): each for each in bounds}.values())
        self._limits = (
            count("max_length", max_length, like="min_length"),
            count("max_new_tokens", max_new_tokens, like="min_length"),
        )
        self._in_place = in_place
        self._tracker = RowTracker(bounds, reads_prompt=reads_prompt)
        self._width = self._vocabulary.width
        self._engine_ends = engine_ends
        self._loud: torch.Tensor | None = None
        for name, each, takes in (("on_step", on_step, "a StepReport"), ("on_forced", on_forced, "a text")):
            if each is not None:
                function(name, each, f"a function that takes {takes}")
        self._on_forced = _warn if on_forced is None else on_forced
        self._masker = RowMasker(
            beams=count("beams", beams) or 1,
            engine_ends=engine_ends,
            on_step=on_step,
            changes_only=changes_only,
            scores_of=scores_of,
        )

    def __len__(self) -> int:
        # transformers asks for the number of processors before it runs any, and says only that this has none.
        raise ArgumentError("logits_processor: give a list, as logits_processor=[processor]")

    def __bool__(self) -> bool:
        return True

    def reset(self) -> None:
        """Forget all rows; needed only before a prompt that repeats an earlier prompt with its answer."""
        self._tracker.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask one step; see the class."""
        check_step(input_ids, scores, self._width)
        if not (input_ids.is_cpu and input_ids.dtype is torch.int64):
            input_ids = input_ids.to("cpu", torch.int64)
        ids: Ids = input_ids.numpy()
        result = scores if self._in_place else scores.clone(memory_format=torch.contiguous_format)
        in_fresh_tables(partial(self._mask, ids, result), self._tracker.give_up, len(ids))
        return result

    def _mask(self, ids: Ids, result: torch.Tensor) -> None:
        tracker = self._tracker
        states = tracker.follow(ids)
        length = ids.shape[1]
        lasts = ids[:, -1].tolist() if length else [None] * len(states)
        groups = list(map(LiveRows.none, self._bounds, tracker.all_tables))
        broken = tracker.broken
        left = {prompt: tokens_left(prompt, length, *self._limits) for prompt in set(tracker.prompt_lengths)}
        for row, (state, prompt, policy) in enumerate(
            zip(states, tracker.prompt_lengths, tracker.policies, strict=True)
        ):
            ended = state == LIMITED and length > prompt and lasts[row] in self._vocabulary.eos_ids
            if ended or (state < 0 and state != LIMITED):
                if not self._engine_ends:
                    self._silence(result, row)
                continue
            remaining = left[prompt]
            if broken[row]:
                remaining = kept_limit(groups[policy].tables, state, remaining, row)
            groups[policy].add(row, state, remaining, length - prompt, lasts[row])
        told = [
            self._forced(groups[tracker.policies[violation.row]], violation, live=states[violation.row] >= 0)
            for violation in (tracker.violations if True in broken else ())
        ]
        try:
            self._masker.apply(result, groups)
        except LimitMet:
            told.clear()  # the same is seen again in fresh tables
            raise
        finally:
            for message in told:
                self._on_forced(message)

    def _forced(self, group: LiveRows, violation: Violation, *, live: bool) -> str:
        """Note which rules a forced token breaks; what is said of it."""
        row, state, token = violation
        rules = group.tables.rules_at_fault(state, token)
        if live:
            group.forced[row] = rules
        return forced_token(row, rules)

    def _silence(self, result: torch.Tensor, row: int) -> None:
        """After the end of the text: only tokens that add nothing. Engines that stopped ignore the row."""
        if self._loud is None:
            vocabulary = self._vocabulary
            self._loud = torch.ones(vocabulary.width, dtype=torch.bool)
            self._loud[sorted(vocabulary.silent_ids) or list(vocabulary.eos_ids)] = False
        loud = self._loud.to(result.device)
        quiet = result[row].masked_fill(loud, -math.inf)
        if bool((quiet.amax() == -math.inf).item()):
            quiet = torch.zeros_like(quiet).masked_fill(loud, -math.inf)
        result[row] = quiet


# transformers asks for it in every step; worked out anew that takes as long as a step at batch 1.
GuardLogitsProcessor.__call__.__signature__ = inspect.signature(GuardLogitsProcessor.__call__)  # type: ignore[attr-defined]


def _warn(message: str) -> None:
    warnings.warn(message, ForcedTokenWarning, stacklevel=5)


def check_step(input_ids: Any, scores: Any, width: int) -> None:
    """Whether ids and scores are what a processor of whole sequences is shown: [rows, length], float [rows, width].

    Another processor may have made something else of them. Errors: `UnsupportedError`, `TokenizerError` for the width.
    """
    if (
        isinstance(scores, torch.Tensor)
        and isinstance(input_ids, torch.Tensor)
        and input_ids.ndim == 2
        and scores.shape == (input_ids.shape[0], width)
        and scores.is_floating_point()
    ):
        return
    if not isinstance(input_ids, torch.Tensor) or input_ids.ndim != 2:
        # Continuous batching would show the last token of each request, and nothing of which text it continues.
        raise UnsupportedError(
            "logits_processor: this one needs whole sequences, ids [rows, length]; for continuous batching use "
            "generate_batch or ContinuousBatch of nco_guard.engines.hf.continuous"
        )
    if not isinstance(scores, torch.Tensor) or not scores.is_floating_point():
        given = scores.dtype if isinstance(scores, torch.Tensor) else type(scores).__name__
        raise UnsupportedError(
            f"logits_processor: float scores [rows, {width}] are needed, not {given}; look at what the processor "
            f"before the guard returns"
        )
    if scores.shape[:-1] != input_ids.shape[:1]:
        raise UnsupportedError(
            f"logits_processor: {tuple(scores.shape)} scores for {tuple(input_ids.shape)} ids; give a row of "
            f"scores for each row of ids"
        )
    raise TokenizerError(
        f"the model's logits have {scores.shape[-1]} columns but the guard is bound to {width}; bind it with "
        f"vocab_width={scores.shape[-1]}, or mend the processor before it that changed their number"
    )
