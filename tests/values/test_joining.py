"""What is shown of values in pieces holds no match at any moment, and joined is the cleaned whole."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink, RunRecorder
from nco_guard.errors import RedactionError, ViolationError
from nco_guard.values import Cleaner, Role, texts_of
from nco_guard.values.printing import printed_forms
from nco_guard.values.trees import Tree
from tests.values.examples import outcome

RULES = (
    StringRule(id="word", strings=("canary",)),
    RegexRule(id="mail", regex=r"[a-z]{1,9}@[a-z]+\.com"),
    RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)"),
    RegexRule(id="end", regex=r"\bass\b"),
)
GUARD = Guard(Policy(name="pieces", rules=RULES))
# Matches in what a container prints as, which no part of it makes by itself.
ACROSS = Guard(Policy(name="across", rules=(*RULES, RegexRule(id="ssn", regex=r"ssn\W{1,20}\d{4}"))))
CARD = 4111111111111111


class Addable(dict):  # type: ignore[type-arg]
    """As LangChain's `AddableDict`."""

    def __add__(self, other: Any) -> Addable:
        made = Addable(self)
        for key, part in other.items():
            if made.get(key) is None:
                made[key] = part
            elif part is not None:
                made[key] = made[key] + part
        return made

    def __radd__(self, other: Any) -> Addable:
        return Addable(other) + self


def framework(pieces: list[Any]) -> Any:
    """What a framework makes of pieces: what cannot be added takes the place of what came."""

    def added(before: Any, piece: Any) -> Any:
        try:
            return before + piece
        except TypeError:
            return piece

    return reduce(added, pieces)


def shown_of(pieces: list[Any], guard: Guard, action: Any, role: Role = Role.VALUE) -> Any:
    """All that is shown, joined; at each moment it is looked at."""
    stream = Cleaner(guard, action).stream(role)
    shown: list[Any] = []

    def look() -> None:
        if shown and action != "report":
            assert not Cleaner(guard).finder.rules(texts_of(framework(shown), role)), shown

    for piece in pieces:
        for one in stream.feed(piece):
            shown.append(one)
            look()
    for one in stream.finish():
        shown.append(one)
        look()
    return framework(shown)


FRAGMENTS = [
    "can", "ary", "canary", "john", "@doe.com", "as", "s", " ", "x", "\n", "\\u0063", "anary", "4111", "1111" * 3, "",
]  # fmt: skip
text = st.sampled_from(FRAGMENTS)


def block(draw: st.DrawFn) -> Any:
    said = draw(text)
    return draw(
        st.sampled_from(
            [
                said,
                {"text": said},
                {"type": "text", "text": said},
                {"type": "text", "text": said, "index": 0},
                {"type": "x", "text": "a", "quote": said},
                {"type": "text", "text": "a", "citations": [{"cited_text": said}]},
                {"type": "reasoning", "reasoning": said},
                {"type": "tool_call_chunk", "args": said, "index": 0},
                {"type": "tool_call", "name": "f", "args": {"q": said}, "id": said},
                {"token": said},
                {"token": said, "logprob": -0.5},
                {"logprobs": [{"token": said, "logprob": -0.5}], "n": 1},
                {"row": said},
                7,
            ]
        )
    )


@st.composite
def lists(draw: st.DrawFn) -> list[Any]:
    return [[block(draw) for _ in range(draw(st.integers(0, 2)))] for _ in range(draw(st.integers(1, 4)))]


@st.composite
def dictionaries(draw: st.DrawFn, depth: int = 0) -> list[Any]:
    """Under each key pieces of one kind."""
    kinds = {
        key: draw(st.sampled_from(["text", "list", "bytes", "int", "tuple", *(["dict"] if depth < 2 else [])]))
        for key in draw(st.sets(st.sampled_from(["a", "logprobs", "tokens", "x canary", "id", "type"]), min_size=1))
    }  # fmt: skip
    ways = {
        "text": lambda: draw(text),
        "list": lambda: [block(draw)],
        "bytes": lambda: draw(text).encode(),
        "int": lambda: CARD // 2 + draw(st.integers(0, 1)),
        "tuple": lambda: (block(draw),),
        "dict": lambda: Addable({"text": draw(text)}),
    }
    return [
        Addable({key: ways[kinds[key]]() for key in draw(st.sets(st.sampled_from(sorted(kinds))))})
        for _ in range(draw(st.integers(1, 4)))
    ]


@st.composite
def others(draw: st.DrawFn) -> list[Any]:
    make = draw(
        st.sampled_from(
            [
                lambda: draw(text),
                lambda: draw(text).encode(),
                lambda: (block(draw),),
                lambda: CARD // 2 + draw(st.integers(0, 1)),
            ]
        )
    )
    return [make() for _ in range(draw(st.integers(1, 4)))]


@example(pieces=[Addable(a="\n"), Addable(a="@doe.com")], role=Role.VALUE)
@example(pieces=[Addable({"x canary": "", "a": "\n"}), Addable(a="@doe.com")], role=Role.VALUE)
@given(pieces=lists() | dictionaries() | others(), role=st.sampled_from([Role.VALUE, Role.BLOCKS]))
@settings(max_examples=200, deadline=None)
def test_what_is_shown_is_the_cleaned_whole(pieces: list[Any], role: Role) -> None:
    whole = framework(pieces)
    for action in ("redact", "raise", "report"):
        expected = outcome(lambda now=action: Cleaner(GUARD, now).field(whole, role))
        shown = outcome(lambda now=action: shown_of(pieces, GUARD, now, role))
        assert shown == expected or (shown is RedactionError and is_only_printed(whole, role))


