"""Necessary conditions hold wherever there is a match, on random patterns; and bulk folding is folding."""

from __future__ import annotations

import random
import re

import interegular
import numpy as np
import pytest

from nco_guard.automata import FsmMachine
from nco_guard.automata.folding import FoldSpec, fold_text, read_escapes, settled_length
from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.spans.definition import find_strings
from nco_guard.automata.spans.folds import fold
from nco_guard.errors import PatternError
from nco_guard.policy import presets
from nco_guard.scan import conditions
from nco_guard.scan.conditions import HEAD, Probe, fsm_probes, node_probes, string_probes
from nco_guard.scan.filter import MARGIN, Condition, Filter, codes_of_text
from tests.automata import patterns


@pytest.fixture(autouse=True)
def _all_useful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions that would be left for being weak must hold too."""
    monkeypatch.setattr(conditions, "_USEFUL", float("inf"))


def starts(probes: tuple[Probe, ...], text: str) -> set[int]:
    """Where the conditions, read place by place, allow a match to start."""
    codes = codes_of_text(text).tolist()
    found: set[int] = set()
    for probe in probes:
        for hit in range(len(text)):
            head = any(
                all(codes[hit + i] in bits(allowed) for i, allowed in enumerate(combination))
                for combination in probe.heads
            )
            follow = all(codes[hit + i] in bits(allowed) for i, allowed in enumerate(probe.follow))
            before = hit == 0 or codes[hit - 1] in bits(probe.before)
            if not (head and follow and before):
                continue
            if probe.run is None:
                found.add(hit)
                continue
            for start in range(hit, -1, -1):
                if start < hit and codes[start] not in bits(probe.run):
                    break
                length = hit - start
                if length >= probe.shortest and (probe.longest is None or length <= probe.longest):
                    found.add(start)
    return found


def bits(codes: int) -> set[int]:
    return {code for code in range(256) if codes >> code & 1}


def matching_starts(pattern: str, flags: int, text: str) -> set[int]:
    """By `re`: the places at which the pattern matches, empty matches left out."""
    compiled = re.compile(pattern, flags)
    return {place for place in range(len(text)) if (m := compiled.match(text, place)) and m.end() > place}


@pytest.mark.parametrize("seed", range(3))
def test_matches_start_only_where_the_conditions_allow(seed: int) -> None:
    rng = random.Random(seed)
    useful = 0
    for _ in range(250):
        pattern, flags = patterns.valid_pattern(rng, 4)
        try:
            node = parse(pattern, flags)
        except PatternError:
            continue
        probes = node_probes(node)
        if probes is None:
            continue
        for _ in range(6):
            text = patterns.text(rng, 20)
            allowed = starts(probes, text)
            assert matching_starts(pattern, flags, text) <= allowed, (pattern, flags, text)
            useful += len(allowed) < len(text)
    assert useful > 100


@pytest.mark.parametrize("name", ["pii", "pii_paper", "secrets"])
def test_all_patterns_of_presets_have_conditions_that_their_examples_meet(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # here they must be strong as well
    for pattern in presets.patterns(name):
        probes = node_probes(parse(pattern.regex))
        assert probes is not None, pattern.id
        for text in pattern.examples.match:
            assert matching_starts(pattern.regex, 0, text) <= starts(probes, text), (pattern.id, text)


def test_strings_and_automata_have_conditions_that_their_matches_meet() -> None:
    rng = random.Random(5)
    for _ in range(60):
        strings = ["".join(rng.choices("abkKé1 \u212as", k=rng.randint(1, 11))) for _ in range(3)]
        caseless, whole = rng.random() < 0.5, rng.random() < 0.5
        probes = string_probes(strings, caseless=caseless, whole_word=whole)
        assert probes is not None
        for _ in range(5):
            text = "".join(rng.choice([*strings, " ", "x", rng.choice(strings).swapcase()]) for _ in range(6))
            found = find_strings(strings, text, caseless=caseless, whole_word=whole)
            assert {start for start, _ in found} <= starts(probes, text)
    fsm = interegular.parse_pattern("(ab|c[de])+x").to_fsm()
    found = fsm_probes(FsmMachine(fsm))
    assert found is not None
    assert starts(found, "cex abx ab xce cdabx") >= {0, 4, 15, 17}


def test_a_weak_condition_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert node_probes(parse(r"\w+")) is None
    assert node_probes(parse(r"(?s)(?=a)")) is None
    assert string_probes(["e", "t"], caseless=True, whole_word=False) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_filter_leaves_out_no_place_at_which_a_condition_holds(seed: int) -> None:
    """And finds no other ones, where all heads are listed, or there is one."""
    rng = random.Random(seed)
    probes: list[Probe] = []
    for _ in range(40):
        try:
            probes += node_probes(parse(*patterns.valid_pattern(rng, 3))) or ()
        except PatternError:
            continue
    strings = [a + b + c for a in "abk1" for b in "ab_" for c in "1k b"]
    probes += string_probes(strings, caseless=True, whole_word=True) or ()
    flat = [Probe(p.heads, p.follow, p.before) for p in probes]
    filtered = Filter(list(map(Condition, flat)))
    for _ in range(20):
        text = patterns.text(rng, 80)
        hits = filtered.hits(codes_of_text(text))
        for probe, places in zip(flat, hits, strict=True):
            expected = starts((probe,), text)
            assert set(places.tolist()) >= expected
            if len(probe.heads) in (1, len(strings)):
                assert set(places.tolist()) == expected
        tail = range(max(0, len(text) - MARGIN), len(text) + 1)
        for closed, opened in zip(hits, filtered.hits(codes_of_text(text), is_open=True), strict=True):
            assert set(opened.tolist()) == set(closed.tolist()) | set(tail)
    assert HEAD == 4


def test_blocks_of_the_filter_meet_without_a_gap() -> None:
    strings = [f"word{i}" for i in range(20)]
    probes = string_probes(strings, caseless=False, whole_word=False)
    assert probes is not None
    text = "".join(f"word{i % 20}" + "." * (i % 7) for i in range(60_000))
    (places,) = Filter(list(map(Condition, probes))).hits(codes_of_text(text))
    assert np.array_equal(places, [m.start() for m in re.finditer("word", text)])


SPECS = [
    FoldSpec("nfkc"),
    FoldSpec("none", ("zero-width", "combining")),
    FoldSpec("nfkc", ("punctuation", "x")),
    FoldSpec("none", (), True),
    FoldSpec("nfkc", ("combining", "zero-width"), True),
]


@pytest.mark.parametrize("spec", SPECS, ids=range(len(SPECS)))
def test_bulk_folding_is_folding(spec: FoldSpec) -> None:
    rng = random.Random(3)
    pieces = [
        "a",
        "x",
        "ab.",
        "ﬁ",
        "é",
        "e\u0301",
        "\u200b",
        "\\",
        '\\"',
        "\\u0061",
        "\\ud83d\\ude00",
        "\\ud83d",
        "\\u00",
    ]
    pieces += ["ﷺ", "\ud800", "😀", "n", "½"]
    for _ in range(300):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 7)))
        folded, origin = fold_text(text, spec)
        got = fold(text, spec)
        starts_ = range(len(folded)) if got.starts is None else got.starts.tolist()
        ends = range(1, len(folded) + 1) if got.ends is None else got.ends.tolist()
        assert (got.text, list(zip(starts_, ends, strict=True))) == (folded, origin), text
        settled, read = settled_length(text), list(read_escapes(text))
        assert not text[settled:] or (text[settled] == "\\" and len(text) - settled < 12)
        for more in ("x", "u", "n", "0", "0061", "de00", "\\", "\\ude00", "d\\ude00", "\\ud83d"):
            after = list(read_escapes(text + more))
            assert [one for one in after if one[1] < settled] == [one for one in read if one[2] <= settled]
