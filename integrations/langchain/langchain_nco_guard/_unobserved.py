"""Calls of a model that nobody else sees: no callback, tracer, stream or cache is shown what it says.

LangChain hands callbacks on in five ways: with the call, through a context variable, as attributes of models, by hooks
that are registered for a process (instrumentation, `set_debug`, environment variables), and as a run tree of LangSmith.
A call made here runs in a context of its own, in which the first two are a manager that takes no further handler.

Each model looks for its cache by itself, also one that another model asks. LangChain has no switch for one call, and
the cache of a process is shared by all threads. So the methods through which models come to their caches ask first
whether the call at hand is made here; calls beside it are cached as ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context, ContextVar, copy_context
from functools import cache, wraps
from typing import Any, TypeVar

from langchain_core.callbacks import BaseCallbackHandler, CallbackManager, StdOutCallbackHandler
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import var_child_runnable_config
from langchain_core.tracers.context import _configure_hooks, tracing_v2_callback_var
from langsmith.run_helpers import _set_tracing_context

from nco_guard.errors import UnsupportedError
from nco_guard.values.clean_calls import CleanCalls

__all__ = ["UnobservedCalls"]

T = TypeVar("T")
_unobserved: ContextVar[bool] = ContextVar("nco_guard_unobserved", default=False)


class _Silence(BaseCallbackHandler):
    """Hears nothing, and equals every handler: a manager that has it takes no other, since it has that already."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = object.__hash__

    @property
    def ignore_llm(self) -> bool:
        return True

    ignore_retry = ignore_agent = ignore_chain = ignore_retriever = ignore_llm
    ignore_chat_model = ignore_custom_event = ignore_llm


@cache
def _silent() -> CallbackManager:
    """A manager without an audience. Errors: `UnsupportedError` if LangChain adds handlers to it all the same."""
    silence = _Silence()
    manager = CallbackManager(handlers=[silence], inheritable_handlers=[silence])
    tried = CallbackManager.configure(manager, [StdOutCallbackHandler()], verbose=True)
    if len(tried.handlers) != 1 or len(tried.inheritable_handlers) != 1:
        raise UnsupportedError(
            "langchain-core: this version shows callbacks what they must not see; use another, or another guard"
        )
    return manager


class UnobservedCalls(CleanCalls):
    """One context, in which calls are made one after the other.

    configurable: the values of configurable fields, as in a `RunnableConfig`. error: what an error of a call is to be
    shown as; the same object where it may be shown as it is.
    """

    def __init__(
        self,
        configurable: Mapping[str, Any],
        error: Callable[[BaseException], BaseException] = lambda error: error,
    ) -> None:
        super().__init__(error)
        self.config: RunnableConfig = {
            "callbacks": _silent(),
            "configurable": {k: v for k, v in configurable.items() if not k.startswith("__")},
        }
        self._context: Context = copy_context()
        self._context.run(self._isolate)

    def _isolate(self) -> None:
        _unobserved.set(True)
        var_child_runnable_config.set(self.config)
        tracing_v2_callback_var.set(None)
        for hook in _configure_hooks:
            hook[0].set(None)
        _set_tracing_context({"parent": None, "enabled": False})

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """The value of a function."""
        value: T = super().call(self._context.run, function, *args, **kwargs)
        return value

    async def acall(self, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """The value of what is awaited."""
        # Inside the task: what ends a program goes from there to the event loop, and not by way of who waits for it.
        called = super().acall(function, *args, **kwargs)
        return await asyncio.get_running_loop().create_task(called, context=self._context)


class _WithoutCache:
    """A model as a call within one that nobody sees asks it: the same object in all but its cache."""

    cache = False

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _asked_for(model: Any) -> Any:
    return _WithoutCache(model) if _unobserved.get() else model


def _asks_first(generate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(generate)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        return generate(_asked_for(self), *args, **kwargs)

    return asked


def _asks_first_async(generate: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(generate)
    async def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        return await generate(_asked_for(self), *args, **kwargs)

    return asked


for _kind, _name in ((BaseChatModel, "_generate_with_cache"), (BaseLLM, "generate")):
    setattr(_kind, _name, _asks_first(getattr(_kind, _name)))
for _kind, _name in ((BaseChatModel, "_agenerate_with_cache"), (BaseLLM, "agenerate")):
    setattr(_kind, _name, _asks_first_async(getattr(_kind, _name)))
