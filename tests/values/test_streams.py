"""`ValueStream` on pieces as frameworks send them: message chunks, blocks by index, calls, lists, whole values."""

from __future__ import annotations

import contextlib
import dataclasses
import operator
from functools import partial, reduce
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink, RunRecorder
from nco_guard.errors import RedactionError, ViolationError
from nco_guard.values import Cleaner, Role, register
from tests.values.examples import streamed_by

GUARD = Guard(
    Policy(
        name="streams",
        rules=(
            StringRule(id="word", strings=("canary",)),
            RegexRule(id="mail", regex=r"[a-z]{1,9}@[a-z]+\.com"),
            RegexRule(id="ssn", regex=r"ssn.{0,20}\d{4}"),
            RegexRule(id="start", regex=r"^yes"),
        ),
    )
)
streamed = partial(streamed_by, GUARD)
OUT = "[redacted]"


@dataclasses.dataclass
class Chunk:
    """As the message chunks of a framework: `+` joins texts, blocks of one index, and pieces of calls of one index."""

    content: Any = ""
    calls: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    id: str | None = None

    def __add__(self, other: Chunk) -> Chunk:
        content = self.content + other.content if type(self.content) is type(other.content) is str else merged(
            *([part] if isinstance(part, str) and part else part or [] for part in (self.content, other.content))
        )  # fmt: skip
        return Chunk(
            content, merged(self.calls, other.calls), {**self.metadata, **other.metadata}, self.id or other.id
        )


def merged(first: list[Any], second: list[Any]) -> list[Any]:
    found = [dict(part) if isinstance(part, dict) else part for part in first]
    for part in second:
        index = part.get("index") if isinstance(part, dict) else None
        place = next((one for one in found if index is not None and one.get("index") == index), None)
        if place is None:
            found.append(part)
            continue
        for name, more in part.items():
            if name not in ("type", "index"):
                place[name] = place[name] + more if isinstance(more, str) and place.get(name) else more
    return found


register(
    Chunk,
    {"content": Role.BLOCKS, "metadata": Role.METADATA, "id": Role.IDENTIFIER},
    chunk=lambda chunk, fields: Chunk(id=chunk.id, **fields),
)


def joined(pieces: list[Chunk]) -> Chunk:
    return reduce(operator.add, pieces)


def test_texts_of_chunks_flow_and_the_rest_comes_last() -> None:
    pieces = [
        Chunk("write to john", id="run canary"),
        Chunk(
            "@doe.com ", calls=[{"index": 0, "type": "tool_call_chunk", "name": "f", "args": '{"q": "can'}]
        ),
        Chunk(
            "now",
            calls=[{"index": 0, "type": "tool_call_chunk", "args": 'ary"}'}],
            metadata={"logprobs": [1]},
        ),
        Chunk("", metadata={"finish_reason": "stop"}),
    ]
    shown = streamed(pieces)
    assert [piece.content for piece in shown] == ["write to ", f"{OUT} ", "now", ""]
    assert {piece.id for piece in shown} == {Cleaner(GUARD).identifier("run canary"), None}
    assert shown[-1].calls[0]["args"] == f'{{"q": "{OUT}"}}'
    assert shown[-1].metadata == {"finish_reason": "stop"}
    assert joined(shown) == Cleaner(GUARD).value(joined(pieces))
    with pytest.raises(ViolationError):
        streamed(pieces, "raise")
    assert joined(streamed(pieces, "report")) == joined(pieces)


def test_a_piece_is_not_taken_for_the_beginning_of_a_text() -> None:
    assert "".join(piece.content for piece in streamed([Chunk("oh "), Chunk("yes")])) == "oh yes"
    assert "".join(piece.content for piece in streamed([Chunk("yes"), Chunk(" oh")])) == f"{OUT} oh"


PIECES = ["can", "ary", "john", "@doe.com", " ", "x", "\\u0063", "anary", ""]


@st.composite
def chunks(draw: st.DrawFn) -> list[Chunk]:
    """Blocks of two indexes, of text and of reasoning, each in pieces of its own."""
    kinds = [("text", "text", 0), ("reasoning", "reasoning", 1), ("text", "text", 2)]
    return [
        Chunk([{"type": kind, field: text, "index": index}])
        for kind, field, index in kinds
        for text in draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=3))
    ]


@given(pieces=chunks())
@settings(max_examples=150, deadline=None)
def test_blocks_by_index_joined_are_the_value_of_the_whole(pieces: list[Chunk]) -> None:
    whole = joined(pieces)
    found = joined(streamed(pieces))
    texts = [part["text"] for part in whole.content if "text" in part]
    assert not Cleaner(GUARD).rules("".join(part.get("text", "") for part in found.content))
    if not Cleaner(GUARD).rules("\n".join(texts)) or not Cleaner(GUARD).rules(texts):
        assert found == Cleaner(GUARD).value(whole)


def test_reasoning_flows() -> None:
    stream = Cleaner(GUARD).stream()
    first = stream.feed(Chunk([{"type": "thinking", "thinking": "so 1 ", "index": 0}]))
    assert first[0].content == [{"type": "thinking", "index": 0, "thinking": "so 1 "}]
    held = stream.feed(Chunk([{"type": "thinking", "thinking": "can", "index": 0, "signature": "canary"}]))
    assert held == []
    last = stream.feed(Chunk([{"type": "thinking", "thinking": "ary", "index": 0}])) + stream.finish()
    found = joined(first + last)
    assert found.content[0]["thinking"] == f"so 1 {OUT}"
    assert found.content[0]["signature"] == OUT


