"""What Hypothesis draws: rules of every kind, policies, small vocabularies of every family, prompts."""

from __future__ import annotations

import re
from typing import Any

import interegular
from hypothesis import strategies as st

from nco_guard.automata import Rewriting
from nco_guard.automata.combine.rewriting import BOUNDARY
from nco_guard.compiler import compile_policy
from nco_guard.errors import PolicyError
from nco_guard.policy import AutomatonRule, Policy, RegexRule, Rule, StringRule
from nco_guard.tokens import Vocabulary
from tests.automata import patterns
from tests.automata.checksum_reference import CHECKS
from tests.masking.random_policies import CLEANED, EVASIONS

LETTERS = "abkKé1 -_\n"
CHECKED = (
    r"\d{2,4}",
    r"(?<!\d)\d(?:[ -]?\d){1,3}(?!\d)",
    r"[a-k1]{5,6}",
    r"\b\w{2,5}\b",
    r"(?:\d-?)+a",
    r"(?:\d|a){2,5}$",
)
BACKREFERENCES = (r"a([-_ ])b\1", r"(a|b)k\1", r"(?P<q>[-_1])\w(?P=q)", r"(?i)(k|1)a\1", r"(a|é|)b\1k")
FSMS = ("a(b|k)*1", "[^a]b{2}", "k+1", "(ab|b-)é?")

words = st.text(LETTERS, min_size=1, max_size=4)
texts = st.lists(st.sampled_from([*LETTERS, *LETTERS, *EVASIONS]), max_size=9).map("".join)
prompts = st.lists(st.sampled_from([*LETTERS, *LETTERS, *EVASIONS]), max_size=5).map("".join)


def valid(pattern: str) -> bool:
    """Whether `re` takes it."""
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _composed(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{}{}".format, inner, inner),
        st.builds("(?:{}|{})".format, inner, inner),
        st.builds("(?:{}){}".format, inner, st.sampled_from(patterns.QUANTIFIERS)),
        st.builds("{}{})".format, st.sampled_from(["(?=", "(?!", "(?<=", "(?<!", *patterns.SCOPES]), inner),
    )


_anchors = st.sampled_from(patterns.ANCHORS)
regexes = st.one_of(
    st.recursive(st.sampled_from(patterns.ATOMS) | _anchors, _composed, max_leaves=6),
    st.sampled_from(BACKREFERENCES),
    st.builds(
        "{}{}".format,
        st.sampled_from(["(?i)", "(?m)", "(?s)", "(?a)"]),
        st.recursive(st.sampled_from(patterns.ATOMS) | _anchors, _composed, max_leaves=4),
    ),
).filter(valid)

ignored = st.lists(
    st.sampled_from(["*", "-", " ", "\u200b", "zero-width", "combining", "punctuation"]),
    max_size=2,
    unique=True,
).map(tuple)


@st.composite
def folds(draw: st.DrawFn, *, look_alikes: bool) -> dict[str, Any]:
    """Settings of what counts as the same text; often none."""
    found: dict[str, Any] = {
        "case": draw(st.sampled_from(["exact", "fold"])),
        "whole_word": draw(st.booleans()),
    }
    if draw(st.integers(0, 2)) == 0:
        found["normalize"] = draw(st.sampled_from(["none", "nfkc"]))
        found["ignore"] = draw(ignored)
        found["json_escapes"] = draw(st.booleans())
        if look_alikes:
            found["confusables"] = draw(st.sampled_from(["none", "letters", "leet"]))
    return found


def compiles(rule: Rule) -> bool:
    """Whether the rule can be enforced; what cannot is refused by a typed error, and drawn again."""
    try:
        compile_policy(Policy(name="probe", rules=(rule,)))
    except PolicyError:
        return False
    return True


