"""What callers of other models write, and the word for it here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature

from nco_guard import Guard
from nco_guard.errors import UnsupportedError

__all__ = ["refuse_arguments", "refuse_other_words"]

# What `Guard.generate` and `Guard.stream` take beside options of generation, `guards` among it.
_ARGUMENTS = {
    name
    for function in (Guard.generate, Guard.stream)
    for name, parameter in signature(function).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD
} | {"guard"}

_PIECES = (
    "they would repeat the text in pieces, and what was masked; an audit log has what interventions changed"
)
_CHAT: Mapping[str, str] = {
    "logprobs": _PIECES,
    "max_completion_tokens": "it is max_tokens=...",
    "max_new_tokens": "it is max_tokens=...",
    "model": "this object is one model; make another for another model",
    "n": "it is num_return_sequences=..., and generate() gives all of them",
    "policy": "a call takes guard=...",
    "presence_penalty": "the nearest here is repetition_penalty=...",
    "frequency_penalty": "the nearest here is repetition_penalty=...",
    "seed": "sampling is seeded for the process: transformers.set_seed(...) before the call",
    "stop_sequences": "a call takes stop=[...]",
    "stop_strings": "a call takes stop=[...], and leaves the stop string out of the text",
    "top_logprobs": _PIECES,
}
_PIPELINE: Mapping[str, str] = {
    "logprobs": _PIECES,
    "max_new_tokens": 'it is pipeline_kwargs={"max_new_tokens": ...}',
    "max_tokens": 'it is pipeline_kwargs={"max_new_tokens": ...}',
    "model": "this object is one model; GuardedPipeline.from_model_id(path, guard=...) makes another",
    "model_id": "this object is one model; GuardedPipeline.from_model_id(path, guard=...) makes another",
    "n": 'it is pipeline_kwargs={"num_return_sequences": ...}, and generate() gives all of them',
    "policy": "a call takes guard=...",
    "seed": "sampling is seeded for the process: transformers.set_seed(...) before the call",
    "stop_sequences": "a call takes stop=[...]",
    "temperature": 'it is pipeline_kwargs={"do_sample": True, "temperature": ...}',
    "top_logprobs": _PIECES,
}


def refuse_other_words(names: Iterable[str], *, pipeline: bool = False) -> None:
    """Refuse options that mean something elsewhere. Errors: `UnsupportedError`, which says what is meant here."""
    words = _PIPELINE if pipeline else _CHAT
    for name in names:
        if name in words:
            raise UnsupportedError(f"{name}: {words[name]}")


def refuse_arguments(options: Iterable[str], where: str) -> None:
    """Refuse arguments of the guard among options of generation: another guard would act in place of this one.

    Errors: `UnsupportedError` that names it.
    """
    for name in options:
        if name in _ARGUMENTS:
            raise UnsupportedError(
                f"{where}[{name!r}]: it is no option of generation; a call takes guard=..."
            )
