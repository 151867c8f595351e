"""Folded rules mean: `re` on the folded text; and what a text folds to."""

from __future__ import annotations

import itertools
import json
import random
import re
import string
import unicodedata
from collections import deque
from functools import cache

import pytest

from nco_guard.automata import AlternatingMachine, ClassAutomaton, FoldedMachine, FoldSpec, fold_text
from nco_guard.automata.charsets import MAX_CODE_POINT, union
from nco_guard.automata.folding import (
    IGNORABLE_SETS,
    break_off,
    denotable,
    read_escapes,
    settle_escapes,
    spellings,
)
from nco_guard.automata.patterns.look_alikes import LEET, LETTERS, accepted, with_look_alikes
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.patterns.syntax import literal
from nco_guard.automata.spans.definition import find_spans, matches
from tests.automata import patterns

NFKC = FoldSpec(normalize="nfkc")
JSON = FoldSpec(json_escapes=True)
PIECES = [
    *"aabbkKé1_ \n-*",
    *("\u200b", "\u0301", "ａ", "１", "ﬃ", "²", "\\", "\\\\", "\\u0061", "\\u00", "\\n", '\\"', "u", "0"),
    *("\\ud83d", "\\ude00", "\\uD83D\\uDE00", "😀", "\\u00e9", "\\u200B", "e\u0301", "\u00ad"),
]


def spec(rng: random.Random) -> FoldSpec:
    names = [*IGNORABLE_SETS, "*", "-", "a", " ", "\n", "\\", "\u0301"]
    return FoldSpec(
        normalize=rng.choice(["none", "nfkc"]),
        ignore=tuple(rng.sample(names, rng.choice([0, 1, 2, 3]))),
        json_escapes=rng.random() < 0.5,
    )


def text(rng: random.Random, longest: int = 5) -> str:
    return "".join(rng.choice(PIECES) for _ in range(rng.randint(0, longest)))


# -- the definition --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "original", "folded"),
    [
        ({"normalize": "nfkc"}, "ｆｕｃｋ ４２ ﬁ ß İ ² 𝒻 ⓕ …", "fuck 42 fi ß İ 2 f f ..."),
        ({"normalize": "nfkc"}, "é e\u0301", "é e\u0301"),
        ({"ignore": (".", "*")}, "f.u.c.k f**u**ck", "fuck fuck"),
        ({"ignore": ("zero-width",)}, "a\u200bb\u00adc\u200dd\ufeffe\u2060f\ufe0f", "abcdef"),
        ({"ignore": ("combining",)}, "f\u0336u\u0301\u0323ck é ế ñ й Å Ω が", "fuck e e n и A Ω が"),
        ({"ignore": ("punctuation",)}, "f-u_c'k·! 1+1 $", "fuck 1+1 $"),
        ({"json_escapes": True}, r"\u0066uck \t\/\"\b", 'fuck \t/"\b'),
        ({"json_escapes": True}, r"\\u0066 \x \u00g \u123", r"\u0066 \x \u00g \u123"),
        ({"json_escapes": True}, r"\uD83D\ude00 \\\u0061", "😀 \\a"),
        ({"normalize": "nfkc", "ignore": (".",)}, "f․u…ck", "fuck"),  # look like dots after NFKC
        ({"normalize": "nfkc", "ignore": ("…",)}, "a…b...", "ab..."),  # ignored before NFKC
        ({"normalize": "nfkc", "json_escapes": True}, r"\uff46\uFB01", "ffi"),
        ({"ignore": ("\\",), "json_escapes": True}, r"a\b \\c", "a\b c"),
    ],
)
def test_what_texts_fold_to(settings: dict[str, object], original: str, folded: str) -> None:
    assert fold_text(original, FoldSpec(**settings))[0] == folded  # type: ignore[arg-type]


def test_each_folded_character_knows_where_it_comes_from() -> None:
    folded, origin = fold_text("x*ﬁ\\u0066", FoldSpec("nfkc", ("*",), True))
    assert folded == "xfif"
    assert origin == [(0, 1), (2, 3), (2, 3), (3, 9)]


def test_escapes_are_read_as_json_reads_them() -> None:
    rng = random.Random(0)
    read = 0
    for _ in range(4000):
        inside = text(rng, 6)
        try:
            expected = json.loads(f'"{inside}"', strict=False)
        except json.JSONDecodeError:
            continue
        assert fold_text(inside, JSON)[0] == expected
        read += 1
    assert read > 1000


