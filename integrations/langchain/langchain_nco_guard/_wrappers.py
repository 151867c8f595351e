"""Runnables that answer with a message, whatever stands around the model: `bind`, `with_retry`, `with_fallbacks`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable
from langchain_core.runnables.fallbacks import RunnableWithFallbacks

from nco_guard.errors import UnsupportedError

__all__ = ["callbacks_of", "described", "mapped", "model_of", "silenced", "with_tools"]


def model_of(runnable: Any) -> BaseChatModel | None:
    """The model that answers unless something is configured or fails; None where that is not known before a call."""
    if isinstance(runnable, BaseChatModel):
        return runnable
    inside = {RunnableBindingBase: "bound", RunnableWithFallbacks: "runnable", DynamicRunnable: "default"}
    name = next((name for kind, name in inside.items() if isinstance(runnable, kind)), None)
    return None if name is None else model_of(getattr(runnable, name))


def mapped(runnable: Any, change: Callable[[Any], Any]) -> Any:
    """What stands around models, around others. `change` is given each model, and what is not looked into."""
    if isinstance(runnable, RunnableBindingBase):
        bound = mapped(runnable.bound, change)
        return runnable if bound is runnable.bound else runnable.model_copy(update={"bound": bound})
    if isinstance(runnable, RunnableWithFallbacks):
        first, others = runnable.runnable, list(runnable.fallbacks)
        update = {"runnable": mapped(first, change), "fallbacks": [mapped(one, change) for one in others]}
        same = update["runnable"] is first and all(
            a is b for a, b in zip(update["fallbacks"], others, strict=True)
        )
        return runnable if same else runnable.model_copy(update=update)
    return change(runnable)


def with_tools(runnable: Any, tools: Any, **options: Any) -> Any:
    """Tools offered to every model inside, each in its own way."""

    def offer(model: Any) -> Any:
        if not isinstance(model, DynamicRunnable):
            return model.bind_tools(tools, **options)
        # Asked itself, it would answer with a binding of its default, which is not configurable any more.
        bound = model.default.bind_tools(tools, **options)  # type: ignore[attr-defined]
        if not isinstance(bound, RunnableBinding):
            raise UnsupportedError(f"tools cannot be bound to a configurable {type(model.default).__name__}")
        return model.bind(**bound.kwargs)

    return mapped(runnable, offer)


def callbacks_of(runnable: Any) -> list[Any]:
    """Handlers that the user put on a model and what stands around it. Errors: `UnsupportedError` for listeners."""
    found: list[Any] = []
    while runnable is not None:
        given: Any = None
        if isinstance(runnable, RunnableBindingBase):
            if runnable.config_factories:
                raise UnsupportedError(
                    "with_listeners on a model that is verified: listeners would see what it says before that; "
                    "call with_listeners on the verified model"
                )
            given, runnable = runnable.config.get("callbacks"), runnable.bound
        elif isinstance(runnable, RunnableWithFallbacks):
            runnable = runnable.runnable
        else:
            given = getattr(runnable, "callbacks", None) if isinstance(runnable, BaseChatModel) else None
            runnable = None
        found += given if isinstance(given, list) else getattr(given, "handlers", None) or []
    return found


def silenced(runnable: Any) -> Any:
    """A runnable without the handlers that were put around its model."""
    if isinstance(runnable, RunnableBindingBase):
        config = {name: value for name, value in runnable.config.items() if name != "callbacks"}
        return runnable.model_copy(update={"config": config, "bound": silenced(runnable.bound)})
    return runnable


def described(runnable: Any) -> Any:
    """What tells answers apart, for caches."""
    if isinstance(runnable, BaseChatModel):
        return runnable._get_llm_string()
    if isinstance(runnable, RunnableBindingBase):
        return {"bound": described(runnable.bound), "kwargs": str(sorted(runnable.kwargs.items()))}
    if isinstance(runnable, RunnableWithFallbacks):
        return [described(one) for one in (runnable.runnable, *runnable.fallbacks)]
    return hashlib.sha256(repr(runnable).encode()).hexdigest()
