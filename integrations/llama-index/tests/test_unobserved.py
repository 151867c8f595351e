"""What an LLM or a tool wrote is shown to nobody before it is verified: no callback, event, span or printed line."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import llama_index.core
import pytest
from llama_index.core import Document, Settings, SummaryIndex
from llama_index.core.base.llms.types import CompletionResponse
from llama_index.core.callbacks import CallbackManager
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.span_handlers import SimpleSpanHandler
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.query_engine import RouterQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.retrievers import RouterRetriever
from llama_index.core.schema import QueryBundle
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import FunctionTool, QueryEngineTool, RetrieverTool
from llama_index.core.tools.ondemand_loader_tool import OnDemandLoaderTool
from llama_index.llms.nco_guard import NCOGuardAuditHandler, VerifiedLLM, verified_tool
from llama_index.llms.nco_guard.testing import ScriptedLLM
from llama_index.llms.nco_guard.unobserved import REPORTS, UnobservedCalls
from pydantic import PrivateAttr

from nco_guard import Policy
from nco_guard.audit import MemorySink
from nco_guard.errors import GenerationError, ViolationError

pytestmark = pytest.mark.anyio
SECRET = "maria@example.com"
SAID = f"Fine. Write to {SECRET} now."
ASK = [ChatMessage(role="user", content="Who?")]


class Events(BaseEventHandler):
    """Keeps what every event says."""

    _seen: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "Events"

    def handle(self, event: Any, **_: Any) -> None:
        self._seen.append(f"{type(event).__name__} {event.model_dump()!r} {event!r}")


class Spans(SimpleSpanHandler):
    """Keeps what every span is told."""

    _seen: list[str] = PrivateAttr(default_factory=list)

    def span_exit(
        self, id_: str, bound_args: Any, instance: Any = None, result: Any = None, **_: Any
    ) -> None:
        self._seen.append(f"{id_} {result!r}")

    def span_drop(self, id_: str, bound_args: Any, instance: Any = None, err: Any = None, **_: Any) -> None:
        self._seen.append(
            f"{id_} {err!r} {getattr(err, '__context__', None)!r} {getattr(err, '__cause__', None)!r}"
        )


class Callbacks(BaseCallbackHandler):
    """Keeps all that callbacks are told."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.seen: list[str] = []

    def on_event_start(self, event_type: Any, payload: Any = None, *_: Any, **__: Any) -> str:
        self.seen.append(repr(payload))
        return ""

    def on_event_end(self, event_type: Any, payload: Any = None, *_: Any, **__: Any) -> None:
        self.seen.append(repr(payload))

    def start_trace(self, trace_id: str | None = None) -> None: ...

    def end_trace(self, trace_id: str | None = None, trace_map: Any = None) -> None: ...


class Watch:
    """Everything that LlamaIndex tells its observers, and what is printed."""

    def __init__(self) -> None:
        self.events, self.spans, self.callbacks = Events(), Spans(), Callbacks()

    @property
    def told(self) -> str:
        return "\n".join([*self.events._seen, *self.spans._seen, *self.callbacks.seen])


@pytest.fixture
def watch(capfd: pytest.CaptureFixture[str]) -> Iterator[Watch]:
    made, root = Watch(), get_dispatcher()
    before = Settings._callback_manager
    root.add_event_handler(made.events)
    root.add_span_handler(made.spans)
    Settings.callback_manager = CallbackManager([made.callbacks])
    llama_index.core.set_global_handler("simple")
    try:
        yield made
    finally:
        llama_index.core.global_handler = None
        Settings._callback_manager = before
        root.event_handlers.remove(made.events)
        root.span_handlers.remove(made.spans)
    assert SECRET not in made.told
    assert SECRET not in "".join(capfd.readouterr())


def hosted(policy: Policy, *script: Any, **options: Any) -> VerifiedLLM:
    return VerifiedLLM(
        ScriptedLLM(script=list(script or (SAID,))), guard=policy, **{"action": "redact", **options}
    )