def test_what_is_settled_early_is_settled_right() -> None:
    rng = random.Random(1)
    for _ in range(3000):
        original = text(rng, 5)
        expected = "".join(c for c, _, _ in read_escapes(original))
        settled, pending = "", ""
        for character in original:
            more, pending = settle_escapes(pending + character)
            settled += more
            literally = "".join(c for c, _, _ in read_escapes(pending))
            assert len(pending) <= 11
            if pending:
                first, rest = break_off(pending)
                assert first + "".join(c for c, _, _ in read_escapes(rest)) == literally
        assert settled + literally == expected if original else not expected


def test_an_escape_under_way_can_denote_exactly_these_characters() -> None:
    for pending in ("\\u00f", "\\ud8", "\\uD83D\\uDE0", "\\ud83", "\\udc0"):
        found: set[int] = set()
        for more in map("".join, itertools.product("0123456789abcdef", repeat=6 - len(pending) % 6)):
            settled, rest = settle_escapes(pending + more)
            found.update(map(ord, settled if not rest else ""))
            if re.fullmatch(r"\\ud8[0-9a-f]{2}", rest):
                high = int(rest[2:], 16)
                found.update([high, *(0x10000 + (high - 0xD800 << 10) + low for low in range(0x400))])
        assert found == {c for low, high in denotable(pending) for c in range(low, high + 1)}, pending


@pytest.mark.parametrize("normalize", ["none", "nfkc"])
@pytest.mark.parametrize("ignore", [(), ("combining",), ("zero-width", "punctuation"), IGNORABLE_SETS])
def test_folded_text_folds_to_itself(normalize: str, ignore: tuple[str, ...]) -> None:
    folding = FoldSpec(normalize, ignore)  # type: ignore[arg-type]
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, MAX_CODE_POINT + 1)]))
    folded = folding.fold(everything)
    assert folding.fold(folded) == folded
    occurring = set(folded)
    vanished = {c for low, high in folding.vanished for c in range(low, high + 1)}
    assert vanished == {ord(c) for c in everything if c not in occurring}


def test_nfkc_is_character_by_character() -> None:
    for c in map(chr, [*range(0xD800), *range(0xE000, MAX_CODE_POINT + 1)]):
        expected = unicodedata.normalize("NFKC", c)
        assert NFKC.images.get(c, c) == expected


# -- strings of rules ------------------------------------------------------------------------------------------


def found(word: str, original: str, folding: FoldSpec) -> bool:
    """Containment in any of the spellings: the definition of a folded string rule."""
    folded = fold_text(original, folding)[0]
    return any("".join(choice) in folded for choice in itertools.product(*spellings(word, folding)))


@pytest.mark.parametrize(
    "word", ["café", "ế", "한글", "Ωmega", "ậx́", "ǖ", "한e\u0301", "\u0958", "ﬁancé", "Å"]
)
def test_with_nfkc_a_string_is_found_in_each_canonically_equivalent_spelling(word: str) -> None:
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        for rule_form in ("NFC", "NFD", "NFKC", "NFKD"):
            rule = unicodedata.normalize(rule_form, word)
            assert found(rule, f"a {unicodedata.normalize(form, word)}.", NFKC), (form, rule_form)
    assert found("ậ", "a\u0302\u0323", NFKC)
    assert found("ậ", "â\u0323", NFKC)
    assert not found("ậ", "â", NFKC)
    assert not found("café", "cafe", NFKC)


def test_with_accents_ignored_a_string_is_found_with_and_without() -> None:
    folding = FoldSpec(ignore=("combining",))
    for original in ("café", "cafe", "cafe\u0301", "ca\u0336fé"):
        for word in ("café", "cafe", "cafe\u0301"):
            assert found(word, original, folding)


def test_a_string_of_ignored_characters_has_no_spelling() -> None:
    assert spellings("*.\u200b", FoldSpec("nfkc", ("*", ".", "zero-width"))) == []
    assert spellings("*", FoldSpec("none", ("*",))) == []
    assert spellings("a*", FoldSpec("none", ("*",))) == [("a",)]


# -- the machine against the definition ------------------------------------------------------------------------


def machine(pattern: str, flags: int, folding: FoldSpec, *, every_end: bool = False) -> FoldedMachine:
    return FoldedMachine(AlternatingMachine(parse(pattern, flags), every_end=every_end), folding)


