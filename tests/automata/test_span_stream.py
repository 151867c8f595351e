"""Spans found while text arrives are those found in the finished text, whatever the chunks."""

from __future__ import annotations

import random
from collections.abc import Iterator

import interegular
import pytest

from nco_guard import AutomatonRule, Policy, RegexRule, StringRule
from nco_guard.automata import SubstringSearcher
from nco_guard.automata.spans.follower import PatternFollower
from nco_guard.automata.spans.machines import runs_of
from nco_guard.automata.spans.span_stream import SpanStream
from nco_guard.compiler import CompiledRule
from nco_guard.errors import NCOGuardError
from nco_guard.policy import presets
from nco_guard.scan.definition import spans_by_definition
from tests.automata import patterns


def chunks(rng: random.Random, text: str) -> Iterator[str]:
    position = 0
    while position < len(text):
        size = rng.choice([0, 1, 1, 1, 2, 3, 7, 40])
        yield text[position : position + size]
        position += size


def check(rng: random.Random, rule: CompiledRule, text: str, context: str = "") -> None:
    before = len(context)
    whole = spans_by_definition(rule, context + text, before or -1)
    expected = [(max(0, start - before), end - before) for start, end in whole]
    stream = SpanStream(rule.searcher, context)
    found: list[tuple[int, int]] = []
    for chunk in chunks(rng, text):
        settled = stream.safe
        fresh = stream.feed(chunk)
        assert all(start >= settled for start, _ in fresh), "a span begins before what was said to be safe"
        assert stream.safe >= settled
        found += fresh
    settled = stream.safe
    last = stream.finish()
    assert all(start >= settled for start, _ in last)
    assert found + last == expected


def random_rule(rng: random.Random) -> CompiledRule | None:
    """A rule of a random pattern; None where the pattern is refused."""
    pattern, flags = patterns.valid_pattern(rng)
    try:
        return CompiledRule(RegexRule(id="r", regex=f"(?{patterns_flags(flags)}:{pattern})"))
    except NCOGuardError:
        return None


@pytest.mark.parametrize("seed", range(300))
def test_random_patterns_over_random_chunks(seed: int) -> None:
    rng = random.Random(seed)
    rule = random_rule(rng)
    if rule is None:
        return
    for _ in range(15):
        context = patterns.text(rng, 4) if rng.random() < 0.3 else ""
        check(rng, rule, patterns.text(rng, 14), context)


def patterns_flags(flags: int) -> str:
    return "".join(letter for letter, bit in (("i", 2), ("m", 8), ("s", 16)) if flags & bit)


FOLDED = [
    StringRule(
        id="s", strings=("kk", "abé", '"a'), normalize="nfkc", ignore=("zero-width", "-", "combining")
    ),
    StringRule(id="s", strings=("a", "b1"), json_escapes=True, whole_word=True),
    RegexRule(id="r", regex=r"a+\b|b(?=1)|(?<=k)1", json_escapes=True, normalize="nfkc", ignore=("_",)),
    RegexRule(id="r", regex=r"ff?|i\w", normalize="nfkc"),
    RegexRule(id="r", regex=r"\U0001f600|é+x", json_escapes=True),
]
PIECES = [
    "a",
    "b",
    "k",
    "1",
    "é",
    "e\u0301",
    "ﬃ",
    "ﬀ",
    "_",
    "-",
    "\u200b",
    "\\",
    "\\u006",
    "1",
    "\\u0062",
    "ｋ",
    '\\"',
    "\\n",
]
PIECES += ["\\ud83d", "\\ude00", "\\ud8", "x", " ", "\\u00e9"]


@pytest.mark.parametrize("rule", FOLDED, ids=range(len(FOLDED)))
def test_folded_rules(rule: StringRule | RegexRule) -> None:
    rng = random.Random(5)
    compiled = CompiledRule(rule)
    for _ in range(1500):
        text = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 9)))
        context = "".join(rng.choice(PIECES) for _ in range(rng.randint(0, 4))) if rng.random() < 0.4 else ""
        check(rng, compiled, text, context)