def test_lists_keep_their_order_and_their_elements() -> None:
    pieces = [
        [{"type": "text", "text": "can"}],
        [{"type": "image", "url": "u"}],
        [{"type": "text", "text": "ary", "citations": [{"cited_text": "can"}]}],
        [{"type": "text", "text": "!", "citations": [{"cited_text": "ary"}]}],
    ]
    found = reduce(operator.add, streamed(pieces))
    assert [part.get("type") if isinstance(part, dict) else part for part in found] == [
        "text", "image", "text", "text",
    ]  # fmt: skip
    assert "".join(part["text"] for part in found if isinstance(part, dict) and "text" in part) == f"{OUT}!"
    assert found == Cleaner(GUARD).value(reduce(operator.add, pieces))
    assert streamed([["can"], ["ary"]]) == [["can", "ary"]]
    assert reduce(operator.add, streamed([["can"], ["ary"]], role=Role.BLOCKS)) == [OUT, ""]


def test_whole_values_are_cleaned_as_they_come() -> None:
    assert streamed([{"a": "can"}, {"a": "canary"}, 7, None, ("canary",)]) == [
        {"a": "can"}, {"a": OUT}, 7, None, (OUT,),
    ]  # fmt: skip
    assert streamed(["can", 7, "ary"]) == ["can", 7, "ary"]


class Own(str):
    """A text with attributes."""

    def __new__(cls, text: str, **held: Any) -> Own:
        made = super().__new__(cls, text)
        made.__dict__.update(held)
        return made


def test_texts_of_their_own_classes_stay_where_nothing_is_held_back() -> None:
    stream = Cleaner(GUARD).stream()
    one, two = Own("fine. ", note="x"), Own("no. ", note="canary")
    assert stream.feed(one)[0] is one
    assert [type(part) for part in stream.feed(two)] == [str]
    assert [type(part) for part in (*stream.feed(Own("can")), *stream.finish())] == [str]


def test_parts_that_make_a_match_together_are_refused_once_one_was_shown() -> None:
    class Addable(dict):  # type: ignore[type-arg]
        def __add__(self, other: Any) -> Any:
            return Addable(
                {**self, **{key: self.get(key, type(part)()) + part for key, part in other.items()}}
            )

    stream = Cleaner(GUARD).stream()
    assert stream.feed(Addable(ssn="7 ")) == [{"ssn": "7 "}]
    assert stream.feed(Addable(b="1234")) == []
    with pytest.raises(RedactionError):
        stream.finish()
    with pytest.raises(ValueError, match="over"):
        stream.feed(Addable(c=1))
    # What was not shown yet can be replaced.
    pieces = [Addable(ssn=7), Addable(b=1234)]
    assert streamed(pieces) == [Cleaner(GUARD).value(reduce(operator.add, pieces))]


def test_nothing_is_an_answer_too() -> None:
    assert streamed([""]) == [""]
    assert streamed([[]]) == [[]]
    assert streamed([]) == []
    stream = Cleaner(GUARD).stream()
    stream.finish()
    with pytest.raises(ValueError, match="over"):
        stream.finish()


def test_each_text_is_recorded_once_it_is_over() -> None:
    sink = MemorySink()
    stream = Cleaner(GUARD, record=RunRecorder(sink)).stream()
    stream.feed("a can")
    assert not sink.events
    stream.feed("ary")
    stream.finish()
    assert [(event.ok, event.length) for event in sink.events] == [(False, 8)]


BLOCKS: dict[str, list[Any]] = {
    "untyped": [[{"text": "john@"}], [{"text": "doe.com"}]],
    "untyped, then typed": [[{"text": "john@"}], [{"type": "text", "text": "doe.com"}]],
    "a text, then untyped": [["john@"], [{"text": "doe.com"}]],
    "a second text": [
        [{"type": "x", "text": "a", "quote": "john@"}], [{"type": "x", "text": "b", "quote": "doe.com"}],
    ],
    "a second text, then one": [
        [{"type": "x", "text": "john@", "quote": "a"}], [{"type": "x", "text": "doe.com"}],
    ],
    "pieces of a call": [[{"type": "tool_call_chunk", "args": said, "index": 0}] for said in ("john@", "doe.com")],
    "bytes": [[{"type": "text", "text": b"john@"}], [{"type": "text", "text": "doe.com"}]],
}  # fmt: skip


@pytest.mark.parametrize("action", ["redact", "raise"])
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_that_do_not_flow_show_no_match_with_those_that_do(name: str, action: Any) -> None:
    pieces = [Chunk(blocks) for blocks in BLOCKS[name]]
    assert Cleaner(GUARD).rules(joined(pieces))
    stream, shown = Cleaner(GUARD, action).stream(), []

    def look(more: list[Any]) -> None:
        for one in more:
            shown.append(one)
            assert not Cleaner(GUARD).rules(joined(shown))

    def run() -> None:
        for piece in pieces:
            look(stream.feed(piece))
        look(stream.finish())

    if action == "raise":
        with pytest.raises(ViolationError):
            run()
    else:
        with contextlib.suppress(RedactionError):
            run()
