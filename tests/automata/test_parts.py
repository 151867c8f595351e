"""Character sets, UTF-8, Aho-Corasick, ready-made automata, inclusion: each against its definition."""

from __future__ import annotations

import random
import re

import interegular
import numpy as np
import pytest

from nco_guard.automata import AhoCorasick, AlternatingMachine, FsmMachine, Utf8Automaton
from nco_guard.automata.charsets import ALL, CharClasses, complement, union
from nco_guard.automata.combine.inclusion import begins_with, escaping_text
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.patterns.syntax import Chars, literal, whole_word
from nco_guard.automata.spans.definition import find_spans, matches
from nco_guard.errors import StateLimitError
from nco_guard.policy import RegexRule, presets
from tests.automata.patterns import pattern, text

CODE_POINTS = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")


@pytest.mark.parametrize(
    "leaf",
    [r"(?i)k", r"(?i)[a-z]", r"(?ai)k", r"(?i)ß", r"(?i)[^k]", r"(?i)İ", r"(?i)ı", r"\w", r"\W", r"[^\d\s]", r"(?a)\w",
     r"(?i)[\u0390-\u03ff]", r"(?i)\u1e9e", r"(?i)[^\W\d_]", r"(?s).", r".", r"(?i)\U00010400", "(?i)ﬅ", "(?ai)[^a-k]"],
)  # fmt: skip
def test_a_leaf_matches_the_characters_that_re_says(leaf: str) -> None:
    node = parse(leaf)
    assert isinstance(node, Chars)
    found = union(tuple((m.start(), m.end() - 1) for m in re.finditer(f"(?:{leaf[leaf.find(')') + 1 :]})+",
                  CODE_POINTS, _flags(leaf))))  # fmt: skip
    assert node.ranges == found


def _flags(leaf: str) -> int:
    flags = 0
    if leaf.startswith("(?") and leaf[2] != ":":
        for letter in leaf[2 : leaf.find(")")]:
            flags |= {"i": re.I, "a": re.A, "s": re.S}[letter]
    return flags


def test_all_characters_with_case_lie_where_they_are_looked_for() -> None:
    import _sre

    from nco_guard.automata import charsets

    highest = max(c for c in range(0x110000) if _sre.unicode_tolower(c) != c)
    assert highest <= charsets._LAST_CASED


def test_sets_form_a_boolean_algebra() -> None:
    rng = random.Random(0)
    for _ in range(200):
        points = rng.sample(range(60), 12)
        ranges = union(*(((p, p),) for p in points))
        assert {c for low, high in ranges for c in range(low, high + 1)} == set(points)
        assert complement(complement(ranges)) == ranges
        assert union(ranges, complement(ranges)) == ALL


def test_classes_tell_apart_exactly_what_the_sets_tell_apart() -> None:
    rng = random.Random(1)
    sets = [union(*(((p, p + rng.randint(0, 9)),) for p in rng.sample(range(100), 4))) for _ in range(5)]
    classes = CharClasses(sets)
    of = classes.of(np.arange(200, dtype=np.uint32)).tolist()
    for ranges in sets:
        members = {c for low, high in ranges for c in range(low, high + 1)}
        assert members == {c for c in range(200) if classes.mask(ranges) >> of[c] & 1}
    signatures = [tuple(any(lo <= c <= hi for lo, hi in s) for s in sets) for c in range(200)]
    assert len(set(signatures)) == len(set(of))


def test_every_character_is_well_formed_utf8() -> None:
    automaton = Utf8Automaton()
    data = CODE_POINTS.replace("".join(map(chr, range(0xD800, 0xE000))), "").encode()
    state = automaton.start
    for byte in data[:300_000] + data[-300_000:]:
        state = automaton.step(state, byte)
        assert state >= 0
    assert automaton.may_end(state)


def test_ill_formed_bytes_are_refused_at_the_byte_that_makes_them_so() -> None:
    automaton, rng = Utf8Automaton(), random.Random(2)
    bytes_of_interest = [
        0x41,
        0x80,
        0xA0,
        0xBF,
        0xC0,
        0xC2,
        0xE0,
        0xED,
        0xEF,
        0xF0,
        0x90,
        0x8F,
        0xF4,
        0xF5,
        0xFF,
    ]
    for _ in range(20_000):
        data = bytes(rng.choice(bytes_of_interest) for _ in range(rng.randint(1, 5)))
        state = automaton.start
        for byte in data:
            state = automaton.step(state, byte)
            if state < 0:
                break
        try:
            data.decode()
            well_formed = True
        except UnicodeDecodeError:
            well_formed = False
        assert (state >= 0 and automaton.may_end(state)) == well_formed, data


@pytest.mark.parametrize("alphabet", ["ab", "aé", "a b"])
def test_aho_corasick_reports_every_occurrence(alphabet: str) -> None:
    rng = random.Random(3)
    for _ in range(300):
        count = rng.randint(1, 6)
        strings = list(
            {"".join(rng.choice(alphabet) for _ in range(rng.randint(1, 5))) for _ in range(count)}
        )
        automaton = AhoCorasick([s.encode() for s in strings])
        text = "".join(rng.choice(alphabet + "c") for _ in range(30)).encode()
        for start in (automaton.start, automaton.spaceless_start):
            shown = text[1:] if start == automaton.spaceless_start and text.startswith(b" ") else text
            skipped = len(text) - len(shown)
            state = start
            for position, byte in enumerate(text, start=1):
                reached = automaton.step(state, byte)
                prefix = shown[: max(0, position - skipped)]
                expected = {i for i, s in enumerate(strings) if prefix.endswith(s.encode())}
                assert (reached < 0) == bool(expected)
                state = ~reached if reached < 0 else reached
                if reached < 0:
                    assert set(automaton.patterns_ending(state)) == expected


