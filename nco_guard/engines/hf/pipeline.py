"""Guarded text-generation pipelines, to be used wherever a pipeline is expected."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from nco_guard.arguments import whole_characters
from nco_guard.engines.calls import GenerationResult, GuardLike
from nco_guard.engines.hf.generation import generate_ids
from nco_guard.engines.rows import OnStep
from nco_guard.errors import UnsupportedError

__all__ = ["WrappedPipeline", "unwrap", "wrap"]

# What is handed out describes the pipeline and its model. Anything else may lead to text: it is refused, so that what a
# later transformers adds is refused too.
_OF_PIPELINE = frozenset(
    {
        "binary_output",
        "call_count",
        "default_input_names",
        "device",
        "dtype",
        "feature_extractor",
        "framework",
        "generation_config",
        "image_processor",
        "modelcard",
        "prefix",
        "processor",
        "task",
        "tokenizer",
        "torch_dtype",
        "video_processor",
    }
)
_OF_MODEL = frozenset(
    {
        "base_model_prefix",
        "can_generate",
        "config",
        "config_class",
        "device",
        "dtype",
        "generation_config",
        "hf_device_map",
        "input_modalities",
        "is_loaded_in_4bit",
        "is_loaded_in_8bit",
        "is_quantized",
        "main_input_name",
        "name_or_path",
        "output_modalities",
        "quantization_method",
        "training",
    }
)


OnResult = Callable[[GenerationResult], None]


class _NotGuarded(UnsupportedError, AttributeError):
    """Both: `hasattr` says no, and who asks is told what to do."""


def wrap(
    guard: GuardLike, pipe: Any, *, on_step: OnStep | None = None, on_result: OnResult | None = None
) -> WrappedPipeline:
    """A pipeline with the same interface as `pipe`, every call of which is guarded.

    `on_result` is given what is known of each batch, outcomes and ids, which the pipeline's answer leaves out. `pipe`
    itself is not changed. Raises `UnsupportedError` for tasks other than text generation, and for a pipeline
    that is guarded already.

    Examples:
        >>> guard = Guard.from_presets("pii")
        >>> answer = wrap(guard, pipe)("Write to", max_new_tokens=8, return_full_text=False)
        >>> guard.verify(answer[0]["generated_text"]).ok
        True
    """
    if isinstance(pipe, WrappedPipeline):
        raise UnsupportedError("this pipeline is guarded already; wrap the one that it was made of")
    if getattr(pipe, "task", None) != "text-generation":
        raise _no_pipeline(pipe)
    return WrappedPipeline(guard, pipe, on_step, on_result)


def _no_pipeline(given: Any) -> UnsupportedError:
    """For what is no pipeline, or one for another task: what to give."""
    task = getattr(given, "task", None)
    if task is not None:
        return UnsupportedError(f"pipelines for the task {task!r} are not supported; use 'text-generation'")
    mend = 'give a pipeline: transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)'
    if hasattr(given, "generate"):
        mend += ", or use guard.generate(model, tokenizer, prompts)"
    return UnsupportedError(f"pipe: {type(given).__name__} is no pipeline; {mend}")


def unwrap(pipe: WrappedPipeline) -> Any:
    """The pipeline that `wrap` was given, unguarded: for adapters, which check it and make it guarded again."""
    return pipe._pipe


class WrappedPipeline:
    """What `wrap` returns: call it like the pipeline.

    Guarantee: that of `generate`, for the text that the pipeline adds to the prompt. Strings, lists, chats,
    datasets, `batch_size`, `return_full_text`, `num_return_sequences`, `streamer`, `stop_sequence` and processors given
    with a call work as before, and so do `predict` and `transform`. No other method of the pipeline can be reached:
    `task`, `tokenizer`, `device` and what else describes it are the pipeline's own, `model` is a `GuardedModel`, and
    the rest (`forward`, `run_single`, ...) raises `UnsupportedError` by name; `hasattr` says that it is not there.

    To change something, change the pipeline that was wrapped.
    """

    __slots__ = ("__weakref__", "_guard", "_on_result", "_on_step", "_pipe")

    def __init__(
        self, guard: GuardLike, pipe: Any, on_step: OnStep | None = None, on_result: OnResult | None = None
    ) -> None:
        self._guard = guard
        self._pipe = pipe
        self._on_step = on_step
        self._on_result = on_result

    def __call__(self, text_inputs: Any, **options: Any) -> Any:
        """As the pipeline's own call. Raises what `generate` raises."""
        _check_texts(text_inputs)
        if given := sorted({"inputs", "input_ids", "attention_mask"} & set(options)):
            raise UnsupportedError(f"{given[0]}: the pipeline makes it of text_inputs; leave it out")
        pipe = self._pipe
        cleans = options.get(
            "clean_up_tokenization_spaces", pipe._postprocess_params.get("clean_up_tokenization_spaces")
        )
        if cleans is not None and bool(cleans) != bool(pipe.tokenizer.clean_up_tokenization_spaces):
            raise UnsupportedError(
                "clean_up_tokenization_spaces: the guard reads text as the tokenizer's own setting says; leave it "
                "out and set tokenizer.clean_up_tokenization_spaces"
            )
        guarded = copy.copy(pipe)
        guarded.model = self._model(options.get("skip_special_tokens"))
        return guarded(text_inputs, **options)

    def predict(self, X: Any) -> Any:
        """A call of the pipeline, under scikit-learn's name for it."""
        return self(X)

    def transform(self, X: Any) -> Any:
        """A call of the pipeline, under scikit-learn's other name for it."""
        return self(X)

    @property
    def model(self) -> GuardedModel:
        """The pipeline's model: what describes it, and a guarded `generate`."""
        return self._model(None)

    def with_guard(self, guard: GuardLike) -> WrappedPipeline:
        """This pipeline under another guard, in place of this one."""
        return WrappedPipeline(guard, self._pipe, self._on_step, self._on_result)

    def _model(self, skip: bool | None) -> GuardedModel:
        """The model for a call that skips special tokens in its texts, or not; None: as the pipeline was made."""
        pipe = self._pipe
        if skip is None:
            skip = pipe._postprocess_params.get("skip_special_tokens")
        # The pipeline does not skip them where it parses the answer into a message.
        skips = (skip is None or bool(skip)) and getattr(pipe.tokenizer, "response_template", None) is None
        return GuardedModel(self._guard, pipe.model, pipe.tokenizer, skips, self._on_step, self._on_result)

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling ask for attributes before __init__ has run.
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(name)
        return _described(self._pipe, name, _OF_PIPELINE, "pipeline")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__slots__:
            raise _NotGuarded(
                f"{name}: set it on the pipeline, then wrap that; this one would not look at it"
            )
        object.__setattr__(self, name, value)

    def __dir__(self) -> list[str]:
        own = (name for name in _OF_PIPELINE if hasattr(self._pipe, name))
        return sorted({*super().__dir__(), *own})

    def __repr__(self) -> str:
        return f"WrappedPipeline({type(self._pipe).__name__}, guard={self._guard!r})"