async def test_every_route_of_a_verified_llm(watch: Watch, policy: Policy) -> None:
    llm = hosted(policy)
    llm.complete("x")
    llm.chat(ASK)
    await llm.acomplete("x")
    await llm.achat(ASK)
    list(llm.stream_complete("x"))
    list(llm.stream_chat(ASK))
    _ = [chunk async for chunk in await llm.astream_complete("x")]
    _ = [chunk async for chunk in await llm.astream_chat(ASK)]
    told = watch.told
    assert (
        sum(said.startswith("LLMChatEndEvent") for said in watch.events._seen) == 4
    )  # one report for a call, and it is the verified one
    assert sum(said.startswith("LLMCompletionEndEvent") for said in watch.events._seen) == 4
    assert "[redacted]" in told
    assert "ScriptedLLM." not in told


def test_a_model_that_asks_others_and_one_with_handlers_of_its_own(watch: Watch, policy: Policy) -> None:
    own = Callbacks()

    class Delegating(MockLLM):
        """Its `complete` is another LLM's, which has callbacks."""

        def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
            return ScriptedLLM(script=[SAID], callback_manager=CallbackManager([own])).complete(prompt)

    assert SECRET not in VerifiedLLM(Delegating(), guard=policy, action="redact").complete("x").text
    assert own.seen == []


def test_an_unverified_llm_is_reported_as_ever(policy: Policy) -> None:
    """The control: the observers of these tests do see text, also while a verified stream is open."""
    events = Events()
    get_dispatcher().add_event_handler(events)
    try:
        stream = hosted(policy).stream_complete("x")
        next(stream)
        ScriptedLLM(script=[SAID]).complete("x")
        assert SECRET in repr(events._seen)
        stream.close()
    finally:
        get_dispatcher().event_handlers.remove(events)


async def test_calls_beside_are_reported(policy: Policy) -> None:
    events = Events()
    get_dispatcher().add_event_handler(events)

    async def slow() -> None:
        await asyncio.sleep(0.02)

    try:
        inside = asyncio.create_task(UnobservedCalls(lambda error: error).acall(slow))
        await asyncio.sleep(0)
        ScriptedLLM(script=["beside"]).complete("x")
        await inside
    finally:
        get_dispatcher().event_handlers.remove(events)
    assert "beside" in repr(events._seen)


def test_all_methods_that_report_are_known() -> None:
    """One that a later version adds would have to be silenced too."""
    silent = {
        "Dispatcher": {
            "_walk_span_handlers",
            "add_event_handler",
            "add_span_handler",
            "get_dispatch_event",
            "shutdown",
            "span",
            "capture_propagation_context",
            "restore_propagation_context",
        },
        "CallbackManager": {
            "add_handler",
            "remove_handler",
            "set_handlers",
            "event",
            "as_trace",
            "_reset_trace_events",
        },
    }
    for kind, names in REPORTS.items():
        methods = {n for n, m in vars(kind).items() if callable(m) and not n.startswith("__")}
        assert methods == {*names, *silent[kind.__name__]}


