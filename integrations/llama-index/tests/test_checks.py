"""Retrieved text and finished output: verified, redacted or refused, and recorded; never with a word of text."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.base.llms.types import (
    CitableBlock,
    CitationBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import ChatMessage, CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.output_parsers import PydanticOutputParser
from llama_index.core.prompts import PromptTemplate
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    MetadataMode,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.types import BaseOutputParser
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
)
from llama_index.llms.nco_guard.testing import ScriptedLLM
from pydantic import BaseModel

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.audit import JsonLinesSink, MemorySink, read_events
from nco_guard.errors import UnsupportedError, ViolationError

pytestmark = pytest.mark.anyio
SECRET = "jane.doe@example.com"
POLICY = Policy(
    name="secret", rules=[StringRule(id="secret", strings=[SECRET]), RegexRule(id="year", regex="1999")]
)


def node(text: str = f"Write to {SECRET}.", **fields: Any) -> NodeWithScore:
    return NodeWithScore(node=TextNode(text=text, **fields), score=0.5)


def test_every_part_of_a_node_that_can_be_seen_is_redacted() -> None:
    given = node(
        metadata={
            "owner": SECRET,
            SECRET: ["x", {"y": SECRET}],
            "since": date(1999, 1, 2),
            "year": 1999,
            "ok": 1.5,
        },
        embedding=[0.1],
        relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc", metadata={"owner": SECRET}),
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id="child", metadata={"owner": SECRET})],
        },
    )
    before = given.model_dump_json()
    (clean,) = NCOGuardPostprocessor(POLICY).postprocess_nodes([given])
    assert SECRET not in str(clean.model_dump())
    assert "1999" not in str(clean.node.metadata)
    assert clean.node.text == "Write to [redacted]."
    assert clean.node.metadata["ok"] == 1.5
    assert clean.score == 0.5
    assert clean.node.embedding is None
    assert clean.node.ref_doc_id == "doc"
    assert given.model_dump_json() == before


def test_a_node_without_a_match_is_the_same_object() -> None:
    given = node("Nothing here.", metadata={"file": "a.txt"})
    assert NCOGuardPostprocessor(POLICY).postprocess_nodes([given])[0] is given


def test_a_match_of_key_and_value_together_is_redacted_too() -> None:
    policy = Policy(name="pair", rules=[RegexRule(id="pair", regex=r"pin: \d{4}")])
    (clean,) = NCOGuardPostprocessor(policy).postprocess_nodes([node("Hello", metadata={"pin": 1234})])
    assert "1234" not in clean.get_content(MetadataMode.ALL)
    assert "Hello" in clean.get_content(MetadataMode.ALL)


def test_newer_nodes_and_replacements_by_rule() -> None:
    given = NodeWithScore(node=Node(text_resource=MediaResource(text=f"Write to {SECRET} in 1999.")))
    post = NCOGuardPostprocessor(POLICY, replacement=lambda rule: f"<{rule}>")
    (clean,) = post.postprocess_nodes([given])
    assert clean.get_content() == "Write to <secret> in <year>."
    assert SECRET in given.get_content()


@pytest.mark.parametrize(
    "given",
    [
        Document(text_resource=MediaResource(text="a", path=f"/home/{SECRET}/a.txt"), id_="1"),
        Document(text_resource=MediaResource(text="a", url=f"https://example.org/?q={SECRET}"), id_="1"),
        IndexNode(text="a", index_id=SECRET, id_="1"),
        TextNode(text="a", id_=SECRET),
    ],
    ids=["path", "url", "index_id", "id_"],
)
def test_paths_addresses_and_ids_are_looked_into(given: BaseNode) -> None:
    scored = NodeWithScore(node=given, score=0.5)
    assert SECRET in given.model_dump_json()
    (clean,) = NCOGuardPostprocessor(POLICY).postprocess_nodes([scored])
    assert type(clean.node) is type(given)
    assert SECRET not in clean.node.model_dump_json() + repr(clean)
    assert clean.node.get_content() == "a"
    assert NCOGuardPostprocessor(POLICY, action="drop").postprocess_nodes([scored]) == []
    with pytest.raises(ViolationError, match="secret"):
        NCOGuardPostprocessor(POLICY, action="raise").postprocess_nodes([scored])


def test_actions() -> None:
    nodes = [node(), node("Nothing here.")]
    assert NCOGuardPostprocessor(POLICY, action="drop").postprocess_nodes(nodes) == nodes[1:]
    assert NCOGuardPostprocessor(POLICY, action="report").postprocess_nodes(nodes) == nodes
    with pytest.raises(ViolationError, match="secret") as caught:
        NCOGuardPostprocessor(POLICY, action="raise").postprocess_nodes(nodes)
    assert SECRET not in str(caught.value)


async def test_the_async_route_is_the_same() -> None:
    (clean,) = await NCOGuardPostprocessor(POLICY).apostprocess_nodes([node()])
    assert clean.node.text == "Write to [redacted]."


def test_what_cannot_be_searched_is_refused_or_dropped() -> None:
    picture = NodeWithScore(node=ImageNode(text="A picture.", image="aGVsbG8="))
    with pytest.raises(UnsupportedError, match="image"):
        NCOGuardPostprocessor(POLICY, action="raise").postprocess_nodes([picture])
    (bare,) = NCOGuardPostprocessor(POLICY).postprocess_nodes([picture])
    assert (bare.node.text, bare.node.image) == ("A picture.", "")
    assert NCOGuardPostprocessor(POLICY, action="drop").postprocess_nodes([picture]) == []


def test_what_was_retrieved_is_recorded_without_text() -> None:
    sink = MemorySink()
    NCOGuardPostprocessor(POLICY, audit=sink).postprocess_nodes([node(), node("Nothing here.")])
    assert [(event.kind, event.ok) for event in sink.events] == [
        ("verification", False),
        ("verification", True),
    ]
    (found,) = sink.events[0].findings
    assert (found.rule_id, found.start, found.end) == ("secret", 9, 9 + len(SECRET))
    assert SECRET not in "".join(event.to_json() for event in sink.events)


def test_what_no_rendered_text_shows_is_recorded_too() -> None:
    sink = MemorySink()
    post = NCOGuardPostprocessor(POLICY, action="report", audit=sink)
    post.postprocess_nodes([node("Nothing here."), node("Nor here.", id_=f"of {SECRET}")])
    told = [(event.sequence, event.ok, [one.rule_id for one in event.findings]) for event in sink.events]
    assert told[:2] == [(0, True, []), (1, True, [])]
    ((where, ok, rules),) = told[2:]
    assert (where, ok, set(rules)) == (1, False, {"secret"})


# -- output parser ---------------------------------------------------------------------------------------------


class Answer(BaseModel):
    text: str


def test_finished_output_is_refused_or_redacted() -> None:
    assert NCOGuardOutputParser(POLICY).parse("Nothing here.") == "Nothing here."
    with pytest.raises(ViolationError, match="model output") as caught:
        NCOGuardOutputParser(POLICY).parse(f"Write to {SECRET}.")
    assert SECRET not in str(caught.value)
    assert NCOGuardOutputParser(POLICY, action="redact").parse(f"To {SECRET}.") == "To [redacted]."


def test_what_an_inner_parser_brings_out_is_verified_as_well() -> None:
    parser = NCOGuardOutputParser(POLICY, inner=PydanticOutputParser(Answer))
    assert parser.parse('{"text": "fine"}') == Answer(text="fine")
    assert "JSON schema" in parser.format("Ask")
    escaped = r'{"text": "jane.doe\u0040example.com"}'
    with pytest.raises(ViolationError, match="model output"):
        parser.parse(escaped)
    redacting = NCOGuardOutputParser(POLICY, action="redact", inner=PydanticOutputParser(Answer))
    assert redacting.parse(escaped) == Answer(text="[redacted]")

    class Reversing(BaseOutputParser):
        def parse(self, output: str) -> Any:
            return [output[::-1]]

    with pytest.raises(ViolationError, match="parsed"):
        NCOGuardOutputParser(POLICY, inner=Reversing()).parse(SECRET[::-1])


def test_it_guards_the_output_of_any_llm(pair: tuple[Any, Any], policy: Policy) -> None:
    """Here the model that ships, wrapped by LlamaIndex's own class."""
    pytest.importorskip("llama_index.llms.huggingface")
    from llama_index.llms.huggingface import HuggingFaceLLM

    model, tokenizer = pair
    free = HuggingFaceLLM(
        model=model, tokenizer=tokenizer, context_window=1024, is_chat_model=True, max_new_tokens=64
    )
    prompt = PromptTemplate("What contact details do we have for Maria Lopez?")
    free.output_parser = NCOGuardOutputParser(policy)
    with pytest.raises(ViolationError):
        free.predict(prompt)
    free.output_parser = NCOGuardOutputParser(policy, action="redact")
    assert "[redacted]" in free.predict(prompt)


