"""Values that stream through a guard as a step of a chain: what comes out joined is what `invoke` gives."""

from __future__ import annotations

import contextlib
import datetime
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pytest
from checks import check_everything, check_stream, verify
from inner_models import LEAK, SAFE, scripted
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.runnables import RunnableGenerator, RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.runnables.utils import AddableDict
from places import Everything
from pydantic import BaseModel

from langchain_nco_guard import VerifiedChatModel, guard_runnable
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Policy, RegexRule
from nco_guard.errors import ViolationError

texts = scripted(size=4) | StrOutputParser()
asked = RunnableLambda(lambda given: given["q"]) | texts


def pieces(*values: Any) -> RunnableGenerator[Any, Any]:
    """A step that streams these."""

    def give(_: Iterator[Any]) -> Iterator[Any]:
        yield from values

    async def agive(_: AsyncIterator[Any]) -> AsyncIterator[Any]:
        for value in values:
            yield value

    return RunnableGenerator(give, agive)


def joined(shown: list[Any]) -> Any:
    whole: Any = None
    for one in shown:
        whole = one if whole is None else whole + one
    return whole


CHAINS: dict[str, Any] = {
    "parallel": lambda step: RunnableParallel(a=texts, b=RunnableLambda(lambda x: LEAK)) | step,
    "parallel of messages": lambda step: RunnableParallel(a=scripted(size=4), b=texts) | step,
    "within parallel": lambda step: RunnableParallel(a=texts | step, b=RunnableLambda(lambda x: x)),
    "assign": lambda step: RunnableLambda(lambda x: {"q": x}) | RunnablePassthrough.assign(a=asked) | step,
    "within assign": lambda step: (
        RunnableLambda(lambda x: {"q": x}) | RunnablePassthrough.assign(a=asked | step)
    ),
    "pick": lambda step: (RunnableParallel(a=texts) | step).pick("a"),
    "lists": lambda step: pieces([LEAK], ["b"], [{"type": "text", "text": LEAK}]) | step,
    "blocks in lists": lambda step: (
        pieces([{"type": "text", "text": LEAK[:20]}], [{"type": "text", "text": LEAK[20:]}]) | step
    ),
    "nested": lambda step: (
        pieces(*(AddableDict(a=AddableDict(b=LEAK[start : start + 3])) for start in range(0, len(LEAK), 3)))
        | step
    ),
    "messages": lambda step: scripted(size=2) | step,
    "blocks": lambda step: scripted(size=2, blocks=True) | step,
}


@pytest.mark.parametrize("kind", list(CHAINS))
async def test_every_kind_of_stream(policy: Policy, kind: str) -> None:
    seen = Everything()
    config: Any = {"callbacks": [seen]}
    chain = CHAINS[kind](guard_runnable(policy, action="redact"))
    whole = chain.invoke("x", config)
    check_everything(policy, whole)
    assert "[redacted]" in repr(whole)
    assert "john" not in repr(whole)
    for shown in (list(chain.stream("x", config)), [one async for one in chain.astream("x", config)]):
        for end in range(1, len(shown) + 1):
            check_everything(policy, joined(shown[:end]))
        check_everything(policy, shown)
        together = joined(shown)
        assert _plain(together) == _plain(whole)
        assert type(together) is type(joined(shown[:1]))
    assert _plain(await chain.ainvoke("x", config)) == _plain(whole)
    events = [event async for event in chain.astream_events("x", config, version="v2")]
    ours = [event["data"] for event in events if event["name"] == "redact_contacts"]
    check_everything(policy, [data for data in ours if "input" not in data])


def _plain(value: Any) -> Any:
    if isinstance(value, AIMessage):
        return value.text
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    return value


@pytest.mark.parametrize("kind", list(CHAINS))
async def test_streams_that_raise(policy: Policy, kind: str) -> None:
    chain = CHAINS[kind](guard_runnable(policy, action="raise"))
    shown: list[Any] = []

    async def drain() -> None:
        async for one in chain.astream("x"):
            check_everything(policy, one)

    with pytest.raises(ViolationError, match="'email'"):
        shown.extend(chain.stream("x"))
    with pytest.raises(ViolationError):
        await drain()
    with pytest.raises(ViolationError):
        chain.invoke("x")
    stream = chain.stream("x")
    with contextlib.suppress(ViolationError):
        while True:
            shown.append(next(stream))
    check_everything(policy, shown)
    if shown:
        check_everything(policy, joined(shown))


