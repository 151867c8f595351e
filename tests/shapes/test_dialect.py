"""Patterns in shapes are read as Python's `re` reads them: random ones, on texts that are enumerated and sampled."""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nco_guard import Policy, RegexRule, Shape, StringRule
from nco_guard.errors import ContradictionError, ShapeError
from nco_guard.shapes.contradictions import prune
from nco_guard.shapes.dialect import searched_pattern, whole_pattern
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from tests.shapes.judge import ecma

# Where Rust, Python and ECMA-262 differ: digits, words and spaces of Unicode, cases, ends of lines, signs in classes.
LETTERS = "ab1_-&~[]^.\n\r K\u212a\u017fs\u0663\u0131é\u0130\u2028\x1c\x85\ufeff\u200c\u00df\u1e9e$"
SPECIAL = [
    r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"[\d]", r"[^\d]", r"[\W\d]", r"[^\w\s]", r"[\s\S]", r".", r"(?s:.)",
    r"(?i)k",
    r"(?i)s", r"(?i)[a-k]", r"(?i:ß)", r"(?a)\w", r"(?a:\d)b", r"[a[b]", r"[a[b]]", r"[a&&b]", r"[ --b]", r"[a~~b]",
    r"[]a]",
    r"[^]a]", r"[\]a-]", r"[a^]", r"[&&]", r"[.$]", r"\.", r"a\$", "^a", "a$", r"\Aa", r"a\Z", "^a|b$", "(^a|b)1?",
    "a(1|b$)",
    "^", "$", "^$", "^^a$$", "(?:^)a", "(^|-)a", "a(?:$|-)", "", "a|", "(?P<n>a)b", "(a)(b)", "a*?b", "a+?", "a{2}",
    "a{1,}", "a{,2}",
    r"\x61", "\\u0061", r"\N{LATIN SMALL LETTER A}", r"\141", r"\0", r"\t|\n", "\n", r"\\", "/", "a/b", "\u2028",
    r"[\n-\r]",
    "(?x) a b # c", "(?x:a )b", r"[a\-\d]", r"é", "[é-ê]", "(?i)é", "[^a]", "(?i)[^k]", r"[^\n]", "#", " ", "~",
    r"(?:a|b){2}", "(?:ab?)*", "((a)|b)+", "[a-b]{0}", "a{0,0}b", r"\d+\.\d*", r"[\w.-]+",
]  # fmt: skip
REFUSED = {
    r"(?=a)b": "look-around", r"(?<!a)b": "look-around", r"(a)\1": "backreference", r"(?P<n>a)(?P=n)": "backreference",
    r"(a)?(?(1)b|c)": "conditional", "a++": "possessive", "a*+b": "possessive", "(?>a)b": "atomic", r"a\b": "boundary",
    r"\Bab": "boundary", "(?m)^a": "lines", "(?m:a$)b": "lines", "a^b": "anchor", "a$b": "anchor", "(?:a$)+b": "anchor",
    "(": "Python", r"\p{L}": "Python", "(?<n>a)": "(?P<name>", r"[\w-.]": "Python", "a{3,1}": "Python", "*a": "Python",
    "(?:a{1000}){1000}": "repeat less", "(" * 120 + "a" + ")" * 120: "deep", "(" * 900 + ")" * 900: "deep",
}  # fmt: skip


class Reads:
    """What a shape lets be."""

    def __init__(self, shape: Shape) -> None:
        self._matcher = GrammarReader(shape.grammar, tokenizer_of(None))
        self._start = self._matcher.at(b"")

    def __call__(self, text: str) -> bool:
        return self._matcher.leads(self._start, text.encode(), ends=True)

    def sample(self, source: random.Random, longest: int = 12) -> str | None:
        """A text that is written at random."""
        text = b""
        for _ in range(longest):
            found = self._matcher.at(text)
            if found.is_accepting() and source.random() < 0.3:
                break
            bytes_ = np.flatnonzero(self._matcher.mask(found)[:256]).tolist()
            if not bytes_:
                break
            text += bytes([source.choice(bytes_)])
        found = self._matcher.at(text)
        while not found.is_accepting() and len(text) < 4 * longest:
            bytes_ = np.flatnonzero(self._matcher.mask(found)[:256]).tolist()
            text += bytes([min(bytes_, key=lambda byte: (byte != 0x22, byte))])
            found = self._matcher.at(text)
        return text.decode() if found.is_accepting() else None


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def texts(count: int = 250) -> list[str]:
    source = random.Random(5)
    short = ["", *LETTERS, *("".join(pair) for pair in itertools.product("ab1_-\n^$", repeat=2))]
    longer = ("".join(source.choices(LETTERS, k=source.randint(2, 5))) for _ in range(count))
    return [*short, *longer]


TEXTS = texts()


@pytest.mark.parametrize("pattern", SPECIAL)
def test_a_regular_expression_is_python_s(pattern: str) -> None:
    reads, judge = Reads(Shape.regex(pattern)), re.compile(pattern)
    for text in TEXTS:
        assert reads(text) == bool(judge.fullmatch(text)), text