def test_aho_corasick_bounds_its_states() -> None:
    with pytest.raises(StateLimitError):
        AhoCorasick([b"abcdef", b"ghijkl"], state_limit=5)


def test_a_folded_whole_word_matches_as_re_ignorecase_between_non_words() -> None:
    rng = random.Random(4)
    words = ["ab", "Straße", "a$$", "é", "k"]
    machine = AlternatingMachine(whole_word(parse("|".join(map(re.escape, words)), re.I)))
    again = AlternatingMachine(whole_word(literal("ab", fold=True)))
    for _ in range(2000):
        text = "".join(
            rng.choice(["ab", "AB", "straße", "a$$", "É", "\u212a", " ", "-", "x", "_"]) for _ in range(4)
        )
        pattern = r"(?i)(?<!\w)(?:" + "|".join(map(re.escape, words)) + r")(?!\w)"
        assert matches(machine, text) == (re.search(pattern, text) is not None), text
        assert matches(again, text) == (re.search(r"(?i)(?<!\w)ab(?!\w)", text) is not None), text


@pytest.mark.parametrize("pattern", ["a(b|c)*d", "[^a]b{2,3}", "(ab|ba)+c?a", "a.c"])
def test_an_interegular_automaton_forbids_the_words_it_accepts(pattern: str) -> None:
    machine = FsmMachine(interegular.parse_pattern(pattern).to_fsm())
    rng = random.Random(5)
    for _ in range(500):
        text = "".join(rng.choice("abcdxé") for _ in range(rng.randint(0, 8)))
        # On this subset `re` and interegular mean the same, but for the line break that `.` leaves out.
        assert matches(machine, text) == (re.search(pattern, text) is not None), text
        spans = list(find_spans(machine, text))
        assert bool(spans) == matches(machine, text)
        for start, end in spans:
            assert re.fullmatch(pattern, text[start:end])


def _beside(rng: random.Random) -> tuple[str, str]:
    """A pattern, and what may be its beginning, or nearly."""
    pieces = [pattern(rng, rng.choice([0, 1, 2])) for _ in range(rng.randint(1, 4))]
    options = [pattern(rng, 1) for _ in range(3)]
    if rng.random() < 0.5:
        pieces.insert(0, f"(?:{'|'.join(options[: rng.randint(1, 3)])})")
    stop = pieces[: rng.randint(1, len(pieces))]
    if rng.random() < 0.6:
        some = rng.randrange(len(stop))
        stop[some] = rng.choice(
            [pattern(rng, 1), f"(?:{stop[some]}|{pattern(rng, 1)})", f"(?:{'|'.join(options)})", "[ab1]", "."]
        )
    if rng.random() < 0.5:
        last = pieces[len(stop) - 1]
        pieces[len(stop) - 1] = f"(?:{last}){rng.choice(['{3}', '{2,4}', '{3,}', '+', '*'])}"
        stop[-1] = f"(?:{stop[-1]}){rng.choice(['{1}', '{2}', '{3}', '{1,4}', '+', '*'])}"
    return "".join(pieces), "".join(stop)


def test_what_is_read_off_the_trees_agrees_with_the_search_and_with_re() -> None:
    rng = random.Random(12)
    proved = refuted = 0
    while proved < 250:
        whole, stop = _beside(rng)
        try:
            searches = [re.compile(whole), re.compile(stop)]
        except re.error:
            continue
        if not begins_with(parse(whole), parse(stop)):
            refuted += 1
            continue
        proved += 1
        machines = [AlternatingMachine(parse(p)) for p in (whole, stop)]
        assert escaping_text(machines[0], machines[1]) is None, (whole, stop)
        for _ in range(40):
            written = text(rng)
            assert searches[1].search(written) or not searches[0].search(written), (whole, stop, written)
    assert refuted > 100


@pytest.mark.parametrize("kind", ["pii", "secrets"])
def test_most_stop_points_of_the_presets_are_read_off_the_trees(kind: str) -> None:
    rules = [r for r in presets.load(kind) if isinstance(r, RegexRule) and r.stop_at is not None]
    read = [begins_with(parse(r.regex), parse(r.stop_at or "")) for r in rules]
    assert sum(read) > 0.6 * len(read)


@pytest.mark.parametrize(
    ("pattern", "stop", "escape"),
    [
        (r"\d{3}-\d{4}", r"\d{3}-\d", False),
        (r"\b\d{3}-\d{2}-\d{4}\b", r"\b\d{3}-\d{2}-\d", False),
        (
            r"\d{3}-\d{2}-\d{4}",
            r"\b\d{3}-\d{2}-\d",
            True,
        ),  # "x123-45-6789": no boundary before the first digit
        (r"[a-z]+@[a-z]+", r"[a-z]@[a-z]", False),
        (r"[a-z]*@[a-z]+", r"[a-z]@[a-z]", True),
        (r"(?i)key=\w{8}", r"key=\w{4}", True),
        (r"(?i)key=\w{8}", r"(?i)key=\w{4}", False),
        (r"ab(?!c)", r"ab", False),
        (r"ab(?!c)", r"ab[^c]", True),  # "ab" may end the text
        (r"(?<=x)ab", r"xa", False),
        (r"(?:\d[ -]?){13,16}", r"(?:\d[ -]?){8}", False),
    ],
)
def test_a_stop_point_is_passed_by_every_match_or_a_text_shows_that_it_is_not(
    pattern: str, stop: str, escape: bool
) -> None:
    text = escaping_text(AlternatingMachine(parse(pattern)), AlternatingMachine(parse(stop)))
    assert (text is not None) == escape
    if text is not None:
        assert re.search(pattern, text)
        assert not re.search(stop, text)