def test_the_next_step_sees_the_whole_of_a_streamed_dictionary(policy: Policy) -> None:
    step = guard_runnable(policy, action="redact")
    both = RunnableParallel(a=texts, b=RunnableLambda(lambda x: "b"))
    chain = both | step | RunnableLambda(lambda d: d["a"] + d["b"])
    assert chain.invoke("x") == SAFE + "b"
    assert "".join(chain.stream("x")) == SAFE + "b"
    clean = RunnableParallel(a=scripted("all is well", size=1) | StrOutputParser()) | step
    assert len(list(clean.stream("x"))) >= 3  # as soon as it is certain
    assert all(type(one) is AddableDict for one in clean.stream("x"))


class Person(BaseModel):
    email: str


def test_whole_values_keep_their_class_and_clean_ones_are_the_same_object(policy: Policy) -> None:
    step = guard_runnable(policy, action="redact")
    document = Document(
        LEAK,
        id="john.doe@example.com",
        metadata={
            "at": datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC),
            "uuid": uuid.UUID(int=1),
            "score": np.float32(0.5),
            "by": ("a@example.com", 3),
        },
    )
    (cleaned, score), *_ = step.invoke([(document, np.float64(0.25))])
    assert cleaned.page_content == SAFE
    assert cleaned.metadata == {**document.metadata, "by": ("[redacted]", 3)}
    assert type(cleaned.metadata["score"]) is np.float32
    assert (type(score), score) == (np.float64, 0.25)
    assert verify(policy, cleaned.id).ok
    assert step.invoke(Document("x", id="john.doe@example.com")).id == cleaned.id  # the same everywhere
    for clean in ([Document("fine")], {"a": (1, 2)}, Person(email="none"), AIMessage("fine"), ("a", 1)):
        assert step.invoke(clean) is clean
        assert guard_runnable(policy).invoke(clean) is clean
    assert step.invoke(Person(email=LEAK)) == Person(email=SAFE)
    assert [one.page_content for one in step.batch([Document(LEAK)])] == [SAFE]


def test_numbers_and_dates_are_read_as_they_print() -> None:
    digits = Policy(
        name="d", rules=(RegexRule(id="card", regex=r"\d{16}"), RegexRule(id="day", regex=r"2020-01-02"))
    )
    given = {"card": 4111111111111111, "at": datetime.date(2020, 1, 2), "n": np.int64(4111111111111111)}
    found = guard_runnable(digits, action="redact").invoke(Document("x", metadata=given))
    assert set(found.metadata.values()) == {"[redacted]"}


# -- messages in pieces ------------------------------------------------------------------------------------------


class Pieces(ScriptedChatModel):
    """Streams chunks as they are given."""

    chunks: list[AIMessageChunk]
    script: list[AIMessage] = []

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        from langchain_core.language_models.chat_models import generate_from_stream

        return generate_from_stream(self._stream(messages))

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
        for chunk in self.chunks:
            yield ChatGenerationChunk(message=chunk.model_copy(deep=True))


def call(args: str, **options: Any) -> AIMessageChunk:
    part: Any = {"name": None, "args": args, "id": None, "index": 0, "type": "tool_call_chunk", **options}
    return AIMessageChunk("", tool_call_chunks=[part])


def cut(text: str, size: int = 5) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