# -- audit -----------------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(policy: Policy) -> Any:
    sink = MemorySink()
    dispatcher = get_dispatcher()
    handler = NCOGuardAuditHandler(policy, sink)
    dispatcher.add_event_handler(handler)
    yield handler, sink
    dispatcher.event_handlers.remove(handler)


ASK = "What contact details do we have for Maria Lopez?"


async def test_every_route_is_recorded_as_one_whole_run(llm: NCOGuardLLM, recorded: Any) -> None:
    _, sink = recorded
    chat = [ChatMessage(role="user", content=ASK)]
    llm.complete(ASK)
    list(llm.stream_complete(ASK))
    llm.chat(chat)
    list(llm.stream_chat(chat))
    await llm.acomplete(ASK)
    _ = [chunk async for chunk in await llm.astream_complete(ASK)]
    await llm.achat(chat)
    _ = [chunk async for chunk in await llm.astream_chat(chat)]
    kinds = [event.kind for event in sink.events]
    assert kinds == ["run_started", "verification", "run_finished"] * 8
    assert all(event.ok for event in sink.events if event.kind == "verification")
    finished = [event for event in sink.events if event.kind == "run_finished"]
    assert {event.outcomes for event in finished} == {("ended",)}
    assert all(event.tokens > 10 for event in finished)
    assert "Maria" not in "".join(event.to_json() for event in sink.events)