@pytest.mark.parametrize("seed", range(3))
def test_a_match_exists_exactly_when_re_search_finds_one_in_the_folded_text(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(60):
        pattern, flags = patterns.valid_pattern(rng, 3)
        folding = spec(rng)
        searching = machine(pattern, flags, folding)
        automaton = ClassAutomaton(searching, absorbing=False)
        for original in ["", *(text(rng) for _ in range(40))]:
            expected = re.search(pattern, fold_text(original, folding)[0], flags) is not None
            assert matches(searching, original) == expected, (pattern, flags, folding, original)
            state, hit = automaton.start, False
            for byte in original.encode():
                state = automaton.step(state, byte)
                hit, state = hit or state < 0, max(state, ~state)
            assert (hit or not automaton.may_end(state)) == expected, (pattern, flags, folding, original)


@pytest.mark.parametrize("seed", range(3))
def test_spans_are_those_of_the_original_characters(seed: int) -> None:
    rng = random.Random(seed)
    seen = 0
    for _ in range(60):
        pattern, flags = patterns.valid_pattern(rng, 3)
        folding = spec(rng)
        searching = machine(pattern, flags, folding, every_end=True)
        if not AlternatingMachine(parse(pattern, flags)).may_end(searching.inner.start):
            continue
        for _ in range(15):
            original = text(rng)
            folded, origin = fold_text(original, folding)
            covered: set[int] = set()
            for first, last in find_spans(searching.inner, folded):
                covered.update(*(range(*place) for place in origin[first:last]))
            spans = list(find_spans(searching, original))
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
            inside = {i for start, end in spans for i in range(start, end)}
            assert covered <= inside
            for start, end in spans:
                assert end == start or {start, end - 1} <= covered
            assert bool(spans) == (re.search(pattern, folded, flags) is not None)
            seen += len(spans)
    assert seen > 100


@pytest.mark.parametrize(
    ("pattern", "settings", "original", "spans"),
    [
        ("fuck", {"ignore": ("*", ".")}, "a *f.u**ck. f", [(3, 10)]),
        ("f", {"normalize": "nfkc"}, "ﬀ f", [(0, 1), (2, 3)]),
        ("xf|fy", {"normalize": "nfkc"}, "xﬀy", [(0, 3)]),
        ("fuck", {"json_escapes": True}, r'"\u0066uc\u006B"', [(1, 15)]),
        ("a(?!b)", {"ignore": ("-",)}, "a-b a-", [(4, 5)]),
    ],
)
def test_spans(
    pattern: str, settings: dict[str, object], original: str, spans: list[tuple[int, int]]
) -> None:
    searching = machine(pattern, 0, FoldSpec(**settings), every_end=True)  # type: ignore[arg-type]
    assert list(find_spans(searching, original)) == spans


def reachable_end(searching: FoldedMachine, state: int) -> bool:
    """Whether the text can end well from here, by visiting every state."""
    seen, queue = {state}, deque([state])
    while queue:
        current = queue.popleft()
        if searching.may_end(current):
            return True
        for cls in range(searching.classes.count):
            reached = searching.step(current, cls)
            if reached >= 0 and reached not in seen:
                seen.add(reached)
                queue.append(reached)
    return False


TRAPS = [
    r"a(?!\*)",
    r"a(?![*b])",
    r"a(?=.)|b\Z",
    r"a[^a]|a\Z",
    r"a(?!😀)",
    r"a(?!\\u0)",
    r"a(?!\\|b)",
    "a(?!é)",
]


@pytest.mark.parametrize("escapes", [False, True])
def test_doomed_means_that_no_continuation_ends_well(escapes: bool) -> None:
    rng = random.Random(5)
    doomed = compared = 0
    for number in range(70 if escapes else 150):
        pattern = TRAPS[number] if number < len(TRAPS) else patterns.valid_pattern(rng, 3)[0]
        ignore = (
            ("*",) if number < len(TRAPS) else tuple(rng.sample(["*", "b", "zero-width"], rng.randint(0, 2)))
        )
        folding = FoldSpec(ignore=ignore, json_escapes=escapes)
        searching = machine(pattern, 0, folding)
        for _ in range(6):
            # Up to two unsettled digits, or the whole graph would be far too large to visit.
            original = text(rng, 4) + rng.choice(
                ["", "a", "a\\u00", "a\\u002", "\\ud83d\\ude0"] if escapes else ["", "a"]
            )
            state = searching.start
            for cls in searching.classes.of_text(original):
                state = searching.step(state, cls)
                if state < 0:
                    break
            if state < 0 or searching.may_end(state) or (escapes and original.endswith("\\")):
                continue
            verdict = searching.doomed(state)
            if not escapes:
                assert verdict != reachable_end(searching, state), (pattern, folding, original)
            else:
                assert verdict != ends_well(pattern, original, folding), (pattern, folding, original)
            compared += 1
            doomed += verdict
    assert compared > 40
    assert doomed > 5


def ends_well(pattern: str, original: str, folding: FoldSpec) -> bool:
    """Whether some short continuation is no match, by trying many."""
    singles = ["", *"abK1 *\n\\é_-n", "\\u0062", "\\u002a", "\\u00e9", "\\ud83d\\ude00", "u0061"]
    digits = ["0", "1", "a", "A", "20", "61", "62", "2a", "e9", "41", "0062", "0020", "\\ude00", "1\\u0062"]
    for first in [*singles, *digits]:
        for more in itertools.product(singles, repeat=2):
            candidate = original + first + "".join(more)
            if not re.search(pattern, fold_text(candidate, folding)[0]):
                return True
    return False


def test_a_state_from_which_only_vanished_characters_would_save_is_doomed() -> None:
    searching = machine(r"a(?!\*)", 0, FoldSpec(ignore=("*",)))
    state = searching.step(searching.start, searching.classes.of_text("a")[0])
    assert not searching.may_end(state)
    assert searching.doomed(state)
    assert not searching.inner.doomed(
        searching.inner.step(searching.inner.start, searching.inner.classes.of_text("a")[0])
    )


# -- look-alikes -----------------------------------------------------------------------------------------------


def test_each_look_alike_stands_for_one_letter() -> None:
    everyone = "".join(LETTERS.values())
    assert len(set(everyone)) == len(everyone)
    assert not any(c.isascii() for c in everyone)
    assert "".join(LETTERS) == string.ascii_uppercase + string.ascii_lowercase
    assert all(re.fullmatch(r"\w", c) for c in everyone)  # so that borders of words stay where they were
    assert set(LEET) <= set(LETTERS)
    for c in everyone:
        assert unicodedata.normalize("NFKC", c).isascii() or unicodedata.name(c).split()[0] in {
            "CYRILLIC",
            "GREEK",
            "ARMENIAN",
            "CHEROKEE",
            "LATIN",
        }


@pytest.mark.parametrize("kind", ["letters", "leet"])
@pytest.mark.parametrize("caseless", [False, True])
def test_a_string_is_found_with_any_choice_of_look_alikes(kind: str, caseless: bool) -> None:
    rng = random.Random(0)
    alphabet = [*LETTERS, *"".join(LETTERS.values()), *"".join(LEET.values()), *"дж木 "]
    for _ in range(120):
        word = "".join(rng.choice("asoPcхyТ1@") for _ in range(rng.randint(1, 3)))
        searching = AlternatingMachine(with_look_alikes(literal(word, fold=caseless), kind))  # type: ignore[arg-type]
        flags = re.IGNORECASE if caseless else 0
        for _ in range(30):
            original = "".join(rng.choice([*word, *alphabet]) for _ in range(rng.randint(1, 4)))
            expected = any(
                all(
                    alike(want, got, kind == "leet", flags)
                    for want, got in zip(word, original[i:], strict=False)
                )
                for i in range(len(original) - len(word) + 1)
            )
            assert matches(searching, original) == expected, (word, original)


@cache
def cases(letter: str) -> frozenset[str]:
    """What `re.IGNORECASE` takes for the letter."""
    return frozenset(re.findall(re.escape(letter), "".join(map(chr, range(0xD800))), re.IGNORECASE))


def alike(want: str, got: str, leet: bool, flags: int) -> bool:
    """Whether a character of the text may stand for a character of the rule."""
    for letter in cases(want) if flags else {want}:
        group = next((k + v for k, v in LETTERS.items() if letter in k + v), letter)
        if got in group or (leet and letter.isascii() and got in LEET.get(letter.lower(), "")):
            return True
    return False


@pytest.mark.parametrize("seed", range(2))
def test_nothing_that_matched_as_written_is_lost(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(300):
        pattern, flags = patterns.valid_pattern(rng, 3)
        searching = AlternatingMachine(with_look_alikes(parse(pattern, flags), "leet"))
        for _ in range(5):
            original = patterns.text(rng)
            if re.search(pattern, original, flags):
                assert matches(searching, original), (pattern, flags, original)


@pytest.mark.parametrize("pattern", [r"\w", ".", "[^a]", r"\S", r"\D", r"[\w.]", r"\d", "(?!a)", "(?<!a)"])
def test_broad_classes_and_exceptions_stay_as_written(pattern: str) -> None:
    assert with_look_alikes(parse(pattern), "leet") == parse(pattern)


def test_letters_in_sets_and_ranges_accept_their_look_alikes() -> None:
    assert with_look_alikes(parse("[xa]"), "letters") != parse("[xa]")
    assert accepted(((0x61, 0x61),), True) == union(*(((ord(c), ord(c)),) for c in "a4@" + LETTERS["a"]))
    assert accepted(((0x34, 0x34),), True) == ((0x34, 0x34),)