@pytest.mark.parametrize("pattern", SPECIAL)
def test_a_pattern_lets_be_what_python_and_ecma_find(pattern: str) -> None:
    reads, judge = Reads(Shape.json({"type": "string", "pattern": pattern})), re.compile(pattern)
    both = not re.search(r"\(\?[a-z]|\\[AZN0]|\\1|\[\^?\]|\{,", pattern)  # what ECMA-262 reads at all
    strict = ecma(pattern) if both else None
    for text in TEXTS:
        if re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f]", text):
            continue
        wanted = bool(judge.search(text)) and (strict is None or bool(strict.search(text)))
        if strict is None:  # may be narrower
            assert wanted or not reads(quoted(text)), text
        else:
            assert reads(quoted(text)) == wanted or (_apart(pattern) and not reads(quoted(text))), text


def _apart(pattern: str) -> bool:
    """Whether both readings may find a match in different places of a text; what is enforced is one place for both."""
    return bool(re.search(r"\\[DWSs]|\[\^|\.|\$", pattern))


@pytest.mark.parametrize("pattern", REFUSED)
def test_what_cannot_be_read_alike_is_refused_by_name(pattern: str) -> None:
    for make in (
        Shape.regex,
        lambda each: Shape.json({"properties": {"x": {"type": "string", "pattern": each}}}),
    ):
        with pytest.raises(ShapeError, match=re.escape(REFUSED[pattern])) as caught:
            make(pattern)
        assert caught.value.place in (None, "#/properties/x")
        assert "regular expression" in str(caught.value)


leaves = st.one_of(
    st.sampled_from(list(LETTERS)).map(re.escape),
    st.sampled_from(
        [r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", ".", "(?i:k)", "(?i:s)", "(?s:.)", "(?a:\\w)"]
    ),
    st.lists(
        st.sampled_from(
            [*(re.escape(c) for c in LETTERS), r"\d", r"\W", r"\s", "a-f", "&&", "[", "--", "~~"]
        ),
        min_size=1,
        max_size=3,
    ).flatmap(lambda parts: st.sampled_from([f"[{''.join(parts)}]", f"[^{''.join(parts)}]"])),
)
bodies = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda some: f"(?:{'|'.join(some)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=5,
)
patterns = st.tuples(st.sampled_from(["", "", "^", "^"]), bodies, st.sampled_from(["", "", "$", "$"])).map(
    "".join
)


def is_one(pattern: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except re.error:
            return False
    return True


@settings(max_examples=60, deadline=None)
@given(patterns.filter(is_one), st.randoms(use_true_random=False))
def test_random_patterns_are_python_s(pattern: str, source: random.Random) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        judge = re.compile(pattern)
    whole = Reads(Shape.regex(pattern))
    spelled = re.compile(whole_pattern(pattern))
    for text in source.sample(TEXTS, 60):
        assert whole(text) == bool(judge.fullmatch(text)) == bool(spelled.fullmatch(text)), text
    with contextlib.suppress(ShapeError):  # both readings leave nothing
        _check_searched(pattern, judge, source)
    for _ in range(6):
        written = whole.sample(source)
        assert written is None or judge.fullmatch(written), written


def _check_searched(pattern: str, judge: re.Pattern[str], source: random.Random) -> None:
    found = Reads(Shape.json({"type": "string", "pattern": pattern}))
    searched = re.compile(searched_pattern(pattern))
    for text in source.sample(TEXTS, 60):
        taken = bool(searched.fullmatch(text))
        assert found(quoted(text)) == taken, text
        assert judge.search(text) or not taken, text
    for _ in range(6):
        written = found.sample(source)
        assert written is None or judge.search(json.loads(written)), written


@pytest.mark.parametrize("pattern", [r"(?s)^.$", r"^[]$]$", r"^[^]$]$", r"(?i)^k$", r"^\s$", "^.$"])
def test_what_a_policy_leaves_of_a_pattern_is_found_by_the_same_reading(pattern: str) -> None:
    """Rules that forbid each character but one leave a string if and only if a text may be it."""
    reads = Reads(Shape.json({"type": "string", "pattern": pattern}))
    for letter in "\nkK\u212a$]a \u2028":
        policy = Policy(name="p", rules=[_but(letter)])
        wanted: dict[str, Any] = {"type": "string", "pattern": pattern}
        try:
            prune(wanted, policy)
        except ContradictionError:
            assert not reads(quoted(letter)), letter


def _but(letter: str) -> Any:
    return RegexRule(id="others", regex=f'(?s)[^{re.escape(letter)}"]')


def test_strings_are_forbidden_in_what_a_pattern_lets_be() -> None:
    with pytest.raises(ContradictionError):
        prune(
            {"type": "string", "pattern": r"^\d$"},
            Policy(name="p", rules=[StringRule(id="d", strings=tuple("0123456789"))]),
        )
