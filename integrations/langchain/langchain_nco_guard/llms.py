"""`GuardedPipeline`: LangChain's `HuggingFacePipeline`, every route of which is guarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any, Self

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
    Callbacks,
)
from langchain_core.outputs import Generation, GenerationChunk, LLMResult
from langchain_huggingface import HuggingFacePipeline
from pydantic import ConfigDict, model_validator
from transformers import pipeline as transformers_pipeline

from langchain_nco_guard._errors import TypedErrors
from langchain_nco_guard._guards import GuardField
from langchain_nco_guard._loading import CONSTRUCTION, options_of_pipeline
from langchain_nco_guard._messages import usage_of
from langchain_nco_guard._options import refuse_arguments, refuse_other_words
from nco_guard.engines.hf import GenerationResult, TextStream, WrappedPipeline, wrap
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.kinds import stop_strings
from nco_guard.engines.hf.loading import load_model_id
from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.pipeline import unwrap
from nco_guard.engines.hf.reply_calls import GrowingReply, Reply, Usage
from nco_guard.engines.hf.streamers import stopped_by
from nco_guard.engines.hf.weights import WeightOptions, options_for
from nco_guard.engines.streaming import in_pieces
from nco_guard.errors import UnsupportedError
from nco_guard.guards import GuardSource, as_guard, guard_for_call
from nco_guard.replies import ReplyReader
from nco_guard.replies.reader import refuse_shown_reasoning
from nco_guard.session import BoundGuard

__all__ = ["GuardedPipeline"]

_FORBIDDEN = {
    "return_full_text": "the prompt is never part of the output here",
    "return_text": "text is what is guarded and returned",
    "return_tensors": "text is what is guarded and returned",
    "stop_strings": "pass stop=[...] with the call, which leaves the stop string out of the text",
    "streamer": "use stream()",
    "stop_sequence": "pass stop=[...] with the call, which leaves the stop string out of the text",
    "text_inputs": "it is the prompt",
}


class GuardedPipeline(TypedErrors, HuggingFacePipeline):
    """An LLM over a transformers pipeline that cannot write what its policy forbids.

    Guarantee: for every hard rule, no match in any text that comes out of invoke, batch, stream, generate or their
    async twins, bound, configured or as a fallback. What cannot be guaranteed raises a typed error.

    Attributes:
        pipeline: a transformers text-generation pipeline, or an existing `HuggingFacePipeline`. For a model's path:
            `GuardedPipeline.from_model_id(path, guard=...)`. Kept as a guarded one: nothing unguarded can be reached
            through it.
        guard: a `Guard`, a `Policy`, a preset's name or several, or the path of a policy file (`nco_guard.guards`). A
            call may have its own, `invoke(..., guard=...)`, which replaces this one for that call.
        pipeline_kwargs: options of generation, given with the pipeline's calls (`HuggingFacePipeline` ignores them
            beside `pipeline=`); a call may add its own.

    Other than with the base class: the output never contains the prompt; `stop` is honoured on every route, the stop
    string is left out and the text cut back to where it may end; an error in decoding arrives at once, with its
    own type; the cache tells policies and options apart; with `num_return_sequences` every sequence is returned.

    Errors at construction: `UnsupportedError`, `TokenizerError`, `PolicyError`.

    Examples:
        >>> llm = GuardedPipeline(pipeline=pipe, guard="pii", pipeline_kwargs={"max_new_tokens": 8})
        >>> llm.guard.verify(llm.invoke("Write to")).ok
        True
    """

    guard: GuardField

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def pre_init_validator(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Unpack what `pipeline` is; there is no default model."""
        pipe = values.get("pipeline")
        if isinstance(pipe, HuggingFacePipeline):
            kept = {k: v for k, v in (pipe.pipeline_kwargs or {}).items() if k not in CONSTRUCTION}
            values = {
                "model_id": pipe.model_id,
                "model_kwargs": pipe.model_kwargs,
                "batch_size": pipe.batch_size,
                **values,
                "pipeline_kwargs": {**kept, **options_for("pipeline_kwargs", values.get("pipeline_kwargs"))},
            }
            pipe = values["pipeline"] = pipe.pipeline
        if isinstance(pipe, WrappedPipeline):
            raise UnsupportedError(
                "pipeline: it is guarded already; pass the pipeline itself, and the guard as guard="
            )
        if pipe is None:
            raise UnsupportedError(
                "pipeline: pass one, or use GuardedPipeline.from_model_id(path, guard=...)"
            )
        if getattr(pipe, "task", None) != "text-generation":
            raise UnsupportedError(
                f"pipelines for the task {getattr(pipe, 'task', None)!r} are not supported; use 'text-generation'"
            )
        values.setdefault("model_id", str(getattr(pipe.model, "name_or_path", "") or "local"))
        return values

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._bound()
        self.pipeline = unwrap(self._guarded())
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        """What is set later is checked too: a pipeline is guarded, by the guard that is set."""
        super().__setattr__(name, as_guard(value) if name == "guard" else value)
        if name in ("guard", "pipeline"):
            super().__setattr__("pipeline", self._guarded())

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """See the base class; a copy with another guard has its pipeline under that guard."""
        copied = super().model_copy(update=update, deep=deep)
        copied.guard = copied.guard  # guards its pipeline, see __setattr__
        return copied

    def _guarded(self) -> WrappedPipeline:
        pipe, guard = self.pipeline, as_guard(self.guard)
        refuse_shown_reasoning(guard.policy, None, "a pipeline writes text alone; use ChatNCOGuard")
        if isinstance(pipe, WrappedPipeline):
            return pipe.with_guard(guard)
        return guard.wrap(pipe)

    def _recording(self, written: _Written) -> WrappedPipeline:
        return wrap(self.guard, unwrap(self._guarded()), on_result=written.add)

    def _settings(self) -> Settings:
        pipe = unwrap(self._guarded())
        return Settings(pipe.model, {**pipe._forward_params, **self._options({})})

    def _bound(self) -> BoundGuard:
        pipe, settings = unwrap(self._guarded()), self._settings()
        settings.refuse_unsupported()
        return bind_to_model(self.guard, pipe.model, pipe.tokenizer, settings)

    @classmethod
    def from_model_id(  # type: ignore[override]
        cls,
        model_id: str,
        task: str = "text-generation",
        *,
        guard: GuardSource,
        backend: str = "default",
        device: int | str | None = None,
        device_map: Any = None,
        dtype: Any = None,
        torch_dtype: Any = None,
        quantization_config: Any = None,
        model_kwargs: dict[str, Any] | None = None,
        pipeline_kwargs: dict[str, Any] | None = None,
        batch_size: int = 4,
        **fields: Any,
    ) -> Self:
        """Load a model and its tokenizer from a path or by a name.

        Arguments as of `HuggingFacePipeline.from_model_id`, fields of this class (`callbacks`, `tags`, ...) among
        them; `device`, `device_map`, `dtype` (`torch_dtype`) and
        `quantization_config` as of `ChatNCOGuard`. Errors: as there, before anything is loaded.
        """
        checked, options = as_guard(guard), options_of_pipeline(pipeline_kwargs)
        weights = WeightOptions(
            device=device,
            device_map=device_map,
            dtype=dtype,
            torch_dtype=torch_dtype,
            quantization_config=quantization_config,
        )
        model, tokenizer = load_model_id(
            model_id, task, backend, batch_size=batch_size, model_kwargs=model_kwargs, **weights
        )
        pipe = transformers_pipeline(task, model=model, tokenizer=tokenizer, batch_size=batch_size, **options)
        # Of the fields, these are part of the key of caches.
        given = {**(model_kwargs or {}), **{name: one for name, one in weights.items() if one is not None}}
        kept = {name: one for name, one in given.items() if name != "trust_remote_code"}
        return cls(
            pipeline=pipe,
            guard=checked,
            model_id=str(model_id),
            model_kwargs=kept,
            pipeline_kwargs=options,
            batch_size=batch_size,
            **fields,
        )

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        """What tells answers apart, the policy among it: caches are keyed on this."""
        return {**super()._identifying_params, "policy_digest": self.guard.log.digest}

    @property
    def _llm_type(self) -> str:
        return "nco_guard_pipeline"

    # -- guards of calls ----------------------------------------------------------------------------------------

    def for_call(self, kwargs: dict[str, Any]) -> Self:
        """This LLM with the guard and the options of one call, which are taken out of `kwargs`.

        LangChain's cache looks at the LLM and not at what a call was given.
        """
        update: dict[str, Any] = {}
        if "guard" in kwargs:
            update["guard"] = guard_for_call(self.guard, kwargs.pop("guard"))
        if "pipeline_kwargs" in kwargs:
            update["pipeline_kwargs"] = self._options(
                options_for("pipeline_kwargs", kwargs.pop("pipeline_kwargs"))
            )
        return self.model_copy(update=update) if update else self

    def generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        callbacks: Callbacks | list[Callbacks] | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        """See the base class."""
        llm = self.for_call(kwargs)
        return super(GuardedPipeline, llm).generate(prompts, stop, callbacks, **kwargs)

    async def agenerate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        callbacks: Callbacks | list[Callbacks] | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        """See the base class."""
        llm = self.for_call(kwargs)
        return await super(GuardedPipeline, llm).agenerate(prompts, stop, callbacks, **kwargs)

    # -- generation --------------------------------------------------------------------------------------------

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        options = options_for("pipeline_kwargs", {**(self.pipeline_kwargs or {}), **given})
        refuse_arguments(options, "pipeline_kwargs")
        for name, reason in _FORBIDDEN.items():
            if options.get(name) is not None and not (name == "return_full_text" and options[name] is False):
                raise UnsupportedError(f"pipeline_kwargs[{name!r}]: {reason}; leave it out")
        return {name: value for name, value in options.items() if name != "return_full_text"}

    def _generate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        llm = self.for_call(kwargs)
        return llm._generate_batches(prompts, stop_strings(stop), kwargs)

    def _generate_batches(
        self, prompts: Sequence[str], stops: Sequence[str], kwargs: Mapping[str, Any]
    ) -> LLMResult:
        _refuse_unknown(kwargs)
        options = self._options({})
        if stops:
            options["stop_strings"] = list(stops)
        generations: list[list[Generation]] = []
        written = _Written()
        guarded = self._recording(written)
        for first in range(0, len(prompts), self.batch_size):
            batch = list(prompts[first : first + self.batch_size])
            answers = guarded(batch, return_full_text=False, **options)
            for prompt, answer in zip(batch, answers, strict=True):
                texts = [one["generated_text"] for one in (answer if isinstance(answer, list) else [answer])]
                size = self._tokens(prompt)
                replies = [self._reading(prompt, stops).whole(text, *written.next(size)) for text in texts]
                generations.append(
                    [Generation(text=reply.content, generation_info=_info(reply)) for reply in replies]
                )
        return LLMResult(
            generations=generations, llm_output={"token_usage": written.usage, "model_name": self.model_id}
        )

    def _tokens(self, prompt: str) -> int:
        return len(self.pipeline.tokenizer(prompt)["input_ids"])

    async def _agenerate(
        self,
        prompts: list[str],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> LLMResult:
        llm = self.for_call(kwargs)
        return await super(GuardedPipeline, llm)._agenerate(prompts, stop, run_manager, **kwargs)

    def _reading(self, prompt: str, stops: Sequence[str]) -> GrowingReply:
        if not stops:
            return GrowingReply(None)
        context = self._bound().prompt_text(self.pipeline.tokenizer(prompt)["input_ids"])
        return GrowingReply(ReplyReader(self.guard, context=context, stop=stops))

    def _stream(
        self,
        prompt: str,
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[GenerationChunk]:
        llm = self.for_call(kwargs)
        _refuse_unknown(kwargs)
        stops = stop_strings(stop)
        reading = llm._reading(prompt, stops)
        written = _Written()
        for piece in llm._pieces(prompt, stops, written):
            if text := reading.feed(piece).delta:
                yield _shown(text, run_manager)
        # Even a stream without text has a chunk; LangChain takes one without any for a failure.
        last = reading.finish(*written.next(llm._tokens(prompt)))
        if last.delta:
            yield _shown(last.delta, run_manager)
        yield _shown("", run_manager, _info(last))

    def _pieces(self, prompt: str, stops: Sequence[str], written: _Written) -> Iterator[str]:
        """Text as it is generated, in a thread; its errors are raised here, and closing this stops it."""
        options = self._options({})
        self._settings().refuse_several()
        if stops:
            options["stop_strings"] = list(stops)
        bound, guarded = self._bound(), self._recording(written)

        def generate(write: Callable[[str], None], left: Event) -> None:
            streamer = TextStream(bound.vocabulary, write)
            guarded(prompt, return_full_text=False, streamer=streamer, **stopped_by(left, options))

        yield from in_pieces(generate)


class _Written:
    """What is known of the sequences of a call: why each ended, and how long it is."""

    def __init__(self) -> None:
        self._sequences: list[tuple[str, int]] = []
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

    def add(self, result: GenerationResult) -> None:
        """One batch."""
        self._sequences += zip(result.outcomes, map(len, result.token_ids), strict=True)

    def next(self, prompt: int) -> tuple[str, Usage]:
        """Of the next sequence, after a prompt of so many tokens."""
        outcome, size = self._sequences.pop(0)
        usage = Usage(prompt, size)
        for name in self.usage:
            self.usage[name] += getattr(usage, name)
        return outcome, usage


def _info(reply: Reply) -> dict[str, Any]:
    return {"finish_reason": reply.finish_reason, "usage_metadata": usage_of(reply)}


def _refuse_unknown(kwargs: Mapping[str, Any]) -> None:
    """`skip_prompt` is the base class's way to leave the prompt out, which is always done here."""
    refuse_other_words(kwargs, pipeline=True)
    for name in kwargs:
        if name not in ("skip_prompt", "callbacks"):
            raise UnsupportedError(f"{name}: unknown; options of generation go into pipeline_kwargs={{...}}")


def _shown(
    text: str, run_manager: CallbackManagerForLLMRun | None, info: dict[str, Any] | None = None
) -> GenerationChunk:
    chunk = GenerationChunk(text=text, generation_info=info)
    if run_manager is not None and text:
        run_manager.on_llm_new_token(text, chunk=chunk)
    return chunk