@st.composite
def _candidates(draw: st.DrawFn, name: str, modes: tuple[str, ...]) -> Rule | None:
    options: dict[str, Any] = {"context": draw(st.sampled_from(["output", "output", "prompt"]))}
    mode = draw(st.sampled_from(modes))
    if mode == "monitor":
        options["monitor"] = True
    elif mode == "soft":
        options["penalty"] = draw(st.sampled_from([0.5, 0.1, 2.0, 16.0]))
    kind = draw(st.sampled_from(["strings", "strings", "regex", "regex", "regex", "stop", "checksum", "fsm"]))
    try:
        if kind == "strings":
            strings = tuple(draw(st.lists(words, min_size=1, max_size=3, unique=True)))
            return StringRule(id=name, strings=strings, **draw(folds(look_alikes=True)), **options)
        if kind == "fsm":
            fsm = interegular.parse_pattern(draw(st.sampled_from(FSMS))).to_fsm()
            return AutomatonRule(id=name, fsm=fsm, **options)
        options |= draw(folds(look_alikes=kind == "regex" and draw(st.integers(0, 4)) == 0))
        if kind == "checksum":
            checksum = draw(st.sampled_from(["luhn", "mod97", *CHECKS.values()]))
            stop = draw(
                st.sampled_from([None, None, r"\d", r"\w{2}", r"[a-k\d]-?[a-k\d]", r"(?<!\d)\d(?=\d)"])
            )
            regex = draw(st.sampled_from(CHECKED))
            return RegexRule(id=name, regex=regex, checksum=checksum, stop_at=stop, **options)
        regex = draw(regexes)
        if kind == "stop":
            options["stop_at"] = regex
            # A flag of the whole pattern must stand first, and does.
            regex += draw(st.sampled_from(["", "a", r"\w", "[ab]+", "(?!b)"]))
        return RegexRule(id=name, regex=regex, **options)
    except PolicyError:
        return None


def rules(name: str, modes: tuple[str, ...] = ("hard", "hard", "soft", "monitor")) -> st.SearchStrategy[Rule]:
    """A rule of any kind that can be enforced."""
    return _candidates(name, modes).filter(lambda rule: rule is not None and compiles(rule))  # type: ignore[return-value]


@st.composite
def policies(
    draw: st.DrawFn, modes: tuple[str, ...] = ("hard", "hard", "soft", "monitor"), most: int = 3
) -> Policy:
    """One to three rules."""
    count = draw(st.integers(1, most))
    return Policy(name="drawn", rules=tuple(draw(rules(f"r{i}", modes)) for i in range(count)))


PIECES = Rewriting(b"bb", CLEANED.replacements[:2])
MISTRAL = Rewriting(drops=(b"a", b"1"), boundaries=True)


@st.composite
def vocabularies(draw: st.DrawFn, *, plain: bool = False, size: int = 8) -> Vocabulary:
    """A small vocabulary: some letters by themselves, then pieces, fragments of characters among them.

    Families differ in what they strip and rewrite. `plain`: whole characters only, nothing rewritten.
    """
    letters = draw(st.lists(st.sampled_from(LETTERS), min_size=3, max_size=6, unique=True))
    pieces = draw(st.lists(st.text("".join(letters), min_size=2, max_size=3), max_size=size, unique=True))
    tokens = [piece.encode() for piece in (*letters, *pieces)]
    rewriting, strips = None, False
    if not plain:
        tokens += draw(st.lists(st.sampled_from([e.encode() for e in EVASIONS]), max_size=3, unique=True))
        if draw(st.booleans()):
            fragments = [b"\xc3", b"\xa9", b"\xe2\x80", b"\x8b", b"a\xc3", b"\xa9b"]
            tokens += draw(st.lists(st.sampled_from(fragments), max_size=4, unique=True))
        rewriting = draw(st.sampled_from([None, None, None, CLEANED, PIECES, MISTRAL]))
        strips = draw(st.booleans())
    silent = bytes([BOUNDARY]) if rewriting is MISTRAL else b""
    first = len(tokens)
    tokens += [silent, b"", b"", b"x"]
    return Vocabulary.build(
        tokens,
        eos_ids=[first + 1] if draw(st.booleans()) else [first + 1, first + 2],
        special_ids=[first, first + 1],
        unusable_ids=[first + 3],
        strips_first_space=strips,
        rewriting=rewriting,
    )
