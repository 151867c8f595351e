"""Soft rules (paper, app. F.4): exactly minus lambda per rule, in the limit the hard rule."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.engines.hf import GuardLogitsProcessor
from nco_guard.testing import biased_model, tiny_tokenizer

SWEEP = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 1e4, math.inf]
WORD = r"ass(?!\w)|fuck"


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer("byte-level")
    return biased_model(tokenizer, ("fuck", "ass "), 1), tokenizer


def guard(penalty: float, regex: str = WORD) -> Guard:
    return Guard(Policy(name="soft", rules=(RegexRule(id="word", regex=regex, penalty=penalty),)))


def test_the_mass_of_completing_tokens_falls_with_lambda_to_that_of_the_hard_rule(
    pair: tuple[Any, Any],
) -> None:
    tokenizer = pair[1]
    prompt, text = tokenizer("the").input_ids, tokenizer("what fuc", add_special_tokens=False).input_ids
    scores = torch.randn(
        1, guard(1.0).bind(tokenizer).vocabulary.width, generator=torch.Generator().manual_seed(0)
    )
    completing = guard(math.inf).bind(tokenizer).session()
    for token in text:
        completing.advance(token)
    columns = torch.tensor(completing.forbidden_ids())
    always = torch.tensor(
        guard(1.0).bind(tokenizer).session().forbidden_ids()
    )  # well-formed UTF-8 stays hard
    columns = columns[~torch.isin(columns, always)]
    assert len(columns)
    masses = []
    for penalty in SWEEP:
        processor = GuardLogitsProcessor(guard(penalty).bind(tokenizer))
        processor(torch.tensor([prompt]), scores)
        for length in range(1, len(text) + 1):
            result = processor(torch.tensor([[*prompt, *text[:length]]]), scores)
        if math.isfinite(penalty):
            assert torch.equal(result[0, columns], scores[0, columns] - penalty)
        masses.append(result.softmax(-1)[0, columns].sum().item())
    assert masses == sorted(masses, reverse=True)
    assert masses[-2:] == [0.0, 0.0]


def test_rules_with_different_lambdas_add_up(pair: tuple[Any, Any]) -> None:
    tokenizer = pair[1]
    rules = (
        StringRule(id="a", strings=("x", "xx"), penalty=1.5),
        StringRule(id="b", strings=("x",), penalty=0.25),
        RegexRule(id="c", regex="x$", penalty=8.0),
        StringRule(id="d", strings=("y",)),
    )
    bound = Guard(Policy(name="several", rules=rules)).bind(tokenizer)
    session = bound.session()
    x, y = bound.vocabulary.tokens.index(b"x"), bound.vocabulary.tokens.index(b"y")
    end = bound.vocabulary.eos_ids[0]
    assert session.penalties()[[x, y, end]].tolist() == [1.75, 0.0, 0.0]
    assert session.mask()[[x, y]].tolist() == [False, True]
    session.advance(x)
    assert session.penalties()[[x, end]].tolist() == [1.75, 8.0]


def test_violations_fall_over_the_sweep_and_none_is_left_at_its_end(pair: tuple[Any, Any]) -> None:
    """With a pattern that tokens complete; what only the length limit completes, no penalty can reach."""
    model, tokenizer = pair
    regex = "fuck|ass "
    rates = []
    for penalty in SWEEP:
        torch.manual_seed(0)
        texts = (
            guard(penalty, regex)
            .generate(model, tokenizer, ["the"] * 24, max_new_tokens=24, do_sample=True, min_new_tokens=20)
            .texts
        )
        rates.append(sum(bool(re.search(regex, text)) for text in texts))
    assert rates[0] > 5
    assert rates[-2:] == [0, 0]
    assert max(rates[5:]) <= max(rates[:3])
