"""A guard's own sink hears of what every class finds, and `audit=` beside it is refused in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llama_index.llms.nco_guard as package
import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.instrumentation.events.llm import (
    LLMChatEndEvent,
    LLMCompletionEndEvent,
    LLMCompletionStartEvent,
)
from llama_index.core.output_parsers import PydanticOutputParser
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool, RetrieverTool
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
    VerifiedLLM,
    verified_tool,
)
from llama_index.llms.nco_guard.testing import ScriptedLLM
from pydantic import BaseModel

from nco_guard import Guard, Policy, RegexRule
from nco_guard.audit import MemorySink, RunRecorder
from nco_guard.errors import AuditError, UnsupportedError
from nco_guard.values import Cleaner

POLICY = Policy(name="mail", rules=[RegexRule(id="email", regex=r"[\w.]+@\w+\.[a-z]{2,}")])
TEXT = "Write to jane.doe@example.com today."
ESCAPED = r"Write to jane.doe\u0040example.com today."
ASK = "What contact details do we have for Maria Lopez?"
HELLO = [ChatMessage(role="user", content="x")]


class Answer(BaseModel):
    to: str


class Retriever(BaseRetriever):
    def __init__(self, node: TextNode) -> None:
        super().__init__()
        self._node = node

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [NodeWithScore(node=self._node, score=0.5)]


def look(text: str = "") -> str:
    return TEXT


def retrieved(guard: Guard, node: TextNode, action: Any = "redact") -> Any:
    tool = RetrieverTool.from_defaults(Retriever(node), name="find", description="Find.")
    return verified_tool(tool, guard, action=action)._retriever.retrieve("x")  # type: ignore[attr-defined]


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="email"):
        call()


def verified(guard: Guard, action: Any = "redact", **fields: Any) -> VerifiedLLM:
    said = ChatMessage(role="assistant", content="Fine.", additional_kwargs=fields) if fields else TEXT
    return VerifiedLLM(ScriptedLLM(script=[said]), guard=guard, action=action)


def handled(guard: Guard) -> None:
    handler = NCOGuardAuditHandler(guard)
    handler.handle(LLMCompletionStartEvent(prompt="x", additional_kwargs={}, model_dict={}))
    handler.handle(LLMCompletionEndEvent(prompt="x", response=CompletionResponse(text=TEXT)))


def processed(guard: Guard, action: Any) -> None:
    nodes = [NodeWithScore(node=TextNode(text=TEXT))]
    NCOGuardPostprocessor(guard, action=action).postprocess_nodes(nodes)


TOOL = FunctionTool.from_defaults(look, name="look", description="Look up.")
FINDS: dict[str, Callable[[Guard, Any], Any]] = {
    "NCOGuardLLM": lambda guard, pair: NCOGuardLLM(*pair, guard=guard, max_new_tokens=40).complete(ASK),
    "VerifiedLLM": lambda guard, _: verified(guard).complete("x"),
    "VerifiedLLM, raise": lambda guard, _: refused(lambda: verified(guard, "raise").chat(HELLO)),
    "VerifiedLLM, stream": lambda guard, _: list(verified(guard).stream_chat(HELLO)),
    "VerifiedLLM, beside": lambda guard, _: verified(guard, note=TEXT).chat(HELLO),
    "NCOGuardOutputParser": lambda guard, _: NCOGuardOutputParser(guard, action="redact").parse(TEXT),
    "NCOGuardOutputParser, raise": lambda guard, _: refused(lambda: NCOGuardOutputParser(guard).parse(TEXT)),
    "NCOGuardOutputParser, inner": lambda guard, _: NCOGuardOutputParser(
        guard, action="redact", inner=PydanticOutputParser(Answer)
    ).parse(r'{"to": "jane.doe\u0040example.com"}'),
    "NCOGuardPostprocessor": lambda guard, _: processed(guard, "redact"),
    "NCOGuardPostprocessor, drop": lambda guard, _: processed(guard, "drop"),
    "NCOGuardPostprocessor, report": lambda guard, _: processed(guard, "report"),
    "NCOGuardPostprocessor, raise": lambda guard, _: refused(lambda: processed(guard, "raise")),
    "verified_tool": lambda guard, _: verified_tool(TOOL, guard).call(),
    "verified_tool, raw input": lambda guard, _: verified_tool(
        FunctionTool.from_defaults(lambda text: "Fine.", name="look", description="Look up."), guard
    ).call(text=TEXT),
    "verified_tool, function": lambda guard, _: verified_tool(TOOL, guard)._fn(),  # type: ignore[attr-defined]
    "verified_tool, nodes": lambda guard, _: retrieved(guard, TextNode(text=TEXT)),
    "NCOGuardAuditHandler": lambda guard, _: handled(guard),
}


def test_no_class_is_left_out() -> None:
    assert {name.split(",")[0] for name in FINDS} == set(package.__all__)


@pytest.mark.parametrize("name", list(FINDS))
def test_the_guard_s_sink_hears_of_what_is_found(name: str, pair: tuple[Any, Any]) -> None:
    sink = MemorySink()
    FINDS[name](Guard(POLICY, audit=sink), pair)
    heard = [event for event in sink.events if event.kind == "verification" and not event.ok]
    heard += [event for event in sink.events if event.kind == "intervention"]
    assert heard
    assert "jane" not in "".join(event.to_json() for event in sink.events)


#: Everything that takes `audit=`.
TAKES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "NCOGuardLLM": lambda guard, sink, pair: NCOGuardLLM(
        *pair, guard=guard, audit=sink, max_new_tokens=40
    ).complete(ASK),
    "VerifiedLLM": lambda guard, sink, _: VerifiedLLM(
        ScriptedLLM(script=[TEXT]), guard=guard, action="redact", audit=sink
    ).complete("x"),
    "NCOGuardPostprocessor": lambda guard, sink, _: NCOGuardPostprocessor(
        guard, audit=sink
    ).postprocess_nodes([NodeWithScore(node=TextNode(text=TEXT))]),
    "verified_tool": lambda guard, sink, _: verified_tool(TOOL, guard, audit=sink).call(),
    "NCOGuardAuditHandler": lambda guard, sink, _: NCOGuardAuditHandler(guard, sink).handle(
        LLMCompletionStartEvent(prompt="x", additional_kwargs={}, model_dict={})
    ),
}


@pytest.mark.parametrize("name", list(TAKES))
def test_audit_goes_beside_a_guard_without_a_sink_alone(name: str, pair: tuple[Any, Any]) -> None:
    for given in (POLICY, Guard(POLICY)):
        sink = MemorySink()
        TAKES[name](given, sink, pair)
        assert any(event.kind in ("verification", "run_started") for event in sink.events)
    with pytest.raises(UnsupportedError, match=r"audit: the Guard has a sink.* leave audit= out"):
        TAKES[name](Guard(POLICY, audit=MemorySink()), MemorySink(), pair)


def test_a_handler_that_nobody_hears_is_refused() -> None:
    with pytest.raises(AuditError, match="audit: pass a sink"):
        NCOGuardAuditHandler(Guard(POLICY))


def said(sink: MemorySink) -> list[tuple[Any, ...]]:
    return [(event.ok, event.length, event.findings) for event in sink.events if event.kind == "verification"]


@pytest.mark.parametrize("text", [TEXT, ESCAPED, "Fine."])
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_the_handler_records_a_text_as_a_cleaner_does(kind: str, text: str) -> None:
    wanted, sink = MemorySink(), MemorySink()
    Cleaner(POLICY, "report", record=RunRecorder(wanted)).text(text)
    handler = NCOGuardAuditHandler(POLICY, sink)
    if kind == "chat":
        response = ChatResponse(message=ChatMessage(role="assistant", content=text))
        handler.handle(LLMChatEndEvent(messages=HELLO, response=response))
    else:
        handler.handle(LLMCompletionEndEvent(prompt="x", response=CompletionResponse(text=text)))
    assert said(sink) == said(wanted) != []
