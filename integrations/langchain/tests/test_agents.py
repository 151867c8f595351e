"""Agents under `NCOGuardMiddleware`: a guarded local model, hosted stand-ins, tools; and LangChain's own middleware."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from checks import check_chunks, check_everything, check_message, check_stream, texts_in, verify
from hosts import ASK, CLEAN, RECORD, SECRETS, hosted, lookup_customer, lookup_order, script
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, PIIMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, ToolException, tool
from langgraph.prebuilt import ToolRuntime
from langgraph.types import Command

from langchain_nco_guard import NCOGuardMiddleware, VerifiedChatModel, guard_runnable
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.demo import SYSTEM_PROMPT
from nco_guard.errors import ArgumentValueError, PolicyError, UnsupportedError, ViolationError


def agent(policy: Policy, model: Any = None, **options: Any) -> Any:
    middleware = [NCOGuardMiddleware(policy, **options)]
    return create_agent(model or hosted(), tools=[lookup_customer, lookup_order], middleware=middleware)


# -- hosted models -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("blocks", [False, True])
async def test_no_stream_of_an_agent_shows_a_match_at_any_moment(
    policy: Policy, size: int, blocks: bool
) -> None:
    def fresh() -> Any:
        return agent(policy, hosted(size=size, blocks=blocks))

    chunks = list(fresh().stream(ASK, stream_mode="messages"))
    assert check_chunks(policy, chunks) == ["", CLEAN]
    chunks = [chunk async for chunk in fresh().astream(ASK, stream_mode="messages")]
    assert check_chunks(policy, chunks) == ["", CLEAN]
    for mode in ("updates", "values", "debug", ["messages", "updates", "custom"]):
        check_everything(policy, list(fresh().stream(ASK, stream_mode=mode)))
        check_everything(policy, [part async for part in fresh().astream(ASK, stream_mode=mode)])
    events = [event async for event in fresh().astream_events(ASK, version="v2")]
    check_everything(policy, events)
    assert any(event["event"] == "on_tool_end" for event in events)


@pytest.mark.filterwarnings("ignore:.*experimental.*", "ignore:.*beta.*")
async def test_events_of_the_third_version_are_clean(policy: Policy) -> None:
    events = list(agent(policy).stream_events(ASK, version="v3"))
    stream = await agent(policy).astream_events(ASK, version="v3")
    for seen in (events, [event async for event in stream]):
        assert len(seen) > 10
        check_everything(policy, seen)
        assert not any(secret in str(seen) for secret in SECRETS)


async def test_the_result_and_the_state_are_clean(policy: Policy) -> None:
    for result in (
        agent(policy).invoke(ASK),
        await agent(policy).ainvoke(ASK),
        agent(policy).batch([ASK])[0],
    ):
        messages = result["messages"]
        assert [type(message) for message in messages] == [HumanMessage, AIMessage, ToolMessage, AIMessage]
        for message in messages:
            check_message(policy, message)
        assert messages[1].tool_calls[0]["args"] == {"name": "[redacted]"}
        assert json.loads(messages[2].content)["city"] == "Oslo"
        assert messages[3].text == CLEAN


class Everything(BaseCallbackHandler):
    """Keeps all that a tracer would see."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def _keep(self, *values: Any, **_: Any) -> None:
        self.seen += values

    def on_chat_model_start(self, serialized: Any, *values: Any, **_: Any) -> None:
        self.seen += values  # what is left out describes the model: here, all of its script

    on_llm_new_token = on_llm_end = on_tool_start = on_tool_end = on_tool_error = _keep
    on_chain_start = on_chain_end = on_llm_error = on_chain_error = _keep


async def test_callbacks_see_clean_text_only(policy: Policy) -> None:
    seen = Everything()
    config = {"callbacks": [seen]}
    agent(policy).invoke(ASK, config)
    list(agent(policy).stream(ASK, config, stream_mode="messages"))
    await agent(policy).ainvoke(ASK, config)
    assert len(seen.seen) > 30
    check_everything(policy, seen.seen)


