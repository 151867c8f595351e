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
from pydantic import ConfigDict, field_validator, model_validator

from langchain_nco_guard._errors import TypedErrors
from langchain_nco_guard._messages import Reply
from langchain_nco_guard._options import refuse_arguments, refuse_other_words
from nco_guard import Guard
from nco_guard.engines.hf import GenerationResult, TextStream, WrappedPipeline, wrap
from nco_guard.engines.hf.generation import bind_to_model
from nco_guard.engines.hf.kinds import stop_strings
from nco_guard.engines.hf.options import Settings
from nco_guard.engines.hf.pipeline import unwrap
from nco_guard.engines.hf.streamers import ReaderLeft
from nco_guard.engines.streaming import in_pieces
from nco_guard.errors import UnsupportedError
from nco_guard.guards import GuardSource, as_guard, guard_for_call
from nco_guard.session import BoundGuard

__all__ = ["GuardedPipeline"]

# What `pipeline(...)` takes and its calls do not.
_CONSTRUCTION = (
    "trust_remote_code",
    "torch_dtype",
    "dtype",
    "framework",
    "use_fast",
    "device",
    "device_map",
    "model_kwargs",
)
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

    guard: Any

    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def pre_init_validator(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Unpack what `pipeline` is; there is no default model."""
        pipe = values.get("pipeline")
        if isinstance(pipe, HuggingFacePipeline):
            kept = {k: v for k, v in (pipe.pipeline_kwargs or {}).items() if k not in _CONSTRUCTION}
            values = {
                "model_id": pipe.model_id,
                "model_kwargs": pipe.model_kwargs,
                "batch_size": pipe.batch_size,
                **values,
                "pipeline_kwargs": {**kept, **(values.get("pipeline_kwargs") or {})},
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

    @field_validator("guard")
    @classmethod
    def _guard_from(cls, value: GuardSource) -> Guard:
        return as_guard(value)

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
        if isinstance(pipe, WrappedPipeline):
            return pipe.under(guard)
        return guard.wrap(pipe)

    def _recording(self, written: _Written) -> WrappedPipeline:
        return wrap(self.guard, unwrap(self._guarded()), on_result=written.add)

    def _bound(self) -> BoundGuard:
        pipe = unwrap(self._guarded())
        settings = Settings(pipe.model, {**pipe._forward_params, **self._options({})})
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
        device: int | None = None,
        device_map: str | None = None,
        model_kwargs: dict[str, Any] | None = None,
        pipeline_kwargs: dict[str, Any] | None = None,
        batch_size: int = 4,
    ) -> Self:
        """Load a model and its tokenizer from a path; the rest as for `HuggingFacePipeline.from_model_id`."""
        checked = as_guard(guard)
        if task != "text-generation":
            raise UnsupportedError(f"task {task!r} is not supported; use 'text-generation'")
        loaded = HuggingFacePipeline.from_model_id(
            model_id, task, backend, device, device_map, model_kwargs, pipeline_kwargs, batch_size
        )
        return cls(pipeline=loaded, guard=checked)

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
            update["pipeline_kwargs"] = self._options(kwargs.pop("pipeline_kwargs") or {})
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
        options = {**(self.pipeline_kwargs or {}), **given}
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
                context = self._context(prompt) if stops else ""
                replies = [Reply(self.guard, stops=stops, context=context).whole(text) for text in texts]
                size = self._tokens(prompt)
                generations.append(
                    [
                        Generation(text=reply.content, generation_info=written.next_info(reply, size))
                        for reply in replies
                    ]
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

    def _context(self, prompt: str) -> str:
        """The text of the prompt, where a rule of the policy continues it."""
        bound = self._bound()
        if not bound.needs_context:
            return ""
        return bound.vocabulary.text_of(self.pipeline.tokenizer(prompt)["input_ids"])

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
        reply = Reply(llm.guard, stops=stops, context=llm._context(prompt) if stops else "")
        written = _Written()
        for text in reply.over(llm._pieces(prompt, stops, written)):
            yield _shown(str(text), run_manager)
        # Even a stream without text has a chunk; LangChain takes one without any for a failure.
        yield _shown("", run_manager, written.next_info(reply, llm._tokens(prompt)))

    def _pieces(self, prompt: str, stops: Sequence[str], written: _Written) -> Iterator[str]:
        """Text as it is generated, in a thread; its errors are raised here, and closing this stops it."""
        options = self._options({})
        if int(options.get("num_return_sequences") or 1) > 1:
            raise UnsupportedError("num_return_sequences: a stream is one text; use invoke or generate")
        if stops:
            options["stop_strings"] = list(stops)
        bound, guarded = self._bound(), self._recording(written)

        def generate(write: Callable[[str], None], closed: Event) -> None:
            options["stopping_criteria"] = [*(options.get("stopping_criteria") or []), ReaderLeft(closed)]
            guarded(prompt, return_full_text=False, streamer=TextStream(bound.vocabulary, write), **options)

        yield from in_pieces(generate)


class _Written:
    """What is known of the sequences of a call: why each ended, and how long it is."""

    def __init__(self) -> None:
        self._sequences: list[tuple[str, int]] = []
        self.usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}

    def add(self, result: GenerationResult) -> None:
        """One batch."""
        self._sequences += zip(result.outcomes, map(len, result.token_ids), strict=True)

    def next_info(self, reply: Reply, prompt: int) -> dict[str, Any]:
        """Of the next sequence, after a prompt of so many tokens."""
        outcome, size = self._sequences.pop(0)
        for name, tokens in (
            ("prompt_tokens", prompt),
            ("completion_tokens", size),
            ("total_tokens", prompt + size),
        ):
            self.usage[name] += tokens
        usage = {"input_tokens": prompt, "output_tokens": size, "total_tokens": prompt + size}
        return {"finish_reason": reply.finish_reason(outcome), "usage_metadata": usage}


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
