"""What ends a sentence, against the definition place by place; and where a text's tokens begin one."""

from __future__ import annotations

import random
import unicodedata

import pytest

from nco_guard import Policy, StringRule
from nco_guard.analysis import sentence_breaks as module
from nco_guard.analysis import sentences
from nco_guard.analysis.sentence_breaks import sentence_breaks, settled_breaks
from nco_guard.compiler import compile_policy
from nco_guard.rewinding import MatchStarts
from nco_guard.session import BoundGuard
from nco_guard.session.state import TextState
from nco_guard.testing import toy_vocabulary

AT_ONCE = "。！？｡"
SPACED = ".!?…।؟"
CLOSING = "\"')]」』”"
LETTERS = [*"ab3", *SPACED, *AT_ONCE, *CLOSING, *" \n\t\u3000", *"ab", " ", "."]


def is_break(text: str, place: int) -> bool:
    """Whether a place lies between two sentences."""
    low = high = place
    while low and text[low - 1].isspace():
        low -= 1
    while high < len(text) and text[high].isspace():
        high += 1
    space, before = text[low:high], text[:low]
    if not space and text[high : high + 1] and text[high] in CLOSING + SPACED + AT_ONCE:
        return False  # it belongs to what precedes
    mark = before.rstrip(CLOSING)[-1:]
    if "\n" in space:
        return True
    return bool(mark) and (mark in AT_ONCE or (mark in SPACED and bool(space)))


def written(chance: random.Random, most: int = 14) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randint(0, most)))


@pytest.mark.parametrize("seed", range(20))
def test_breaks_are_those_of_the_definition(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        text = written(chance)
        breaks = list(sentence_breaks(text))
        inside = {place for start, end in breaks for place in range(start, end + 1)}
        assert inside == {place for place in range(len(text) + 1) if is_break(text, place)}, text
        sure, more = settled_breaks(text), written(chance)
        settled = [one for one in breaks if one[1] <= sure]
        assert settled == [one for one in sentence_breaks(text + more) if one[1] <= sure]
        assert [one for one in breaks if one[1] > sure] == [
            (sure + start, sure + end) for start, end in sentence_breaks(text[sure:])
        ]


def test_sentences_of_several_scripts() -> None:
    assert sentences("你好。这是3.14！「是。」对") == ["你好。", "这是3.14！", "「是。」", "对"]
    assert sentences('He said "no." Then (so!) he left... Why') == [
        'He said "no."',
        "Then (so!)",
        "he left...",
        "Why",
    ]
    assert sentences("यह है। वह है। v1.2 a.b") == ["यह है।", "वह है।", "v1.2 a.b"]
    assert sentences("one\n two.three\n\nfour") == ["one", "two.three", "four"]


def test_marks_are_those_of_unicode() -> None:
    regex = pytest.importorskip("regex")
    marks = module._SPACED + module._AT_ONCE
    assert len(set(marks)) == len(marks)
    assert [mark for mark in marks if not regex.match(r"\p{Sentence_Terminal}", mark)] == ["…"]
    basic = (chr(code) for code in range(0x10000) if unicodedata.category(chr(code)) == "Po")
    missing = [c for c in basic if regex.match(r"\p{Sentence_Terminal}", c) and c not in marks]
    assert all(unicodedata.unidata_version < "15" or c in "\u1b4e\u1b4f\u1b7f\u2e60\u2e61" for c in missing)
    closing = {unicodedata.category(c) for c in module._CLOSING}
    assert closing == {"Pe", "Pf", "Po"}  # quotation marks of ASCII are of the last


MERGES = [". ", " b", "。", "a.", "b。a", b"a\xe3\x80", b"\x82b", "\n\n"]
VOCABULARY = toy_vocabulary(MERGES)
BOUND = BoundGuard(compile_policy(Policy(name="p", rules=[StringRule(id="s", strings=["z"])])), VOCABULARY)


def begun(ids: list[int], place: int, token: int | None) -> int:
    """How many tokens stand before the last break at or before a place, token by token."""
    whole = VOCABULARY.text_of(ids if token is None else [*ids, token]).rstrip("\ufffd")
    for count in range(place, 0, -1):
        before = VOCABULARY.text_of(ids[:count])
        if not before.endswith("\ufffd") and is_break(whole, len(before)):
            return count
    return 0


@pytest.mark.parametrize("seed", range(40))
def test_tokens_begin_sentences_where_the_definition_says(seed: int) -> None:
    chance = random.Random(seed)
    used = [*range(256, 256 + len(MERGES)), *b"ab. !)\n"]
    text = TextState(BOUND)
    starts, wanted = MatchStarts(BOUND, text), set()
    for _ in range(150):
        if text.ids and chance.random() < 0.15:
            length = chance.randint(max(0, len(text.ids) - 25), len(text.ids))
            text.cut(length)
            starts.cut(length)
        text.ids.append(chance.choice(used))
        whole = VOCABULARY.text_of(text.ids)
        if "\ufffd" in whole[:-1]:
            text.ids.pop()
            continue
        place = chance.randint(0, len(text.ids))
        if VOCABULARY.text_of(text.ids[:place]).endswith("\ufffd"):
            continue
        token = chance.choice([None, *used[8:]])
        wanted.add(begun(text.ids, place, token))
        assert starts.sentence(place, token) == begun(text.ids, place, token)
    assert len(wanted) > 5


def test_sentences_begin_after_their_ends() -> None:
    text = TextState(BOUND)
    text.ids += [*b"One", VOCABULARY.tokens.index(b". "), *b"Two!\nThree 3.14"]
    starts = MatchStarts(BOUND, text)
    assert [starts.sentence(place) for place in (2, 4, 6, 8, 9, len(text.ids))] == [0, 4, 4, 8, 9, 9]
    text.ids.append(ord("."))
    assert starts.sentence(len(text.ids)) == 9
    assert starts.sentence(len(text.ids), ord(" ")) == len(text.ids)
    assert starts.sentence(len(text.ids), ord("5")) == 9