class GuardedModel:
    """The model of a guarded pipeline: `config`, `device` and what else describes it, and `generate`, guarded.

    Guarantee: that of `generate`, for ids that are decoded as the pipeline decodes them. Everything else, a call of the
    model included, raises `UnsupportedError` by name.
    """

    __slots__ = ("__weakref__", "_guard", "_model", "_on_result", "_on_step", "_skip", "_tokenizer")

    def __init__(
        self,
        guard: GuardLike,
        model: Any,
        tokenizer: Any,
        skip: bool,
        on_step: OnStep | None,
        on_result: OnResult | None,
    ) -> None:
        self._guard = guard
        self._model = model
        self._tokenizer = tokenizer
        self._skip = skip
        self._on_step = on_step
        self._on_result = on_result

    def generate(self, inputs: Any = None, generation_config: Any = None, **options: Any) -> Any:
        """As `model.generate`: ids, or its output object. Raises what `nco_guard`'s `generate` raises."""
        given = {"inputs": inputs, "generation_config": generation_config}
        result = generate_ids(
            self._guard,
            self._model,
            self._tokenizer,
            {**{name: value for name, value in given.items() if value is not None}, **options},
            skip_special_tokens=self._skip,
            on_step=self._on_step,
        )
        if self._on_result is not None:
            self._on_result(result)
        return result.output

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: what the model says without its masks is not guarded."""
        raise UnsupportedError(
            "calling the model: its scores are not masked; use generate, or guard.bind(tokenizer).session()"
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.__slots__:
            raise AttributeError(name)
        return _described(self._model, name, _OF_MODEL, "model")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.__slots__:
            raise _NotGuarded(f"{name}: set it on the model itself; this one would not look at it")
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"GuardedModel({type(self._model).__name__}, guard={self._guard!r})"


def _check_texts(given: Any) -> None:
    """`UnsupportedError` for what no pipeline of this task reads; datasets and generators are looked at by it."""
    several = given if isinstance(given, list | tuple) else [given]
    if not several or any(one is None or isinstance(one, bytes | int | float) for one in several):
        raise UnsupportedError(
            "text_inputs: give a string, strings, a chat (list of messages), chats or a dataset"
        )
    if isinstance(given, Mapping):
        raise UnsupportedError("text_inputs: a single message is no chat; give a list of messages")
    whole_characters("text_inputs", several)


def _described(whole: Any, name: str, allowed: frozenset[str], kind: str) -> Any:
    if name in allowed:
        return getattr(whole, name)
    if not hasattr(whole, name):
        raise AttributeError(f"the {kind} has no attribute {name!r}")
    other = (
        "nco_guard.engines.hf.continuous.generate_batch"
        if "batch" in name
        else f"the guarded {kind} as a whole"
    )
    raise _NotGuarded(
        f"{name}: not guarded, so it cannot be reached through a guarded {kind}; use {other}, or, unguarded, the "
        f"{kind} that was wrapped"
    )
