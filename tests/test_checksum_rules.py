"""Rules with a checksum: what a policy says, what the masks do, and what a model can then write."""

from __future__ import annotations

import random
import re
from typing import get_args, get_type_hints

import numpy as np
import pytest

from nco_guard.analysis import review
from nco_guard.automata import CHECKSUMS
from nco_guard.compiler import compile_policy
from nco_guard.errors import PatternError, PolicyError, PresetError
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, RegexRule, StringRule, presets
from nco_guard.policy.check_digits import ChecksumName, RuleChecksum
from nco_guard.policy.presets.pattern import Pattern
from nco_guard.scan.definition import verify_by_definition
from tests.automata.checksum_reference import CHECKS, VALID, luhn, valid_spans
from tests.binding import bind

CARD = r"(?<!\d)\d(?:[ -]?\d){12,18}(?!\d)"
VALID_CARD, WRONG_CARD = "4111 1111 1111 1111", "4111 1111 1111 1112"
LETTERS = "01459 -aGB"


def test_a_checksum_survives_files_and_is_none_by_default() -> None:
    rule = RegexRule(id="card", regex=CARD, checksum="luhn")
    policy = Policy(name="p", rules=(rule, RegexRule(id="other", regex="x")))
    for again in (Policy.from_yaml(policy.to_yaml()), Policy.from_json(policy.to_json())):
        assert again == policy
        assert [r.checksum for r in again.rules if isinstance(r, RegexRule)] == ["luhn", "none"]
    assert "checksum: luhn" in policy.to_yaml()
    assert '"checksum":"none"' in policy.to_json()
    schema = Policy.json_schema()["$defs"]["RegexRule"]["properties"]["checksum"]
    names, one, several = schema["anyOf"]
    assert names["enum"] == ["none", "luhn", "mod97", "mod11_10", "verhoeff"]
    assert one == {"$ref": "#/$defs/CheckDigits"}
    assert several["items"] == {"anyOf": [names, one]}


def test_checksums_have_the_same_names_everywhere() -> None:
    names = {"none", *CHECKSUMS}
    assert names == {"none", *VALID}
    assert names == set(get_args(ChecksumName))
    assert get_type_hints(RegexRule)["checksum"] == get_type_hints(Pattern)["checksum"] == RuleChecksum


@pytest.mark.parametrize("name", CHECKSUMS)
@pytest.mark.parametrize("size", [5, 12, 16, 31])
def test_of_all_ends_of_two_digits_some_pass(name: str, size: int) -> None:
    # What a review looks for matches with (`analysis.blocking`).
    rng = random.Random(size)
    start = "".join(rng.choices("0123456789", k=size - 2))
    assert any(VALID[name](f"{start}{end:02d}") for end in range(100))


def test_what_cannot_be_meant_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"'card'.*'stop_at'.*gets past it"):
        compile_policy(
            Policy(name="p", rules=(RegexRule(id="card", regex=CARD, stop_at=r"\d{12}", checksum="luhn"),))
        )
    with pytest.raises(PolicyError, match="checksum"):
        RegexRule(id="card", regex=CARD, checksum="crc32")  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match="checksum"):
        StringRule(id="s", strings=("x",), checksum="luhn")  # type: ignore[call-arg]
    with pytest.raises(PresetError, match="valid_only"):
        presets.load("pii", valid_only="yes")
    with pytest.raises(PresetError, match="valid_only"):
        presets.load("secrets", valid_only=True)


def test_a_pattern_may_match_the_empty_text_if_that_never_passes() -> None:
    assert verify_by_definition(
        Policy(name="p", rules=(RegexRule(id="r", regex=r"\d*", checksum="luhn"),)), "12"
    ).ok
    with pytest.raises(PatternError, match="empty"):
        compile_policy(Policy(name="p", rules=(RegexRule(id="r", regex=r"\d*"),)))


def test_the_verifier_finds_only_numbers_that_pass() -> None:
    policy = Policy(name="p", rules=(RegexRule(id="card", regex=CARD, checksum="luhn"),))
    text = f"No: {WRONG_CARD}. Yes: {VALID_CARD}. Also: 378282246310005"
    report = verify_by_definition(policy, text)
    assert [text[found.start : found.end] for found in report.findings] == [VALID_CARD, "378282246310005"]