REASONING: dict[str, list[AIMessageChunk]] = {
    "blocks": [AIMessageChunk([{"type": "reasoning", "reasoning": part}]) for part in cut(LEAK)],
    "blocks with an index": [
        AIMessageChunk([{"type": "reasoning", "reasoning": part, "index": 0}]) for part in cut(LEAK)
    ],
    "thinking": [AIMessageChunk([{"type": "thinking", "thinking": part, "index": 0}]) for part in cut(LEAK)],
    "summaries": [
        AIMessageChunk(
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": part}], "index": 0}]
        )
        for part in cut(LEAK)
    ],
    "beside the content": [
        AIMessageChunk("", additional_kwargs={"reasoning_content": part}) for part in cut(LEAK)
    ],
    "between texts": [
        AIMessageChunk([{"type": kind, field: part, "index": index}])
        for part in cut(LEAK)
        for index, (kind, field) in enumerate((("reasoning", "reasoning"), ("text", "text")))
    ],
    "texts without an index": [AIMessageChunk([{"type": "text", "text": part}]) for part in cut(LEAK)],
    "citations": [
        AIMessageChunk([{"type": "text", "text": "x", "index": 0, "citations": [{"cited_text": part}]}])
        for part in cut(LEAK)
    ],
    "calls that break off": [
        call("", name="look", id="1"),
        *map(call, cut('{"to": ["maria@example.com", {"and": "jane@exam')),
        call("ple.com"),
    ],
    "calls that break off within an escape": [
        call("", name="look", id="1"),
        *map(call, cut(r'{"to": "maria\u0040example.com", "x": "\u00')),
    ],
    "whole calls": [
        call("", name="look", id="1"),
        *map(call, cut(r'{"to": "maria\u0040example.com", "n": 1}')),
    ],
    "log probabilities": [
        AIMessageChunk(part, response_metadata={"logprobs": {"content": [{"token": part}]}})
        for part in cut(LEAK)
    ],
}


@pytest.mark.parametrize("kind", list(REASONING))
async def test_what_comes_in_pieces_is_clean_in_pieces_and_joined(policy: Policy, kind: str) -> None:
    seen = Everything()
    config: Any = {"callbacks": [seen]}
    model = VerifiedChatModel.over(Pieces(chunks=REASONING[kind]), policy, action="redact")
    step = Pieces(chunks=REASONING[kind]) | guard_runnable(policy, action="redact")
    for made in (model, step):
        given = config if made is model else {}
        whole = made.invoke("x", given)
        for shown in (list(made.stream("x", given)), [one async for one in made.astream("x", given)]):
            for end in range(1, len(shown) + 1):
                together = joined(shown[:end])
                check_everything(policy, together)
                check_stream(
                    policy, [together.text, (together.content_blocks and _reasoning(together)) or ""]
                )
            assert together.tool_calls == whole.tool_calls
        for text in (repr(whole), repr(shown), repr(joined(shown))):
            assert "maria@" not in text
            assert "@example" not in text
            assert "doe@" not in text
    check_everything(policy, seen.seen)
    refusing = VerifiedChatModel.over(Pieces(chunks=REASONING[kind]), policy, action="raise")
    with pytest.raises(ViolationError):
        list(refusing.stream("x"))


def test_no_call_is_made_of_a_piece_of_which_nothing_is_left(policy: Policy) -> None:
    """LangChain takes pieces without an index for calls of their own, and one that is empty for a complete one."""
    begun = call('{"to": "', name="look", id="1", index=None)
    chunks = [begun, *(call(part, index=None) for part in cut(f'{LEAK}"}}'))]
    guarded = VerifiedChatModel.over(Pieces(chunks=chunks), policy, action="redact")
    bare = joined(list(Pieces(chunks=chunks).stream("x")))
    for message in (guarded.invoke("x"), joined(list(guarded.stream("x")))):
        again = AIMessageChunk("") + message if isinstance(message, AIMessageChunk) else message
        assert [one["id"] for one in again.tool_calls] == ["1"] == [one["id"] for one in bare.tool_calls]
        assert "[redacted]" in repr(again)
        check_everything(policy, again)


def _reasoning(message: AIMessageChunk) -> str:
    return "".join(str(block.get("reasoning", "")) for block in message.content_blocks)


def test_blocks_of_one_index_whose_pieces_nobody_knows(policy: Policy) -> None:
    """LangChain joins any field of blocks that have the same index, whatever its name is."""
    parts = [LEAK[at : at + 4] for at in range(0, len(LEAK), 4)]
    stream = pieces(
        *(AIMessageChunk(content=[{"type": "vendor", "note": part, "index": 0}]) for part in parts)
    )
    chunks = list((stream | guard_runnable(policy, action="redact")).stream("x"))
    shown = "".join(part["note"] for chunk in chunks for part in chunk.content if "note" in part)
    check_everything(policy, [shown, *chunks])
    assert shown.count("[redacted]") == 2
