"""`VerifiedLLM`: what a hosted LLM wrote, on every route, verified before the reader has it.

The LLM that writes is scripted, since what it says has to be known to the character; engines, agents and programs are
LlamaIndex's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core import Document, SummaryIndex
from llama_index.core.agent.workflow import AgentStream, FunctionAgent, ReActAgent
from llama_index.core.base.llms.types import (
    CitableBlock,
    CitationBlock,
    ImageBlock,
    LogProb,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.callbacks import CallbackManager, CBEventType
from llama_index.core.callbacks.base_handler import BaseCallbackHandler
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import ChatMessage, ChatResponse, CompletionResponse, MockLLM
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.core.types import PydanticProgramMode
from llama_index.llms.nco_guard import NCOGuardAuditHandler, VerifiedLLM
from llama_index.llms.nco_guard.testing import ScriptedLLM
from pydantic import BaseModel

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.errors import ArgumentError, PolicyError, UnsupportedError, ViolationError
from nco_guard.scan import redact

pytestmark = pytest.mark.anyio
Keeps = Any
ASK = [ChatMessage(role="user", content="Maria?")]
SAID = "Fine. Write to maria@example.com, or call 312-555-0155 now. Bye."
CLEAN = "Fine. Write to [redacted], or call [redacted] now. Bye."
SECRETS = ("maria@", "312-555")
CALL = ToolCallBlock(tool_call_id="1", tool_name="lookup", tool_kwargs={"who": "maria@example.com", "n": 3})


def verified(
    policy: Policy | Guard, *script: ChatMessage | str, size: int = 3, **options: Any
) -> VerifiedLLM:
    given: dict[str, Any] = {"action": "redact", **options}
    return VerifiedLLM(ScriptedLLM(script=list(script or (SAID,)), size=size), guard=policy, **given)


@pytest.mark.parametrize("size", [1, 3, 1000])
async def test_every_route_shows_the_redacted_text_and_never_a_match(
    policy: Policy, keeps: Keeps, size: int
) -> None:
    llm = verified(policy, size=size)
    assert llm.complete("x").text == llm.chat(ASK).message.content == CLEAN
    assert (await llm.acomplete("x")).text == (await llm.achat(ASK)).message.content == CLEAN
    assert keeps(chunk.delta for chunk in llm.stream_complete("x")) == CLEAN
    assert keeps(chunk.delta for chunk in llm.stream_chat(ASK)) == CLEAN
    assert keeps([chunk.delta async for chunk in await llm.astream_complete("x")]) == CLEAN
    assert keeps([chunk.delta async for chunk in await llm.astream_chat(ASK)]) == CLEAN
    prompt = PromptTemplate("{x}")
    assert llm.predict(prompt, x="x") == await llm.apredict(prompt, x="x") == CLEAN
    assert keeps(llm.stream(prompt, x="x")) == CLEAN
    assert keeps([piece async for piece in await llm.astream(prompt, x="x")]) == CLEAN
    for text in [*llm.stream_complete("x")], [*llm.stream_chat(ASK)], [llm.complete("x")], [llm.chat(ASK)]:
        assert not any(secret in repr(text) for secret in SECRETS)  # `raw` and all


def test_without_it_the_same_llm_shows_it(policy: Policy, keeps: Keeps) -> None:
    with pytest.raises(AssertionError):
        keeps(chunk.delta for chunk in ScriptedLLM(script=[SAID]).stream_chat(ASK))


@settings(max_examples=60, deadline=None)
@given(text=st.text("ab@. 1", max_size=30), size=st.integers(1, 7))
def test_text_is_held_back_as_long_as_a_match_is_open_and_no_longer(text: str, size: int) -> None:
    policy = Policy(
        name="p", rules=(RegexRule(id="r", regex=r"a+@b+\.1"), StringRule(id="s", strings=("bb",)))
    )
    wanted = redact(policy, text).text
    chunks = list(verified(GUARDS.setdefault(policy.digest, Guard(policy)), text, size=size).stream_chat(ASK))
    assert "".join(chunk.delta or "" for chunk in chunks) == wanted
    assert (chunks[-1].message.content or "") == wanted
    at = 0
    verifier = GUARDS[policy.digest].stream_verifier()
    for chunk in chunks[:-1]:
        piece = ""
        while not piece:  # shown with the very piece that makes it certain
            piece = verifier.feed(text[at : at + size])
            at += size
        assert piece == chunk.delta


GUARDS: dict[str, Guard] = {}


def test_a_match_is_an_error_that_holds_no_text_and_nothing_of_it_was_shown(
    policy: Policy, keeps: Keeps
) -> None:
    llm = verified(policy, action="raise")
    shown: list[str | None] = []
    for use in (
        lambda: llm.complete("x"),
        lambda: shown.extend(chunk.delta for chunk in llm.stream_complete("x")),
    ):
        with pytest.raises(ViolationError, match=r"model output: matches of 'pii\.email'") as caught:
            use()
        assert "maria" not in repr(caught.value)
    assert keeps(shown) == "Fine. Write to "
    assert verified(policy, "Nothing here.", action="raise").complete("x").text == "Nothing here."


async def test_tool_calls_are_shown_complete_and_clean(policy: Policy) -> None:
    said = ChatMessage(blocks=[TextBlock(text="I look."), CALL])
    tool = FunctionTool.from_defaults(lambda who, n: "", name="lookup", description="Look up.")
    llm = verified(policy, said)
    whole = llm.chat_with_tools([tool], user_msg="Maria?")
    assert llm.get_tool_calls_from_response(whole)[0].tool_kwargs == {"who": "[redacted]", "n": 3}
    chunks = list(llm.stream_chat_with_tools([tool], user_msg="Maria?"))
    assert [llm.get_tool_calls_from_response(c, error_on_no_tool_call=False) for c in chunks[:-1]] == [[]] * (
        len(chunks) - 1
    )
    assert llm.get_tool_calls_from_response(chunks[-1])[0].tool_kwargs["who"] == "[redacted]"
    with pytest.raises(ViolationError, match="model output"):
        await verified(policy, said, action="raise").achat_with_tools([tool], user_msg="Maria?")
    named = CALL.model_copy(update={"tool_name": "maria@example.com"})
    with pytest.raises(ViolationError, match="name of a tool"):
        verified(policy, ChatMessage(blocks=[named])).chat(ASK)


@pytest.mark.parametrize(
    "arguments",
    [r'{"who": "maria\u0040example.com"}', r'{"who": "maria\u0040example.com', '{"who": "maria@example.com'],
)
def test_arguments_are_read_as_their_reader_does(policy: Policy, arguments: str) -> None:
    """Escapes resolved, and where the JSON breaks off too."""
    for part in (
        {"blocks": [CALL.model_copy(update={"tool_kwargs": arguments})]},
        {"content": "", "additional_kwargs": {"tool_calls": [{"function": {"arguments": arguments}}]}},
    ):
        message = ChatMessage(role="assistant", **part)
        for answer in (
            verified(policy, message).chat(ASK),
            [*verified(policy, message).stream_chat(ASK)][-1],
        ):
            assert "[redacted]" in repr(answer)
            assert "maria" not in repr(answer)
        with pytest.raises(ViolationError):
            verified(policy, message, action="raise").chat(ASK)


class Provider(BaseModel):
    """An object as providers' libraries return them."""

    text: str
    usage: dict[str, Any]


