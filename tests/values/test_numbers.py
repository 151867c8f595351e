"""Numbers of texts that somebody may parse, read as programs print them."""

from __future__ import annotations

import re
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.errors import ViolationError
from nco_guard.replies import ReplyReader
from nco_guard.values import Cleaner, texts_of
from nco_guard.values.numbers import NumbersRead
from nco_guard.values.readings import readings

CARD = 4111111111111111
GUARD = Guard(
    Policy(
        name="numbers",
        rules=(
            RegexRule(id="card", regex=r"(?<!\d)4\d{15}(?!\d)"),
            StringRule(id="price", strings=("12.5",), whole_word=True),
            StringRule(id="n", strings=("n: 5000",)),
        ),
    )
)
#: Ways of writing it that a parser makes it of, in JSON and in what reads more than JSON.
WRITTEN = [
    "4.111111111111111e15", "4.111111111111111E+15", "41111111111111110e-1",
    "0.4111111111111111e16", "004.111111111111111e15", f"{CARD}.000", hex(CARD), f"-{CARD}.0",
]  # fmt: skip
TEXTS = [
    '{{"n": {}}}', '{{"n":{},"s":"a"}}', "[1, {}]", '{{"n": "{}"}}', '{{"n": " {} "}}', '{{"n": [{{"m": {} }}]}}',
    "Thought: x\nAction Input: {{'a': {}}}\nSo", '{{"n": {}', "[note] then {}.", '{{"n":/*x*/{}}}', "```\n[{}\n]```",
    '{{"body": "{{\\"n\\": {}}}"}}', '{{"body": "\\u007b\\u0022n\\u0022:{}}}"}}', '{{"s": "}}]", "n": {}}}',
]  # fmt: skip
PIECES = [
    "{",
    "[",
    "]",
    '"n": ',
    "n: ",
    "5",
    "0",
    ".",
    "e",
    "E3",
    "-",
    "+",
    "x",
    "0x",
    "1f",
    " ",
    ",",
    "é",
    "4.1e1",
    '"',
]


def slow(text: str) -> str:
    """The definition: behind the first bracket, each number by itself."""
    at = min((place for mark in "[{" if (place := text.find(mark)) >= 0), default=len(text))
    found = list(text)
    behind = at  # where the number before ends
    for start in range(at, len(text)):
        if start < behind or (start and re.match(r"[\w.]", text[start - 1])):
            continue
        for end in range(len(text), start, -1):
            one, rest = text[start:end], text[end : end + 2]
            if re.fullmatch(r"-?0[xX][0-9a-fA-F]+", one):
                value: float | int = int(one, 16)
            elif re.fullmatch(r"-?[0-9]+(\.[0-9]+([eE][+-]?[0-9]+)?|[eE][+-]?[0-9]+)", one):
                value = float(one)
            else:
                continue
            if not re.match(r"\w|\.\w", rest):
                exact = Decimal(repr(value))
                plain = (
                    format(exact, "f") if exact.is_finite() and abs(exact.adjusted()) <= 64 else repr(value)
                )
                plain = plain.removesuffix(".0") if exact.is_finite() else plain
                found[start:end] = [plain, *[""] * (end - start - 1)]
                behind = end
            break
    return "".join(found)


