"""`NCOGuardLLM` over the real model: completions and chat, at once and streamed, sync and async."""

from __future__ import annotations

import asyncio
import copy
import logging
import threading
import warnings
from typing import Any

import pytest
from llama_index.core.base.llms.types import ImageBlock, ToolCallBlock
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.llms.nco_guard import NCOGuardLLM
from transformers import GenerationConfig, LogitsProcessor

from nco_guard import Guard, Policy, RegexRule, StringRule, demo
from nco_guard.audit import MemorySink
from nco_guard.errors import UnsupportedError

pytestmark = pytest.mark.anyio
Keeps = Any
ASK = "What contact details do we have for Maria Lopez?"


def messages(request: str) -> list[ChatMessage]:
    return [ChatMessage(role="system", content=demo.SYSTEM_PROMPT), ChatMessage(role="user", content=request)]


class Asks(LogitsProcessor):  # type: ignore[misc]
    """At each step it waits until it is answered; `answered` says of each step whether it was."""

    def __init__(self) -> None:
        self.answered: list[bool] = []
        self._asked, self._go = threading.Event(), threading.Event()

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self._go.clear()
        self._asked.set()
        self.answered.append(self._go.wait(60))
        return scores

    def answer(self) -> None:
        if self._asked.is_set():
            self._asked.clear()
            self._go.set()


def strings(*words: str, **options: Any) -> Policy:
    return Policy(name="words", rules=[StringRule(id="words", strings=list(words), **options)])


def test_left_alone_the_model_breaks_the_policy(
    pair: tuple[Any, Any], policy: Policy, ask: str, verify: Any
) -> None:
    """What the other tests rest on."""
    free = NCOGuardLLM(*pair, guard=strings("no such word"), max_new_tokens=64)
    assert not verify(policy, free.chat(messages(ask)).message.content).ok


def test_sync_routes_keep_the_policy_and_agree(llm: NCOGuardLLM, keeps: Keeps, ask: str) -> None:
    whole = llm.chat(messages(ask)).message.content
    streamed = list(llm.stream_chat(messages(ask)))
    assert keeps(chunk.delta for chunk in streamed) == whole == keeps([whole])
    assert [chunk.message.content for chunk in streamed][-1] == whole
    assert all(keeps([chunk.message.content]) in whole for chunk in streamed)

    text = llm.complete(ask).text
    pieces = list(llm.stream_complete(ask))
    assert keeps(piece.delta for piece in pieces) == text == keeps([text])
    assert pieces[-1].text == text


async def test_async_routes_are_the_sync_ones(llm: NCOGuardLLM, keeps: Keeps, ask: str) -> None:
    whole = (await llm.achat(messages(ask))).message.content
    assert whole == llm.chat(messages(ask)).message.content
    assert keeps([c.delta async for c in await llm.astream_chat(messages(ask))]) == whole

    text = (await llm.acomplete(ask)).text
    assert text == llm.complete(ask).text
    assert keeps([c.delta async for c in await llm.astream_complete(ask)]) == text


async def test_many_calls_at_once_are_each_their_own(llm: NCOGuardLLM, keeps: Keeps) -> None:
    requests = [ASK, "Which card was used for order K-5120?", "Hello"]
    alone = [llm.chat(messages(request)).message.content for request in requests]
    together = await asyncio.gather(*(llm.achat(messages(request)) for request in requests))
    assert [keeps([answer.message.content]) for answer in together] == alone


@pytest.mark.parametrize("route", ["achat", "acomplete", "astream_chat", "astream_complete"])
async def test_the_event_loop_goes_on_while_the_model_writes(llm: NCOGuardLLM, route: str) -> None:
    """At each step the model waits for the event loop, which would never come if the model held it up."""
    asks = Asks()

    async def answers() -> None:
        while True:
            asks.answer()
            await asyncio.sleep(0.001)

    answering = asyncio.create_task(answers())
    argument: Any = ASK if "complete" in route else messages(ASK)
    answer = await getattr(llm, route)(argument, logits_processor=[asks])
    if "stream" in route:
        _ = [chunk async for chunk in answer]
    answering.cancel()
    assert len(asks.answered) >= 5
    assert all(asks.answered)


