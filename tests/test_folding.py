"""Rules that look past spelling tricks, from the policy to generated text."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.compiler import compile_policy
from nco_guard.errors import PatternError, PolicyError
from nco_guard.scan import exposure
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary
from tests.automata.test_folding import text as evasive_text
from tests.masking import random_policies

STRONG: dict[str, Any] = {
    "case": "fold",
    "normalize": "nfkc",
    "ignore": ("zero-width", "combining", "*", ".", "-", "_"),
    "confusables": "leet",
    "json_escapes": True,
}


def writes(bound: BoundGuard, text: str, prompt: str | None = None) -> bool:
    """Whether the masks let a model write the text byte by byte and end there."""
    session = bound.session(prompt)
    for byte in text.encode():
        if session.mask()[byte]:
            return False
        session.advance(byte)
    return session.may_end


def finds(text: str, *rules: StringRule | RegexRule) -> list[str]:
    """What the verifier finds; the masks must agree that it is there."""
    compiled = compile_policy(Policy(name="test", rules=rules))
    found = [text[f.start : f.end] for f in verify_by_definition(compiled, text).findings]
    assert writes(BoundGuard(compiled, toy_vocabulary()), text) == (not found)
    return found


def word(*strings: str, **options: Any) -> StringRule:
    return StringRule(id="word", strings=strings, **options)


@pytest.mark.parametrize(
    "text",
    [
        *("fuck", "FuCk", "ｆｕｃｋ", "Ｆｕck", "𝖋𝔲𝓬𝕜", "ⓕⓤⓒⓚ", "f\u200bu\u200dc\u2060k", "fu\u00adck"),
        *(
            "f.u.c.k",
            "f**u**ck",
            "f-u_c-k",
            "fück",
            "fu\u0308c\u0336k",
            "fuсk",
            "ғuck".replace("ғ", "ƒ"),
            "fᴜᴄᴋ",
        ),
        *(
            "\\u0066uck",
            "\\u0066\\u0055\\uFF43k",
            "f\\u200Buck",
            "f\\u0075ck",
            "\\ud835\\udd8buck",
            "f․u․c․k",
        ),
        *(
            "f\ufe0fuck",
            "f\u034fuck",
            "ｆ.\\u0441*u\u0301ck".replace("\\u0441*u", "u").replace("ck", "\\u0441k"),
        ),
    ],
)
def test_a_strong_rule_sees_through(text: str) -> None:
    rule = word("fuck", **STRONG)
    for before, after in (("", ""), ("oh ", "!"), (".", "."), ('{"a": "', '"}'), ("😀", "é")):
        found = finds(before + text + after, rule)
        assert [f.strip(".") for f in found] == [text.strip(".")]


@pytest.mark.parametrize(
    ("options", "string", "text", "found"),
    [
        # NFKC: one character becomes several, or one that case then folds; ß stays what it is.
        ({"normalize": "nfkc"}, "fish", "a ﬁsh", ["ﬁsh"]),
        ({"normalize": "nfkc"}, "ﬁsh", "a fish", ["fish"]),
        ({"normalize": "nfkc"}, "i", "ﬁ", ["ﬁ"]),
        ({"normalize": "nfkc"}, "555", "５5５", ["５5５"]),
        ({"normalize": "nfkc", "case": "fold"}, "strasse", "straße STRASSE", ["STRASSE"]),
        ({"normalize": "nfkc", "case": "fold"}, "istanbul", "İstanbul ıstanbul", ["İstanbul", "ıstanbul"]),
        ({"ignore": ("combining",)}, "Istanbul", "İstanbul", ["İstanbul"]),
        ({"normalize": "nfkc"}, "café", "cafe\u0301 café cafe", ["cafe\u0301", "café"]),
        ({"normalize": "none"}, "café", "cafe\u0301 café", ["café"]),
        # Ignored characters at the borders of words.
        ({"ignore": ("*",), "whole_word": True}, "ass", "*ass* cl*ass a*ss-", ["ass", "a*ss"]),
        (
            {"ignore": ("zero-width",), "whole_word": True},
            "ass",
            "cl\u200bass ass\u200bist \u200bass\u200b",
            ["ass"],
        ),
        ({"ignore": ("zero-width",), "whole_word": True}, "ass", "as\u200bs\u200b\u200b", ["as\u200bs"]),
        ({"ignore": (".",), "whole_word": True}, "ass", "ass...ist", []),
        # Escapes.
        ({"json_escapes": True}, "fuck", r"\\u0066uck \u0066uck", [r"\u0066uck"]),
        ({"json_escapes": True}, "fuck", r"\\\u0066uck", [r"\u0066uck"]),
        ({"json_escapes": True}, "uck", r"\\u0066uck", ["uck"]),
        ({"json_escapes": True}, "\n", r"a\nb\\n", [r"\n"]),
        ({"json_escapes": True}, "😀", r"\ud83d\uDE00 \ud83d \ude00", [r"\ud83d\uDE00"]),
        ({"json_escapes": True}, "\\", "a\\", ["\\"]),
        ({"json_escapes": True}, "u00", "x\\u00", ["u00"]),
        ({"json_escapes": True, "whole_word": True}, "ass", r"\nass\n", ["ass"]),
        ({"whole_word": True}, "ass", r"\nass\n", []),
        # Look-alikes leave borders alone.
        ({"confusables": "letters"}, "pass", "раss pаѕs p4ss", ["раss", "pаѕs"]),
        ({"confusables": "leet", "whole_word": True}, "ass", "@$$! ass! 4ss b@ss", ["@$$", "ass", "4ss"]),
        ({"confusables": "letters"}, "сука", "cyka", ["cyka"]),
    ],
)
def test_traps(options: dict[str, Any], string: str, text: str, found: list[str]) -> None:
    assert finds(text, word(string, **options)) == found


def test_a_regex_and_its_stop_point_are_about_the_folded_text() -> None:
    rule = RegexRule(
        id="ssn",
        regex=r"\b\d{3}-\d{2}-\d{4}\b",
        stop_at=r"\b\d{3}-\d{2}-\d{2}",
        normalize="nfkc",
        ignore=("zero-width",),
    )
    assert finds("no: ０7８-0\u200b5-112０.", rule) == ["０7８-0\u200b5-112０"]
    bound = BoundGuard(compile_policy(Policy(name="test", rules=(rule,))), toy_vocabulary())
    assert writes(bound, "078-\u200b05-１")
    assert not writes(bound, "078-\u200b05-１1")


@pytest.mark.parametrize(
    ("options", "regex", "construct"),
    [
        ({"ignore": (".",)}, r"a\.b", "U+002E"),
        ({"ignore": ("punctuation",)}, r"\d{3}[-.]\d", "U+002D"),
        ({"normalize": "nfkc"}, "ａ", "U+FF41"),
        ({"ignore": ("combining",)}, "caf(é|è)", "U+00E8"),
    ],
)
def test_a_regex_that_waits_for_what_folding_removes_is_refused(
    options: dict[str, Any], regex: str, construct: str
) -> None:
    compile_policy(Policy(name="test", rules=(RegexRule(id="r", regex=regex),)))
    for fields in ({"regex": regex}, {"regex": "zzz", "stop_at": regex}):
        with pytest.raises(PatternError) as caught:
            compile_policy(Policy(name="test", rules=(RegexRule(id="r", **fields, **options),)))
        assert (caught.value.rule_id, caught.value.field) == ("r", list(fields)[-1])
        assert caught.value.construct == construct


def test_a_string_that_folds_to_nothing_is_refused() -> None:
    with pytest.raises(PolicyError) as caught:
        compile_policy(Policy(name="test", rules=(word("ok", "*.*", ignore=("*", ".")),)))
    assert (caught.value.rule_id, caught.value.field) == ("word", "strings[1]")


def test_a_match_may_begin_within_an_escape_of_the_prompt() -> None:
    rule = word("fuck", json_escapes=True, context="prompt")
    bound = BoundGuard(compile_policy(Policy(name="test", rules=(rule,))), toy_vocabulary())
    assert not writes(bound, "66uck", prompt="say \\u00")
    assert writes(bound, "67uck", prompt="say \\u00")
    assert writes(bound, "66uck", prompt="say \\\\u00")


def test_exposure_of_a_folded_rule_is_shown_in_the_original() -> None:
    policy = Policy(name="test", rules=(word("fuck", ignore=("*",), json_escapes=True),))
    (shown,) = exposure(policy, r"an f*\u0075c, fu")
    assert (shown.start, shown.end) == (3, 12)


def test_a_soft_rule_penalises_the_token_that_completes_the_folded_match() -> None:
    bound = BoundGuard(
        compile_policy(Policy(name="test", rules=(word("ab", ignore=("*",), penalty=3),))),
        toy_vocabulary(["*b", "**", "*bab"]),
    )
    session = bound.session()
    for byte in b"a*":
        session.advance(byte)
    assert np.flatnonzero(session.penalties()).tolist() == [ord("b"), 256, 258]
    assert set(session.penalties()[[ord("b"), 256, 258]].tolist()) == {3.0}


@pytest.mark.parametrize("seed", range(4))
def test_what_the_masks_let_through_is_what_the_verifier_finds_clean(seed: int) -> None:
    rng = random.Random(seed)
    verdicts = set()
    for _ in range(25):
        rule = random_policies.rule(rng, "r")
        if rule.mode != "hard" or rule.stop_at is not None:
            continue
        compiled = compile_policy(Policy(name="random", rules=(rule,)))
        bound = BoundGuard(compiled, toy_vocabulary())
        for _ in range(12):
            text = evasive_text(rng)
            verdict = verify_by_definition(compiled, text).ok
            assert writes(bound, text) == verdict, (rule, text)
            verdicts.add(verdict)
    assert verdicts == {True, False}


def test_a_model_that_wants_evasive_spellings_cannot_write_them() -> None:
    pytest.importorskip("torch")
    from nco_guard.testing import biased_model, tiny_tokenizer

    wants = ["ｆｕｃｋ", "fu\u200bck", "fu*сk", "ƒuck", "d\\u24D8ck"]
    tokenizer = tiny_tokenizer(texts=[" ".join(wants) * 5])
    guard = Guard(Policy(name="test", rules=(word("fuck", "dick", **STRONG),)))
    idle = Guard(Policy(name="idle", rules=(word("no such text"),)))
    for want in wants:
        model = biased_model(tokenizer, [want], bonus=30.0)
        settings = {"max_new_tokens": 16, "do_sample": False}
        free = idle.generate(model, tokenizer, ["say it"], **settings)
        assert want in free.texts[0]
        assert not guard.verify(free.texts[0]).ok
        guarded = guard.generate(model, tokenizer, ["say it"], **settings)
        assert all(report.ok for report in guarded.reports)
        assert want not in guarded.texts[0]


def test_many_words_with_everything_on_stay_quick() -> None:
    """States are found where a text leads; how many there are to find goes with no number of words."""
    rng = random.Random(0)
    words = ["".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(6)) for _ in range(800)]

    def states(count: int) -> int:
        compiled = compile_policy(Policy(name="test", rules=(word(*words[:count], **STRONG),)))
        bound = BoundGuard(compiled, toy_vocabulary())
        assert not writes(bound, "x " + ".".join(words[7]))
        return int(bound.stats["automaton_states"])

    assert states(800) < 2 * states(100)
