"""Dead ends have a named outcome, chosen by the policy; never token 0, never NaN, never a violation."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.errors import DeadEndError, PolicyError
from nco_guard.testing import random_model, tiny_tokenizer


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer("byte-level")
    return random_model(tokenizer, seed=3), tokenizer


class MaskFrom(LogitsProcessor):  # type: ignore[misc]
    """Masks everything from some step on."""

    def __init__(self, start: int, step: int) -> None:
        self.length = start + step

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf) if input_ids.shape[1] >= self.length else scores


def policy(**options: Any) -> Policy:
    return Policy(name="corner", rules=(StringRule(id="s", strings=("zq",)),), **options)


def run(pair: tuple[Any, Any], guard: Guard, step: int, **options: Any) -> Any:
    model, tokenizer = pair
    torch.manual_seed(2)
    prompt = torch.tensor([tokenizer("the").input_ids])
    return guard.generate(
        model,
        tokenizer,
        prompt,
        max_new_tokens=8,
        logits_processor=[MaskFrom(prompt.shape[1], step)],
        **options,
    )


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("step", [0, 3])
def test_by_default_it_is_an_error(pair: tuple[Any, Any], sampled: bool, step: int) -> None:
    sink = MemorySink()
    with pytest.raises(DeadEndError, match="no token is left"):
        run(pair, Guard(policy(), audit=sink), step, do_sample=sampled)
    ends = [event for event in sink.events if event.kind == "dead_end"]
    assert [(event.step, event.resolution) for event in ends] == [(step, "error")]


@pytest.mark.parametrize("sampled", [False, True])
def test_end_ends_the_text(pair: tuple[Any, Any], sampled: bool) -> None:
    sink = MemorySink()
    result = run(pair, Guard(policy(on_dead_end="end"), audit=sink), 3, do_sample=sampled)
    assert result.outcomes == ["ended"]
    assert len(result.token_ids[0]) == 4
    assert [event.resolution for event in sink.events if event.kind == "dead_end"] == ["end"]


def test_end_cuts_back_to_where_the_text_may_end(pair: tuple[Any, Any]) -> None:
    """Nothing but one whole word of letters may be written, and it may not end after its first letter."""
    rules = (RegexRule(id="letters", regex=r"[^a]"), RegexRule(id="short", regex=r"\Aa\Z"))
    guard = Guard(Policy(name="corner", rules=rules, on_dead_end="end"))
    result = run(pair, guard, 1)
    assert result.outcomes in (["dead_end"], ["ended"])
    assert result.texts == [""] or len(result.texts[0]) > 1


def test_the_fallback_token_is_written_where_the_rules_allow_it(pair: tuple[Any, Any]) -> None:
    result = run(pair, Guard(policy(on_dead_end="fallback", fallback="x")), 3)
    assert result.texts[0].endswith("xxxxx")
    forbidden = Policy(
        name="no x", rules=(StringRule(id="s", strings=("x",)),), on_dead_end="fallback", fallback="x"
    )
    with pytest.raises(DeadEndError):
        run(pair, Guard(forbidden), 3)


def test_a_fallback_that_is_no_token_is_refused_when_the_guard_is_bound(pair: tuple[Any, Any]) -> None:
    with pytest.raises(PolicyError, match="fallback"):
        Guard(policy(on_dead_end="fallback", fallback="no token is as long as this")).bind(pair[1])


@pytest.mark.parametrize("fields", [{"on_dead_end": "fallback"}, {"fallback": "x"}, {"on_dead_end": "stop"}])
def test_a_policy_names_a_fallback_exactly_if_it_wants_one(fields: dict[str, str]) -> None:
    with pytest.raises(PolicyError):
        policy(**fields)


def test_a_policy_that_leaves_no_text_but_the_empty_one_ends_at_once(pair: tuple[Any, Any]) -> None:
    guard = Guard(Policy(name="silence", rules=(RegexRule(id="all", regex=r"[\s\S]"),)))
    result = guard.generate(*pair, "the", max_new_tokens=5)
    assert (result.texts, result.outcomes) == ([""], ["ended"])
