"""transformers' continuous batching under a guard: requests join at any time and leave when they are done.

`ContinuousBatch` is for programs that serve; `generate_batch` for a list of prompts. transformers' own entry points
(`model.generate_batch` and its manager) take no processor of the caller's, so they cannot be guarded from outside.
Importing this needs a transformers with continuous batching as of 5.23.
"""

from __future__ import annotations

import copy
import math
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple, Self, TypedDict, Unpack

import torch
from transformers import GenerationConfig, LogitsProcessorList
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitNormalization,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from nco_guard.arguments import as_whole
from nco_guard.automata import Cutting
from nco_guard.engines.calls import GenerationResult, GuardLike, guards_for
from nco_guard.engines.endings import Outcome
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.inputs import check_loaded, encode, first_token, is_chat, logits_width, model_id
from nco_guard.engines.hf.kinds import check_kinds, count
from nco_guard.engines.hf.options import Settings, refuse_continuous
from nco_guard.engines.hf.parameters import BatchOptions, Chat
from nco_guard.engines.hf.requests import RequestsProcessor
from nco_guard.engines.hf.rewinding import RewindChoice
from nco_guard.engines.recording import Recording, begun
from nco_guard.engines.requests import GuardedRequest
from nco_guard.engines.rows import OnStep
from nco_guard.errors import GenerationError, NCOGuardError, UnsupportedError
from nco_guard.scan.findings import Report
from nco_guard.session import BoundGuard
from nco_guard.tokens import Borders

try:
    from transformers import ContinuousBatchingConfig
    from transformers.generation.continuous_batching.cb_logits_processors import (
        ContinuousBatchingLogitsProcessor,
    )
    from transformers.generation.logits_process import TopHLogitsWarper
except ImportError as error:
    raise UnsupportedError(
        "continuous batching: the installed transformers has it not, or another one than 5.23"
    ) from error

__all__ = ["ContinuousBatch", "RequestOptions", "RequestResult", "generate_batch"]

# How requests end: continuous batching knows no stop strings and no criteria.
_ENDS = ("eos", "max_length")
_POLL_SECONDS = 0.2
# How long the loop may take from failing its requests to naming the error.
_GRACE_SECONDS = 2.0
_CPU_PAGE, _CPU_BATCH_TOKENS, _CPU_REQUESTS = 32, 1024, 64
# What chooses among the tokens that are left; it runs after the guard, as in `generate`.
_CHOOSERS = (
    ContinuousBatchingLogitsProcessor,
    TemperatureLogitsWarper,
    TopHLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    MinPLogitsWarper,
    TypicalLogitsWarper,
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    LogitNormalization,
)


@dataclass(frozen=True, slots=True)
class RequestResult:
    """One finished request.

    Attributes:
        request_id: what `submit` returned.
        text: the continuation without its prompt, decoded as the guard sees it.
        token_ids: its ids, end-of-sequence included where there is one.
        outcome: as in `GenerationResult`.
        report: the verifier's.
        output: transformers' own `GenerationOutput`, its tokens trimmed the same way.
    """

    request_id: str
    text: str
    token_ids: list[int]
    outcome: Outcome
    report: Report
    output: Any


class RequestOptions(TypedDict, total=False):
    """What a single request can be told, where the continuous batching config has `per_request_processors`."""

    temperature: float
    top_k: int
    top_p: float


class _Open(NamedTuple):
    """A request whose result nobody took yet, and its guard."""

    request: GuardedRequest
    guard: GuardLike