@pytest.mark.parametrize("size", [1, 4])
def test_text_is_shown_with_the_very_piece_that_makes_it_certain(policy: Policy, size: int) -> None:
    chunks = list(agent(policy, hosted(size=size)).stream(ASK, stream_mode="messages"))
    texts = [chunk.text for chunk, _ in chunks if isinstance(chunk, AIMessageChunk) and chunk.text]
    said = script()[1].text
    verifier = Guard(policy).stream_verifier()
    fed = [verifier.feed(said[start : start + size]) for start in range(0, len(said), size)]
    assert texts == [piece for piece in [*fed, verifier.finish()] if piece]
    assert len(texts) >= 10
    # What cannot begin an address passes at once.
    certain = Guard(
        Policy(name="digits", rules=(RegexRule(id="digits", regex=r"\d{3}-\d{3}"),))
    ).stream_verifier()
    assert [certain.feed(letter) for letter in "call 3"] == [*"call ", ""]


@pytest.mark.parametrize("mode", ["messages", "updates", "values"])
def test_langchains_own_middleware_leaks_where_ours_does_not(policy: Policy, mode: str) -> None:
    theirs = [PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True)]
    leaky = create_agent(hosted(), tools=[lookup_customer], middleware=theirs)
    streamed = list(leaky.stream(ASK, stream_mode=mode))
    pieces = [chunk.text for chunk, _ in streamed] if mode == "messages" else texts_in(streamed)
    shown = "".join(pieces)
    assert "john.doe@example.com" in shown
    ours = list(agent(policy).stream(ASK, stream_mode=mode))
    check_everything(policy, ours)
    assert not any(secret in text for text in texts_in(ours) for secret in SECRETS)


async def test_langchains_own_middleware_leaks_events(policy: Policy) -> None:
    theirs = [PIIMiddleware("email", apply_to_output=True, apply_to_tool_results=True)]
    leaky = create_agent(hosted(), tools=[lookup_customer], middleware=theirs)
    events = [event async for event in leaky.astream_events(ASK, version="v2")]
    assert any("john.doe@example.com" in text for text in texts_in(events))


def test_blocking_raises_and_shows_nothing_forbidden(policy: Policy) -> None:
    talk = ScriptedChatModel(script=[AIMessage("Fine so far. Write to john.doe@example.com now.")])
    shown: list[Any] = []
    with pytest.raises(ViolationError, match="model output: matches of 'email'") as caught:
        shown.extend(agent(policy, talk, action="raise").stream(ASK, stream_mode="messages"))
    assert caught.value.rule_ids == ("email",)
    assert "john" not in str(caught.value)
    streaming = agent(policy, talk, action="raise").stream(ASK, stream_mode="messages")
    pieces = take_until_violation(streaming)
    assert check_stream(policy, pieces).startswith("Fine so far. Write ")
    with pytest.raises(ViolationError, match="tool-call arguments"):
        agent(policy, action="raise").invoke(ASK)


def take_until_violation(stream: Any) -> list[str]:
    pieces = []
    try:
        for chunk, _ in stream:
            pieces.append(chunk.text)
    except ViolationError:
        return pieces
    raise AssertionError("nothing was blocked")


async def test_retrying_asks_again_and_names_the_rules(policy: Policy) -> None:
    for route in ("invoke", "stream", "ainvoke"):
        talk = ScriptedChatModel(script=[AIMessage("mail john.doe@example.com"), AIMessage("It is on file.")])
        made = agent(policy, talk, action="retry")
        if route == "stream":
            assert check_chunks(policy, list(made.stream(ASK, stream_mode="messages"))) == ["It is on file."]
        else:
            result = made.invoke(ASK) if route == "invoke" else await made.ainvoke(ASK)
            assert result["messages"][-1].text == "It is on file."
            assert len(result["messages"]) == 2
        assert talk.asked[1][-1].text.startswith("Your answer broke the output policy (rules: email).")
    stubborn = ScriptedChatModel(script=[AIMessage("mail john.doe@example.com")])
    with pytest.raises(ViolationError):
        agent(policy, stubborn, action="retry", max_retries=2).invoke(ASK)
    assert len(stubborn.asked) == 3