@pytest.mark.parametrize("name", ["payment_card", "iban"])
def test_the_preset_can_be_told_to_block_valid_numbers_only(name: str) -> None:
    plain = Policy(name="p", rules=presets.load("pii", only=[name]))
    valid = Policy(name="p", rules=presets.load("pii", only=[name], valid_only=True))
    assert Policy.from_yaml(f"name: p\nrules: [{{preset: pii, only: [{name}], valid_only: true}}]") == valid
    (pattern,) = (p for p in presets.patterns("pii") if p.id == f"pii.{name}")
    assert "not looked at" in plain.rules[0].description
    assert "not looked at" not in valid.rules[0].description
    compiled, compiled_plain = compile_policy(valid), compile_policy(plain)
    for text in pattern.examples.match:
        assert not verify_by_definition(compiled, text).ok, text
        end = verify_by_definition(compiled_plain, text).findings[0].end
        last = max(i for i, c in enumerate(text[:end]) if c.isdigit())
        typo = f"{text[:last]}{(int(text[last]) + 1) % 10}{text[last + 1 :]}"
        assert not verify_by_definition(compiled_plain, typo).ok
        assert verify_by_definition(compiled, typo).ok, typo
    assert all(rule.stop_at is None for rule in valid.rules)
    others = presets.load("pii", except_=[name])
    assert [rule for rule in others if rule not in presets.load("pii", valid_only=True)] == [
        rule for rule in others if rule.id in ("pii.payment_card", "pii.iban")
    ]


@pytest.mark.parametrize(
    ("checksum", "pattern"),
    [
        ("luhn", r"(?<!\d)\d(?:[ -]?\d){3,5}"),
        ("luhn", r"\d{2,4}"),
        ("luhn", r"(?:\d-?)+a"),
        ("mod97", r"[0-9GB]{5,6}"),
        ("mod97", r"[A-Z]{2}\d\d[ -]?\w{1,3}"),
        ("mod11_10", r"\d{2,4}"),
        ("verhoeff", r"\d(?:[ -]?\d){2,3}"),
        ("check", r"[0-9AGB]{2,3}"),
        ("last letter", r"\d{1,2}-?[A-Za-z]"),
        ("from the right", r"[0-9a]{2,4}"),
        ("both", r"\d-?\d"),
    ],
)
def test_masks_forbid_exactly_the_tokens_that_complete_a_valid_number(checksum: str, pattern: str) -> None:
    """These patterns look at nothing behind a match, so a token is forbidden exactly if the text then has one."""
    rng = random.Random(checksum + pattern)
    merges = ("10", "41", "5 9", "915", "a4", "GB", "9a", "-1", "001", "B1", "54 ")
    guard = bind(RegexRule(id="r", regex=pattern, checksum=CHECKS[checksum]), merges=[*LETTERS, *merges])
    vocabulary, forbidden_seen = guard.vocabulary, 0
    for _ in range(25):
        session, text = guard.session(), ""
        for _ in range(10):
            mask = session.mask()
            usable = [
                i for i, t in enumerate(vocabulary.tokens) if t and set(t.decode("latin-1")) <= set(LETTERS)
            ]
            for token in usable:
                after = text + vocabulary.tokens[token].decode()
                expected = bool(valid_spans(pattern, 0, CHECKS[checksum], after))
                assert mask[token] == expected, (text, after)
                forbidden_seen += expected
            token = rng.choice([i for i in usable if not mask[i]])
            session.advance(token)
            text += vocabulary.tokens[token].decode()
    assert forbidden_seen > (0 if checksum == "mod97" else 20)


@pytest.mark.parametrize("context", ["output", "prompt"])
def test_with_a_stop_point_a_guard_blocks_there_whatever_the_check_digits_are(context: str) -> None:
    rule = RegexRule(
        id="card", regex=CARD, stop_at=r"(?<!\d)\d(?:[ -]?\d){4}", checksum="luhn", context=context
    )
    policy = Policy(name="p", rules=(rule,))
    assert Policy.from_yaml(policy.to_yaml()) == policy
    guard = bind(rule, merges=LETTERS)
    stop = re.compile(rule.stop_at or "")
    rng = random.Random(5)
    for _ in range(60):
        session, text = guard.session(), ""
        for _ in range(12):
            mask = session.mask()
            usable = [i for i, t in enumerate(guard.vocabulary.tokens) if t.decode("latin-1") in set(LETTERS)]
            for token in usable:
                # Beyond the first five digits nothing of this pattern is left for the checksum to decide.
                assert mask[token] == bool(stop.search(text + guard.vocabulary.tokens[token].decode())), text
            token = rng.choice([i for i in usable if not mask[i]])
            session.advance(token)
            text += guard.vocabulary.tokens[token].decode()
        assert verify_by_definition(policy, text).ok
    # Finished text is told by its check digits, whatever a guard would have let through of it.
    assert verify_by_definition(policy, WRONG_CARD).ok
    assert not verify_by_definition(policy, VALID_CARD).ok
    assert [remark.code for remark in review(policy) if remark.rule_ids == ("card",)] == ["blocks-unchecked"]