class Rich(ScriptedLLM):
    """Says more than text."""

    def chat(self, messages: Any, **kwargs: Any) -> ChatResponse:
        message = ChatMessage(
            role="assistant",
            blocks=[
                ThinkingBlock(content="She is maria@example.com."),
                TextBlock(text="Write to:"),
                TextBlock(text="maria@example.com"),
            ],
            additional_kwargs={
                "object": Provider(text=SAID, usage={}),
                "opaque": object(),
                "logprobs": [SAID],
            },
        )
        return ChatResponse(
            message=message,
            raw=Provider(text=SAID, usage={"total_tokens": 7, "note": SAID}),
            logprobs=[[LogProb(token="maria")], [LogProb(token="@example.com")]],
            additional_kwargs={"prompt_tokens": 4111111111111111, "thinking_delta": "maria"},
        )


def test_all_else_that_a_response_carries_is_clean_or_left_out(policy: Policy) -> None:
    answer = VerifiedLLM(Rich(script=[]), guard=policy, action="redact").chat(ASK)
    assert answer.message.content == "Write to:\n[redacted]"
    assert answer.message.blocks[0] == ThinkingBlock(content="She is [redacted].")
    assert answer.message.additional_kwargs["object"].text == CLEAN
    assert answer.raw == {"policy_digest": policy.digest, "usage": {"total_tokens": 7}}
    assert answer.logprobs is None
    assert answer.additional_kwargs == {"prompt_tokens": 4111111111111111}
    assert not any(secret in repr(answer) for secret in ("maria@", "312-555", "thinking_delta"))
    image = ChatMessage(blocks=[ImageBlock(image=b"")])
    assert verified(policy, image).chat(ASK).message.content == "[ImageBlock withheld]"
    with pytest.raises(UnsupportedError, match="ImageBlock"):
        verified(policy, image, action="raise").chat(ASK)