async def test_escapes_in_arguments_are_read(policy: Policy) -> None:
    for size in (1, 4):
        for stream in (False, True):
            made = agent(
                policy, hosted(size=size, arguments={"lookup_customer": r'{"name": "jane\u0040example.com"}'})
            )
            parts = list(made.stream(ASK, stream_mode="messages")) if stream else made.invoke(ASK)
            check_everything(policy, parts)
            assert "jane" not in str(parts)


def test_input_is_checked_where_that_is_asked_for(policy: Policy) -> None:
    question = {"messages": [("human", "Who is jane@example.com?")]}
    model = hosted()
    agent(policy, model, check_input=True).invoke(question)
    assert [message.text for message in model.asked[0]] == ["Who is [redacted]?"]
    model = hosted()
    agent(policy, model).invoke(question)
    assert "jane@example.com" in model.asked[0][0].text
    with pytest.raises(ViolationError, match="input"):
        agent(policy, hosted(), check_input=True, action="raise").invoke(question)


# -- tools -------------------------------------------------------------------------------------------------------


def tool_agent(policy: Policy, made: BaseTool, **options: Any) -> Any:
    call = {"name": made.name, "args": {}, "id": "1", "type": "tool_call"}
    model = ScriptedChatModel(script=[AIMessage("", tool_calls=[call]), AIMessage("Done.")])
    return create_agent(model, tools=[made], middleware=[NCOGuardMiddleware(policy, **options)])


@tool
def gives_text() -> str:
    """Text."""
    return "maria@example.com"


@tool
async def gives_text_async() -> str:
    """Text."""
    return "maria@example.com"


@tool
def gives_data() -> dict[str, Any]:
    """Data."""
    return {"people": [RECORD]}


@tool(response_format="content_and_artifact")
def gives_both() -> tuple[str, dict[str, Any]]:
    """Text and what belongs to it."""
    return "maria@example.com", RECORD


@tool
def gives_object() -> object:
    """An object of the program's own."""

    class Person:
        def __str__(self) -> str:
            return "maria@example.com"

    return Person()


@tool
def gives_command(runtime: ToolRuntime) -> Command[Any]:
    """A command to the graph."""
    return Command(update={"messages": [ToolMessage("maria@example.com", tool_call_id=runtime.tool_call_id)]})


@pytest.mark.parametrize(
    "made",
    [gives_text, gives_text_async, gives_data, gives_both, gives_object, gives_command],
    ids=lambda t: t.name,
)
async def test_results_of_tools_are_redacted_before_anybody_sees_them(policy: Policy, made: BaseTool) -> None:
    seen = Everything()
    result = await tool_agent(policy, made).ainvoke(ASK, {"callbacks": [seen]})
    message = next(message for message in result["messages"] if isinstance(message, ToolMessage))
    assert "[redacted]" in message.text
    check_everything(policy, result)
    check_everything(policy, seen.seen)
    assert "maria@" not in str(seen.seen)
    if made is not gives_text_async:
        check_everything(policy, tool_agent(policy, made).invoke(ASK))


def test_errors_of_tools_are_redacted_too(policy: Policy) -> None:
    @tool
    def fails() -> str:
        """Fails."""
        raise ToolException("no such customer: maria@example.com")

    seen = Everything()
    with pytest.raises(ToolException, match=r"no such customer: \[redacted\]"):
        tool_agent(policy, fails).invoke(ASK, {"callbacks": [seen]})
    assert "maria@" not in str(seen.seen)


def test_results_of_tools_can_be_refused_or_left_alone(policy: Policy) -> None:
    with pytest.raises(ViolationError, match="tool result"):
        tool_agent(policy, gives_text, action="raise").invoke(ASK)
    result = tool_agent(policy, gives_text, check_tool_results=False).invoke(ASK)
    assert "maria@example.com" in str(result)


# -- a local model -----------------------------------------------------------------------------------------------


QUESTION = {"messages": [("human", "What is the phone number of Maria Lopez?")]}


