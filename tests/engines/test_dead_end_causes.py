"""What is said of a dead end is what made it: the guard, its limit, or what runs before it; a call for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, StoppingCriteria, StoppingCriteriaList

from nco_guard import Guard, Policy, RegexRule, Shape, StringRule
from nco_guard.automata import automaton
from nco_guard.errors import DeadEndError, StateLimitError
from nco_guard.policy import Rule
from nco_guard.testing import random_model, tiny_tokenizer

WORDS = {"enum": ["yes", "no"]}
LIMIT, BEFORE, END = "too few to bring", "what runs before the guard took", "the text can only end here"
CAUSES = (LIMIT, BEFORE, END, "let none come", "was forced", "limit of tokens", "stop_strings")


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer("byte-level")
    return random_model(tokenizer, seed=3), tokenizer


class Leaves(LogitsProcessor):  # type: ignore[misc]
    """Takes all tokens but some, once so many are written."""

    def __init__(self, start: int, *, step: int = 0, kept: tuple[int, ...] = ()) -> None:
        self._length, self._kept = start + step, [*kept]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] < self._length:
            return scores
        left = torch.full_like(scores, -torch.inf)
        left[:, self._kept] = scores[:, self._kept]
        return left


class TopOne(LogitsProcessor):  # type: ignore[misc]
    """What top-k is as a processor of one's own: it runs before the guard."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(scores < scores.amax(-1, keepdim=True), -torch.inf)


class Stops(StoppingCriteria):  # type: ignore[misc]
    """Stops every text after its first token."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.ones(len(input_ids), dtype=torch.bool)


def said(pair: tuple[Any, Any], shape: Any, rules: tuple[Rule, ...] = (), **options: Any) -> str:
    """The message of the dead end that a call comes to."""
    policy: dict[str, Any] = {
        name: options.pop(name) for name in ("on_dead_end", "fallback") if name in options
    }
    guard = Guard(Policy(name="p", rules=rules or (StringRule(id="s", strings=("zq",)),), **policy))
    with pytest.raises(DeadEndError) as raised:
        guard.generate(*pair, "the", shape=shape, **{"max_new_tokens": 20, **options})
    return str(raised.value)


def only(message: str, *causes: str) -> None:
    """It names these causes and no other."""
    assert [cause for cause in CAUSES if cause in message] == [
        cause for cause in CAUSES if cause in causes
    ], message


def opening(tokenizer: Any) -> list[int]:
    """The tokens of which a quoted word may begin."""
    return [token for token in range(len(tokenizer)) if not tokenizer.decode([token]).strip().strip('"')]


TAKING: dict[str, Callable[[list[int]], dict[str, Any]]] = {
    "suppress_tokens": lambda ids: {"suppress_tokens": ids},
    "begin_suppress_tokens": lambda ids: {"begin_suppress_tokens": ids},
    "bad_words_ids": lambda ids: {"bad_words_ids": [[token] for token in ids]},
    "sequence_bias": lambda ids: {"sequence_bias": [[[token], float("-inf")] for token in ids]},
    "prefix_allowed_tokens_fn": lambda _: {"prefix_allowed_tokens_fn": lambda _batch, _ids: [70]},
    "top-k": lambda _: {"logits_processor": [TopOne()]},
    "a processor": lambda _: {"logits_processor": [Leaves(0)]},
    "policy: end": lambda _: {"logits_processor": [Leaves(0)], "on_dead_end": "end"},
    "policy: fallback": lambda ids: {"suppress_tokens": ids, "on_dead_end": "fallback", "fallback": "x"},
    "beams": lambda _: {"logits_processor": [Leaves(0)], "num_beams": 2},
}  # fmt: skip


@pytest.mark.parametrize("taking", TAKING)
def test_what_another_processor_took_is_not_laid_on_the_limit(pair: Any, taking: str) -> None:
    message = said(pair, WORDS, **TAKING[taking](opening(pair[1])))
    only(message, BEFORE)
    assert "took the only token that policy and shape would let come" in message


def test_without_a_shape_it_is_the_policy_that_leaves_tokens(pair: Any) -> None:
    message = said(pair, None, logits_processor=[Leaves(0)])
    only(message, BEFORE)
    forbidden = (
        Guard(Policy(name="p", rules=[StringRule(id="s", strings=("zq",))])).bind(pair[1]).session().mask()
    )
    assert f"took all {(~forbidden).sum()} tokens that the policy would let come" in message


@pytest.mark.parametrize("options", [{"min_new_tokens": 15}, {"min_length": 18}], ids=str)
@pytest.mark.parametrize("drafts", [{}, {"prompt_lookup_num_tokens": 2}], ids=str)
def test_an_end_that_may_not_come_yet(pair: Any, options: dict[str, int], drafts: dict[str, int]) -> None:
    only(said(pair, WORDS, **options, **drafts), BEFORE, END)


@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 2}, {"on_dead_end": "end"}, {"min_new_tokens": 2}], ids=str
)
def test_too_few_tokens(pair: Any, options: dict[str, Any]) -> None:
    only(said(pair, WORDS, max_new_tokens=2, **options), LIMIT)


def test_a_processor_and_the_limit(pair: Any) -> None:
    """`"a` can go on or be closed; there is time to close it, and a processor keeps it open."""
    tokenizer = pair[1]
    shape, start = {"enum": ["a", "abcdefghijklmnopqrstuvwxyz"]}, len(tokenizer("the").input_ids)
    step = len(tokenizer('"a').input_ids)
    message = said(pair, shape, logits_processor=[Leaves(start, step=step)], max_new_tokens=step + 2)
    only(message, BEFORE)
    assert "took the only token" in message
    assert "or allow more max_new_tokens: then 2 might come" in message
    assert "more max_new_tokens" not in said(
        pair, shape, logits_processor=[Leaves(start, step=step)], max_new_tokens=60
    )


def test_rules_that_read_the_prompt_and_the_shape(pair: Any) -> None:
    rule = RegexRule(id="quote", regex=r'the[\s"]', context="prompt")
    only(said(pair, WORDS, (rule,)), "let none come")


def test_what_stopped_a_text_before_its_shape_was_closed(pair: Any) -> None:
    for options in ({"stop_strings": ['"']}, {"stopping_criteria": StoppingCriteriaList([Stops()])}):
        message = said(pair, WORDS, **options)
        only(message, "stop_strings")
        assert message.startswith(
            "the text was stopped before its shape was closed: something else stopped it"
        )


def test_beam_search_that_filled_up(pair: Any) -> None:
    message = said(pair, WORDS, min_new_tokens=15, num_beams=3)
    assert "beam search went on with forbidden tokens" in message
    assert "relax what runs before the guard (min_new_tokens" in message


def test_a_shape_that_meets_a_limit_of_a_rule(pair: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that was written is whole, so there is nothing to cut back to."""
    monkeypatch.setattr(automaton, "_STATE_LIMIT", 220)
    guard = Guard(Policy(name="p", rules=[RegexRule(id="growing", regex="a.{18}b")]))
    letters = [pair[1].convert_tokens_to_ids(letter) for letter in "aac"]

    class Writes(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            random = torch.Generator().manual_seed(int(input_ids.shape[1]))
            scores[:, letters] += 50 + 10 * torch.rand(len(letters), generator=random)
            return scores

    with pytest.raises(StateLimitError, match="limit of its automaton"):
        guard.generate(
            *pair, "x", shape=Shape.regex("[abc]+!"), max_new_tokens=100, logits_processor=[Writes()]
        )
