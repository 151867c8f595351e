"""What callers of other models write, and the word for it here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import signature

from nco_guard import Guard
from nco_guard.engines.hf.words import instead
from nco_guard.errors import UnsupportedError

__all__ = ["refuse_arguments", "refuse_other_words"]

# What `Guard.generate` and `Guard.stream` take beside options of generation, `guards` among it.
_ARGUMENTS = {
    name
    for function in (Guard.generate, Guard.stream)
    for name, parameter in signature(function).parameters.items()
    if parameter.kind is not parameter.VAR_KEYWORD
} | {"guard"}

_MODEL = "this object is one model; "
_SEVERAL = ", and generate() gives all of them"
# What to do here instead of giving an option of generation, by its name in transformers.
_CHAT: Mapping[str, str] = {
    "guard": "a call takes guard=...",
    "max_new_tokens": "it is max_tokens=...",
    "model": f"{_MODEL}make another for another model",
    "num_return_sequences": f"it is num_return_sequences=...{_SEVERAL}",
    "stop_strings": "a call takes stop=[...], and leaves the stop string out of the text",
}
_ANOTHER = f"{_MODEL}GuardedPipeline.from_model_id(path, guard=...) makes another"
_PIPELINE: Mapping[str, str] = {
    "guard": "a call takes guard=...",
    "max_new_tokens": 'it is pipeline_kwargs={"max_new_tokens": ...}',
    "model": _ANOTHER,
    "model_id": _ANOTHER,
    "num_return_sequences": f'it is pipeline_kwargs={{"num_return_sequences": ...}}{_SEVERAL}',
    "stop_strings": "a call takes stop=[...]",
    "temperature": 'it is pipeline_kwargs={"do_sample": True, "temperature": ...}',
}
# What is written so here.
_CHAT_WORDS = ("guard", "max_tokens", "num_return_sequences", "stop")
_PIPELINE_WORDS = ("guard", "stop")


def refuse_other_words(names: Iterable[str], *, pipeline: bool = False) -> None:
    """Refuse options that mean something elsewhere. Errors: `UnsupportedError`, which says what is meant here."""
    here, ours = (_PIPELINE, _PIPELINE_WORDS) if pipeline else (_CHAT, _CHAT_WORDS)
    for name in names:
        if name not in ours and (mend := instead(name, here)) is not None:
            raise UnsupportedError(f"{name}: {mend}")


def refuse_arguments(options: Iterable[str], where: str) -> None:
    """Refuse arguments of the guard among options of generation: another guard would act in place of this one.

    Errors: `UnsupportedError` that names it.
    """
    for name in options:
        if name in _ARGUMENTS:
            raise UnsupportedError(
                f"{where}[{name!r}]: it is no option of generation; a call takes guard=..."
            )
