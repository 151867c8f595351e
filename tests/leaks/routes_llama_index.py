"""Routes of the LlamaIndex integration: verified and guarded LLMs, tools, retrievers, parsers, agents, audit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from llama_index.core import SummaryIndex
from llama_index.core.agent.react import ReActChatFormatter
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import ChatMessage, TextBlock, ToolCallBlock
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import MockLLM
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import NodeWithScore
from llama_index.core.tools import FunctionTool, QueryEngineTool, ToolOutput
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
    VerifiedLLM,
    verified_tool,
)

from nco_guard.errors import NCOGuardError, ViolationError
from tests.leaks.hosts_llama_index import HostedLLM, Reply, observed, watched_callbacks
from tests.leaks.local import insisting, tokenizer
from tests.leaks.routes import Route, Run, route, routes
from tests.leaks.shapes_values import Model

__all__ = ["ROUTES"]

ROUTES: list[Route] = []
_NAMES = "llama_index.llms.nco_guard."
_LOCAL = [_NAMES + "NCOGuardLLM"]
ASK = [ChatMessage(role="user", content="How can I reach her?")]
HEADER = "You answer.\nTools: {tool_desc}\nNames: {tool_names}"

# -- LLMs ------------------------------------------------------------------------------------------------------


def _response(run: Run, response: Any) -> None:
    run.places.add("response", response, parsed=True)
    run.places.add("response's text", str(response))
    run.places.add("response as JSON", response.model_dump_json(), parsed=True)
    message = getattr(response, "message", None)
    run.places.returned(getattr(response, "text", None) if message is None else message, parsed=True)
    if message is not None:
        run.places.add("content", str(message.content))


def _chunks(run: Run, chunks: Any) -> list[Any]:
    kept: list[Any] = []
    try:
        kept.extend(chunks)
    finally:
        _kept(run, kept)
    return kept


async def _achunks(run: Run, chunks: Any) -> list[Any]:
    kept: list[Any] = []
    try:
        async for chunk in chunks:
            kept.append(chunk)  # noqa: PERF401
    finally:
        _kept(run, kept)
    return kept


def _kept(run: Run, kept: list[Any]) -> None:
    for chunk in kept:
        run.places.add("each of the chunks", chunk, parsed=True, printed=False)
        message = getattr(chunk, "message", None)
        if message is not None and message.additional_kwargs:
            run.places.add("additions of chunks", message.additional_kwargs, parsed=True)
    run.places.joined([str(getattr(chunk, "delta", chunk) or "") for chunk in kept], "deltas")


def _chat(llm: Any, run: Run) -> None:
    _response(run, llm.chat(ASK))


def _stream_chat(llm: Any, run: Run) -> None:
    _response(run, _chunks(run, llm.stream_chat(ASK))[-1])


def _complete(llm: Any, run: Run) -> None:
    _response(run, llm.complete("assistant:~ "))


def _stream_complete(llm: Any, run: Run) -> None:
    _response(run, _chunks(run, llm.stream_complete("assistant:~ "))[-1])


async def _achat(llm: Any, run: Run) -> None:
    _response(run, await llm.achat(ASK))


async def _astream_chat(llm: Any, run: Run) -> None:
    _response(run, (await _achunks(run, await llm.astream_chat(ASK)))[-1])


async def _acomplete(llm: Any, run: Run) -> None:
    _response(run, await llm.acomplete("assistant:~ "))


async def _astream_complete(llm: Any, run: Run) -> None:
    _response(run, (await _achunks(run, await llm.astream_complete("assistant:~ ")))[-1])


def _predict(llm: Any, run: Run) -> None:
    run.places.returned(llm.predict(PromptTemplate("Say {x}"), x="it"), parsed=True)


async def _apredict(llm: Any, run: Run) -> None:
    run.places.returned(await llm.apredict(PromptTemplate("Say {x}"), x="it"), parsed=True)


def _stream(llm: Any, run: Run) -> None:
    run.places.returned("".join(_chunks(run, llm.stream(PromptTemplate("Say {x}"), x="it"))))


async def _astream(llm: Any, run: Run) -> None:
    run.places.returned("".join(await _achunks(run, await llm.astream(PromptTemplate("Say {x}"), x="it"))))


_USES: dict[str, Callable[[Any, Run], Any]] = {
    "chat": _chat,
    "achat": _achat,
    "stream_chat": _stream_chat,
    "astream_chat": _astream_chat,
    "complete": _complete,
    "acomplete": _acomplete,
    "stream_complete": _stream_complete,
    "astream_complete": _astream_complete,
    "predict": _predict,
    "apredict": _apredict,
    "stream": _stream,
    "astream": _astream,
}


def _tools(llm: Any, run: Run) -> None:
    response = llm.chat_with_tools([_lookup()], user_msg="Who?")
    _response(run, response)
    calls = llm.get_tool_calls_from_response(response, error_on_no_tool_call=False)
    run.places.add("tool calls", calls, parsed=True)


def _stream_tools(llm: Any, run: Run) -> None:
    _response(run, _chunks(run, llm.stream_chat_with_tools([_lookup()], user_msg="Who?"))[-1])


async def _atools(llm: Any, run: Run) -> None:
    _response(run, await llm.achat_with_tools([_lookup()], user_msg="Who?"))
    chunks = await llm.astream_chat_with_tools([_lookup()], user_msg="Who?")
    _response(run, (await _achunks(run, chunks))[-1])


async def _apredict_and_call(llm: Any, run: Run) -> None:
    made = await llm.apredict_and_call([_lookup()], user_msg="Who?", error_on_no_tool_call=False)
    run.places.add("AgentChatResponse", made, parsed=True)


def _predict_and_call(llm: Any, run: Run) -> None:
    made = llm.predict_and_call([_lookup()], user_msg="Who?", error_on_no_tool_call=False)
    run.places.returned(str(made))
    run.places.add("AgentChatResponse", made, parsed=True)


def _structured(llm: Any, run: Run) -> None:
    try:
        run.places.add(
            "object", llm.structured_predict(Model, PromptTemplate("Say {x}"), x="it"), parsed=True
        )
    except Exception as error:
        run.places.failed(error)


def _stream_structured(llm: Any, run: Run) -> None:
    try:
        for one in llm.stream_structured_predict(Model, PromptTemplate("Say {x}"), x="it"):
            run.places.add("object", one, parsed=True)
    except Exception as error:
        run.places.failed(error)


async def _astructured(llm: Any, run: Run) -> None:
    given = PromptTemplate("Say {x}")
    try:
        run.places.add("object", await llm.astructured_predict(Model, given, x="it"), parsed=True)
        async for one in await llm.astream_structured_predict(Model, given, x="it"):
            run.places.add("object", one, parsed=True)
    except Exception as error:
        run.places.failed(error)


def _structured_llm(llm: Any, run: Run) -> None:
    made = llm.as_structured_llm(Model)
    for use in (lambda: made.chat(ASK), lambda: made.complete("x"), lambda: [*made.stream_chat(ASK)]):
        try:
            run.places.add("structured answer", use(), parsed=True)
        except Exception as error:
            run.places.failed(error)


def _program(llm: Any, run: Run) -> None:
    try:
        made = LLMTextCompletionProgram.from_defaults(
            output_cls=Model, prompt_template_str="Say {x}", llm=llm
        )
        run.places.add("program's object", made(x="it"), parsed=True)
    except Exception as error:
        run.places.failed(error)


_MORE: dict[str, Callable[[Any, Run], Any]] = {
    "chat_with_tools": _tools,
    "stream_chat_with_tools": _stream_tools,
    "predict_and_call": _predict_and_call,
    "achat_with_tools": _atools,
    "apredict_and_call": _apredict_and_call,
    "structured_predict": _structured,
    "stream_structured_predict": _stream_structured,
    "astructured_predict": _astructured,
    "as_structured_llm": _structured_llm,
    "LLMTextCompletionProgram": _program,
}
_ALL = {**_USES, **_MORE}
#: A completion holds no blocks; programs show what they could parse.
_SILENT = [
    *("structured_predict", "stream_structured_predict", "astructured_predict"),
    *("as_structured_llm", "LLMTextCompletionProgram"),
    *("complete", "acomplete", "stream_complete", "astream_complete"),
    *("predict", "apredict", "stream", "astream"),
]


def _lookup(result: Any = "fine") -> FunctionTool:
    def lookup(name: str = "", **kwargs: Any) -> Any:
        """Look up."""
        return result() if callable(result) else result

    return FunctionTool.from_defaults(lookup)


_llms = partial(routes, ROUTES, carries=["reply"], covers=[_NAMES + "VerifiedLLM"], raises=(ViolationError,))


@_llms(
    "VerifiedLLM.{}, {}",
    [
        (name, action)
        for name in _ALL
        if name not in _SILENT
        for action in (
            ("redact", "raise") if name in ("chat", "astream_chat", "stream_chat") else ("redact",)
        )
    ],
)
@_llms("VerifiedLLM.{}, {}", [(name, "redact") for name in _SILENT], silent=True)
def verified(run: Run, name: str, action: str) -> Any:
    with observed(run.places), watched_callbacks(run.places) as manager:
        hosted = HostedLLM(script=[run.value()], callback_manager=manager)
        llm = VerifiedLLM(hosted, guard=run.guard(), action=action)
        run.places.add("llm", [llm.to_payload(), llm.metadata])
        return _either(_ALL[name], llm, run)


def _either(use: Callable[[Any, Run], Any], llm: Any, run: Run) -> Any:
    """Within the observers, whether it is awaited or not."""
    import asyncio
    import inspect

    answer = use(llm, run)
    if inspect.iscoroutine(answer):
        asyncio.run(answer)


@routes(
    ROUTES,
    "VerifiedLLM over a host that fails, {}",
    ["chat", "achat", "stream_chat", "astream_chat", "complete", "stream_complete"],
    carries=["error"],
    covers=[_NAMES + "VerifiedLLM"],
    raises=(Exception,),
)
def failing(run: Run, name: str) -> Any:
    with observed(run.places):
        hosted = HostedLLM(script=[Reply([TextBlock(text="Some text")], error=run.value())])
        return _either(_USES[name], VerifiedLLM(hosted, guard=run.guard(), action="redact"), run)


def _local(run: Run, tokens: int, **options: Any) -> NCOGuardLLM:
    return NCOGuardLLM(
        insisting(run.value()),
        tokenizer(),
        guard=run.guard(),
        max_new_tokens=tokens,
        generate_kwargs={"do_sample": False},
        **options,
    )


@routes(ROUTES, "NCOGuardLLM.{}", _USES, carries=["written", "parsed"], covers=_LOCAL)
def locally(run: Run, name: str) -> Any:
    with observed(run.places), watched_callbacks(run.places) as manager:
        llm = _local(run, 72, callback_manager=manager)
        run.places.add("llm", [llm.to_payload(), repr(llm.guard)])
        return _either(_USES[name], llm, run)


@route(ROUTES, "NCOGuardLLM.chat_with_tools", carries=["called"], covers=_LOCAL, raises=(ViolationError,))
def called(run: Run) -> None:
    with observed(run.places):
        llm = _local(run, 110)
        _tools(llm, run)
        _stream_tools(llm, run)


@route(ROUTES, "NCOGuardLLM.chat of a shape", carries=["written"], covers=_LOCAL)
def shaped(run: Run) -> None:
    said = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}
    with observed(run.places):
        llm = _local(run, 96)
        _response(run, whole := llm.chat(ASK, shape=said))
        _response(run, _chunks(run, llm.stream_chat(ASK, shape=said))[-1])
        run.places.add("what was said", json.loads(whole.message.content or "")["said"], parsed=True)


# -- tools -----------------------------------------------------------------------------------------------------


def _output(run: Run, output: Any) -> None:
    run.places.add("output", output, parsed=True)
    run.places.add("output's text", [str(output), str(output.content)])
    run.places.returned([output.content, output.raw_output])


def _tool(run: Run, **options: Any) -> Any:
    return verified_tool(_lookup(run.value), run.guard(), **options)


_OF_TOOLS: dict[str, Callable[[Any, Run], Any]] = {
    "call": lambda tool, run: _output(run, tool.call(name="x")),
    "called": lambda tool, run: _output(run, tool(name="x")),
    "fn": lambda tool, run: run.places.returned(tool.fn(name="x")),
    "real_fn": lambda tool, run: run.places.returned(tool.real_fn(name="x")),
}


async def _acall(tool: Any, run: Run) -> None:
    _output(run, await tool.acall(name="x"))


async def _async_fn(tool: Any, run: Run) -> None:
    run.places.returned(await tool.async_fn(name="x"))


_OF_TOOLS |= {"acall": _acall, "async_fn": _async_fn}


@routes(
    ROUTES,
    "verified_tool, {}",
    _OF_TOOLS,
    carries=["value", "text", "node"],
    covers=[_NAMES + "verified_tool"],
)
def tools_return(run: Run, name: str) -> Any:
    with observed(run.places):
        return _either(_OF_TOOLS[name], _tool(run), run)


@routes(
    ROUTES,
    "verified_tool that fails, {}",
    _OF_TOOLS,
    carries=["error"],
    covers=[_NAMES + "verified_tool"],
    raises=(Exception,),
)
def tools_fail(run: Run, name: str) -> Any:
    def fails(name: str = "") -> str:
        """Fail."""
        raise run.value()

    with observed(run.places):
        return _either(_OF_TOOLS[name], verified_tool(FunctionTool.from_defaults(fails), run.guard()), run)


@route(ROUTES, "verified_tool, ToolOutput", carries=["value", "text"], covers=[_NAMES + "verified_tool"])
def tool_output(run: Run) -> None:
    def lookup(name: str = "") -> Any:
        """Look up."""
        return ToolOutput(
            tool_name="lookup", content="a", raw_input={"x": run.secret.text}, raw_output=run.value()
        )

    _output(run, verified_tool(FunctionTool.from_defaults(lookup), run.guard()).call(name="x"))


@route(ROUTES, "verified_tool, partial parameters", carries=["text"], covers=[_NAMES + "verified_tool"])
def partial_parameters(run: Run) -> None:
    def lookup(name: str = "", who: str = "") -> Any:
        """Look up."""
        return who

    tool = FunctionTool.from_defaults(lookup, partial_params={"who": run.value()})
    _output(run, verified_tool(tool, run.guard()).call(name="x"))


@route(
    ROUTES, "verified_tool over an engine", carries=["node"], covers=[_NAMES + "verified_tool"], silent=True
)
def engine_tool(run: Run) -> None:
    engine = SummaryIndex([run.value()]).as_query_engine(llm=MockLLM())
    tool = verified_tool(QueryEngineTool.from_defaults(engine, description="x"), run.guard())
    _output(run, tool.call("who?"))
    run.places.add("answer of its engine", tool.query_engine.query("who?"))


# -- retrieved nodes, parsers ----------------------------------------------------------------------------------


def _nodes(run: Run) -> list[NodeWithScore]:
    given = run.value()
    return given if isinstance(given, list) else [NodeWithScore(node=given, score=0.5)]


@routes(
    ROUTES,
    "NCOGuardPostprocessor, {}",
    ["redact", "raise", "drop"],
    carries=["node", "nodes"],
    covers=[_NAMES + "NCOGuardPostprocessor"],
    raises=(ViolationError,),
)
def processed(run: Run, action: Any) -> None:
    made: Any = NCOGuardPostprocessor(run.guard(), action=action)
    nodes = made.postprocess_nodes(_nodes(run))
    run.places.returned(nodes, parsed=True)
    for scored in nodes:
        run.places.add("content", [scored.node.get_content(mode) for mode in ("none", "llm", "all", "embed")])
        run.places.add("as JSON", scored.model_dump_json())
        run.places.add("metadata", scored.node.get_metadata_str("all"))
        run.places.add("as a dict", scored.node.to_dict())


@route(
    ROUTES,
    "NCOGuardPostprocessor in an engine",
    carries=["node"],
    covers=[_NAMES + "NCOGuardPostprocessor"],
    silent=True,
)
def engine(run: Run) -> None:
    processor = NCOGuardPostprocessor(run.guard())
    made = SummaryIndex([run.value()]).as_query_engine(llm=MockLLM(), node_postprocessors=[processor])
    answer = made.query("who?")
    run.places.add("answer", str(answer))
    run.places.add("sources", answer.source_nodes)
    run.places.add("metadata of sources", answer.metadata)


@routes(
    ROUTES,
    "NCOGuardOutputParser, {}",
    ["redact", "raise"],
    carries=["text"],
    covers=[_NAMES + "NCOGuardOutputParser"],
    raises=(ViolationError,),
    unchanged=True,
)
def parsed(run: Run, action: Any) -> None:
    run.places.returned(NCOGuardOutputParser(run.guard(), action=action).parse(run.value()))


@route(
    ROUTES,
    "NCOGuardOutputParser with another parser",
    carries=["json"],
    covers=[_NAMES + "NCOGuardOutputParser"],
    raises=(Exception,),
    silent=True,
)
def inner_parser(run: Run) -> None:
    from langchain_core.output_parsers import JsonOutputParser
    from llama_index.core.output_parsers import LangchainOutputParser

    inner = LangchainOutputParser(JsonOutputParser())
    run.places.returned(
        NCOGuardOutputParser(run.guard(), action="redact", inner=inner).parse(run.value()), parsed=True
    )


# -- agents ----------------------------------------------------------------------------------------------------


def _agent(llm: Any, tools: list[Any], kind: str, mode: str) -> Any:
    streaming = mode == "streaming"
    if kind == "FunctionAgent":
        return FunctionAgent(tools=tools, llm=llm, streaming=streaming)
    formatter = ReActChatFormatter.from_defaults(system_header=HEADER)
    return ReActAgent(tools=tools, llm=llm, streaming=streaming, formatter=formatter)


async def _run_agent(run: Run, agent: Any) -> None:
    memory = ChatMemoryBuffer.from_defaults()
    handler = agent.run("Who?", memory=memory, max_iterations=4)
    try:
        async for event in handler.stream_events():
            run.places.add(f"agent event {type(event).__name__}", event, parsed=True, printed=False)
        answer = await handler
        run.places.add("agent's answer", answer, parsed=True)
        run.places.returned(str(answer))
    except NCOGuardError as error:
        run.places.failed(error)
    except Exception as error:
        if run.shape.kind == "error" or "iterations" in str(error) or "reasoning" in str(error):
            run.places.failed(error)
        else:
            raise
    finally:
        run.places.add("memory", memory.get_all(), parsed=True)


_ACTS = "Thought: I look.\nAction: lookup\nAction Input: {}\n"
_ANSWERS = "Thought: I can answer without using any more tools.\nAnswer: fine"


_agents = partial(
    routes,
    ROUTES,
    cases=[(kind, mode) for kind in ("FunctionAgent", "ReActAgent") for mode in ("streaming", "whole")],
    raises=(ViolationError,),
)


@_agents(name="{} over VerifiedLLM, {}", carries=["reply"], covers=[_NAMES + "VerifiedLLM"], silent=True)
async def agents_answer(run: Run, kind: str, mode: str) -> None:
    with observed(run.places):
        hosted = HostedLLM(script=[run.value(), Reply([TextBlock(text=_ANSWERS)])])
        llm = VerifiedLLM(hosted, guard=run.guard(), action="redact")
        await _run_agent(run, _agent(llm, [_lookup()], kind, mode))


@_agents(
    name="{} with verified_tool, {}",
    carries=["value", "text", "error"],
    covers=[_NAMES + "verified_tool"],
)
async def agents_call(run: Run, kind: str, mode: str) -> None:
    def result() -> Any:
        value = run.value()
        if run.shape.kind == "error":
            raise value
        return value

    first = (
        Reply([ToolCallBlock(tool_call_id="1", tool_name="lookup", tool_kwargs={})])
        if kind == "FunctionAgent"
        else Reply([TextBlock(text=_ACTS)])
    )
    with observed(run.places):
        hosted = HostedLLM(script=[first, Reply([TextBlock(text=_ANSWERS)])])
        guard = run.guard()
        llm = VerifiedLLM(hosted, guard=guard, action="redact")
        await _run_agent(run, _agent(llm, [verified_tool(_lookup(result), guard)], kind, mode))


# -- audit -----------------------------------------------------------------------------------------------------


@route(
    ROUTES,
    "NCOGuardAuditHandler of LlamaIndex",
    carries=["reply"],
    covers=[_NAMES + "NCOGuardAuditHandler"],
    silent=True,
)
def audited(run: Run) -> None:
    handler = NCOGuardAuditHandler(run.guard())
    get_dispatcher().add_event_handler(handler)
    try:
        llm = HostedLLM(script=[run.value()])
        llm.chat(ASK)
        list(llm.stream_chat(ASK))
        llm.complete("x")
        next(iter(llm.stream_chat(ASK)))
    finally:
        get_dispatcher().event_handlers.remove(handler)
    run.places.add("handler", [repr(handler), str(handler)])