def test_a_prompt_that_holds_the_stop_point_leaves_the_checksum_to_decide() -> None:
    rule = RegexRule(
        id="n", regex=r"(?<!\d)\d{4}", stop_at=r"(?<!\d)\d{2}", checksum="luhn", context="prompt"
    )
    guard = bind(rule, merges=LETTERS)
    mask = guard.session(context="500").mask()
    digits = [guard.vocabulary.tokens.index(str(digit).encode()) for digit in (0, 1, 4, 5, 9)]
    assert [mask[i] for i in digits] == [luhn(f"500{digit}") for digit in (0, 1, 4, 5, 9)]
    assert any(mask[i] for i in digits)


@pytest.mark.parametrize("seed", range(2))
def test_masks_and_penalties_equal_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    merges = ("10", "41", "59", "91", "a4", "GB", "9a", "-1", "001", "4 ", "1a1")
    for _ in range(12):
        rules = [
            RegexRule(
                id=f"r{i}",
                regex=rng.choice(
                    [
                        r"\d{2,4}(?!\d)",
                        r"(?<!\d)\d{3}(?=-)",
                        r"\b(?:\d[ -]?){3,5}\b",
                        r"\d+a",
                        r"\w{5}$",
                        r"[GB\d]{5,}",
                    ]
                ),
                checksum=rng.choice(list(CHECKS.values())),
                stop_at=rng.choice([None, None, r"[GB\w]"]),
                penalty=rng.choice([float("inf"), float("inf"), 3.0]),
                case=rng.choice(["exact", "fold"]),
                whole_word=rng.random() < 0.2,
            )
            for i in range(rng.randint(1, 2))
        ]
        tables = bind(*rules, merges=[*LETTERS, *merges]).tables
        state = tables.start
        for _ in range(10):
            states = tables.components(state)
            expected = bruteforce.forbidden(tables.constraints, states, tables.vocabulary)
            assert np.flatnonzero(expected).tolist() == tables.forbidden(state).tolist()
            ids, amounts = tables.penalties(state)
            dense = np.zeros(tables.vocabulary.width, np.float32)
            dense[ids] = amounts
            assert np.array_equal(dense, bruteforce.penalties(tables.constraints, states, tables.vocabulary))
            allowed = [i for i in np.flatnonzero(~expected).tolist() if i not in tables.vocabulary.eos_ids]
            if not allowed:
                break
            state = tables.next(state, rng.choice(allowed))


def test_a_model_that_longs_for_numbers_writes_wrong_ones_and_never_a_valid_one() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from nco_guard.guard import Guard
    from nco_guard.testing import biased_model, tiny_tokenizer

    torch.set_num_threads(1)
    tokenizer = tiny_tokenizer("byte-level")
    pattern = r"(?<!\d)\d{2,6}(?!\d)"
    model = biased_model(tokenizer, ["18 26 ", "3426 ", "1234 ", "8 3"], seed=3, bonus=10.0)
    guard = Guard(Policy(name="p", rules=(RegexRule(id="n", regex=pattern, checksum="luhn"),)))
    prompts = ["pay", "the number is"]

    def numbers(texts: list[str]) -> list[bool]:
        return [luhn(number) for text in texts for number in re.findall(pattern, text)]

    free: list[bool] = []
    guarded: list[bool] = []
    for seed in range(2):
        inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
        torch.manual_seed(seed)
        output = model.generate(**inputs, max_new_tokens=48, do_sample=True)
        free += numbers(
            tokenizer.batch_decode(output[:, inputs.input_ids.shape[1] :], skip_special_tokens=True)
        )
        torch.manual_seed(seed)
        result = guard.generate(model, tokenizer, prompts, max_new_tokens=48, do_sample=True)
        assert all(report.ok for report in result.reports)
        guarded += numbers(list(result.texts))
    assert sum(free) > 20
    assert len(guarded) > 10
    assert not any(guarded)


def test_the_reference_is_looked_up_by_the_names_that_policies_use() -> None:
    assert set(VALID) == {"luhn", "mod97", "mod11_10", "verhoeff"}