async def test_a_local_agent_looks_up_and_answers_under_the_policy(local: Any, policy: Policy) -> None:
    def build(*middleware: AgentMiddleware[Any, Any, Any], guard: Any = None) -> Any:
        model = local() if guard is None else local(guard)
        tools = [lookup_customer, lookup_order]
        return create_agent(model, tools=tools, system_prompt=SYSTEM_PROMPT, middleware=middleware)

    bare = build().invoke(QUESTION)
    assert bare["messages"][1].tool_calls[0]["args"] == {"name": "Maria Lopez"}
    assert not verify(policy, bare["messages"][-1].text).ok
    ours = NCOGuardMiddleware(policy)
    result = build(ours).invoke(QUESTION)
    assert result["messages"][1].tool_calls[0]["args"] == {"name": "Maria Lopez"}
    check_everything(policy, result["messages"])
    # Guarded while it wrote, not redacted afterwards.
    answer = result["messages"][-1].text
    assert answer
    assert "[redacted]" not in answer or "[redacted]" in result["messages"][2].text
    assert (await build(ours).ainvoke(QUESTION))["messages"][-1].text == answer
    chunks = list(build(ours).stream(QUESTION, stream_mode="messages"))
    assert check_chunks(policy, chunks)[-1] == answer
    chunks = [chunk async for chunk in build(ours).astream(QUESTION, stream_mode="messages")]
    assert check_chunks(policy, chunks)[-1] == answer
    check_everything(policy, list(build(ours).stream(QUESTION, stream_mode="updates")))
    alone = build(guard=Guard(policy)).invoke(QUESTION)
    for message in alone["messages"]:
        if isinstance(message, AIMessage):
            check_message(policy, message)


def test_a_policy_given_with_the_call_is_joined_and_replaces_nothing(
    local: Any, policy: Policy, other_policy: Policy
) -> None:
    class Sets(AgentMiddleware[Any, Any, Any]):
        def wrap_model_call(self, request: Any, handler: Any) -> Any:
            return handler(request.override(model_settings={"guard": other_policy}))

    made = create_agent(local(max_tokens=24), middleware=[Sets(), NCOGuardMiddleware(policy)])
    answer = made.invoke({"messages": [("human", "How can I reach Daniel Cohen?")]})["messages"][-1]
    check_message(policy, check_message(other_policy, answer))


# -- the pieces --------------------------------------------------------------------------------------------------


def test_a_verified_model_can_be_used_without_an_agent(policy: Policy) -> None:
    model = VerifiedChatModel.over(hosted(), policy, action="redact", replacement=lambda rule: f"<{rule}>")
    model.invoke("x")
    assert model.invoke("x").text == "Write to <email>, or call <phone> to <word> her. Bye."
    bound = VerifiedChatModel.over(hosted(), policy, action="redact").bind_tools([lookup_customer])
    assert bound.invoke("x").tool_calls[0]["args"] == {"name": "[redacted]"}


def test_everything_else_a_message_carries_is_checked(policy: Policy) -> None:
    said = AIMessage(
        [{"type": "reasoning", "reasoning": "mail maria@example.com"}, {"type": "text", "text": "ma"},
         {"type": "text", "text": "il maria@exam"}, {"type": "text", "text": "ple.com."}],
        additional_kwargs={"tool_calls": [{"arguments": '{"to": "maria\\u0040example.com"}'}]},
        response_metadata={"logprobs": {"content": ["maria", "@", "example.com"]}, "note": "maria@example.com"},
    )  # fmt: skip
    message = VerifiedChatModel.over(Whole(script=[said]), policy, action="redact").invoke("x")
    assert message.text == "mail [redacted]."
    check_everything(policy, message)
    assert "maria" not in str(message)
    assert "logprobs" not in message.response_metadata
    full = None
    for chunk in VerifiedChatModel.over(Whole(script=[said]), policy, action="redact").stream("x"):
        full = chunk if full is None else full + chunk
    check_everything(policy, full)
    assert "maria" not in str(full)


class Whole(ScriptedChatModel):
    """Says its messages as they are, in one chunk."""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        from langchain_core.outputs import ChatGeneration, ChatResult

        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        from langchain_core.outputs import ChatGenerationChunk

        message = self._next(messages)
        yield ChatGenerationChunk(message=AIMessageChunk(**message.model_dump(exclude={"type"})))