class Choice(BaseModel):
    finish_reason: str | None


class Completion(BaseModel):
    choices: list[Choice]


class Hosted(CustomLLM):
    """Says how it ended where LLMs of providers do: in `raw`, or beside the text."""

    beside: dict[str, Any]

    @property
    def metadata(self) -> LLMMetadata:
        return LLMMetadata()

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text="Fine.", **self.beside)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield CompletionResponse(text="Fine.", delta="Fine.", **self.beside)
        yield CompletionResponse(text="Fine.", delta="", raw={"choices": [], "usage": {"total_tokens": 3}})


def test_the_finish_reason_of_a_hosted_model_is_recorded(recorded: Any) -> None:
    _, sink = recorded
    for beside, outcome in (
        ({"raw": Completion(choices=[Choice(finish_reason="length")])}, "length"),
        ({"raw": {"choices": [{"finish_reason": "max_tokens"}]}}, "max_tokens"),
        ({"raw": {"stop_reason": "end_turn"}}, "end_turn"),
        ({"additional_kwargs": {"finish_reason": "SAFETY"}}, "safety"),
        ({"raw": {"finish_reason": "maria.lopez"}}, "other"),
        ({"raw": {"id": "1"}}, "answered"),
    ):
        llm = Hosted(beside=beside)
        llm.complete(ASK)
        assert sink.events[-1].outcomes == (outcome,)
        # What a provider says of usage comes after the piece that says why it ended.
        list(llm.stream_complete(ASK))
        assert sink.events[-1].outcomes == (outcome,)


def test_the_runs_of_handler_and_decoder_belong_to_one_span(
    pair: tuple[Any, Any], policy: Policy, recorded: Any
) -> None:
    _, observed = recorded
    decoded = MemorySink()
    NCOGuardLLM(*pair, guard=policy, audit=decoded, max_new_tokens=64).complete(ASK)
    # What a guard says of itself belongs to no run.
    own = ("policy_loaded", "guarantee_configured")
    spans = {e.parent_id for e in (*observed.events, *decoded.events) if e.kind not in own}
    assert len(spans) == 1
    assert next(iter(spans)).startswith("NCOGuardLLM.complete-")
    assert any(event.kind == "intervention" for event in decoded.events)


def test_what_an_unguarded_llm_writes_is_found(pair: tuple[Any, Any], recorded: Any) -> None:
    _, sink = recorded
    free = NCOGuardLLM(
        *pair, guard=Policy(name="nothing", rules=[StringRule(id="n", strings=["no such word"])])
    )
    free.complete(ASK)
    (found,) = [event for event in sink.events if event.kind == "verification"]
    assert not found.ok
    assert found.findings


def test_tool_calls_are_verified(llm: NCOGuardLLM, tools: list[Any], recorded: Any) -> None:
    _, sink = recorded
    llm.chat_with_tools(tools, user_msg="Where is order A-1042?")
    (call,) = [event for event in sink.events if event.kind == "verification"]
    assert call.ok
    assert call.length > len("lookup_order" + "order_id" + "A-1042")


