"""Components in copies and in other processes: with their guard, or refused when they are pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
    VerifiedLLM,
)
from llama_index.llms.nco_guard.testing import ScriptedLLM

from nco_guard import Guard, Policy, demo
from nco_guard.audit import MemorySink
from nco_guard.errors import UnsupportedError

SECRET = "Write to jane.doe@example.com today."


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    # Its own: transformers leaves hooks that cannot be pickled in a model that was asked for its hidden states.
    return demo.load()


@pytest.fixture(scope="module")
def spawned() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def answer(component: Any) -> str:
    """What a component lets through, here and in another process."""
    if isinstance(component, NCOGuardPostprocessor):
        nodes = component.postprocess_nodes([NodeWithScore(node=TextNode(text=SECRET))])
        return str(nodes[0].node.get_content())
    if isinstance(component, NCOGuardOutputParser):
        return str(component.parse(SECRET))
    return str(component.complete("What contact details do we have for Maria Lopez?"))


def build(kind: str, pair: tuple[Any, Any], policy: Policy | Guard) -> Any:
    if kind == "llm":
        return NCOGuardLLM(*pair, guard=policy, max_new_tokens=24)
    if kind == "verified":
        return VerifiedLLM(ScriptedLLM(script=[SECRET]), guard=policy, action="redact")
    if kind == "parser":
        return NCOGuardOutputParser(policy, action="redact")
    return NCOGuardPostprocessor(policy)


@pytest.mark.parametrize("kind", ["llm", "verified", "postprocessor", "parser"])
def test_a_component_keeps_its_guard_in_a_spawned_process(
    kind: str, pair: tuple[Any, Any], policy: Policy, spawned: ProcessPoolExecutor
) -> None:
    component = build(kind, pair, policy)
    here = answer(component)
    assert "jane.doe" not in here
    assert answer(pickle.loads(pickle.dumps(component))) == here
    assert answer(copy.deepcopy(component)) == here
    assert spawned.submit(answer, component).result(300) == here


@pytest.mark.parametrize("kind", ["llm", "verified", "postprocessor", "parser"])
def test_a_component_with_a_sink_is_refused_when_it_is_pickled(
    kind: str, pair: tuple[Any, Any], policy: Policy
) -> None:
    sink = MemorySink()
    component = build(kind, pair, Guard(policy, audit=sink))
    with pytest.raises(UnsupportedError, match="audit: "):
        pickle.dumps(component)
    before = len(sink.events)
    answer(copy.deepcopy(component))
    assert len(sink.events) > before


def test_sinks_of_observers_stay(policy: Policy) -> None:
    handler = NCOGuardAuditHandler(policy, MemorySink())
    with pytest.raises(UnsupportedError, match="NCOGuardAuditHandler cannot be pickled"):
        pickle.dumps(handler)
    assert copy.deepcopy(handler) is handler
    with pytest.raises(UnsupportedError, match="audit: "):
        pickle.dumps(NCOGuardPostprocessor(policy, audit=print))


def test_what_cannot_travel_is_not_left_out(policy: Policy) -> None:
    """LlamaIndex's own components drop it, and miss it when they are used."""
    replacement: Callable[[str], str] = lambda rule: "-"  # noqa: E731
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(NCOGuardPostprocessor(policy, replacement=replacement))
