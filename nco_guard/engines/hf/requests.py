"""Requests of transformers' continuous batching, and the processor that masks each of them in its own state.

transformers shows a processor which requests get a token in the next step, and then one row of scores for each of
them, in that order. A request's state follows from the ids that it has generated (`engines.requests`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessor
from transformers.generation.continuous_batching.requests import FutureRequestState

from nco_guard.engines.requests import GuardedRequest, live_rows
from nco_guard.engines.rows import LiveRows, OnStep, RowMasker, StepReport
from nco_guard.engines.tensors import scores_of
from nco_guard.errors import DeadEndError, GenerationError, TokenizerError

__all__ = ["RequestsProcessor"]

_NUMBERS = 2**31


class RequestsProcessor(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]
    """Masks the requests of a `ContinuousBatchingManager`; see `continuous.ContinuousBatch`, which installs it.

    Guarantee: that of `GuardLogitsProcessor`, for each request by itself. Scores are never masked by a state of another
    step: each step carries a number, and one that does not fit, a request that was not announced, or one that goes on
    after its end stops the batch (`GenerationError`). One whose ids break the policy is guarded on; its outcome says
    so.

    width: columns of the model's logits. on_step: receives a `StepReport` for every step, its rows the numbers of the
    requests.
    """

    supported_kwargs: dict[str, type] = {}
    ignored_kwargs: tuple[str, ...] = ()

    def __init__(self, width: int, on_step: OnStep | None = None) -> None:
        self._width = width
        self._on_step = on_step
        self._requests: dict[str, GuardedRequest] = {}
        self._retired: dict[str, int] = {}
        masker = partial(RowMasker, engine_ends=True, on_failure=self._fail, scores_of=scores_of)
        self._masker = masker()
        self._reporting = masker(on_step=self._report, changes_only=on_step is None)
        # The coming step: its number, its requests row by row, and what is to be masked; nothing once that is done.
        self._number = 0
        self._shown: list[GuardedRequest] = []
        self._recorded = False
        self._waiting: list[LiveRows] | None = None

    def announce(self, request_id: str, request: GuardedRequest) -> None:
        """Take a request on; before transformers gets to know it."""
        self._requests[request_id] = request

    def forget(self, request_id: str) -> None:
        """Let go of a request that will not be shown again."""
        self._requests.pop(request_id, None)

    def retire(self, request_id: str) -> None:
        """Let go of a request that transformers has been told to cancel; one step may be under way with it."""
        self._retired[request_id] = self._number + 1

    def _forget_retired(self) -> None:
        for request_id, last in list(self._retired.items()):
            if self._number > last:
                self._requests.pop(request_id, None)
                del self._retired[request_id]

    def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
        """Rows that belong to no request belong to no step."""
        int32_tensor.zero_()

    def prepare_tensor_args(self, requests_with_new_token: Sequence[FutureRequestState]) -> torch.Tensor:
        """Find the states of the coming step; int32 [requests], its number for each row."""
        found = [self._shown_by(future) for future in requests_with_new_token]
        live = live_rows(found)
        requests = [request for request, _ in found]
        self._number += 1
        self._forget_retired()
        self._shown = requests
        self._recorded = self._on_step is not None or any(request.recording.wanted for request in requests)
        self._waiting = live
        return torch.full((len(requests),), self._number % _NUMBERS, dtype=torch.int32)

    def _shown_by(self, future: FutureRequestState) -> tuple[GuardedRequest, list[int]]:
        """A request that gets a token in the coming step, and what it has generated."""
        output = future.state.to_generation_output()
        request = self._requests.get(output.request_id)
        if request is None:
            raise GenerationError("a request was added to this manager that the guard does not know")
        return request, output.generated_tokens

    def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
        """Mask float [rows, width] in place; rows after those of the requests are nobody's and stay as they are."""
        if scores.shape[-1] != self._width:
            raise TokenizerError(
                f"the model's logits have {scores.shape[-1]} columns but the guard is bound to {self._width}"
            )
        numbers = tensor_arg[: len(self._shown)].tolist()
        if self._waiting is None or any(number != self._number % _NUMBERS for number in numbers):
            raise GenerationError("these scores belong to another step than the masks")
        (self._reporting if self._recorded else self._masker).apply(scores, self._waiting)
        self._waiting = None
        return scores

    def _fail(self, row: int, error: DeadEndError) -> int | None:
        """End this request alone, where an end-of-sequence lets it leave the batch."""
        request = self._shown[row]
        ends = request.bound.vocabulary.eos_ids
        if not ends:
            return None
        request.error = error
        return min(ends)

    def _report(self, report: StepReport) -> None:
        requests = [self._shown[row] for row in report.rows]
        if self._on_step is not None:
            self._on_step(replace(report, rows=[request.number for request in requests]))
        for at, request in enumerate(requests):
            if (record := request.recording.wanted) is not None:
                record(report.part([at], [0]))
