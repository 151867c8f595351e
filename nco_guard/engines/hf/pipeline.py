"""Guarded text-generation pipelines, to be used wherever a pipeline is expected."""

from __future__ import annotations

import copy
from typing import Any

from nco_guard.engines.hf.generation import GuardLike, Sink, generate_ids
from nco_guard.errors import UnsupportedError

__all__ = ["GuardedPipeline", "wrap"]

_OTHER_WAYS = ("generate_batch", "init_continuous_batching", "continuous_batching_context_manager")


def wrap(guard: GuardLike, pipe: Any, *, sink: Sink | None = None) -> GuardedPipeline:
    """A pipeline with the same interface as `pipe`, every call of which is guarded.

    `pipe` itself is not changed. Raises `UnsupportedError` for tasks other than text generation.
    """
    if getattr(pipe, "task", None) != "text-generation":
        raise UnsupportedError(
            f"pipelines for the task {getattr(pipe, 'task', None)!r} are not supported; use 'text-generation'"
        )
    return GuardedPipeline(guard, pipe, sink)


class GuardedPipeline:
    """What `wrap` returns: call it like the pipeline; every other attribute is the pipeline's own.

    Guarantee: that of `generate`, for the text that the pipeline adds to the prompt. Strings, lists, chats,
    `batch_size`, `return_full_text`, `num_return_sequences`, `streamer`, `stop_sequence` and processors given
    with a call work as before. `.model` is the unguarded model.
    """

    def __init__(self, guard: GuardLike, pipe: Any, sink: Sink | None = None) -> None:
        self._guard = guard
        self._pipe = pipe
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling ask for attributes before __init__ has run.
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._pipe, name)

    def __call__(self, text_inputs: Any, **options: Any) -> Any:
        """As the pipeline's own call. Raises what `generate` raises."""
        pipe = self._pipe
        cleans = options.get(
            "clean_up_tokenization_spaces", pipe._postprocess_params.get("clean_up_tokenization_spaces")
        )
        if cleans is not None and bool(cleans) != bool(pipe.tokenizer.clean_up_tokenization_spaces):
            raise UnsupportedError(
                "clean_up_tokenization_spaces: the guard reads text as the tokenizer's own setting says; leave it "
                "out and set tokenizer.clean_up_tokenization_spaces"
            )
        skip = options.get("skip_special_tokens", pipe._postprocess_params.get("skip_special_tokens"))
        # The pipeline does not skip them where it parses the answer into a message.
        skip = (skip is None or bool(skip)) and getattr(pipe.tokenizer, "response_template", None) is None
        guarded = copy.copy(pipe)
        guarded.model = _GuardedModel(self._guard, pipe.model, pipe.tokenizer, skip, self._sink)
        return guarded(text_inputs, **options)


class _GuardedModel:
    """The pipeline's model, its `generate` guarded."""

    def __init__(self, guard: GuardLike, model: Any, tokenizer: Any, skip: bool, sink: Sink | None) -> None:
        self._guard = guard
        self._model = model
        self._tokenizer = tokenizer
        self._skip = skip
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        if name in _OTHER_WAYS:
            raise UnsupportedError(f"{name}: not guarded in a pipeline; use guard.generate_batch")
        return getattr(self._model, name)

    def generate(self, **options: Any) -> Any:
        return generate_ids(
            self._guard,
            self._model,
            self._tokenizer,
            options,
            skip_special_tokens=self._skip,
            sink=self._sink,
        ).output