def test_arguments_in_content_blocks_are_checked_and_media_left_alone(policy: Policy) -> None:
    digits = Policy(name="d", rules=(RegexRule(id="digits", regex=r"\d{9,}"),))
    blocks = [
        {"type": "tool_use", "id": "1", "name": "lookup_customer", "input": {"card": 4111111111111111}},
        {"type": "image", "base64": base64.b64encode(b"\x89PNG\r\n\x1a\n\0").decode() + "123456789012" * 8},
    ]
    model = VerifiedChatModel.over(Whole(script=[AIMessage(blocks)]), digits, action="redact")
    assert model.invoke("x").content == [{**blocks[0], "input": {"card": "[redacted]"}}, blocks[1]]


def test_two_policies_two_middlewares(policy: Policy, other_policy: Policy) -> None:
    both = [NCOGuardMiddleware(policy), NCOGuardMiddleware(other_policy)]
    model = ScriptedChatModel(script=[AIMessage("Daniel: john.doe@example.com")])
    assert create_agent(model, middleware=both).invoke(ASK)["messages"][-1].text == "[redacted]: [redacted]"
    chunks = list(create_agent(model, middleware=both).stream(ASK, stream_mode="messages"))
    assert check_chunks(policy, chunks) == check_chunks(other_policy, chunks) == ["[redacted]: [redacted]"]


def test_bad_usage_is_refused_at_construction(policy: Policy) -> None:
    with pytest.raises(ValueError, match="one of 'raise', 'redact', 'retry'"):
        NCOGuardMiddleware(policy, action="shout")  # type: ignore[arg-type]
    for other in ("report", "drop"):
        with pytest.raises(ArgumentValueError, match=f"action '{other}': one of 'raise', 'redact', 'retry'"):
            VerifiedChatModel.over(hosted(), policy, action=other)
    with pytest.raises(PolicyError, match="replacement itself"):
        NCOGuardMiddleware(policy, replacement="a@example.com")
    with pytest.raises(TypeError, match="guard: a Guard, a Policy"):
        NCOGuardMiddleware(None)  # type: ignore[arg-type]
    made = VerifiedChatModel(inner=hosted(), guard=policy, action="redact", replacement="<gone>")
    for make in (
        lambda it: VerifiedChatModel.over(hosted(), policy, replacement=it),
        lambda it: VerifiedChatModel(inner=hosted(), guard=policy, replacement=it),
        lambda it: made.model_copy(update={"replacement": it}),
    ):
        assert make("<gone>").replacement == "<gone>"
        for forbidden in ("a@example.com", lambda rule: "a@example.com"):
            with pytest.raises(PolicyError, match="replacement itself"):
                make(forbidden)
    with pytest.raises(PolicyError, match="replacement itself"):
        made.model_copy(update={"guard": policy.with_rules(StringRule(id="gone", strings=("gone",)))})

    class Odd(ScriptedChatModel):
        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self | (lambda message: message)

    with pytest.raises(UnsupportedError, match="cannot be verified"):
        VerifiedChatModel.over(Odd(script=[]), policy).bind_tools([])


async def test_a_policy_may_forbid_the_default_replacement(policy: Policy) -> None:
    words = policy.with_rules(StringRule(id="no-redacted", strings=("redacted",)))
    said = AIMessage("Fine.", response_metadata={"note": SECRETS[0]}, id="1")
    blocked = VerifiedChatModel.over(ScriptedChatModel(script=[said]), words)
    answer = blocked.invoke("x")
    assert answer.text == "Fine."
    assert answer.response_metadata["note"] == "[removed]"
    with pytest.raises(ViolationError):
        VerifiedChatModel.over(hosted(), words).invoke("x")
    for action in ("raise", "retry", "redact"):
        model = ScriptedChatModel(script=[AIMessage("Fine.")])
        made = create_agent(model, middleware=[NCOGuardMiddleware(words, action=action)])  # type: ignore[arg-type]
        assert (
            made.invoke(ASK)["messages"][-1].text == (await made.ainvoke(ASK))["messages"][-1].text == "Fine."
        )
    assert agent(words).invoke(ASK)["messages"][-1].text == CLEAN.replace("redacted", "removed")
    assert guard_runnable(words).invoke("Fine.") == "Fine."
