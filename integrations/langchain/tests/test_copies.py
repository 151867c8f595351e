"""Models, chains and middleware in copies and in other processes: guarded there, or refused when they are pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage

from langchain_nco_guard import (
    ChatNCOGuard,
    GuardedPipeline,
    NCOGuardAuditHandler,
    NCOGuardMiddleware,
    VerifiedChatModel,
    guard_runnable,
)
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy
from nco_guard.audit import MemorySink
from nco_guard.errors import UnsupportedError

SECRET = "Write to jane.doe@example.com today."
KINDS = ["chat", "pipeline", "verified", "middleware", "runnable"]


@pytest.fixture(scope="module")
def spawned() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def answer(component: Any) -> str:
    """What a component lets through, here and in another process."""
    if isinstance(component, NCOGuardMiddleware):
        agent = create_agent(ScriptedChatModel(script=[AIMessage(SECRET)]), [], middleware=[component])
        found = agent.invoke({"messages": "hello"})["messages"][-1]
    elif hasattr(component, "action"):
        found = component.invoke(SECRET)
    else:
        found = component.invoke("What contact details do we have for Maria Lopez?")
    return found if isinstance(found, str) else str(found.text)


def build(kind: str, local: Callable[..., ChatNCOGuard], pipe: Any, guard: Guard) -> Any:
    if kind == "chat":
        return local(guard, max_tokens=24)
    if kind == "pipeline":
        return GuardedPipeline(pipeline=pipe, guard=guard)
    if kind == "verified":
        inner = ScriptedChatModel(script=[AIMessage(SECRET)] * 9)
        return VerifiedChatModel(inner=inner, guard=guard, action="redact")
    if kind == "middleware":
        return NCOGuardMiddleware(guard)
    return guard_runnable(guard, action="redact")


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_keeps_its_guard_in_a_spawned_process(
    kind: str,
    local: Callable[..., ChatNCOGuard],
    pipe: Any,
    policy: Policy,
    spawned: ProcessPoolExecutor,
) -> None:
    component = build(kind, local, pipe, Guard(policy))
    here = answer(component)
    assert Guard(policy).verify(here).ok
    assert answer(pickle.loads(pickle.dumps(component))) == here
    assert answer(copy.deepcopy(component)) == here
    assert spawned.submit(answer, component).result(300) == here


@pytest.mark.parametrize("kind", KINDS)
def test_a_component_with_a_sink_is_refused_when_it_is_pickled(
    kind: str, local: Callable[..., ChatNCOGuard], pipe: Any, policy: Policy
) -> None:
    sink = MemorySink()
    component = build(kind, local, pipe, Guard(policy, audit=sink))
    with pytest.raises(UnsupportedError, match="audit: "):
        pickle.dumps(component)
    assert copy.deepcopy(component).guard is component.guard


def test_an_audit_handler_stays(policy: Policy) -> None:
    handler = NCOGuardAuditHandler(policy, MemorySink())
    with pytest.raises(UnsupportedError, match="NCOGuardAuditHandler cannot be pickled"):
        pickle.dumps(handler)
    assert copy.deepcopy(handler) is handler