class ContinuousBatch:
    """A running continuous batch of one model, every request of which is guarded. A context manager.

    Guarantee: that of `generate`, for each request by itself, whatever the others do: budgets and ends of sequence are
    the request's own, and a request that loses its cache or joins late is in the state of its own text. Requests may be
    submitted from several threads.

    Args:
        skip_special_tokens: as for `generate`.
        borders: as for `generate`.
        regions: as for `generate`.
        on_step: as for `generate`, called in the generating thread; the rows of a `StepReport` are the requests,
            numbered from 0 in the order of submission.
        continuous_batching_config: transformers' own. Asynchronous batching, accelerator graphs and compilation are
            switched off where it says nothing, and refused where it asks for them: masks are made by the host once the
            last token is known.
        max_new_tokens: of each request that names no other.
        **fields: a `generation_config` or its fields, for all requests (`BatchOptions`). `num_return_sequences` is
            refused; submit a prompt several times.

    Cost: a step costs the guard what it costs in `generate`. transformers collects all garbage twice when a batch is
    closed (up to a second in a large program), so keep one open rather than opening many.

    Errors: `UnsupportedError` for options under which the guarantee would not hold or which continuous batching would
    ignore. While it is open, the model's attention implementation may be another, and it must not be opened twice.

    Examples:
        >>> from transformers import ContinuousBatchingConfig
        >>> cache = ContinuousBatchingConfig(page_size=16, num_blocks=64, max_batch_tokens=128)
        >>> guard = Guard.from_presets("pii")
        >>> with ContinuousBatch(guard, model, tokenizer, continuous_batching_config=cache) as batch:
        ...     _ = batch.submit("Write to", max_new_tokens=4)
        ...     [result.report.ok for result in batch.results()]
        [True]
    """

    def __init__(
        self,
        guard: GuardLike,
        model: Any,
        tokenizer: Any,
        *,
        skip_special_tokens: bool = True,
        borders: Borders = None,
        regions: Cutting | None = None,
        on_step: OnStep | None = None,
        continuous_batching_config: ContinuousBatchingConfig | None = None,
        max_new_tokens: int | None = None,
        **fields: Unpack[BatchOptions],
    ) -> None:
        options: dict[str, Any] = {**fields}
        if max_new_tokens is not None:
            options["max_new_tokens"] = max_new_tokens
        check_loaded(model, tokenizer)
        self._guard, self._model, self._tokenizer = guard, model, tokenizer
        self._read: dict[str, Any] = {
            "skip_special_tokens": skip_special_tokens,
            "borders": borders,
            "regions": regions,
        }
        check_kinds(options)
        self._when_blocked = RewindChoice(options.pop("when_blocked", None))
        self._settings = Settings(model, options)
        batching = continuous_batching_config or self._settings.get("continuous_batching_config")
        refuse_continuous(model, options, batching)
        self._config = _generation_config(model, options)
        self._width = logits_width(model)
        # Tokenizers that cannot be modelled are refused here, not at the first request.
        self._config.eos_token_id = list(self._bind(guard).vocabulary.eos_ids)
        self._processor = RequestsProcessor(self._width, on_step)
        self._batching = copy.deepcopy(batching or ContinuousBatchingConfig())
        self._batching.use_async_batching = self._batching.use_cuda_graph = False
        self._manager: Any = None
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self._submitted = 0

    def __enter__(self) -> Self:
        """Start to generate, in a thread of its own."""
        if self._manager is not None:
            raise GenerationError("this batch was opened before; make another")
        self._manager = self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop. Requests whose results nobody took are given up."""
        with self._lock:
            left, self._open = self._open, {}
        self._manager.stop(block=True, hard_stop=bool(left))
        self._manager.destroy()
        for request, _ in left.values():
            request.recording.failed(
                error or GenerationError("the batch was closed before this request was done")
            )

    def _start(self) -> Any:
        attention = self._model.config._attn_implementation
        manager = None
        try:
            manager = self._model.init_continuous_batching(
                generation_config=self._config, continuous_batching_config=self._batching
            )
            resolved = manager.continuous_batching_config
            if resolved.varlen_compile_config is not None or resolved.decode_compile_config is not None:
                raise UnsupportedError("compile_config: a compiled step cannot ask the guard; take it out")
            if manager.distributed_helper.tp_size > 1:
                raise UnsupportedError("tensor parallelism: other ranks know nothing of the requests")
            _install(manager, self._processor)
            manager.start()
        except Exception:
            self._model.set_attn_implementation(attention)
            raise
        return manager

    def submit(
        self,
        prompt: str | Chat | Sequence[int] | torch.Tensor,
        *,
        guard: GuardLike | None = None,
        max_new_tokens: int | None = None,
        eos_token_id: int | Sequence[int] | None = None,
        **processor_options: Unpack[RequestOptions],
    ) -> str:
        """Add a request; returns its id.

        Args:
            prompt: a string, a chat (list of messages) or token ids.
            guard: this request's own, in place of the batch's: it masks, verifies and records this request
                and no other.
            max_new_tokens: this request's own, by default that of the batch.
            eos_token_id: the same; the tokenizer's end-of-sequence always ends a text.
            **processor_options: `temperature`, `top_k`, `top_p` of this request, where the continuous batching config
                has `per_request_processors`.

        Errors: `UnsupportedError` for prompts or options that cannot be used, `GenerationError` where the batch has
        stopped.
        """
        if self._manager is None:
            raise GenerationError("this batch is not open: use it in a with statement")
        own = guards_for(self._guard, [guard], 1)[0]
        ids = _prompt_ids(self._model, self._tokenizer, self._settings, prompt)
        limit = _limit(self._settings, len(ids), max_new_tokens)
        try:
            self._manager.logit_processor.check_kwargs(processor_options)
        except (TypeError, ValueError) as error:
            raise UnsupportedError(
                f"{', '.join(sorted(processor_options))}: not an option of single requests here; set "
                f"per_request_processors=True in the continuous batching config and a value for the batch"
            ) from error
        bound = self._bind(own, eos_token_id)
        recording = Recording(begun(own.log, bound, 1, model_id(self._model), _ENDS), None)
        with self._lock:
            number, self._submitted = self._submitted, self._submitted + 1
            request_id = f"request-{number}"
            request = GuardedRequest(number, bound, ids, limit, recording)
            self._open[request_id] = _Open(request, own)
            self._processor.announce(request_id, request)
        try:
            taken = self._manager.add_request(
                ids,
                request_id=request_id,
                max_new_tokens=limit,
                eos_token_id=list(bound.vocabulary.eos_ids),
                **processor_options,
            )
        except queue.Full:
            raise self._refused(request_id) from None
        if taken is None:
            raise self._stopped()
        return request_id

    def _refused(self, request_id: str) -> GenerationError:
        """A request that found no place in the queue is forgotten."""
        with self._lock:
            request, _ = self._open.pop(request_id)
        self._processor.forget(request_id)
        full = GenerationError("the queue is full (max_queue_size in the continuous batching config)")
        request.recording.failed(full)
        return full

    def check(self, guard: GuardLike) -> None:
        """Bind a guard beforehand, as its first request would: what cannot be used is refused here."""
        self._bind(guard)

    def cancel(self, request_id: str) -> None:
        """Give a request up; it has no result. Without effect where it is done or not known."""
        with self._lock:
            given_up = self._open.pop(request_id, None)
        if given_up is not None:
            self._manager.cancel_request(request_id)
            self._processor.retire(request_id)
            given_up.request.recording.failed(GenerationError("the request was cancelled"))

    def results(self) -> Iterator[RequestResult]:
        """The results of all requests, as they come, until every submitted one is done.

        A request that fails by itself (`DeadEndError`, as the policy's `on_dead_end` has it) is raised in its turn; the
        others go on, and calling this again yields them. Where generation itself has failed, `GenerationError` or what
        the guard raised.
        """
        while self._open:
            output = self._manager.get_result(timeout=_POLL_SECONDS)
            if output is not None:
                with self._lock:
                    done = self._open.pop(output.request_id, None)
                if done is not None:
                    self._processor.forget(output.request_id)
                    yield self._finish(done.request, done.guard, output)
            elif not self._manager.is_running() or self._manager.background_thread_status.fatal_error:
                raise self._stopped()

    def _bind(self, guard: GuardLike, eos: int | Sequence[int] | None = None) -> BoundGuard:
        settings = self._settings if eos is None else Settings(self._model, {"eos_token_id": eos})
        bound = bind_to_model(guard, self._model, self._tokenizer, settings, **self._read)
        if self._when_blocked.of(bound) is not None:
            raise UnsupportedError(
                "when_blocked='rewind': requests of a continuous batch go back nowhere, since others take their pages "
                "of the cache; say when_blocked='mask', or use generate"
            )
        return bound

    def _finish(self, request: GuardedRequest, guard: GuardLike, output: Any) -> RequestResult:
        if request.error is None and output.error is not None:
            request.error = self._failure()
        kept, outcome, report = request.finished(guard.verifier, output.generated_tokens)
        text = request.bound.vocabulary.text_of(kept)
        output.generated_tokens = kept
        output.logprobs = output.logprobs[: len(kept)]
        return RequestResult(output.request_id, text, kept, outcome, report, output)

    def _failure(self) -> NCOGuardError:
        """Why the loop failed its requests."""
        status = self._manager.background_thread_status
        deadline = time.monotonic() + _GRACE_SECONDS
        while status.fatal_error is None and time.monotonic() < deadline:
            time.sleep(0.01)
        cause = status.fatal_error
        if isinstance(cause, NCOGuardError):
            return cause
        error = GenerationError(
            f"continuous batching failed{'' if cause is None else f' ({type(cause).__name__})'}: see the cause"
        )
        error.__cause__ = cause
        return error

    def _stopped(self) -> NCOGuardError:
        """The loop is gone: every request that is still open fails with it."""
        error = self._failure()
        with self._lock:
            left, self._open = self._open, {}
        for request, _ in left.values():
            request.recording.failed(error)
        return error


def generate_batch(
    guard: GuardLike,
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str | Chat | Sequence[int] | torch.Tensor],
    *,
    guards: Sequence[GuardLike | None] | None = None,
    max_new_tokens: int | Sequence[int] | None = None,
    num_return_sequences: int | None = None,
    skip_special_tokens: bool = True,
    borders: Borders = None,
    regions: Cutting | None = None,
    on_step: OnStep | None = None,
    continuous_batching_config: ContinuousBatchingConfig | None = None,
    **options: Unpack[BatchOptions],
) -> GenerationResult:
    """transformers' `generate_batch` under a guard: many prompts of any lengths, without pads.

    Args:
        prompts: a list of strings, of chats, or of token ids per prompt.
        guards: one for each prompt, in place of `guard`; None there stands for `guard`.
        max_new_tokens: for all, or one for each prompt.
        num_return_sequences: how often each prompt is answered.

    Other arguments: as for `ContinuousBatch`. In the result, the order is that of the prompts, and `output` is the list
    of transformers' `GenerationOutput`.

    Each request is one run of the audit log. Errors: as for `ContinuousBatch`; the first that a request has ends the
    call, after the texts are generated. On the CPU, where transformers would reserve most of the memory, the cache is
    sized to the prompts unless a config is given.

    Examples:
        >>> generate_batch(Guard.from_presets("pii"), model, tokenizer, ["a", "b"], max_new_tokens=4).reports[1].ok
        True
    """
    if isinstance(prompts, str | torch.Tensor) or not isinstance(prompts, Sequence) or is_chat(prompts):
        raise UnsupportedError("prompts: give a list of prompts; a single one belongs in a list too")
    of_prompts = guards_for(guard, guards, len(prompts))
    settings = Settings(model, {**options, "num_return_sequences": num_return_sequences})
    limits, answers = _limits(max_new_tokens, len(prompts)), settings.answers
    given = [_prompt_ids(model, tokenizer, settings, prompt) for prompt in prompts]
    requests = [
        (ids, _limit(settings, len(ids), limit), own)
        for ids, limit, own in zip(given, limits, of_prompts, strict=True)
        for _ in range(answers)
    ]
    if continuous_batching_config is None and model.device.type == "cpu":
        continuous_batching_config = _small_config([len(ids) + limit for ids, limit, _ in requests])
    of_batch: Any = {**options, "num_return_sequences": 1}  # whatever the model's own configuration says
    if continuous_batching_config is not None:
        of_batch["continuous_batching_config"] = continuous_batching_config
    read: Any = {"skip_special_tokens": skip_special_tokens, "borders": borders, "regions": regions}
    batch = ContinuousBatch(guard, model, tokenizer, on_step=on_step, **read, **of_batch)
    for own in {id(each): each for each in of_prompts}.values():
        batch.check(own)
    return _joined(_answers(batch, requests) if requests else [])


def _answers(
    batch: ContinuousBatch, requests: Sequence[tuple[list[int], int, GuardLike]]
) -> list[RequestResult]:
    """The results of all requests, in their order."""
    with batch:
        order = [batch.submit(ids, max_new_tokens=limit, guard=own) for ids, limit, own in requests]
        found = {result.request_id: result for result in batch.results()}
    return [found[request_id] for request_id in order]


def _limits(given: int | Sequence[int] | None, prompts: int) -> Sequence[int | None]:
    """A limit for each prompt."""
    limits = given if isinstance(given, Sequence) else [given] * prompts
    if len(limits) != prompts:
        raise UnsupportedError(
            f"max_new_tokens: {len(limits)} limits for {prompts} prompts; give one for each"
        )
    return limits


def _joined(results: Sequence[RequestResult]) -> GenerationResult:
    return GenerationResult(
        [result.text for result in results],
        [result.token_ids for result in results],
        [result.outcome for result in results],
        [result.report for result in results],
        [result.output for result in results],
    )


def _install(manager: Any, processor: RequestsProcessor) -> None:
    """Put the guard among the manager's processors: before what chooses among the tokens that are left."""
    processors = manager.logit_processor
    chain = list(processors.logits_processor)
    place = next((at for at, other in enumerate(chain) if isinstance(other, _CHOOSERS)), len(chain))
    processors.logits_processor = LogitsProcessorList([*chain[:place], processor, *chain[place:]])
    processors.tensors_required += 1
    processors.do_processing = True


def _generation_config(model: Any, options: dict[str, Any]) -> GenerationConfig:
    """What the call says, then its `generation_config`, then the model's own; a copy."""
    own = model.generation_config
    config = copy.deepcopy(options.get("generation_config") or own)
    config.update(**own.to_dict(), defaults_only=True)
    config.update(**{name: value for name, value in options.items() if name != "generation_config"})
    config.num_return_sequences = 1
    return config


def _small_config(lengths: Sequence[int]) -> ContinuousBatchingConfig:
    """A cache for the longest of the requests at once, and one page more for each."""
    longest = sorted(lengths, reverse=True)[:_CPU_REQUESTS]
    pages = sum(math.ceil(length / _CPU_PAGE) + 1 for length in longest)
    return ContinuousBatchingConfig(
        page_size=_CPU_PAGE, num_blocks=max(8, pages), max_batch_tokens=_CPU_BATCH_TOKENS
    )


def _prompt_ids(model: Any, tokenizer: Any, settings: Settings, prompt: Any) -> list[int]:
    """The token ids of a prompt; what cannot be one is refused."""
    if isinstance(prompt, str) or is_chat(prompt):
        ids = encode(tokenizer, model, prompt)["input_ids"][0].tolist()
    elif isinstance(prompt, torch.Tensor) and prompt.ndim == 1 and not prompt.is_floating_point():
        ids = prompt.tolist()
    elif isinstance(prompt, Sequence) and None not in map(as_whole, prompt):
        ids = list(prompt)
    else:
        raise UnsupportedError(
            "prompt: give a string, a chat (list of messages), or the token ids of one prompt, without pads"
        )
    width = logits_width(model)
    if any(not 0 <= token < width for token in ids):
        raise UnsupportedError("prompt: holds a token id that the model does not have")
    return [int(token) for token in ids] or first_token(model, tokenizer, settings)[0].tolist()


def _limit(settings: Settings, prompt_length: int, max_new_tokens: int | None) -> int:
    """How many tokens a request may generate."""
    limit = count("max_new_tokens", max_new_tokens)
    if limit is None:
        limit = settings.max_length(prompt_length) - prompt_length
    if limit < 1:
        raise UnsupportedError("max_new_tokens: at least one token must be left for the text")
    return limit