BLOCKS: dict[str, Any] = {
    "a call's arguments": ToolCallBlock(tool_call_id="1", tool_name="t", tool_kwargs={"a": [{"b": SECRET}]}),
    "arguments as text": ToolCallBlock(
        tool_call_id="1", tool_name="t", tool_kwargs=r'{"a": "jane.doe\u0040example.com'
    ),
    "a call's id": ToolCallBlock(tool_call_id=SECRET, tool_name="t", tool_kwargs={}),
    "a thought": ThinkingBlock(content=SECRET),
    "a citation": CitationBlock(
        cited_content=TextBlock(text="x"), source=SECRET, title="t", additional_location_info={}
    ),
    "a citable text": CitableBlock(
        title="t", source="s", content=[TextBlock(text="jane.doe@"), TextBlock(text="example.com")]
    ),
}


@pytest.mark.parametrize("kind", list(BLOCKS))
@pytest.mark.parametrize("route", ["chat", "stream", "a stream that is left"])
def test_what_blocks_hold_is_recorded(recorded: Any, kind: str, route: str) -> None:
    _, sink = recorded
    said = ChatMessage(role="assistant", blocks=[TextBlock(text="Fine."), BLOCKS[kind]])
    llm, asked = ScriptedLLM(script=[said]), [ChatMessage(role="user", content="x")]
    if route == "chat":
        llm.chat(asked)
    else:
        stream = llm.stream_chat(asked)
        while not any(block == BLOCKS[kind] for block in next(stream).message.blocks):
            pass
        _ = [*stream] if route == "stream" else stream.close()
    found = [event for event in sink.events if event.kind == "verification" and event.findings]
    assert [[one.rule_id for one in event.findings] for event in found] == [["pii.email"]]
    assert sink.events[-1].kind == "run_finished"
    assert SECRET not in "".join(event.to_json() for event in sink.events)


def _fails(input_ids: Any, scores: Any) -> Any:
    raise ZeroDivisionError(SECRET)


async def test_failed_calls_are_recorded_without_their_message(llm: NCOGuardLLM, recorded: Any) -> None:
    _, sink = recorded
    options = {"logits_processor": [_fails]}
    with pytest.raises(ZeroDivisionError):
        llm.complete(ASK, **options)
    with pytest.raises(ZeroDivisionError):
        list(llm.stream_complete(ASK, **options))
    with pytest.raises(ZeroDivisionError):
        await llm.acomplete(ASK, **options)
    chunks = await llm.astream_complete(ASK, **options)
    with pytest.raises(ZeroDivisionError):
        _ = [chunk async for chunk in chunks]
    errors = [event.error for event in sink.events if event.kind == "run_finished"]
    assert errors == ["GenerationError", "ZeroDivisionError", "GenerationError", "ZeroDivisionError"]
    assert SECRET not in "".join(event.to_json() for event in sink.events)


def test_a_record_that_cannot_be_written_is_counted(llm: NCOGuardLLM, policy: Policy) -> None:
    def full(event: Any) -> None:
        raise OSError("no space left")

    handler = NCOGuardAuditHandler(policy, full)
    dispatcher = get_dispatcher()
    dispatcher.add_event_handler(handler)
    try:
        llm.complete("Hello")
    finally:
        dispatcher.event_handlers.remove(handler)
    assert handler.failures >= 2


def test_the_log_can_be_read_back(pair: tuple[Any, Any], policy: Policy, tmp_path: Path) -> None:
    with JsonLinesSink(tmp_path / "audit.jsonl") as sink:
        NCOGuardLLM(*pair, guard=policy, audit=sink).complete(ASK)
    log = read_events(tmp_path / "audit.jsonl")
    assert log.whole
    assert log.events[0].kind == "policy_loaded"
    assert "run_started" in [event.kind for event in log.events]
    assert log.events[-1].kind == "run_finished"
    assert all(json.loads(event.to_json()) for event in log.events)


def test_llamaindexs_own_observers_see_what_they_expect(pair: tuple[Any, Any], policy: Policy) -> None:
    from llama_index.core.callbacks import CallbackManager, LlamaDebugHandler, TokenCountingHandler

    debug, counter = LlamaDebugHandler(print_trace_on_end=False), TokenCountingHandler()
    llm = NCOGuardLLM(
        *pair, guard=policy, max_new_tokens=64, callback_manager=CallbackManager([debug, counter])
    )
    answer = llm.complete(ASK)
    list(llm.stream_chat([ChatMessage(role="user", content=ASK)]))
    pairs = debug.get_llm_inputs_outputs()
    assert len(pairs) == 2
    assert pairs[0][0].payload["serialized"]["policy_digest"] == policy.digest
    assert counter.llm_token_counts[0].completion_token_count == answer.additional_kwargs["completion_tokens"]
    assert counter.llm_token_counts[1].completion_token_count > 0
