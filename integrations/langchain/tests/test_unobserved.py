"""What a verified model's inner model says is shown to nobody, through delegation, streams, hooks or traces."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from checks import check_everything, check_stream
from inner_models import LEAK, SAFE, Delegating, Fails, HandingOn, Streaming, Talker, scripted
from langchain.agents import create_agent
from langchain_core.caches import InMemoryCache
from langchain_core.callbacks import BaseCallbackManager
from langchain_core.globals import set_debug, set_llm_cache, set_verbose
from langchain_core.language_models import FakeListChatModel, FakeListLLM
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import ConfigurableField, RunnableLambda
from langchain_core.tracers.context import collect_runs, tracing_v2_enabled
from langchain_core.tracers.langchain import wait_for_all_tracers
from langsmith.run_helpers import trace, tracing_context
from places import HOOK, Everything, langsmith_server

from langchain_nco_guard import NCOGuardMiddleware, VerifiedChatModel
from langchain_nco_guard._unobserved import _silent
from nco_guard import Policy
from nco_guard.errors import UnsupportedError

INNERS = {
    "streaming": lambda: Streaming(streaming=True),
    "delegating": lambda: Delegating(other=Talker()),
    "handing on": lambda: HandingOn(other=Delegating(other=Talker())),
    "delegating to a chain": lambda: Delegating(other=RunnableLambda(lambda x: x) | Talker()),
}


@pytest.fixture(params=list(INNERS))
def inner(request: pytest.FixtureRequest) -> Any:
    return INNERS[request.param]()


async def every_route(model: Any, config: Any = None) -> list[Any]:
    """What comes out on every route, whole texts first."""
    config = config or {}
    texts = [
        model.invoke("x", config).text,
        (await model.ainvoke("x", config)).text,
        model.batch(["x"], config)[0].text,
        (await model.abatch(["x"], config))[0].text,
        "".join(chunk.text for chunk in model.stream("x", config)),
        "".join([chunk.text async for chunk in model.astream("x", config)]),
        (RunnableLambda(lambda x: x) | model).invoke("x", config).text,
        "".join(chunk.text for chunk in (RunnableLambda(lambda x: x) | model).stream("x", config)),
        (await (RunnableLambda(lambda x: x) | model).ainvoke("x", config)).text,
    ]
    assert texts == [SAFE] * len(texts)
    events = [event async for event in model.astream_events("x", config, version="v2")]
    results = model.generate([[HumanMessage("x")]]), await model.agenerate([[HumanMessage("x")]])
    return [texts, events, results]


def verified(inner: Any, policy: Policy) -> VerifiedChatModel:
    return VerifiedChatModel.over(inner, policy, action="redact")


async def test_callbacks_of_the_caller_see_the_verified_model_only(inner: Any, policy: Policy) -> None:
    seen = Everything()
    shown = await every_route(verified(inner, policy), {"callbacks": [seen]})
    assert seen.names.count("on_chat_model_start") == 10  # one run each, and none of the inner model
    check_everything(policy, [shown, seen.seen])


async def test_handlers_of_the_inner_model_become_the_verified_models(policy: Policy) -> None:
    seen, below = Everything(), Everything()
    inner = Delegating(other=scripted(callbacks=[below]), callbacks=[seen], verbose=True)
    check_everything(policy, await every_route(verified(inner, policy)))
    check_everything(policy, seen.seen)
    assert "on_llm_end" in seen.names
    assert not below.names  # of a model that nobody knows of


async def test_processwide_handlers_do_not_see_it(
    inner: Any, policy: Policy, capsys: pytest.CaptureFixture[str]
) -> None:
    hooked = Everything()
    set_debug(True)
    set_verbose(True)
    HOOK.set(hooked)
    try:
        with collect_runs() as runs:
            shown = await every_route(verified(inner, policy))
    finally:
        set_debug(False)
        set_verbose(False)
        HOOK.set(None)
    printed = capsys.readouterr().out
    assert "[redacted]" in printed
    assert "john.doe" not in printed
    check_everything(policy, [shown, hooked.seen, [run.outputs for run in runs.traced_runs]])
    assert hooked.names


@contextlib.contextmanager
def traced(way: str) -> Iterator[list[bytes]]:
    with langsmith_server() as (client, sent):
        if way == "tracer":
            with tracing_v2_enabled(client=client):
                yield sent
        else:
            with tracing_context(enabled=True, client=client), trace("above", client=client):
                yield sent
        client.flush()


@pytest.mark.parametrize("way", ["tracer", "run tree"])
async def test_traces_that_are_sent_away_do_not_hold_it(inner: Any, policy: Policy, way: str) -> None:
    with traced(way) as sent:
        shown = await every_route(verified(inner, policy))
    check_everything(policy, shown)
    everything = b"\n".join(sent).decode("utf-8", "replace")
    assert "[redacted]" in everything
    assert "john.doe" not in everything


async def test_an_environment_that_traces_does_not_see_it(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    from langsmith import utils

    with langsmith_server() as (client, sent):
        monkeypatch.setenv("LANGSMITH_TRACING", "true")
        monkeypatch.setenv("LANGSMITH_ENDPOINT", client.api_url)
        monkeypatch.setenv("LANGSMITH_API_KEY", "none")
        utils.get_env_var.cache_clear()
        try:
            for make in INNERS.values():
                check_everything(policy, await every_route(verified(make(), policy)))
            wait_for_all_tracers()
        finally:
            monkeypatch.undo()
            utils.get_env_var.cache_clear()
    assert sent
    assert b"john.doe" not in b"\n".join(sent)


async def test_agents_over_such_models_show_nothing(inner: Any, policy: Policy) -> None:
    seen = Everything()
    made = create_agent(inner, middleware=[NCOGuardMiddleware(policy)])
    ask: Any = {"messages": [("human", "x")]}
    config: Any = {"callbacks": [seen]}
    shown: list[Any] = [made.invoke(ask, config), await made.ainvoke(ask, config)]
    for mode in ("messages", "updates", "values", "debug", "tasks", "checkpoints"):
        shown += [*made.stream(ask, config, stream_mode=mode)]
        shown += [part async for part in made.astream(ask, config, stream_mode=mode)]
    shown += [event async for event in made.astream_events(ask, config, version="v2")]
    assert shown[0]["messages"][-1].text == SAFE
    check_everything(policy, [shown, seen.seen])
    texts = [chunk.text for chunk, _ in made.stream(ask, stream_mode="messages")]
    assert check_stream(policy, texts) == SAFE


FIELD = ConfigurableField(id="script")
# Models that keep what they say in a cache: their own or, where that is None, the one of the process.
CACHED: dict[str, Callable[[Any], Any]] = {
    "plain": lambda cache: scripted(cache=cache),
    "behind runnables": lambda cache: scripted(cache=cache).with_retry().bind(stop=["x"]),
    "behind fallbacks": lambda cache: Fails(other=None).with_fallbacks([scripted(cache=cache)]),
    "configurable": lambda cache: scripted(cache=cache).configurable_fields(script=FIELD),
    "an alternative": lambda cache: scripted("x").configurable_alternatives(
        FIELD, default_key="x", other=scripted(cache=cache)
    ),
    "delegating": lambda cache: Delegating(other=scripted(cache=cache), cache=cache),
    "in a chain": lambda cache: RunnableLambda(lambda messages: messages) | scripted(cache=cache),
    "an LLM in a chain": lambda cache: (
        RunnableLambda(lambda messages: messages)
        | FakeListLLM(responses=[LEAK], cache=cache)
        | RunnableLambda(AIMessage)
    ),
    "verified already": lambda cache: VerifiedChatModel.over(scripted(cache=cache), "secrets", cache=cache),
}


@pytest.mark.parametrize("kind", list(CACHED))
@pytest.mark.parametrize("own", [True, False], ids=["its own cache", "the cache of the process"])
async def test_caches_keep_only_what_was_verified(policy: Policy, kind: str, own: bool) -> None:
    cache = InMemoryCache()
    set_llm_cache(None if own else cache)
    try:
        config: Any = {"configurable": {"script": "other"}} if kind == "an alternative" else {}
        model = VerifiedChatModel.over(
            CACHED[kind](cache if own else None), policy, action="redact", cache=cache
        )
        for _ in range(2):
            assert model.invoke("x", config).text == SAFE
            assert (await model.ainvoke("y", config)).text == SAFE
    finally:
        set_llm_cache(None)
    kept = [generation for found in cache._cache.values() for generation in found]
    assert {generation.text for generation in kept} == {SAFE}
    assert "john.doe" not in repr(kept)


def test_a_model_without_its_cache_is_the_same_model() -> None:
    """What it counts or remembers stays with it, whether there is a cache or not."""
    cache = InMemoryCache()
    for kind in (FakeListChatModel, FakeListLLM):
        for own in (None, cache):
            set_llm_cache(cache)
            try:
                inner = kind(responses=["a", "b", "c"], cache=own)
                chain = inner if kind is FakeListChatModel else inner | RunnableLambda(AIMessage)
                model = VerifiedChatModel.over(chain, "secrets", cache=False)
                assert [model.invoke("x").text for _ in range(3)] == ["a", "b", "c"]
            finally:
                set_llm_cache(None)
    assert not cache._cache


def test_caches_of_others_are_used_as_ever(policy: Policy) -> None:
    """The control: beside a verified call, and after it."""
    cache = InMemoryCache()
    set_llm_cache(cache)
    try:
        model = scripted(LEAK, "another")
        stream = verified(scripted(size=1), policy).stream("x")
        next(stream)
        assert [model.invoke("x").text for _ in range(2)] == [LEAK] * 2
        assert [FakeListLLM(responses=["a", "b"]).invoke("x") for _ in range(2)] == ["a"] * 2
        stream.close()
    finally:
        set_llm_cache(None)
    assert len(cache._cache) == 2


async def test_streams_can_be_left_and_context_is_not_touched(policy: Policy) -> None:
    model = verified(Delegating(other=scripted(size=1)), policy)
    stream = model.stream("x")
    assert next(stream).text
    stream.close()
    astream = model.astream("x")
    assert (await anext(astream)).text
    await astream.aclose()
    seen = Everything()
    RunnableLambda(lambda x: x).with_config(callbacks=[seen]).invoke(1)
    assert seen.names == ["on_chain_start", "on_chain_end"]


def test_a_langchain_that_shows_handlers_all_the_same_is_refused(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_handler(self: Any, handler: Any, inherit: bool = True) -> None:
        self.handlers.append(handler)

    monkeypatch.setattr(BaseCallbackManager, "add_handler", add_handler)
    _silent.cache_clear()
    try:
        with pytest.raises(UnsupportedError, match="shows callbacks what they must not see"):
            verified(scripted(), policy).invoke("x")
    finally:
        _silent.cache_clear()


# -- what stands around models -----------------------------------------------------------------------------------


WRAPPED = {
    "bind": lambda: scripted().bind(stop=["never"]),
    "with_config": lambda: scripted().with_config(tags=["a"]),
    "with_retry": lambda: scripted().with_retry(stop_after_attempt=2),
    "with_fallbacks": lambda: Fails(other=None).with_fallbacks([scripted()]),
    "both": lambda: Fails(other=None).bind(a=1).with_retry(stop_after_attempt=1).with_fallbacks([scripted()]),
    "a chain": lambda: RunnableLambda(lambda messages: messages) | Talker(),
}


@pytest.mark.parametrize("around", list(WRAPPED))
async def test_a_model_behind_runnables_is_verified(around: str, policy: Policy) -> None:
    seen = Everything()
    shown = await every_route(verified(WRAPPED[around](), policy), {"callbacks": [seen]})
    check_everything(policy, [shown, seen.seen])


@pytest.mark.parametrize("around", ["bind", "with_config", "with_retry", "with_fallbacks", "both"])
async def test_an_agent_over_a_model_behind_runnables_is_guarded(around: str, policy: Policy) -> None:
    from hosts import ASK, CLEAN, SECRETS, hosted, lookup_customer

    inner: Any = {
        "bind": lambda: hosted().bind(stop=["never"]),
        "with_config": lambda: hosted().with_config(tags=["a"]),
        "with_retry": lambda: hosted().with_retry(),
        "with_fallbacks": lambda: Offers(other=None).with_fallbacks([hosted()]),
        "both": lambda: (
            Offers(other=None).bind(a=1).with_retry(stop_after_attempt=1).with_fallbacks([hosted()])
        ),
    }[around]
    seen = Everything()
    config: Any = {"callbacks": [seen]}

    def agent() -> Any:
        return create_agent(inner(), tools=[lookup_customer], middleware=[NCOGuardMiddleware(policy)])

    result = agent().invoke(ASK, config)
    assert [message.type for message in result["messages"]] == ["human", "ai", "tool", "ai"]
    assert result["messages"][-1].text == CLEAN
    assert (await agent().ainvoke(ASK, config))["messages"][-1].text == CLEAN
    streamed = list(agent().stream(ASK, config, stream_mode="messages"))
    check_everything(policy, [result, streamed, seen.seen])
    assert not any(secret in repr((result, streamed, seen.seen)) for secret in SECRETS)


class Offers(Fails):
    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **kwargs)


def test_callbacks_around_a_model_are_lifted_and_listeners_refused(policy: Policy) -> None:
    seen = Everything()
    model = verified(scripted().with_config(callbacks=[seen]), policy)
    assert model.invoke("x").text == SAFE
    check_everything(policy, seen.seen)
    assert seen.names.count("on_llm_end") == 1
    with pytest.raises(UnsupportedError, match="with_listeners"):
        verified(scripted().with_listeners(on_end=lambda run: None), policy)
    with pytest.raises(UnsupportedError, match="a chat model is needed, got str"):
        verified("openai:gpt", policy)


def test_configurable_fields_reach_the_inner_model(policy: Policy) -> None:
    inner = scripted().configurable_fields(script=ConfigurableField(id="script"))
    model = verified(inner, policy)
    assert model.invoke("x").text == SAFE
    other: Any = {"configurable": {"script": scripted("other: a@example.com").script}}
    assert model.invoke("x", other).text == "other: [redacted]"
    assert "".join(chunk.text for chunk in model.stream("x", other)) == "other: [redacted]"
    assert (RunnableLambda(lambda x: x) | model).invoke("x", other).text == "other: [redacted]"
    cache = InMemoryCache()
    cached = VerifiedChatModel.over(inner, policy, action="redact", cache=cache)
    assert cached.invoke("x").text == SAFE
    assert cached.invoke("x", other).text == "other: [redacted]"


def test_init_chat_model_with_any_field_configurable(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    from hosts import ASK, CLEAN, hosted, lookup_customer
    from langchain.chat_models import base, init_chat_model

    made = {"one": hosted(), "two": scripted("two: a@example.com")}
    # No provider is at hand here; everything else is LangChain's.
    monkeypatch.setattr(base, "_init_chat_model_helper", lambda model, **_: made[model])
    inner = init_chat_model("one", model_provider="openai", configurable_fields="any")
    model = verified(inner, policy)
    assert model.invoke("x", {"configurable": {"model": "two"}}).text == "two: [redacted]"
    bound = model.bind_tools([lookup_customer])
    assert bound.invoke("x").tool_calls[0]["args"] == {"name": "[redacted]"}
    made["one"].asked.clear()
    agent = create_agent(inner, tools=[lookup_customer], middleware=[NCOGuardMiddleware(policy)])
    assert agent.invoke(ASK)["messages"][-1].text == CLEAN
    other: Any = {"configurable": {"model": "two"}}
    assert agent.invoke(ASK, other)["messages"][-1].text == "two: [redacted]"
    texts = [chunk.text for chunk, _ in agent.stream(ASK, other, stream_mode="messages")]
    assert "".join(texts) == "two: [redacted]"
    assert [answer.text for answer in model.batch(["x"], [other])] == ["two: [redacted]"]


async def test_everything_the_inner_model_says_of_itself_is_kept(policy: Policy) -> None:
    model = verified(Streaming(streaming=True), policy)
    answer = model.invoke("x")
    assert answer.usage_metadata == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    assert answer.response_metadata["finish_reason"] == "stop"
    whole = None
    for chunk in model.stream("x"):
        whole = chunk if whole is None else whole + chunk
    assert whole.usage_metadata == answer.usage_metadata
    assert whole.response_metadata["finish_reason"] == "stop"
    assert len({chunk.id for chunk in model.stream("x")}) == 1
    assert LEAK not in repr(answer)


class Breaks(Delegating):
    """A provider whose errors repeat what was written."""

    broken: Any

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise self.broken()

    async def _agenerate(self, *args: Any, **kwargs: Any) -> Any:
        raise self.broken()

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        yield from scripted("So far so good. ")._stream([])
        raise self.broken()

    async def _astream(self, *args: Any, **kwargs: Any) -> Any:
        for chunk in scripted("So far so good. ")._stream([]):
            yield chunk
        raise self.broken()


class Response:
    def __init__(self) -> None:
        self.text, self.headers, self.status_code = LEAK, dict[str, str](), 400

    def json(self) -> Any:
        return {"failed_generation": LEAK}


class BadRequest(Exception):
    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.response = Response()
        self.body = {"failed_generation": LEAK}


def chained() -> Exception:
    error = ValueError("no answer")
    error.__cause__ = KeyError(LEAK)
    return error


class Abort(BaseException):
    pass


class Wrapping(Exception):
    def __init__(self, orig: BaseException) -> None:
        super().__init__("failed")
        self.orig = orig


BROKEN: dict[str, Any] = {
    "wrapped": lambda: Wrapping(chained()),
    "a name": lambda: ImportError("no", name=LEAK),
    "an end": lambda: Abort(LEAK),
    "an end among others": lambda: BaseExceptionGroup("g", [ValueError(LEAK), KeyboardInterrupt()]),
    "itself": lambda: ValueError(LEAK),
    "response": lambda: BadRequest("400"),
    "cause": chained,
    "arguments": lambda: ValueError({"failed_generation": [LEAK]}),
}


@pytest.mark.parametrize("way", list(BROKEN))
async def test_errors_of_the_inner_model_hold_nothing(way: str, policy: Policy) -> None:
    seen = Everything()
    config: Any = {"callbacks": [seen]}
    model = verified(Breaks(other=None, broken=BROKEN[way]), policy)

    async def drain() -> None:
        async for _ in model.astream("x", config):
            pass

    caught: list[BaseException] = []
    for use in (
        lambda: model.invoke("x", config),
        lambda: list(model.stream("x", config)),
        lambda: create_agent(model.inner, middleware=[NCOGuardMiddleware(policy)]).invoke(
            {"messages": [("human", "x")]}, config
        ),
    ):
        with pytest.raises(BaseException) as error:  # noqa: PT011
            use()
        caught.append(error.value)
    for route in (model.ainvoke("x", config), drain()):
        with pytest.raises(BaseException) as error:  # noqa: PT011
            await route
        caught.append(error.value)
    for one in caught:
        everything: list[Any] = []
        while one is not None:
            everything += [str(one), repr(one), repr(one.args), repr(vars(one))]
            everything += [
                getattr(getattr(one, "response", None), "text", ""),
                repr(getattr(one, "name", "")),
            ]
            one = one.__cause__ or one.__context__
        assert not any("john.doe" in text for text in everything)
    check_everything(policy, seen.seen)
    assert "john.doe" not in repr(seen.seen)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_what_ends_or_cancels_a_model_does_so_still_and_is_clean(
    kind: type[BaseException], policy: Policy
) -> None:
    model = verified(Breaks(other=None, broken=lambda: kind(LEAK)), policy)

    async def drain() -> None:
        async for _ in model.astream("x"):
            pass

    uses: list[Any] = [
        lambda: model.invoke("x"),
        lambda: list(model.stream("x")),
        lambda: asyncio.run(drain()),
    ]
    # Not `ainvoke`: LangChain asks for whole answers in tasks of its own, out of which ends go straight to the event
    # loop, and takes a cancelled one for an answer.
    for use in uses:
        with pytest.raises(kind) as caught:
            use()
        one: BaseException | None = caught.value
        while one is not None:
            assert "john.doe" not in repr(one)
            one = one.__cause__ or one.__context__