@given(pieces=st.lists(st.sampled_from(PIECES), max_size=14), places=st.lists(st.integers(0, 40), max_size=6))
@settings(max_examples=400, deadline=None)
def test_numbers_are_read_alike_however_a_text_is_cut(pieces: list[str], places: list[int]) -> None:
    text = "".join(pieces)
    bounds = [0, *sorted(place for place in places if place <= len(text)), len(text)]
    numbers = NumbersRead()
    read = ""
    for start, end in pairwise(bounds):
        read += numbers.feed(text[start:end])
        assert numbers.length == len(read)
        # What is settled reads alike whatever follows.
        assert all(
            slow(text[: numbers.settled] + more).startswith(read)
            for more in (text[numbers.settled :], "1", "e5")
        )
    read += numbers.feed("", final=True)
    assert read == slow(text)
    # What stands for itself has its place; what a number reads as is the whole of it.
    for index, character in enumerate(read):
        start, end = numbers.original((index, index + 1))
        assert text[start:end] == character or slow("[" + text[start:end])[1:].find(character) >= 0
        assert numbers.place(index) == start
    assert numbers.original((0, len(read))) == (0, len(text))


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("around", TEXTS)
def test_a_number_is_found_in_every_text_that_is_parsed(around: str, written: str) -> None:
    text = around.format(written)
    cleaner = Cleaner(GUARD)
    assert any(str(CARD) in one for one in texts_of(text))
    assert cleaner.rules(text) == ("card",)
    clean = cleaner.text(text)
    assert written not in clean
    assert "[redacted]" in clean
    assert not any(re.search(r"4\d{15}", one) for one in texts_of(clean))
    with pytest.raises(ViolationError):
        Cleaner(GUARD, "raise").text(text)
    for size in (1, 3, 7):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        stream = cleaner.stream()
        assert "".join([*(one for piece in pieces for one in stream.feed(piece)), *stream.finish()]) == clean
        refusing = Cleaner(GUARD, "raise").stream()
        with pytest.raises(ViolationError):
            [*map(refusing.feed, pieces), refusing.finish()]
        reader = ReplyReader(GUARD, escapes=True)
        with pytest.raises(ViolationError):
            [*map(reader.feed, pieces), reader.finish()]
        assert text.startswith(reader.content)
        assert not any(re.search(r"4\d{15}", one) for one in texts_of(reader.content))


@pytest.mark.parametrize(
    "text", ['{"n: 4.9999999999999999e3": 1}', "[n: 5e3]", "{n: 5000.0}", '{"a": 12.50}']
)
def test_what_comes_before_a_number_waits_for_it(text: str) -> None:
    assert Cleaner(GUARD).rules(text)
    whole = Cleaner(GUARD).text(text)
    stream = Cleaner(GUARD).stream()
    assert "".join([*(one for piece in text for one in stream.feed(piece)), *stream.finish()]) == whole
    assert not Cleaner(GUARD).rules(whole)


@pytest.mark.parametrize(
    "text",
    [
        "It costs 12.50, of 4.111111111111111e15 in all.",  # nobody parses it
        '{"a": "v4.111111111111111e15"}',
        "[1] 192.168.12.50",
        '{"a": 4.1e1, "b": 1e400, "c": 0x1F, "d": 12.500001}',
        "[" + "7" * 5000 + ".5]",
    ],
)
def test_what_reads_as_nothing_forbidden_stays(text: str) -> None:
    assert Cleaner(GUARD).text(text) is text
    reader = ReplyReader(GUARD, escapes=True)
    events = [event for piece in (text[:9], text[9:20], text[20:]) for event in reader.feed(piece)]
    assert events + reader.finish()
    assert reader.content == text


def test_what_a_whole_text_parses_to_is_refused() -> None:
    guard = Guard(Policy(name="together", rules=(StringRule(id="two", strings=("41, 11",)),)))
    for text in ("[41,11]", '{\n"a": [41,\n 11]}'):
        reader = ReplyReader(guard, escapes=True)
        reader.feed(text)
        with pytest.raises(ViolationError, match="read as JSON"):
            reader.finish()
    one = ReplyReader(GUARD, escapes=True)
    one.feed("4.111111111111111e15")
    with pytest.raises(ViolationError, match="read as JSON"):
        one.finish()


def test_text_without_brackets_is_read_once() -> None:
    assert len([*readings("1.0 and 2.50, 4e3")]) == 1
    assert len([*readings("[1] and 2.51")]) == 1
    assert [one.text for one in readings("[1.0]")] == ["[1.0]", "[1]"]