class Broken(MockLLM):
    """Fails, and quotes nothing."""

    def complete(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("no")


class Refusing(ScriptedLLM):
    """Fails as hosts do that refuse their own model's answer and quote it."""

    def chat(self, *_: Any, **__: Any) -> Any:
        try:
            raise KeyError(SECRET)
        except KeyError as error:
            raise ValueError(f"400: {{'failed_generation': '{SECRET}'}}") from error

    async def achat(self, *_: Any, **__: Any) -> Any:
        return self.chat()

    def stream_chat(self, *_: Any, **__: Any) -> Any:
        return (self.chat() for _ in range(1))


@pytest.mark.parametrize(("action", "kind"), [("redact", GenerationError), ("raise", ViolationError)])
async def test_errors_of_the_llm_are_clean(watch: Watch, policy: Policy, action: str, kind: type) -> None:
    llm = VerifiedLLM(Refusing(script=[]), guard=policy, action=action)  # type: ignore[arg-type]
    caught = []
    for use in (lambda: llm.chat(ASK), lambda: list(llm.stream_chat(ASK))):
        with pytest.raises(kind) as info:
            use()
        caught.append(info.value)
    with pytest.raises(kind) as info:
        await llm.achat(ASK)
    for error in [*caught, info.value]:
        assert SECRET not in repr(error)
        assert error.__cause__ is error.__context__ is None
    with pytest.raises(ZeroDivisionError, match="no"):  # others are what they were
        VerifiedLLM(Broken(), guard=policy).complete("x")


# -- what is taken out of a verified tool ----------------------------------------------------------------------


def contact(who: str) -> str:
    """Find a contact."""
    return f"{who}: {SECRET}"


@pytest.fixture
def index() -> SummaryIndex:
    """Made before anybody watches: the documents are the user's."""
    return SummaryIndex.from_documents([Document(text=f"Maria: {SECRET}", metadata={"mail": SECRET})])


class Ask(BaseQuestionGenerator):
    """One question for one tool."""

    def _get_prompts(self) -> Any:
        return {}

    def _update_prompts(self, prompts: Any) -> None: ...

    def generate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return [SubQuestion(sub_question="Who?", tool_name="q")]

    async def agenerate(self, tools: Any, query: QueryBundle) -> list[SubQuestion]:
        return self.generate(tools, query)


async def test_functions_taken_out_of_a_tool_are_verified(watch: Watch, policy: Policy) -> None:
    tool = verified_tool(FunctionTool.from_defaults(contact), policy)
    assert isinstance(tool, FunctionTool)
    for function in (tool.fn, tool.real_fn, tool._fn, tool._real_fn):
        assert function("Maria") == "Maria: [redacted]"
        assert not hasattr(function, "__wrapped__")
    assert await tool.async_fn("Maria") == await tool._async_fn("Maria") == "Maria: [redacted]"
    assert (await tool.acall(who="Maria")).content == tool(who="Maria").content == "Maria: [redacted]"

    async def acontact(who: str) -> str:
        """Find a contact."""
        return contact(who)

    slow = verified_tool(FunctionTool.from_defaults(async_fn=acontact), policy)
    assert await slow.real_fn("Maria") == "Maria: [redacted]"  # type: ignore[attr-defined]

    def load(who: str) -> list[Document]:
        return [Document(text=contact(who))]

    loader = OnDemandLoaderTool.from_tool(verified_tool(FunctionTool.from_defaults(load), policy))  # type: ignore[arg-type]
    assert "[redacted]" in loader._loader("Maria")[0].text


async def test_langchains_tools_made_of_a_tool_are_verified(
    index: SummaryIndex, watch: Watch, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = pytest.importorskip("langchain_core.tools")
    # LlamaIndex imports these two by way of packages that are not needed for them.
    bridge = ModuleType("llama_index.core.bridge.langchain")
    vars(bridge).update(Tool=kinds.Tool, StructuredTool=kinds.StructuredTool)
    monkeypatch.setitem(sys.modules, bridge.__name__, bridge)

    tool = verified_tool(FunctionTool.from_defaults(contact), policy)
    plain, structured = tool.to_langchain_tool(), tool.to_langchain_structured_tool()
    for made in (plain, structured):
        assert type(made) in (kinds.Tool, kinds.StructuredTool)
        assert made.invoke({"who": "Maria"}) == "Maria: [redacted]"
        assert await made.ainvoke({"who": "Maria"}) == "Maria: [redacted]"
        assert made.func("Maria") == await made.coroutine("Maria") == "Maria: [redacted]"

    def fails(who: str) -> str:
        """Fail."""
        raise ValueError(f"no {SECRET}")

    failing = verified_tool(FunctionTool.from_defaults(fails), policy).to_langchain_tool()
    with pytest.raises(RuntimeError, match=r"^no \[redacted\]$") as caught:
        failing.invoke({"who": "Maria"})
    assert caught.value.__cause__ is caught.value.__context__ is None

    engine = index.as_query_engine(llm=ScriptedLLM(script=[SAID]))
    for found in (
        QueryEngineTool.from_defaults(engine, name="q", description="Ask."),
        RetrieverTool.from_defaults(index.as_retriever()),
    ):
        made = verified_tool(found, policy).to_langchain_tool()
        for answer in (made.invoke("Who?"), await made.ainvoke("Who?")):
            assert SECRET not in repr(answer)
            assert "[redacted]" in repr(answer)


async def test_engines_and_retrievers_taken_out_of_a_tool_are_verified(
    index: SummaryIndex, watch: Watch, policy: Policy
) -> None:
    host = hosted(policy)
    engine = index.as_query_engine(llm=ScriptedLLM(script=[SAID]))
    tool = verified_tool(QueryEngineTool.from_defaults(engine, name="q"), policy)
    router = RouterQueryEngine.from_defaults(
        [tool],
        llm=host,
        selector=LLMSingleSelector.from_defaults(llm=hosted(policy, '[{"choice": 1, "reason": "only one"}]')),
    )
    sub = SubQuestionQueryEngine.from_defaults([tool], llm=host, question_gen=Ask(), use_async=False)
    for asked in (tool.query_engine, router):
        for answer in (asked.query("Who?"), await asked.aquery("Who?")):
            assert answer.response == "Fine. Write to [redacted] now."
            assert SECRET not in repr(answer)
            assert "[redacted]" in answer.source_nodes[0].node.text
    assert SECRET not in repr(sub.query("Who?"))
    streaming = index.as_query_engine(llm=ScriptedLLM(script=[SAID]), streaming=True)
    streamed = verified_tool(QueryEngineTool.from_defaults(streaming, name="q"), policy).query_engine.query(
        "Who?"
    )
    assert "".join(streamed.response_gen) == "Fine. Write to [redacted] now."

    found = verified_tool(RetrieverTool.from_defaults(index.as_retriever()), policy)
    several = RouterRetriever.from_defaults(
        [found],
        llm=host,
        selector=LLMSingleSelector.from_defaults(llm=hosted(policy, '[{"choice": 1, "reason": "only one"}]')),
    )
    for retriever in (found.retriever, several):
        for nodes in (retriever.retrieve("Who?"), await retriever.aretrieve("Who?")):
            assert SECRET not in repr(nodes)
            assert "[redacted]" in nodes[0].node.text
    assert SECRET not in repr(found.call("Who?"))


PRESETS = {"who": SECRET, "n": 4111111111111111}


def test_presets_of_a_tool_do_not_show_in_its_input(watch: Watch, policy: Policy) -> None:
    tool = FunctionTool.from_defaults(lambda who, n: "ok", name="t", partial_params=PRESETS)
    for action in ("redact", "raise"):
        output = verified_tool(tool, policy, action=action).call()  # type: ignore[arg-type]
        assert output.raw_input["kwargs"] == {"who": "[redacted]", "n": "[redacted]"}
        assert output.content == "ok"
    with pytest.raises(ViolationError, match="name of a tool"):
        verified_tool(FunctionTool.from_defaults(contact, name=SECRET), policy)


def test_a_stream_that_its_reader_leaves_is_recorded(policy: Policy) -> None:
    sink = MemorySink()
    handler = NCOGuardAuditHandler(policy, sink)
    get_dispatcher().add_event_handler(handler)
    try:
        stream = ScriptedLLM(script=[SAID], size=40).stream_chat(ASK)
        next(stream)
        stream.close()
    finally:
        get_dispatcher().event_handlers.remove(handler)
    assert [event.kind for event in sink.events] == ["run_started", "verification", "run_finished"]
    assert not sink.events[1].ok
    assert sink.events[2].error == "GeneratorExit"
