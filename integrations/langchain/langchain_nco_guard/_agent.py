"""What surrounds `NCOGuardMiddleware` in an agent: requests that stay guarded, and other middleware with models."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, cast

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, LLMToolSelectorMiddleware, ModelFallbackMiddleware
from langchain.agents.middleware.types import ModelRequest
from langchain.tools.tool_node import ToolCallRequest
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable

from langchain_nco_guard._wrappers import mapped
from nco_guard import Guard
from nco_guard.errors import UnsupportedError

__all__ = ["guarded_request", "guarded_tool_request", "refuse_unguarded_models"]


def guarded_request(guarded: Callable[[Any], Any]) -> Callable[[ModelRequest[Any]], ModelRequest[Any]]:
    """Makes requests whose model is `guarded`, whoever exchanges it later: a fallback, a router."""

    class GuardedModelRequest(ModelRequest[Any]):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, guarded(value) if name == "model" else value)

    return lambda request: GuardedModelRequest(**_fields(request))


def guarded_tool_request(cleaned: Callable[[Any], Any]) -> Callable[[ToolCallRequest], ToolCallRequest]:
    """Makes requests whose tool is `cleaned`, whoever exchanges it later; None where a call names no tool."""

    class GuardedToolRequest(ToolCallRequest):
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, cleaned(value) if name == "tool" and value is not None else value)

    return lambda request: GuardedToolRequest(**_fields(request))


def _fields(request: Any) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


def refuse_unguarded_models(ours: AgentMiddleware[Any, Any, Any], guard: Guard) -> None:
    """Refuse other middleware of the agent that is being made if it asks models past `ours`.

    Errors: `UnsupportedError`, naming middleware and attribute.
    """
    listed = _listed()
    for place, other in enumerate(listed):
        # Its models are put into requests, which are guarded.
        if other is ours or isinstance(other, (ModelFallbackMiddleware, type(ours))):
            continue
        kind = type(other).__name__
        for name, model in _models(other):
            if not _covers(model, guard):
                raise UnsupportedError(
                    f"{kind}.{name}: what this model says would be shown as it is; give it "
                    "VerifiedChatModel.over(model, guard), or a ChatNCOGuard with this policy"
                )
        if isinstance(other, LLMToolSelectorMiddleware) and not any(m is ours for m in listed[:place]):
            raise UnsupportedError(
                f"{kind}: listed before {type(ours).__name__} it asks the model itself; list it after"
            )


def _listed() -> Sequence[AgentMiddleware[Any, Any, Any]]:
    """The middleware of the agent that is being made on this thread.

    `create_agent` tells middleware nothing of the others, and what they ask models is beyond the reach of ours: so this
    looks where it is listed.
    """
    making = inspect.unwrap(create_agent).__code__
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not making:
        frame = frame.f_back
    if frame is None:
        return ()
    if "middleware" not in frame.f_locals:
        raise UnsupportedError(
            "langchain: in this version create_agent hides which other middleware asks models"
        )
    return cast("Sequence[AgentMiddleware[Any, Any, Any]]", frame.f_locals["middleware"])


def _models(middleware: Any) -> Iterator[tuple[str, Any]]:
    for name, value in sorted(vars(middleware).items(), key=lambda item: item[0].startswith("_")):
        for one in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(one, Runnable):
                found: list[Any] = []
                mapped(one, lambda model, found=found: found.append(model) or model)  # type: ignore[misc]
                yield from ((name, model) for model in found if _is_model(model))


def _is_model(runnable: Any) -> bool:
    return isinstance(runnable, BaseChatModel) or hasattr(runnable, "_queued_declarative_operations")


def _covers(model: Any, guard: Guard) -> bool:
    own = getattr(model, "guard", None)
    return isinstance(own, Guard) and set(guard.policy.rules) <= set(own.policy.rules)