def is_only_printed(value: Any, role: Role) -> bool:
    """Whether there is a match only in what a container prints as: a line break there is a backslash and an n."""
    if isinstance(value, dict) and len(value) > 1:
        return any(is_only_printed({key: inner}, role) for key, inner in value.items())
    printed = set(printed_forms(Tree(value, role), None))
    find = Cleaner(GUARD).finder.rules
    return bool(find(printed)) and not find(text for text in texts_of(value, role) if text not in printed)


@given(pieces=lists() | dictionaries() | others())
@settings(max_examples=200, deadline=None)
def test_what_only_the_whole_makes_is_the_same_or_an_error(pieces: list[Any]) -> None:
    pieces = [Addable(note="ssn"), *pieces] if isinstance(pieces[0], Addable) else pieces
    whole = framework(pieces)
    for action in ("redact", "raise"):
        expected = outcome(lambda now=action: Cleaner(ACROSS, now).value(whole))
        assert outcome(lambda now=action: shown_of(pieces, ACROSS, now)) in (expected, RedactionError)


PIECES: dict[str, list[Any]] = {
    "untyped blocks": [[{"text": "john@"}], [{"text": "doe.com"}]],
    "a text, then a block": [["john@"], [{"type": "text", "text": "doe.com"}]],
    "a second text": [[{"type": "x", "text": "a", "quote": "john@"}], [{"type": "x", "text": "b", "quote": "doe.com"}]],
    "pieces of a call": [[{"type": "tool_call_chunk", "args": text, "index": 0}] for text in ("john@", "doe.com")],
    "tokens": [Addable(logprobs=[{"token": "john@"}]), Addable(logprobs=[{"token": "doe.com"}])],
    "numbers": [Addable(n=CARD // 2), Addable(n=CARD - CARD // 2)],
    "bytes under a key": [Addable(n=b"john@"), Addable(n=b"doe.com")],
    "tuples under a key": [Addable(n=({"text": "john@"},)), Addable(n=({"text": "doe.com"},))],
    "bytes": [b"john@", b"doe.com"],
    "tuples": [({"text": "john@"},), ({"text": "doe.com"},)],
    "bare numbers": [CARD // 2, CARD - CARD // 2],
    "a dictionary that another is added to": [{"a": "john@"}, Addable(a="doe.com")],
}  # fmt: skip


@pytest.mark.parametrize("name", PIECES)
def test_what_is_joined_is_read_joined(name: str) -> None:
    pieces = PIECES[name]
    whole = framework(pieces)
    assert Cleaner(GUARD).rules(whole)
    if name.startswith("a dictionary"):  # the first was shown already
        with pytest.raises(RedactionError):
            shown_of(pieces, GUARD, "redact")
    else:
        assert shown_of(pieces, GUARD, "redact") == Cleaner(GUARD).value(whole)
    with pytest.raises(ViolationError):
        shown_of(pieces, GUARD, "raise")


def early(pieces: list[Any]) -> list[list[Any]]:
    stream = Cleaner(GUARD).stream()
    return [stream.feed(piece) for piece in pieces]


def test_what_is_certain_is_shown_at_once() -> None:
    assert early([["one "], ["two "], [{"type": "text", "text": "three "}]]) == [
        [["one "]], [["two "]], [[{"type": "text", "text": "three "}]],
    ]  # fmt: skip
    assert early([[{"row": "can"}], [{"row": "ary"}]]) == [[[{"row": "can"}]], [[{"row": "ary"}]]]
    assert early([Addable(q="who?", n=3), Addable(a="one "), Addable(a="can"), Addable(a="not ")]) == [
        [{"q": "who?"}], [{"a": "one "}], [], [{"a": "cannot "}],
    ]  # fmt: skip
    assert early([Addable(a=Addable(b="one ")), Addable(a=Addable(b="two "))]) == [
        [{"a": {"b": "one "}}], [{"a": {"b": "two "}}],
    ]  # fmt: skip


def test_the_work_is_linear_in_what_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    import nco_guard.values.joining as joining

    looked: list[int] = []

    def counted(value: Any, role: Role = Role.VALUE) -> list[str]:
        texts = list(texts_of(value, role))
        looked.append(sum(map(len, texts)))
        return texts

    monkeypatch.setattr(joining, "texts_of", counted)
    monkeypatch.setattr(joining, "_STEP", 8)
    sums = []
    for number in (1000, 2000, 4000):
        looked.clear()
        assert shown_of_all([Addable(a="word ")] * number) == {"a": "word " * number}
        sums.append(sum(looked))
    assert sums[2] < 2.5 * sums[1] < 2.5 * 2.5 * sums[0]


def shown_of_all(pieces: list[Any]) -> Any:
    stream = Cleaner(GUARD).stream()
    return framework([*(one for piece in pieces for one in stream.feed(piece)), *stream.finish()])


def test_a_value_in_pieces_is_recorded_once() -> None:
    sink = MemorySink()
    stream = Cleaner(GUARD, record=RunRecorder(sink)).stream()
    for piece in (Addable(a="can"), Addable(a="ary", b=[1])):
        stream.feed(piece)
    stream.finish()
    assert [event.ok for event in sink.events] == [False]