async def test_a_cancelled_call_stops_generating(pair: tuple[Any, Any]) -> None:
    """Within a step: its run is finished in the audit log with few of its tokens."""
    sink = MemorySink()
    llm = NCOGuardLLM(
        *pair,
        guard=strings("no such word"),
        audit=sink,
        generate_kwargs={"eos_token_id": []},
        max_new_tokens=900,
    )
    # Without an end the model would write 900 tokens.
    asks = Asks()
    call = asyncio.create_task(llm.acomplete("Hello", suppress_tokens=[1], logits_processor=[asks]))
    while len(asks.answered) < 5:
        asks.answer()
        await asyncio.sleep(0.001)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    for _ in range(1200):
        asks.answer()
        if any(event.kind == "run_finished" for event in sink.events):
            break
        await asyncio.sleep(0.05)
    finished = next(event for event in sink.events if event.kind == "run_finished")
    assert 0 < finished.tokens < 10


@pytest.mark.parametrize("route", ["stream_complete", "stream_chat"])
def test_a_reader_that_leaves_stops_the_generation(pair: tuple[Any, Any], route: str) -> None:
    sink = MemorySink()
    llm = NCOGuardLLM(*pair, guard=strings("no such word"), audit=sink, max_new_tokens=900)
    prompt: Any = "Hello" if route == "stream_complete" else messages("Hello")
    chunks = getattr(llm, route)(prompt, suppress_tokens=[1])
    next(chunks)
    chunks.close()
    finished = [event for event in sink.events if event.kind == "run_finished"]
    assert [0 < event.tokens < 600 for event in finished] == [True]


