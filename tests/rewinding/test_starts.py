"""Where the match began that a token would complete, against every pair of places that `re` takes for a match."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.automata.folding import FoldSpec, fold_text
from nco_guard.automata.spans import live
from nco_guard.compiler import compile_policy
from nco_guard.masking import JointTables
from nco_guard.policy import Rule
from nco_guard.rewinding import MatchStarts
from nco_guard.rewinding import starts as starts_module
from nco_guard.session import BoundGuard
from nco_guard.session.state import TextState
from nco_guard.testing import Family, tiny_tokenizer, toy_vocabulary
from nco_guard.tokens import ShownText, Vocabulary, read_vocabulary

PATTERNS = ["ab", "a{2,4}b", "ba*c", "[ab]{3}c", "é+a", "a.b.c|cc", "(?:ab){2}"]
MERGES = ["ab", "ba", "aa", "bc", "caa", "éa", b"a\xc3", b"\xa9b", ". "]
TOY = toy_vocabulary(MERGES)
USED = [*range(256, 256 + len(MERGES)), *b"abc. \xc3\xa9"]

# Each with what `re` and `fold_text` make of it.
RULES: list[tuple[Rule, str, FoldSpec]] = [
    (RegexRule(id="across", regex=r"(?i:the\s+fuck)", context="prompt"), r"(?i:the\s+fuck)", FoldSpec()),
    (StringRule(id="word", strings=["fuck", "ass "], context="prompt"), "fuck|ass ", FoldSpec()),
    (StringRule(id="alone", strings=["is thi", "quick", "é,"]), "is thi|quick|é,", FoldSpec()),
    (
        RegexRule(id="folded", regex="cafe|f[iu]ck?", normalize="nfkc", ignore=["combining", "-", " "]),
        "cafe|f[iu]ck?",
        FoldSpec("nfkc", ("combining", "-", " ")),
    ),
    (
        RegexRule(id="both", regex="hat(the)?f", ignore=["-", " ", ","], context="prompt"),
        "hat(the)?f",
        FoldSpec("none", ("-", " ", ",")),
    ),
]


def joined(vocabulary: Vocabulary, prompt: list[int], ids: list[int]) -> str:
    return "".join(vocabulary.continuation_of(prompt, ids)) if prompt else vocabulary.text_of(ids)


def starts_of(pattern: str, spec: FoldSpec, before: str, after: str, beyond: int) -> list[int]:
    """Where the matches begin that end in what was added, and not in a prompt of so many characters."""
    folded, origin = fold_text(after, spec)
    done = sum(end <= len(before) for _, end in origin)
    ends = [end for end in range(done + 1, len(folded) + 1) if origin[end - 1][1] > beyond]
    wanted = re.compile(pattern)
    return [
        origin[start][0]
        for start in range(len(folded))
        if any(wanted.fullmatch(folded, start, end) for end in ends)
    ]


def token_of(vocabulary: Vocabulary, prompt: list[int], ids: list[int], start: int) -> int:
    """How many tokens stand before the one with which a character begins."""
    # The first bytes of a character read as U+FFFD: they count.
    lengths = [len(joined(vocabulary, prompt, ids[:count])) for count in range(len(ids) + 1)]
    return max((count for count, length in enumerate(lengths) if length <= start), default=0)


def bound_of(rules: list[tuple[Rule, str, FoldSpec]], vocabulary: Vocabulary) -> BoundGuard:
    return BoundGuard(compile_policy(Policy(name="p", rules=[rule for rule, *_ in rules])), vocabulary)


def looked_at(
    chance: random.Random,
    rules: list[tuple[Rule, str, FoldSpec]],
    bound: BoundGuard,
    words: list[list[int]],
    prompt: list[int],
) -> int | None:
    """Write until a token is forbidden, and compare: the place that was found; None: none was forbidden."""
    text, vocabulary = TextState(bound, prompt), bound.vocabulary
    word: list[int] = []
    starts, length = MatchStarts(bound, text), chance.randint(3, 40)
    while len(text.ids) < length:
        if text.ids and chance.random() < 0.2:
            cut = chance.randint(max(0, len(text.ids) - 20), len(text.ids))
            text.cut(cut)
            starts.cut(cut)
        word = word or [*chance.choice(words)]
        token = word.pop(0)
        kept = starts.settled(sentences=False)
        if token not in text.ask(JointTables.forbidden, None):
            text.advance(token)
            continue
        named = text.ask(JointTables.rules_at_fault, token)
        found = starts.begun(named, token)
        places = []
        for rule, pattern, spec in rules:
            if rule.id in named:
                asked = prompt if rule.context == "prompt" else []
                before, after = (joined(vocabulary, asked, ids) for ids in (text.ids, [*text.ids, token]))
                beyond = len(joined(vocabulary, asked, []))
                begun = starts_of(pattern, spec, before.rstrip("\ufffd"), after, beyond if asked else -1)
                places += [token_of(vocabulary, asked, text.ids, start) for start in begun]
        if not places:  # forbidden, since a match cannot be avoided any more
            continue
        assert found == min(places)
        assert kept <= found
        return found
    return None


@pytest.mark.parametrize("seed", range(40))
def test_places_are_those_that_re_finds(seed: int) -> None:
    chance = random.Random(seed)
    patterns = chance.sample(PATTERNS, 3)
    rules: list[tuple[Rule, str, FoldSpec]] = [
        (RegexRule(id=f"r{number}", regex=pattern), pattern, FoldSpec())
        for number, pattern in enumerate(patterns)
    ]
    bound = bound_of(rules, TOY)
    found = [looked_at(chance, rules, bound, [[token] for token in USED], []) for _ in range(40)]
    assert sum(place is not None for place in found) > 3


@cache
def read(family: Family) -> tuple[object, Vocabulary]:
    tokenizer = tiny_tokenizer(family)
    return tokenizer, read_vocabulary(tokenizer)


@pytest.mark.parametrize("number", range(len(RULES)))
@pytest.mark.parametrize("family", ["byte-level", "byte-fallback", "unigram", "wordpiece"])
def test_places_are_right_in_every_family_of_tokenizers(family: Family, number: int) -> None:
    chance = random.Random(number)
    tokenizer, vocabulary = read(family)
    said = ["the", " the", " fuck", "fuck", "what", "is this", "ass", "a quick", "café,", "fu", "w-hat", "f"]
    words = [tokenizer(word, add_special_tokens=False).input_ids for word in said]
    words = [word for word in words if not {*vocabulary.unusable_ids} & {*word}]
    bound, found = bound_of([RULES[number]], vocabulary), []
    for _ in range(120):
        prompt = tokenizer(
            chance.choice(["what the", "the", "the fu", "so"]), add_special_tokens=False
        ).input_ids
        place = looked_at(chance, [RULES[number]], bound, words, prompt)
        if place is not None:
            found.append(place)
    assert len(found) > 10
    if RULES[number][0].context == "prompt":
        assert 0 in found  # what began in the prompt goes back to the first token


def test_what_is_under_way_counts_where_nothing_is_completed() -> None:
    rules = [StringRule(id="strings", strings=["secret word"]), RegexRule(id="open", regex="<a>(?!.*</a>)")]
    bound = BoundGuard(compile_policy(Policy(name="p", rules=rules)), TOY)
    text = TextState(bound)
    starts = MatchStarts(bound, text)
    for byte in b"my secret wo":
        text.advance(byte)
    assert starts.begun((), ord("x")) == 3
    assert starts.begun(("strings",), ord("x")) == 3


def test_what_is_settled_grows_and_is_cut_back() -> None:
    bound = BoundGuard(
        compile_policy(Policy(name="p", rules=[StringRule(id="s", strings=["forbidden"])])), TOY
    )
    text = TextState(bound)
    starts = MatchStarts(bound, text)
    text.ids += b"a for"
    assert starts.settled(sentences=False) == 2
    text.ids += b"t"
    assert starts.settled(sentences=False) == 6
    for ids in (b"a f", b"a \xc3"):
        text.cut(2)
        starts.cut(2)
        text.ids += ids[2:]
        assert starts.settled(sentences=False) == 2
    text.ids += b"\xa9 for"
    assert starts.settled(sentences=False) == 5
    assert starts.settled(sentences=True) == 0


def test_going_back_costs_no_more_in_long_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    bound = BoundGuard(compile_policy(Policy.from_presets("pii")), TOY)
    characters = 0

    def counted(reads: Callable[..., Any], place: int) -> Callable[..., Any]:
        def read(*args: Any, **options: Any) -> Any:
            nonlocal characters
            characters += len(args[place])
            return reads(*args, **options)

        return read

    for kind in (live._LiveStrings, live._LiveRuns, ShownText):
        monkeypatch.setattr(kind, "read", counted(kind.read, 1))
    for name in ("sentence_breaks", "settled_breaks"):
        monkeypatch.setattr(starts_module, name, counted(getattr(starts_module, name), 0))

    def steps(length: int) -> int:
        """How many characters are read in going back by twenty tokens, eight times."""
        text = TextState(bound)
        text.ids += (b"write to the quick brown house of people " * (length // 40 + 1))[:length]
        starts = MatchStarts(bound, text)
        starts.settled(sentences=True)
        before = characters
        for _ in range(8):
            kept = text.ids[-20:]
            text.cut(length - 20)
            starts.cut(length - 20)
            text.ids += kept
            starts.settled(sentences=True)
        return characters - before

    assert 8 * 20 < steps(16_000) < 1.5 * steps(1_000)