BESIDE: dict[str, Any] = {
    "a call's id": CALL.model_copy(update={"tool_call_id": "maria@example.com", "tool_kwargs": {}}),
    "a nested number": CALL.model_copy(update={"tool_kwargs": {"a": [{"b": 4111111111111111}]}}),
    "a number with an exponent": CALL.model_copy(update={"tool_kwargs": {"a": (4.111111111111111e15,)}}),
    "a citable text": CitableBlock(
        title="maria@example.com",
        source="s",
        content=[TextBlock(text="maria@"), TextBlock(text="example.com")],
    ),
    "a citation": CitationBlock(
        cited_content=TextBlock(text="maria@example.com"),
        source="s",
        title="maria@example.com",
        additional_location_info={"maria@example.com": 1},
    ),
    "a thought": ThinkingBlock(
        content="maria@example.com", additional_information={"by": b"maria@example.com"}
    ),
    "bytes": {"data": b"to maria@example.com"},
}


@pytest.mark.parametrize("kind", list(BESIDE))
async def test_every_kind_of_block_is_clean_on_every_route(policy: Policy, kind: str) -> None:
    guard, given = Guard(policy), BESIDE[kind]
    extra = given if isinstance(given, dict) else {}
    blocks = [TextBlock(text="Fine."), *([] if extra else [given])]
    said = ChatMessage(role="assistant", blocks=blocks, additional_kwargs=extra)
    assert any(secret in repr(said) for secret in ("maria@", "4111111111111111", "4.111"))
    answers = [
        verified(guard, said).chat(ASK),
        await verified(guard, said).achat(ASK),
        [*verified(guard, said).stream_chat(ASK)][-1],
        [chunk async for chunk in await verified(guard, said).astream_chat(ASK)][-1],
    ]
    for answer in answers:
        assert answer.message == answers[0].message  # an id is the same new one everywhere
        assert [type(block) for block in answer.message.blocks] == [type(block) for block in blocks]
        assert not any(secret in repr(answer) for secret in ("maria@", "4111111111111111", "4.111"))
    with pytest.raises(ViolationError):
        verified(guard, said, action="raise").chat(ASK)


def test_llms_that_show_only_the_text_so_far(policy: Policy, keeps: Keeps) -> None:
    class Cumulative(MockLLM):
        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return (CompletionResponse(text=SAID[:end]) for end in (*range(0, len(SAID), 5), len(SAID)))

    llm = VerifiedLLM(Cumulative(), guard=policy, action="redact")
    assert keeps(chunk.delta for chunk in llm.stream_complete("x")) == CLEAN

    class Fickle(MockLLM):
        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            return (CompletionResponse(text=text) for text in ("one", "two"))

    with pytest.raises(UnsupportedError, match="takes back"):
        list(VerifiedLLM(Fickle(), guard=policy).stream_complete("x"))


def test_leaving_a_stream_closes_the_one_inside(policy: Policy) -> None:
    closed: list[str] = []

    class Closing(MockLLM):
        def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
            try:
                for end in range(1, 100):
                    yield CompletionResponse(text=" " * end, delta=" ")
            finally:
                closed.append("yes")

    stream = VerifiedLLM(Closing(), guard=policy).stream_complete("x")
    next(stream)
    stream.close()
    assert closed == ["yes"]