def test_the_last_chunk_says_how_it_ended(llm: NCOGuardLLM, policy: Policy) -> None:
    *_, last = llm.stream_chat(messages(ASK))
    assert last.raw["outcome"] == "ended"
    assert last.raw["policy_digest"] == policy.digest
    usage = last.raw["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    short = llm.chat(messages(ASK), max_new_tokens=5)
    assert short.raw["outcome"] in {"length", "trimmed"}
    assert short.additional_kwargs["completion_tokens"] <= 5


def test_the_policy_is_visible_where_caches_and_observers_look(llm: NCOGuardLLM, policy: Policy) -> None:
    other = llm.with_guard(Policy.from_presets("ldnoobw"))
    assert llm.to_dict()["policy_digest"] == policy.digest != other.to_dict()["policy_digest"]
    assert other.to_payload()["policy_digest"] == other.guard.policy.digest
    assert llm.policy_digest == policy.digest
    with pytest.raises(ValueError, match="frozen"):
        llm.policy_digest = "another"


def test_a_policy_can_be_given_with_a_call(llm: NCOGuardLLM, policy: Policy) -> None:
    """Two policies, same prompt: two answers, and the object's own policy is back afterwards."""
    before = llm.chat(messages("Hello")).message.content
    assert "Hello" in before
    quiet = strings("Hello")
    for given in (quiet, Guard(quiet)):
        answer = llm.chat(messages("Hello"), guard=given)
        assert "Hello" not in answer.message.content
        assert answer.raw["policy_digest"] == quiet.digest
        assert "Hello" not in "".join(c.delta for c in llm.stream_chat(messages("Hello"), guard=given))
    assert llm.chat(messages("Hello")).message.content == before
    assert "Hello" not in llm.with_guard(quiet).chat(messages("Hello")).message.content


async def test_a_policy_can_be_given_with_an_async_call(llm: NCOGuardLLM) -> None:
    quiet = strings("Hello")
    assert "Hello" not in (await llm.achat(messages("Hello"), guard=quiet)).message.content
    chunks = await llm.astream_complete("Hello", guard=quiet)
    assert "Hello" not in "".join([chunk.delta async for chunk in chunks])


def test_a_policy_given_with_a_call_is_audited_too(pair: tuple[Any, Any], policy: Policy) -> None:
    sink = MemorySink()
    llm = NCOGuardLLM(*pair, guard=Guard(policy, audit=sink), max_new_tokens=8)
    llm.chat(messages("Hello"), guard=strings("Hello"))
    started = [event for event in sink.events if event.kind == "run_started"]
    assert [event.policy_digest for event in started] == [strings("Hello").digest]


def test_stop_strings_end_the_reply_and_are_no_part_of_it(llm: NCOGuardLLM, keeps: Keeps) -> None:
    whole = llm.chat(messages(ASK)).message.content
    stop = whole[20:26]
    expected = whole[: whole.index(stop)]
    assert llm.chat(messages(ASK), stop=[stop]).message.content == expected
    assert keeps(c.delta for c in llm.stream_chat(messages(ASK), stop=stop)) == expected
    assert llm.chat(messages(ASK), stop=["\0never"]).message.content == whole


def test_where_a_stop_string_is_cut_off_the_text_must_be_allowed_to_end(
    pair: tuple[Any, Any], verify: Any
) -> None:
    """ "Hello" may be followed by "!" and not by the end; with "!" cut off, it has to go as well."""
    policy = Policy(name="end", rules=[RegexRule(id="end", regex=r"Hello(?!!)")])
    llm = NCOGuardLLM(*pair, guard=policy)
    assert llm.chat(messages("Hello")).message.content.startswith("Hello!")
    for answer in (
        llm.chat(messages("Hello"), stop=["!"]).message.content,
        "".join(chunk.delta for chunk in llm.stream_chat(messages("Hello"), stop=["!"])),
    ):
        assert verify(policy, answer).ok
        assert "Hello".startswith(answer)
        assert answer != "Hello"


def test_options_of_a_call_reach_the_model(llm: NCOGuardLLM, keeps: Keeps) -> None:
    import torch

    torch.manual_seed(1)
    sampled = {llm.complete(ASK, do_sample=True, temperature=2.0).text for _ in range(4)}
    assert len({keeps([text]) for text in sampled}) > 1
    beams = llm.complete(ASK, num_beams=3).text
    assert keeps([beams])


def test_a_generation_config_and_options_are_said_in_one_way(
    llm: NCOGuardLLM, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers deprecates options beside a `generation_config`; both count, and the caller's own is not changed."""
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    config = GenerationConfig(max_new_tokens=3, do_sample=False)
    before = config.to_dict()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        by_config = llm.complete("Hello", generation_config=config, stop=["zzz"], pad_token_id=0)
    shown = caplog.text + str([str(one.message) for one in caught])
    assert "generation_config" not in shown
    assert by_config.text == llm.complete("Hello", max_new_tokens=3, do_sample=False, stop=["zzz"]).text
    assert config.to_dict() == before


def test_a_generation_config_given_with_a_call_is_heeded_or_refused(llm: NCOGuardLLM) -> None:
    config = GenerationConfig(max_new_tokens=3)
    assert llm.complete(ASK, generation_config=config).additional_kwargs["completion_tokens"] == 3
    for config in (GenerationConfig(max_length=40), GenerationConfig(num_return_sequences=2, num_beams=2)):
        with pytest.raises(UnsupportedError):
            llm.complete(ASK, generation_config=config)


def test_an_ingestion_cache_keeps_two_policies_apart(llm: NCOGuardLLM) -> None:
    """LlamaIndex's own cache: the same document under two policies gives two answers."""
    from llama_index.core.extractors import SummaryExtractor
    from llama_index.core.ingestion import IngestionCache, IngestionPipeline
    from llama_index.core.schema import TextNode

    cache = IngestionCache()
    summaries = []
    for given in (llm, llm.with_guard(strings("o", "O")), llm):
        nodes = [TextNode(text="Maria Lopez ordered a lamp.", id_="one")]
        extractor = SummaryExtractor(llm=given, summaries=["self"], num_workers=1)
        (node,) = IngestionPipeline(transformations=[extractor], cache=cache).run(nodes=nodes)
        summaries.append(node.metadata["section_summary"])
    assert "o" in summaries[0]
    assert "o" not in summaries[1]
    assert summaries[2] == summaries[0]


def test_a_processor_given_with_a_call_is_applied_before_the_guard(llm: NCOGuardLLM, keeps: Keeps) -> None:
    """`HuggingFaceLLM` ignores it without a word."""
    from transformers import LogitsProcessorList, SuppressTokensLogitsProcessor

    token = llm._tokenizer.convert_tokens_to_ids("We")
    ban = LogitsProcessorList([SuppressTokensLogitsProcessor([token], device="cpu")])
    assert llm.complete(ASK).text.startswith("We")
    assert not keeps([llm.complete(ASK, logits_processor=ban).text]).startswith("We")


@pytest.mark.parametrize("route", ["complete", "stream_complete", "acomplete", "astream_complete"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no_such_option", 1),
        ("max_tokens", 5),
        ("max_length", 50),
        ("num_return_sequences", 2),
        ("penalty_alpha", 0.6),
        ("streamer", object()),
        ("forced_eos_token_id", 1),
        ("stop", [""]),
        ("stop_strings", ["x"]),
        ("tools", []),
    ],
)
async def test_what_cannot_be_honoured_is_refused_at_the_call(
    llm: NCOGuardLLM, route: str, name: str, value: Any
) -> None:
    """Not at the first chunk, and not by silence."""
    call = getattr(llm, route)
    if route.startswith("a"):
        with pytest.raises(UnsupportedError, match=name):
            await call("Hello", **{name: value})
    else:
        with pytest.raises(UnsupportedError, match=name):
            call("Hello", **{name: value})


def test_chat_refuses_what_is_no_text(llm: NCOGuardLLM) -> None:
    picture = ChatMessage(role="user", blocks=[ImageBlock(image=b"\x89PNG\r\n")])
    with pytest.raises(UnsupportedError, match="ImageBlock"):
        llm.chat([picture])
    with pytest.raises(UnsupportedError, match="at least one"):
        llm.chat([])


def test_a_prompt_longer_than_the_window_is_refused_and_the_reply_fits_into_it(
    pair: tuple[Any, Any], policy: Policy
) -> None:
    llm = NCOGuardLLM(*pair, guard=policy, context_window=40, max_new_tokens=30, is_chat_model=False)
    with pytest.raises(UnsupportedError, match="context window is 40"):
        llm.complete("word " * 40)
    answer = llm.complete("Dear team, I am writing about order", suppress_tokens=[1])
    usage = answer.raw["usage"]
    assert usage["total_tokens"] <= 40


def test_prompts_are_made_as_llamaindex_says(pair: tuple[Any, Any], policy: Policy) -> None:
    llm = NCOGuardLLM(*pair, guard=policy, system_prompt="Be brief.")
    template = PromptTemplate("Say {word}")
    requests = [
        llm._completion("Hi", False, {}),
        llm._completion("Hi", True, {}),
        llm._chat([ChatMessage(role="user", content="Hi")], {}),
        llm._chat(llm._get_messages(template, word="Hi"), {}),
    ]
    assert [pair[1].decode(request.call.inputs["input_ids"][0]) for request in requests] == [
        "<|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>",
        "Hi",
        "<|user|>Hi<|end|><|assistant|>",
        "<|system|>Be brief.<|end|><|user|>Say Hi<|end|><|assistant|>",
    ]


def test_a_conversation_with_tools_reaches_the_template_whole(llm: NCOGuardLLM) -> None:
    from llama_index.llms.nco_guard.messages import plain_messages

    from nco_guard.engines.hf.inputs import render_chat

    conversation = [
        ChatMessage(role="developer", content="Be brief."),
        ChatMessage(role="user", content="Where is order A-1042?"),
        ChatMessage(
            role="assistant",
            blocks=[
                ToolCallBlock(tool_call_id="1", tool_name="lookup_order", tool_kwargs={"order_id": "A-1042"})
            ],
        ),
        ChatMessage(role="tool", content='{"status": "packed"}', additional_kwargs={"tool_call_id": "1"}),
    ]
    assert render_chat(llm._tokenizer, plain_messages(conversation)) == (
        "<|system|>Be brief.<|end|><|user|>Where is order A-1042?<|end|><|assistant|><tool_call>"
        '{"name": "lookup_order", "arguments": {"order_id": "A-1042"}}</tool_call><|end|><|tool|>{"status": "packed"}'
        "<|end|><|assistant|>"
    )


def test_without_a_chat_template_messages_become_a_plain_prompt(
    pair: tuple[Any, Any], policy: Policy, verify: Any
) -> None:
    tokenizer = copy.deepcopy(pair[1])
    tokenizer.chat_template = None
    llm = NCOGuardLLM(pair[0], tokenizer, guard=policy, max_new_tokens=16)
    assert not llm.metadata.is_chat_model
    assert not llm.metadata.is_function_calling_model
    request = llm._chat(messages(ASK), {})
    prompt = tokenizer.decode(request.call.inputs["input_ids"][0])
    assert prompt == f"system: {demo.SYSTEM_PROMPT}\nuser: {ASK}\nassistant: "
    assert verify(policy, llm.chat(messages(ASK)).message.content).ok


def test_rules_that_read_the_prompt_hold_in_every_chunk(pair: tuple[Any, Any]) -> None:
    policy = Policy(
        name="context", rules=[StringRule(id="context", strings=["about order"], context="prompt")]
    )
    llm = NCOGuardLLM(*pair, guard=policy, is_chat_model=False, max_new_tokens=8)
    free = llm.with_guard(strings("no such word"))
    prompt = "Dear team, I am writing about"
    assert free.complete(prompt).text.startswith(" order")
    assert not llm.complete(prompt).text.startswith(" order")
    assert not "".join(chunk.delta for chunk in llm.stream_complete(prompt, stop=["zz"])).startswith(" order")