@pytest.mark.parametrize("name", ["pii", "secrets"])
def test_presets_with_checksums_and_borders(name: str) -> None:
    rng = random.Random(3)
    for pattern in presets.patterns(name):
        policy = Policy.from_presets(name)
        rule = CompiledRule(next(rule for rule in policy.rules if rule.id.endswith(pattern.id)))
        for example in (*pattern.examples.match, *pattern.examples.no_match):
            text = example + rng.choice(["", " ", "x", ". ", "1", " " + example, example])
            check(rng, rule, text, rng.choice(["", "", "a ", example[:3]]))


def test_ready_made_automata() -> None:
    rng = random.Random(9)
    rule = CompiledRule(AutomatonRule(id="a", fsm=interegular.parse_pattern("ab+|b1|k").to_fsm()))
    for _ in range(300):
        check(rng, rule, patterns.text(rng, 14), patterns.text(rng, 3) if rng.random() < 0.3 else "")


def complete(rule: CompiledRule, text: str, since: int, beyond: int) -> bool:
    """Whether a match that begins at a place or later is complete, start by start."""
    runs = runs_of(rule.machine(every_end=True))  # type: ignore[arg-type]
    follower = PatternFollower(runs, text, 0, len(text), closes=False, beyond=beyond)
    return any(follower.ends(start)[0] for start in range(since, len(text)))


@pytest.mark.parametrize("seed", range(60))
def test_a_match_counts_as_complete_before_its_end_is_certain(seed: int) -> None:
    rng = random.Random(seed)
    rule = random_rule(rng)
    if rule is None:
        return
    for _ in range(8):
        text, context = patterns.text(rng, 12), patterns.text(rng, 4) if rng.random() < 0.3 else ""
        stream = SpanStream(rule.searcher, context)
        since, read = 0, context
        for chunk in chunks(rng, text):
            read += chunk
            for start, end in stream.feed(chunk):
                since = len(context) + max(end, start + 1)
            asked = rng.random() < 0.7
            if asked:
                expected = complete(rule, read, since, len(context) if context else -1)
                assert stream.matched == expected, (rule.rule, text, context)


@pytest.mark.parametrize(
    "pattern", [r"a|(?s:a.*b)", r"(?s)a.*b|c", r"(?s)a(?=.*b)", r"(?:a|aa)+c|a", r"a.{0,40}b|a"]
)
def test_the_work_of_a_stream_is_linear(pattern: str) -> None:
    """Counted in characters read, for text that comes one by one."""

    def work(length: int) -> int:
        stream = SpanStream(CompiledRule(RegexRule(id="r", regex=pattern)).searcher)
        for _ in range(length):
            stream.feed("a")
        stream.finish()
        return stream.steps

    assert work(2_000) < 2.2 * work(1_000) + 1_000
    assert work(2_000) < 60 * 2_000


def list_rule(rng: random.Random) -> CompiledRule:
    """A list of strings that share beginnings and ends, looked for as they are written or up to case."""
    letters = rng.choice(["ab", "aB -", "ab.", "kK\u212a", "ſsß ", "a\u0345ι "])
    strings = {
        "".join(rng.choice(letters) for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 6))
    }
    whole = rng.random() < 0.5
    case = rng.choice(["exact", "fold"])
    return CompiledRule(StringRule(id="s", strings=sorted(strings), whole_word=whole, case=case))


@pytest.mark.parametrize("seed", range(60))
def test_lists_of_strings_over_random_chunks(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(40):
        rule = list_rule(rng)
        assert isinstance(rule.searcher, SubstringSearcher)
        letters = "".join(rule.rule.strings) + "ab -k"  # type: ignore[union-attr]
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 20)))
        check(rng, rule, text, rng.choice(["", "", text[:3], "a", "b "]))


@pytest.mark.parametrize("seed", range(40))
def test_of_strings_as_of_patterns_it_is_known_whether_one_is_complete(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        rule = list_rule(rng)
        letters = "".join(rule.rule.strings) + "ab -k"  # type: ignore[union-attr]
        text = "".join(rng.choice(letters) for _ in range(rng.randint(0, 16)))
        context = rng.choice(["", "", text[:3], "a", "b "])
        streams = [SpanStream(source, context) for source in (rule.searcher, rule.machine(every_end=True))]
        for chunk in chunks(rng, text):
            one, other = (stream.feed(chunk) for stream in streams)
            assert one == other, (rule.rule, context, text)
            assert streams[0].safe == streams[1].safe
            if rng.random() < 0.7:
                assert streams[0].matched == streams[1].matched, (rule.rule, context, text)