async def test_engines_agents_and_programs_use_it_like_any_llm(policy: Policy, keeps: Keeps) -> None:
    index = SummaryIndex.from_documents([Document(text="Maria Lopez is a customer.")])
    assert index.as_query_engine(llm=verified(policy)).query("Maria?").response == CLEAN
    streamed = index.as_query_engine(llm=verified(policy), streaming=True).query("Maria?")
    assert keeps(streamed.response_gen) == CLEAN
    engine = SimpleChatEngine.from_defaults(llm=verified(policy))
    assert keeps(engine.stream_chat("Maria?").response_gen) == CLEAN

    seen: list[str] = []

    def lookup(who: str, n: int) -> str:
        """Look up."""
        seen.append(who)
        return "found"

    for streaming in (True, False):
        llm = verified(policy, ChatMessage(blocks=[CALL]), SAID)
        agent = FunctionAgent(tools=[FunctionTool.from_defaults(lookup)], llm=llm, streaming=streaming)
        handler = agent.run("Maria?")
        events = [event async for event in handler.stream_events()]
        assert str(await handler) == CLEAN
        assert not any(secret in repr(events) for secret in SECRETS)
        keeps(event.delta for event in events if isinstance(event, AgentStream))
    assert seen == ["[redacted]"] * 2

    script = (
        'Thought: I look.\nAction: lookup\nAction Input: {"who": "maria@example.com", "n": 1}\n',
        f"Thought: I can answer without using any more tools.\nAnswer: {SAID}",
    )
    agent = ReActAgent(tools=[FunctionTool.from_defaults(lookup)], llm=verified(policy, *script))
    handler = agent.run("Maria?")
    events = [event async for event in handler.stream_events()]
    assert str(await handler) == CLEAN
    keeps(event.delta for event in events if isinstance(event, AgentStream))
    assert seen[2:] == ["[redacted]"]


class Contact(BaseModel):
    """How to get in touch."""

    way: str


async def test_structured_answers_are_clean(policy: Policy) -> None:
    block = ToolCallBlock(tool_call_id="1", tool_name="Contact", tool_kwargs={"way": "maria@example.com"})
    message = ChatMessage(blocks=[block], additional_kwargs={"tool_calls": [json.dumps(block.tool_kwargs)]})
    prompt = PromptTemplate("{x}")
    llm = verified(policy, message)
    assert llm.structured_predict(Contact, prompt, x="x") == Contact(way="[redacted]")
    assert await llm.astructured_predict(Contact, prompt, x="x") == Contact(way="[redacted]")
    assert llm.as_structured_llm(Contact).complete("x").raw == Contact(way="[redacted]")
    for part in llm.stream_structured_predict(Contact, prompt, x="x"):
        assert "maria" not in repr(part)


ESCAPED = r'{"way": "maria\u0040example.com"}'


def test_what_programs_parse_out_of_text_is_clean(policy: Policy) -> None:
    """Where a model calls no functions, LlamaIndex asks for JSON in the text and parses it, escapes and all."""
    guard, prompt = Guard(policy), PromptTemplate("{x}")

    def llm(**options: Any) -> VerifiedLLM:
        made = verified(guard, ESCAPED, **options)
        made.pydantic_program_mode = PydanticProgramMode.LLM
        return made

    program = LLMTextCompletionProgram.from_defaults
    structured = llm().as_structured_llm(Contact)
    answers = [
        program(output_cls=Contact, prompt_template_str="x", llm=llm())(),
        llm().structured_predict(Contact, prompt, x="x"),
        structured.chat(ASK).raw,
        structured.complete("x").raw,
        [*structured.stream_chat(ASK)][-1].raw,
    ]
    assert answers == [Contact(way="[redacted]")] * 5
    for use in (
        lambda made: program(output_cls=Contact, prompt_template_str="x", llm=made)(),
        lambda made: made.structured_predict(Contact, prompt, x="x"),
        lambda made: made.as_structured_llm(Contact).chat(ASK),
    ):
        with pytest.raises(ViolationError):
            use(llm(action="raise"))


