"""`verified_tool`: results and errors of tools, clean before an agent shows them or a model reads them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from llama_index.core import Document, SummaryIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent
from llama_index.core.base.llms.types import ImageBlock, TextBlock, ToolCallBlock
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.tools import (
    BaseTool,
    FunctionTool,
    QueryEngineTool,
    QueryPlanTool,
    RetrieverTool,
    ToolMetadata,
    ToolOutput,
)
from llama_index.core.workflow import Context
from llama_index.llms.nco_guard import NCOGuardLLM, VerifiedLLM, verified_tool
from llama_index.llms.nco_guard.testing import ScriptedLLM

from nco_guard import Policy, demo
from nco_guard.audit import MemorySink
from nco_guard.errors import PolicyError, UnsupportedError, ViolationError

pytestmark = pytest.mark.anyio
SECRETS = ("jane.doe@example.com", "503-555-0123", "maria@example.com")


async def run(agent: Any, **options: Any) -> tuple[str, list[Any]]:
    handler = agent.run("Where is order A-1042?", **options)
    events = [event async for event in handler.stream_events()]
    return str(await handler), events


async def test_nothing_that_an_agent_shows_holds_a_match(
    llm: NCOGuardLLM, tools: list[FunctionTool], policy: Policy
) -> None:
    """Not one event: deltas, calls, results, inputs of the next step, the output; without it the results do."""
    verified = [verified_tool(tool, policy) for tool in tools]
    assert all(isinstance(tool, FunctionTool) for tool in verified)
    for streaming in (True, False):
        agent = FunctionAgent(tools=verified, llm=llm, system_prompt=demo.SYSTEM_PROMPT, streaming=streaming)
        answer, events = await run(agent)
        assert "A-1042" in answer
        shown = repr(events)
        assert "[redacted]" in shown
        assert not any(secret in shown for secret in SECRETS)
    plain = FunctionAgent(tools=tools, llm=llm, system_prompt=demo.SYSTEM_PROMPT)
    assert SECRETS[0] in repr((await run(plain))[1])
    assert SECRETS[0] in tools[0].call(order_id="1").content  # the tool itself is as it was


async def test_every_kind_of_result_is_clean(policy: Policy) -> None:
    class Person:
        def __str__(self) -> str:
            return SECRETS[0]

    for result in (SECRETS[0], {"a": [SECRETS[1]]}, [SECRETS[0], 3], Person()):
        tool = verified_tool(FunctionTool.from_defaults(lambda result=result: result, name="t"), policy)
        for output in (tool.call(), await tool.acall(), tool()):
            assert "[redacted]" in output.content
            assert not any(secret in repr(output) + str(output.raw_output) for secret in SECRETS)
    clean = verified_tool(FunctionTool.from_defaults(lambda: {"a": 1}, name="t"), policy).call()
    assert clean.raw_output == {"a": 1}
    engine = SummaryIndex.from_documents([Document(text=SECRETS[0])]).as_query_engine(
        llm=ScriptedLLM(script=["Jane."])
    )
    output = verified_tool(QueryEngineTool.from_defaults(engine, name="q"), policy).call("Jane?")
    assert output.raw_output.response == "Jane."
    assert output.raw_output.source_nodes[0].node.text == "[redacted]"
    picture = FunctionTool.from_defaults(lambda: [ImageBlock(image=b"")], name="t")
    assert verified_tool(picture, policy).call().content == "[ImageBlock withheld]"
    with pytest.raises(UnsupportedError, match="ImageBlock"):
        verified_tool(picture, policy, action="raise").call()
    with pytest.raises(ViolationError, match="tool result"):
        verified_tool(FunctionTool.from_defaults(lambda: SECRETS[0], name="t"), policy, action="raise").call()


class Plain(BaseTool):
    """A tool without async."""

    @property
    def metadata(self) -> ToolMetadata:
        return ToolMetadata(name="plain", description="Plain.")

    def __call__(self, input: Any) -> ToolOutput:
        return ToolOutput(
            tool_name="plain", blocks=[TextBlock(text=SECRETS[0])], raw_input={}, raw_output=SECRETS[0]
        )


async def test_tools_without_async_and_tools_that_read_the_context(policy: Policy) -> None:
    plain = verified_tool(Plain(), policy)
    assert plain.call("x").content == (await plain.acall("x")).content == "[redacted]"

    async def remember(ctx: Context, who: str) -> str:
        """Remember."""
        await ctx.store.set("who", who)
        return f"{who}: {SECRETS[0]}"

    remember.__annotations__["ctx"] = Context  # LlamaIndex reads no annotations that are strings
    tool = verified_tool(FunctionTool.from_defaults(remember), policy)
    call = ToolCallBlock(tool_call_id="1", tool_name="remember", tool_kwargs={"who": "Jane"})
    llm = VerifiedLLM(ScriptedLLM(script=[ChatMessage(blocks=[call]), "Done."]), guard=policy)
    agent = AgentWorkflow(agents=[FunctionAgent(name="a", tools=[tool], llm=llm)], root_agent="a")
    context = Context(agent)
    answer, events = await run(agent, ctx=context)
    assert answer == "Done."
    assert "Jane: [redacted]" in repr(events)
    assert await context.store.get("who") == "Jane"


async def test_a_tool_without_async_takes_all_its_arguments(policy: Policy) -> None:
    engine = SummaryIndex.from_documents([Document(text=SECRETS[0])]).as_query_engine(llm=MockLLM())
    parts = [QueryEngineTool.from_defaults(engine, name="q", description="Ask.")]
    synthesizer = get_response_synthesizer(llm=MockLLM())
    plan = QueryPlanTool.from_defaults(query_engine_tools=parts, response_synthesizer=synthesizer)
    nodes = [{"id": 1, "query_str": "Who?", "tool_name": "q", "dependencies": []}]
    assert SECRETS[0] in repr(plan(nodes=nodes))
    tool = verified_tool(plan, policy)
    for output in (tool(nodes=nodes), tool.call(nodes=nodes), await tool.acall(nodes=nodes)):
        assert "[redacted]" in output.content
        assert SECRETS[0] not in repr(output)


class Answers:
    """Answers as engines and retrievers do, and is of neither kind."""

    callback_manager = None

    def query(self, query: Any) -> Any:
        return SECRETS[0]

    aquery = retrieve = aretrieve = query


def test_what_others_would_take_out_as_it_is_is_refused(policy: Policy) -> None:
    about: Any = {"metadata": ToolMetadata(name="t", description="T.")}
    for tool, says in (
        (QueryEngineTool(query_engine=Answers(), **about), "_query_engine is a Answers, no BaseQueryEngine"),  # type: ignore[arg-type]
        (RetrieverTool(retriever=Answers(), **about), "_retriever is a Answers, no BaseRetriever"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UnsupportedError, match=f"^tool: its {says}"):
            verified_tool(tool, policy)


async def test_errors_of_tools_are_clean_and_so_is_what_led_to_them(policy: Policy) -> None:
    def fails(loudly: bool) -> str:
        """Fails."""
        try:
            raise KeyError(SECRETS[2])
        except KeyError as error:
            raise ValueError(f"no {SECRETS[2]}" if loudly else "not found") from error

    tool = verified_tool(FunctionTool.from_defaults(fails), policy)
    for loudly, kind, text in ((True, RuntimeError, r"no \[redacted\]"), (False, ValueError, "not found")):
        with pytest.raises(kind, match=text) as caught:
            tool.call(loudly=loudly)
        assert caught.value.__cause__ is caught.value.__context__ is None
        with pytest.raises(kind, match=text) as caught:
            await tool.acall(loudly=loudly)
        assert caught.value.__cause__ is caught.value.__context__ is None
    refusing = verified_tool(FunctionTool.from_defaults(fails), policy, action="raise")
    with pytest.raises(ViolationError) as refused:
        refusing.call(loudly=True)
    assert refused.value.__context__ is None


async def test_what_cancels_or_ends_a_tool_does_so_still_and_is_clean(policy: Policy) -> None:
    class Abort(BaseException):
        pass

    made: list[BaseException] = []

    def fails() -> str:
        """Fails."""
        raise made[-1]

    tool = verified_tool(FunctionTool.from_defaults(fails), policy)
    for kind in (asyncio.CancelledError, SystemExit, Abort):
        for use in (tool.call, tool.acall):
            made.append(kind(f"by {SECRETS[2]}"))
            with pytest.raises(BaseException, match=r"by \[redacted\]") as caught:
                await use()
            assert type(caught.value) is (BaseException if kind is Abort else kind)
            assert caught.value.__context__ is None


def test_results_are_recorded_and_bad_usage_is_refused(policy: Policy) -> None:
    sink = MemorySink()
    tool = FunctionTool.from_defaults(lambda: SECRETS[0], name="t")
    verified_tool(tool, policy, audit=sink).call()
    assert "pii.email" in {
        found.rule_id for event in sink.events if event.kind == "verification" for found in event.findings
    }
    assert SECRETS[0] not in repr(sink.events)
    with pytest.raises(PolicyError, match="replacement itself"):
        verified_tool(tool, policy, replacement="a@example.com")
    with pytest.raises(ValueError, match="one of"):
        verified_tool(tool, policy, action="drop")  # type: ignore[arg-type]
