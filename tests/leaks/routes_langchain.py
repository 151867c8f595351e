"""Routes of the LangChain integration: steps of chains, verified and guarded models, agents, audit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.runnables.utils import AddableDict

from langchain_nco_guard import (
    ChatNCOGuard,
    GuardedPipeline,
    NCOGuardAuditHandler,
    VerifiedChatModel,
    guard_runnable,
    report_runnable,
)
from nco_guard.errors import ViolationError
from tests.leaks.hosts_langchain import Hosted, failing_host, observers
from tests.leaks.local import insisting, pipe_of, tokenizer
from tests.leaks.routes import Route, Run, route, routes
from tests.leaks.shapes_values import Model

__all__ = ["ROUTES"]

ROUTES: list[Route] = []
ASK = "How can I reach her?"

# -- steps of chains -------------------------------------------------------------------------------------------

_STEP = ["langchain_nco_guard.guard_runnable"]


def _chain(run: Run, action: str = "redact") -> tuple[Any, dict[str, Any], observers]:
    seen = observers(run.places, chains=False)
    return RunnableLambda(lambda _: run.value()) | guard_runnable(run.guard(), action=action), {}, seen


_step = partial(route, ROUTES, carries=["value", "step", "text"], covers=_STEP, unchanged=True)


@_step("guard_runnable, invoke")
def invoke(run: Run) -> None:
    step = guard_runnable(run.guard(), action="redact")
    run.places.returned(step.invoke(run.value()))
    run.places.add("runnable", [repr(step), str(step)])


@_step("guard_runnable, ainvoke")
async def ainvoke(run: Run) -> None:
    run.places.returned(await guard_runnable(run.guard(), action="redact").ainvoke(run.value()))


@_step("guard_runnable, raise", raises=(ViolationError,))
def raising(run: Run) -> None:
    run.places.returned(guard_runnable(run.guard(), "raise").invoke(run.value()))


@_step("guard_runnable, batch")
def batched(run: Run) -> None:
    run.places.returned(guard_runnable(run.guard(), action="redact").batch([run.value(), "b"])[0])


@_step("guard_runnable, abatch")
async def abatched(run: Run) -> None:
    run.places.returned((await guard_runnable(run.guard(), action="redact").abatch([run.value()]))[0])


@_step("guard_runnable, stream")
def streams(run: Run) -> None:
    chunks = run.places.chunks(guard_runnable(run.guard(), action="redact").stream(run.value()))
    run.places.returned(_whole(chunks))


@_step("guard_runnable, astream")
async def astreams(run: Run) -> None:
    chunks = [one async for one in guard_runnable(run.guard(), action="redact").astream(run.value())]
    run.places.returned(_whole(run.places.chunks(chunks)))


@_step("guard_runnable, batch_as_completed")
def completed(run: Run) -> None:
    ((_, done),) = guard_runnable(run.guard(), action="redact").batch_as_completed([run.value()])
    run.places.returned(done)


@_step("guard_runnable, transform")
def transformed(run: Run) -> None:
    chunks = guard_runnable(run.guard(), action="redact").transform(iter([run.value()]))
    run.places.returned(_whole(run.places.chunks(chunks)))


def _whole(chunks: list[Any]) -> Any:
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


@_step("guard_runnable, in a chain with callbacks")
def observed(run: Run) -> None:
    chain, _, seen = _chain(run)
    with seen as config:
        run.places.returned(chain.invoke("x", {"callbacks": config["callbacks"][1:]}))


@route(
    ROUTES,
    "report_runnable",
    carries=["text"],
    covers=["langchain_nco_guard.report_runnable"],
    silent=True,
)
def reports(run: Run) -> None:
    step, text = report_runnable(run.guard()), run.value()
    run.places.add(
        "report", [step.invoke(text), *step.stream(text), *step.transform(iter([text[:9], text[9:]]))]
    )


# Values that arrive in pieces. Each makes pieces of a text; what they join to must be what `invoke` gives.

_PIECES: dict[str, Callable[[str], Any]] = {
    "texts": lambda piece: piece,
    "dicts": lambda piece: AddableDict(answer=piece),
    "dicts of two": lambda piece: AddableDict(answer=piece, other=piece),
    "nested dicts": lambda piece: AddableDict(answer=AddableDict(text=piece)),
    "messages": lambda piece: AIMessageChunk(content=piece),
    "messages in dicts": lambda piece: AddableDict(answer=AIMessageChunk(content=piece)),
    "message blocks": lambda piece: AIMessageChunk(content=[{"type": "text", "text": piece, "index": 0}]),
    "message blocks without index": lambda piece: AIMessageChunk(content=[{"type": "text", "text": piece}]),
    "reasoning": lambda piece: AIMessageChunk(content="", additional_kwargs={"reasoning_content": piece}),
    "reasoning blocks": lambda piece: AIMessageChunk(
        content=[{"type": "reasoning", "reasoning": piece, "index": 0}]
    ),
}


def _in_pieces(run: Run, make: Callable[[str], Any]) -> Callable[..., Any]:
    text = run.value()

    def pieces(_: Iterator[Any]) -> Iterator[Any]:
        for at in range(0, len(text), 5):
            yield make(text[at : at + 5])

    async def apieces(_: AsyncIterator[Any]) -> AsyncIterator[Any]:
        for at in range(0, len(text), 5):
            yield make(text[at : at + 5])

    return RunnableGenerator(pieces, apieces)


_CHAINS: dict[str, Callable[[Any], Any]] = {
    "": lambda guard: guard,
    " before a step": lambda guard: guard | RunnableLambda(lambda value: value),
    " within RunnableParallel": lambda guard: RunnableParallel(a=guard, b=guard),
    " within assign": lambda guard: (
        RunnableLambda(lambda v: {"x": v}) | RunnablePassthrough.assign(y=lambda d: d["x"]) | guard
    ),
}


_of_streams = partial(
    routes,
    ROUTES,
    cases=[
        (kind, where, action)
        for kind in _PIECES
        for where in _CHAINS
        for action in ("redact", "raise")
        if not where or kind in ("texts", "dicts", "messages")
    ],
    carries=["text"],
    covers=_STEP,
    raises=(ViolationError,),
    skips=["long"],
)


def _streaming(run: Run, kind: str, where: str, action: str) -> Any:
    return _in_pieces(run, _PIECES[kind]) | _CHAINS[where](guard_runnable(run.guard(), action=action))


@_of_streams(name="guard_runnable, stream of {}{}, {}")
def streamed(run: Run, *case: str) -> None:
    chunks: list[Any] = []
    try:
        chunks.extend(_streaming(run, *case).stream("x"))
    finally:
        run.places.chunks(chunks)
    run.places.returned(_whole(chunks))


@_of_streams(name="guard_runnable, astream of {}{}, {}")
async def astreamed(run: Run, *case: str) -> None:
    chunks = []
    try:
        async for chunk in _streaming(run, *case).astream("x"):
            chunks.append(chunk)  # noqa: PERF401
    finally:
        run.places.chunks(chunks)
    run.places.returned(_whole(chunks))


# -- verified models -------------------------------------------------------------------------------------------


def _verified(run: Run, action: str = "redact", **options: Any) -> Any:
    said = run.value()
    return VerifiedChatModel.over(Hosted(script=[said]), run.guard(), action=action, **options)


def _drain(run: Run, chunks: Iterator[Any], name: str = "chunks") -> Any:
    kept: list[Any] = []
    try:
        kept.extend(chunks)
    finally:
        run.places.chunks(kept, name, parsed=True)
    return kept


async def _adrain(run: Run, chunks: AsyncIterator[Any], name: str = "chunks") -> Any:
    kept: list[Any] = []
    try:
        async for chunk in chunks:
            kept.append(chunk)  # noqa: PERF401
    finally:
        run.places.chunks(kept, name, parsed=True)
    return kept


def _message(run: Run, answer: Any) -> None:
    run.places.returned(_comparable(answer), parsed=True)
    run.places.add("answer", answer, parsed=True)
    if isinstance(answer, AIMessage):
        run.places.add("content blocks", answer.content_blocks, parsed=True)
        run.places.add("text", str(answer.text))
        run.places.add("as JSON", answer.model_dump_json(), parsed=True)
        run.places.add("pretty", answer.pretty_repr())


def _comparable(answer: Any) -> Any:
    """An answer without the ids that are drawn anew for each run, and without the digest of its policy."""
    if not isinstance(answer, AIMessage):
        return answer
    known = {name: part for name, part in answer.response_metadata.items() if name != "policy_digest"}
    calls = [{**call, "id": None} for call in answer.tool_calls]
    broken = [{**call, "id": None} for call in answer.invalid_tool_calls]
    update = {"id": None, "response_metadata": known, "tool_calls": calls, "invalid_tool_calls": broken}
    if hasattr(answer, "tool_call_chunks"):
        update["tool_call_chunks"] = [{**chunk, "id": None} for chunk in answer.tool_call_chunks]
    return answer.model_copy(update=update)


def _vinvoke(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        _message(run, model.invoke(ASK, config))


def _vstream(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        kept = _drain(run, model.stream(ASK, config))
    _message(run, _whole(kept))


def _vbatch(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        _message(run, model.batch([ASK, ASK], config)[0])


def _vgenerate(model: Any, run: Run) -> Any:
    result = model.generate([[HumanMessage(ASK)]])
    run.places.add("LLMResult", result, parsed=True)
    _message(run, result.generations[0][0].message)


async def _vainvoke(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        _message(run, await model.ainvoke(ASK, config))


async def _vastream(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        kept = await _adrain(run, model.astream(ASK, config))
    _message(run, _whole(kept))


async def _vevents(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        events = await _adrain(run, model.astream_events(ASK, config, version="v2"), "events")
    run.places.joined(
        [event["data"]["chunk"] for event in events if event["event"] == "on_chat_model_stream"],
        "event chunks",
    )


async def _vlog(model: Any, run: Run) -> Any:
    chain = RunnableLambda(lambda x: x) | model
    said: dict[str, list[Any]] = {}
    async for patch in chain.astream_log(ASK):
        for op in patch.ops:
            run.places.add("log patches", op, parsed=True, printed=False)
            said.setdefault(op["path"] if op["op"] == "add" else repr(op), []).append(op["value"])
    for pieces in said.values():
        run.places.joined(pieces, "log patches", parsed=True)


async def _vabatch(model: Any, run: Run) -> Any:
    _message(run, (await model.abatch([ASK]))[0])


async def _vagenerate(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        result = await model.agenerate([[HumanMessage(ASK)]], callbacks=config["callbacks"])
    run.places.add("LLMResult", result, parsed=True)
    _message(run, result.generations[0][0].message)


def _vcompleted(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        _message(run, next(iter(model.batch_as_completed([ASK], config)))[1])


async def _vacompleted(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        _message(run, (await _adrain(run, model.abatch_as_completed([ASK], config), "answers"))[0][1])


def _vtransform(model: Any, run: Run) -> Any:
    with observers(run.places) as config:
        _message(run, _whole(_drain(run, model.transform(iter([ASK]), config))))


async def _vatransform(model: Any, run: Run) -> Any:
    async def asked() -> Any:
        yield ASK

    with observers(run.places) as config:
        _message(run, _whole(await _adrain(run, model.atransform(asked(), config))))


_USES: dict[str, Callable[[Any, Run], Any]] = {
    "agenerate": _vagenerate,
    "batch_as_completed": _vcompleted,
    "abatch_as_completed": _vacompleted,
    "transform": _vtransform,
    "atransform": _vatransform,
    "invoke": _vinvoke,
    "stream": _vstream,
    "batch": _vbatch,
    "generate": _vgenerate,
    "ainvoke": _vainvoke,
    "astream": _vastream,
    "abatch": _vabatch,
    "astream_events": _vevents,
    "astream_log": _vlog,
}


_model = partial(
    routes,
    ROUTES,
    carries=["answer"],
    covers=["langchain_nco_guard.VerifiedChatModel"],
    raises=(ViolationError,),
)
_MAIN = ("invoke", "stream", "ainvoke", "astream")


@_model(
    "VerifiedChatModel, {}, {}",
    [
        *((name, on) for name in _USES for on in (("redact", "raise") if name in _MAIN else ("redact",))),
        ("invoke", "retry"),
        ("stream", "retry"),
    ],
)
def verified(run: Run, name: str, action: str) -> Any:
    return _USES[name](_verified(run, action), run)


_BUILDS: dict[str, Callable[[Any], Any]] = {
    "bound": lambda model: model.bind(stop=["zzz"]),
    "with retry": lambda model: model.with_retry(stop_after_attempt=1),
    "with fallbacks": lambda model: model.with_fallbacks([model]),
    "with tools": lambda model: model.bind_tools([Model]),
    "structured with raw": lambda model: model.with_structured_output(Model, include_raw=True),
    "structured": lambda model: model.with_structured_output(Model),
    "before a step": lambda model: model | RunnableLambda(lambda message: message),
    "in RunnableParallel": lambda model: RunnableParallel(a=model),
}


@_model("VerifiedChatModel, {}", [name for name in _BUILDS if not name.startswith("structured")])
@_model("VerifiedChatModel, {}", [name for name in _BUILDS if name.startswith("structured")], silent=True)
def built(run: Run, name: str) -> None:
    with observers(run.places) as config:
        made = _BUILDS[name](_verified(run))
        for answer in (made.invoke, lambda *given: list(made.stream(*given))):
            try:
                run.places.add("answer", answer(ASK, config), parsed=True)
            except Exception as error:
                run.places.failed(error)


@routes(
    ROUTES,
    "VerifiedChatModel over a host that fails, {}",
    [*_MAIN, "astream_events"],
    carries=["error"],
    covers=["langchain_nco_guard.VerifiedChatModel"],
    raises=(Exception,),
)
def failing(run: Run, name: str) -> Any:
    return _USES[name](VerifiedChatModel.over(failing_host(run.value()), run.guard(), action="redact"), run)


@route(
    ROUTES,
    "NCOGuardAuditHandler",
    carries=["answer"],
    covers=["langchain_nco_guard.NCOGuardAuditHandler"],
    silent=True,
)
def audited(run: Run) -> None:
    handler = NCOGuardAuditHandler(run.guard())
    model = Hosted(script=[run.value()])
    model.invoke(ASK, {"callbacks": [handler]})
    list(model.stream(ASK, {"callbacks": [handler]}))
    run.places.add("handler", [repr(handler), str(handler)])


@route(
    ROUTES,
    "NCOGuardAuditHandler, tools",
    carries=["value", "step", "error"],
    covers=["langchain_nco_guard.NCOGuardAuditHandler"],
    silent=True,
    skips=[
        "object that cannot be printed"
    ],  # LangChain prints results; that error is the tool's, and not recorded
)
def audited_tools(run: Run) -> None:
    from langchain_core.tools import StructuredTool

    def lookup(name: str) -> Any:
        """Look up."""
        value = run.value()
        if isinstance(value, Exception) and run.shape.kind == "error":
            raise value
        return value

    handler = NCOGuardAuditHandler(run.guard())
    tool = StructuredTool.from_function(lookup)
    try:
        tool.invoke({"name": run.secret.text}, {"callbacks": [handler]})
    except Exception as error:
        if run.shape.kind != "error":
            raise
        del error


# -- local models ----------------------------------------------------------------------------------------------


def _local(run: Run, **options: Any) -> Any:
    given = {"max_tokens": 72, "temperature": 0, **options}
    return ChatNCOGuard(model=insisting(run.value()), tokenizer=tokenizer(), guard=run.guard(), **given)


@routes(
    ROUTES,
    "ChatNCOGuard, {}",
    _USES,
    carries=["written"],
    covers=["langchain_nco_guard.ChatNCOGuard"],
)
def chats(run: Run, name: str) -> Any:
    return _USES[name](_local(run), run)


@routes(
    ROUTES,
    "ChatNCOGuard, structured output by {}",
    ["function_calling", "json_schema", "json_mode"],
    carries=["called", "written", "parsed"],
    covers=["langchain_nco_guard.ChatNCOGuard"],
    silent=True,  # what is no object is an error
)
def structured(run: Run, method: str) -> None:
    made = _local(run, max_tokens=110).with_structured_output(Model, method=method, include_raw=True)
    with observers(run.places) as config:
        run.places.add("answer", made.invoke(ASK, config), parsed=True)
        run.places.chunks(made.stream(ASK, config), parsed=True)


@route(
    ROUTES,
    "ChatNCOGuard, tools",
    carries=["called"],
    covers=["langchain_nco_guard.ChatNCOGuard"],
    raises=(ViolationError,),
)
def called(run: Run) -> None:
    made = _local(run, max_tokens=110).bind_tools([_TOOL])
    with observers(run.places) as config:
        _message(run, made.invoke(ASK, config))


@route(
    ROUTES,
    "ChatNCOGuard, tools in a stream",
    carries=["called"],
    covers=["langchain_nco_guard.ChatNCOGuard"],
    raises=(ViolationError,),
)
def called_in_pieces(run: Run) -> None:
    made = _local(run, max_tokens=110).bind_tools([_TOOL])
    with observers(run.places) as config:
        _message(run, _whole(_drain(run, made.stream(ASK, config))))


_TOOL = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": "Look up.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def _linvoke(llm: Any, run: Run) -> None:
    with observers(run.places) as config:
        run.places.returned(llm.invoke("assistant:~ ", config))


def _lstream(llm: Any, run: Run) -> None:
    with observers(run.places) as config:
        run.places.returned("".join(_drain(run, llm.stream("assistant:~ ", config))))


def _lgenerate(llm: Any, run: Run) -> None:
    result = run.places.add("LLMResult", llm.generate(["assistant:~ ", "b assistant:~ "]))
    run.places.returned(result.generations[0][0].text)


async def _lainvoke(llm: Any, run: Run) -> None:
    run.places.returned(await llm.ainvoke("assistant:~ "))


async def _lastream(llm: Any, run: Run) -> None:
    run.places.returned("".join(await _adrain(run, llm.astream("assistant:~ "))))


def _lbatch(llm: Any, run: Run) -> None:
    run.places.returned(llm.batch(["assistant:~ ", "b assistant:~ "]))


async def _labatch(llm: Any, run: Run) -> None:
    run.places.returned(await llm.abatch(["assistant:~ "]))


async def _lagenerate(llm: Any, run: Run) -> None:
    result = run.places.add("LLMResult", await llm.agenerate(["assistant:~ "]))
    run.places.returned(result.generations[0][0].text)


async def _levents(llm: Any, run: Run) -> None:
    await _adrain(run, llm.astream_events("assistant:~ ", version="v2"), "events")


_LLM_USES: dict[str, Callable[[Any, Run], Any]] = {
    "abatch": _labatch,
    "agenerate": _lagenerate,
    "astream_events": _levents,
    "invoke": _linvoke,
    "stream": _lstream,
    "generate": _lgenerate,
    "ainvoke": _lainvoke,
    "astream": _lastream,
    "batch": _lbatch,
}


@routes(
    ROUTES,
    "GuardedPipeline, {}",
    _LLM_USES,
    carries=["written"],
    covers=["langchain_nco_guard.GuardedPipeline"],
)
def llms(run: Run, name: str) -> Any:
    llm = GuardedPipeline(pipeline=pipe_of(insisting(run.value()), max_new_tokens=72), guard=run.guard())
    run.places.add("llm", [repr(llm.guard), str(llm.guard)])
    return _LLM_USES[name](llm, run)