async def test_a_react_agent_reads_no_escapes_out_of_an_action(policy: Policy) -> None:
    seen: list[str] = []

    def lookup(way: str) -> str:
        """Look up."""
        seen.append(way)
        return "found"

    acts = f"Thought: I look.\nAction: lookup\nAction Input: {ESCAPED}\n"
    ends = "Thought: I can answer without using any more tools.\nAnswer: Done."
    guard = Guard(policy)
    for streaming in (True, False):
        llm = verified(guard, acts, ends)
        agent = ReActAgent(tools=[FunctionTool.from_defaults(lookup)], llm=llm, streaming=streaming)
        handler = agent.run("Maria?")
        events = [event async for event in handler.stream_events()]
        assert str(await handler) == "Done."
        assert "maria" not in repr(events)
    assert seen == ["[redacted]"] * 2


class Card(BaseModel):
    n: int
    s: str = ""


NUMBERS = Policy(name="numbers", rules=(RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)"),))


@pytest.mark.parametrize("written", ["4.111111111111111e15", '"4111111111111111.0"', "41111111111111110E-1"])
def test_what_programs_parse_out_of_text_holds_no_number(written: str) -> None:
    prompt, shown = PromptTemplate("x"), []

    def llm(said: str, action: Any) -> VerifiedLLM:
        made = verified(NUMBERS, said, action=action)
        made.pydantic_program_mode = PydanticProgramMode.LLM
        return made

    uses: list[Callable[[VerifiedLLM], Any]] = [
        lambda made: LLMTextCompletionProgram.from_defaults(
            output_cls=Card, prompt_template_str="x", llm=made
        )(),
        lambda made: made.structured_predict(Card, prompt),
        lambda made: [*made.stream_structured_predict(Card, prompt)],
        lambda made: made.as_structured_llm(Card).chat(ASK).raw,
        lambda made: [*made.as_structured_llm(Card).stream_chat(ASK)],
    ]
    for use in uses:
        assert "4100" in str(use(llm('{"n": 4.1e3, "s": "a"}', "redact")))
        with pytest.raises(ViolationError):
            use(llm(f'Here: {{"n": {written}, "s": "a"}}', "raise"))
        try:
            shown.append(repr(use(llm(f'Here: {{"n": {written}, "s": "a"}}', "redact"))))
        except ValueError as error:  # what is replaced is no number
            shown.append(repr(error))
    assert len(shown) == len(uses)
    assert "4111111111111111" not in str(shown)


async def test_a_react_agent_reads_no_number_out_of_an_action() -> None:
    seen: list[Any] = []

    def lookup(n: float, other: str = "") -> str:
        """Look up."""
        seen.append(n)
        return "found"

    ends = "Thought: I can answer without using any more tools.\nAnswer: Done."
    for number in ("4.1e3", "4.111111111111111e15", "0xe9b08a568f1c7"):
        acts = (
            f"Thought: I look.\nAction: lookup\nAction Input: {{'n': {number}, /* lenient */ 'other': 'x'}}\n"
        )
        for streaming in (True, False):
            llm = verified(NUMBERS, acts, ends, action="redact")
            agent = ReActAgent(tools=[FunctionTool.from_defaults(lookup)], llm=llm, streaming=streaming)
            handler = agent.run("Maria?")
            events = [event async for event in handler.stream_events()]
            assert str(await handler) == "Done."
            assert "4111111111111" not in repr(events)
    assert seen == [4100.0] * 2


def test_a_call_may_have_its_own_policy_and_so_may_a_copy(policy: Policy) -> None:
    other = Policy(name="no-bye", rules=(StringRule(id="bye", strings=("Bye",)),))
    llm = verified(policy)
    said = SAID.replace("Bye", "[redacted]")
    assert llm.complete("x", guard=other).text == said
    assert "".join(chunk.delta or "" for chunk in llm.stream_chat(ASK, guard=Guard(other))) == said
    tool = FunctionTool.from_defaults(lambda: "", name="t", description="T.")
    assert llm.chat_with_tools([tool], user_msg="x", guard=other).message.content == said
    copy = llm.with_guard(other)
    assert copy.complete("x").text == said
    assert (copy.policy_digest, llm.policy_digest) == (other.digest, policy.digest)
    assert llm.to_payload()["policy_digest"] == policy.digest
    assert llm.complete("x").text == CLEAN
    for use in (lambda: llm.complete("x", policy=other), lambda: [*llm.stream_chat(ASK, policy=other)]):
        with pytest.raises(UnsupportedError, match=r"^policy: .*guard="):  # the LLM inside may ignore it
            use()


def test_texts_are_recorded_without_text(policy: Policy) -> None:
    sink = MemorySink()
    llm = verified(policy, SAID, ChatMessage(blocks=[CALL]), audit=sink)
    llm.complete("x")
    llm.chat(ASK)
    list(llm.stream_complete("x"))
    first, call, streamed = (event for event in sink.events if event.kind == "verification" and not event.ok)
    assert [found.rule_id for found in first.findings] == ["pii.email", "pii.phone_nanp"]
    assert [found.rule_id for found in call.findings] == ["pii.email"]
    assert streamed.findings == first.findings
    assert all(event.parent_id for event in sink.events if event.kind == "verification")
    assert "maria" not in repr(sink.events)


class Seen(BaseCallbackHandler):
    """Keeps all that LlamaIndex's callbacks are told."""

    def __init__(self) -> None:
        super().__init__([], [])
        self.payloads: list[Any] = []

    def on_event_start(self, event_type: CBEventType, payload: Any = None, *_: Any, **__: Any) -> str:
        self.payloads.append(payload)
        return ""

    def on_event_end(self, event_type: CBEventType, payload: Any = None, *_: Any, **__: Any) -> None:
        self.payloads.append(payload)

    def start_trace(self, trace_id: str | None = None) -> None:
        pass

    def end_trace(self, trace_id: str | None = None, trace_map: Any = None) -> None:
        pass


def test_callbacks_are_shown_verified_text_only(policy: Policy) -> None:
    """Those of the LLM inside too, which reports nothing while it is inside."""
    seen = Seen()
    inner = ScriptedLLM(script=[SAID], callback_manager=CallbackManager([seen]))
    llm = VerifiedLLM(inner, guard=policy, action="redact")
    llm.complete("x")
    list(llm.stream_chat(ASK))
    assert len(seen.payloads) == 4
    assert "Write to [redacted]" in repr(seen.payloads)
    assert "maria" not in repr(seen.payloads)
    sink = MemorySink()
    handler = NCOGuardAuditHandler(policy, sink)
    get_dispatcher().add_event_handler(handler)
    try:
        llm.complete("x")
    finally:
        get_dispatcher().event_handlers.remove(handler)
    verdicts = [event.ok for event in sink.events if event.kind == "verification"]
    assert verdicts == [True]


def test_bad_usage_is_refused_at_construction(policy: Policy, tmp_path: Path) -> None:
    llm = ScriptedLLM(script=[SAID])
    with pytest.raises(UnsupportedError, match="an LLM of LlamaIndex is needed"):
        VerifiedLLM(object(), guard=policy)  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="as_structured_llm"):
        VerifiedLLM(llm.as_structured_llm(Contact), guard=policy)
    with pytest.raises(ValueError, match="one of 'raise', 'redact'"):
        VerifiedLLM(llm, guard=policy, action="shout")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="replacement itself"):
        VerifiedLLM(llm, guard=policy, replacement="a@example.com")
    with pytest.raises(ArgumentError, match="a Guard, a Policy"):
        VerifiedLLM(llm, guard=b"pii")  # type: ignore[arg-type]
    with pytest.raises(UnsupportedError, match="calls no functions"):
        VerifiedLLM(MockLLM(), guard=policy).chat_with_tools([], user_msg="x")
    assert not VerifiedLLM(MockLLM(), guard=policy).metadata.is_function_calling_model


def test_a_policy_may_forbid_the_default_replacement(policy: Policy) -> None:
    words = policy.with_rules(StringRule(id="no-redacted", strings=("redacted",)))
    assert VerifiedLLM(ScriptedLLM(script=["Fine."]), guard=words).complete("x").text == "Fine."
    with pytest.raises(ViolationError):
        VerifiedLLM(ScriptedLLM(script=[SAID]), guard=words).complete("x")
    assert verified(words).complete("x").text == CLEAN.replace("redacted", "removed")
