"""The logits processor: forbidden columns become -inf, the rest stay as they are, bit by bit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from transformers import LogitsProcessor

from nco_guard.batch import Ids, RowTracker
from nco_guard.errors import DeadEndError, TokenizerError
from nco_guard.masking import ENDED
from nco_guard.session import BoundGuard

__all__ = ["GuardLogitsProcessor", "StepReport"]

_PROBED_COLUMNS = 256


@dataclass(frozen=True, slots=True)
class StepReport:
    """What the mask did in one call, for the rows whose text goes on; lists run in parallel.

    rows: row numbers in this call. steps: tokens generated in that row so far. top_forbidden, top_penalized:
    whether the token that the model ranked first was forbidden, or is penalised. rule_ids: then, the rules
    whose match that token completes; none where it is forbidden for another reason (what follows could not
    end well).
    best_allowed_rank: rank of the best allowed token in the model's own ranking (0: first). removed_mass:
    probability that the model gave to forbidden tokens, from the scores as they came. dead_end: where no
    token is left, what came of it ("end", "fallback" or "error", see the policy's `on_dead_end`), else None.
    Under assisted decoding and beam search a call also scores positions and beams that are discarded later. Holds
    no token ids and no text.
    """

    rows: list[int]
    steps: list[int]
    top_forbidden: list[bool]
    top_penalized: list[bool]
    rule_ids: list[tuple[str, ...]]
    best_allowed_rank: list[int]
    removed_mass: list[float]
    dead_end: list[str | None]


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

    bound: the guard, bound to the tokenizer and to the width of the logits.
    max_length: total length, prompt included, at which generation stops. max_new_tokens: the same without the
    prompt.
    in_place: write into `scores` instead of into a copy; transformers keeps that tensor under
    `output_logits=True`.
    beams: with beam search, the number of beams: a dead end of some beams of a group is then no error.
    reads_prompt: whether the ids before the first call are the text's beginning, for rules that look at it; False for
    encoder-decoder models.
    engine_ends: the engine is known to stop at all end-of-sequence ids of the vocabulary.
    sink: receives a `StepReport` for every call; it costs a pass over the scores, so it is off by default.

    `__call__(input_ids, scores)`: int64 [rows, length] and float [rows, width] -> float [rows, width]. Raises
    `TokenizerError` if the width is another than the vocabulary's and `DeadEndError` if no token is left.
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
        self._beams = beams
        self._engine_ends = engine_ends
        self._sink = sink
        self._tracker = RowTracker(bound, reads_prompt=reads_prompt)
        self._width = bound.vocabulary.width
        self._after_end = None if engine_ends else self._ids_that_add_text()
        self._silent = bound.vocabulary.silent_ids.intersection(bound.vocabulary.special_ids).difference(
            bound.vocabulary.eos_ids
        )

    def reset(self) -> None:
        """Forget all rows; needed only before a prompt that repeats an earlier prompt with its answer."""
        self._tracker.reset()

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Mask one step; see the class."""
        width = self._width
        if scores.shape[-1] != width:
            raise TokenizerError(
                f"the model's logits have {scores.shape[-1]} columns but the guard is bound to {width}; "
                f"bind it with vocab_width={scores.shape[-1]}"
            )
        ids: Ids = input_ids.detach().to("cpu", torch.int64).numpy()
        states = self._tracker.advance(ids).tolist()
        tables = self._tracker.tables
        raw = scores.clone() if self._in_place and self._sink is not None else scores
        result = scores if self._in_place else scores.clone(memory_format=torch.contiguous_format)

        columns: dict[int, Ids] = {}
        penalised: dict[int, Ids] = {}
        cache: dict[tuple[int, int | None], Ids] = {}
        length = ids.shape[1]
        for row, state in enumerate(states):
            if state == ENDED and self._after_end is not None:
                self._silence(result, row, self._after_end)
            if state < 0:
                continue
            remaining = self._remaining(row, length)
            if remaining is not None and remaining < 0:
                # Assisted decoding scores positions past the limit, and never takes a token there.
                continue
            key = (state, remaining)
            forbidden = cache.get(key)
            if forbidden is None:
                forbidden = tables.forbidden(state, remaining)
                cache[key] = forbidden
            columns[row] = forbidden
            costly, amounts = tables.penalties(state)
            if len(costly):
                penalised[row] = costly
                index = torch.from_numpy(np.array(costly)).to(result.device)
                result[row, index] -= torch.from_numpy(np.array(amounts)).to(result)
        _fill(result, columns, width)
        dead = self._dead_groups(self._dead_rows(result, columns, ids), len(states))
        resolutions = {row: self._resolution(row, states[row], columns[row]) for row in dead}
        if self._sink is not None and columns:
            self._sink(self._report(raw, result, columns, penalised, resolutions, states, length))
        for row, (name, token) in resolutions.items():
            if token is None:
                raise DeadEndError(
                    f"row {row}: no token is left to continue the text and it may not end here (on_dead_end: "
                    f"{self._bound.policy.on_dead_end}, resolved by: {name}); if another processor masks tokens as "
                    f"well (min_new_tokens, suppress_tokens, ...), relax it"
                )
            result[row, token] = 0.0
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

    def _dead_rows(self, result: torch.Tensor, columns: dict[int, Ids], ids: Ids) -> set[int]:
        """The rows in which no token is left."""
        if not columns:
            return set()
        # A few columns tell that a row is alive; the whole row is read only where they do not.
        stride = max(1, self._width // _PROBED_COLUMNS)
        suspects = (result[:, ::stride].amax(dim=-1) == -math.inf).nonzero().ravel().tolist()
        dead = {row for row in suspects if row in columns and bool((result[row].amax() == -math.inf).item())}
        for row in sorted(dead):
            # A row that was stopped from outside where its text may not end gets pads, which use up what was
            # left to bring it to an end. One more pad adds no text either; whoever stopped it has to trim it.
            last = int(ids[row, -1])
            if last in self._silent:
                result[row, last] = 0.0
                dead.remove(row)
        return dead

    def _dead_groups(self, dead: set[int], rows: int) -> list[int]:
        """The dead rows that no live beam of the same sequence stands in for."""
        groups = (range(first, min(first + self._beams, rows)) for first in range(0, rows, self._beams))
        return [row for group in groups if dead and dead.issuperset(group) for row in group]

    def _resolution(self, row: int, state: int, forbidden: Ids) -> tuple[str, int | None]:
        """What the policy has for a dead end: its name, and the token to write; None: an error."""
        bound = self._bound
        wanted = bound.policy.on_dead_end
        if wanted == "fallback" and bound.fallback_id is not None and bound.fallback_id not in forbidden:
            return "fallback", bound.fallback_id
        if wanted == "end":
            for token in bound.vocabulary.eos_ids:
                # `generate` cuts a text back to where it may end; nobody else does.
                if token not in forbidden or self._engine_ends:
                    return "end", token
        return "error", None

    def _report(
        self,
        raw: torch.Tensor,
        result: torch.Tensor,
        columns: dict[int, Ids],
        penalised: dict[int, Ids],
        resolutions: dict[int, tuple[str, int | None]],
        states: list[int],
        length: int,
    ) -> StepReport:
        rows = list(columns)
        scores = raw[rows].float()
        blocked = (result[rows] == -math.inf) & (scores > -math.inf)
        removed = scores.masked_fill(~blocked, -math.inf).logsumexp(-1) - scores.logsumexp(-1)
        best = scores.masked_fill(blocked, -math.inf).amax(-1, keepdim=True)
        ranks = (scores > best).sum(-1).tolist()
        tops = scores.argmax(-1).tolist()
        costly = [top in penalised.get(row, ()) for row, top in zip(rows, tops, strict=True)]
        return StepReport(
            rows=rows,
            steps=[length - int(self._tracker.prompt_lengths[row]) for row in rows],
            top_forbidden=[rank > 0 for rank in ranks],
            top_penalized=costly,
            rule_ids=[
                self._tracker.tables.rules_at_fault(states[row], top) if rank or cost else ()
                for row, top, rank, cost in zip(rows, tops, ranks, costly, strict=True)
            ],
            best_allowed_rank=ranks,
            removed_mass=[min(1.0, mass) for mass in removed.exp().tolist()],
            dead_end=[resolutions[row][0] if row in resolutions else None for row in rows],
        )


def _fill(result: torch.Tensor, columns: dict[int, Ids], width: int) -> None:
    """-inf at the given columns of each row, by one sparse write."""
    if not columns:
        return
    if result.is_contiguous():
        flat = np.concatenate([forbidden + row * width for row, forbidden in columns.items()])
        result.view(-1).index_fill_(0, torch.from_numpy(flat).to(result.device), -math.inf)
        return
    for row, forbidden in columns.items():
        result[row, torch.from_numpy(np.array(forbidden)).to(result.device)] = -math.inf
