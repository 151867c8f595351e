"""Continuous batching of texts that are cut: at borders, and into the fields of a reply."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from nco_guard import Guard, Policy, RegexRule
from nco_guard.automata import FieldMark, ReplyFields
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.errors import TokenizerError
from nco_guard.testing import biased_model, tiny_tokenizer
from tests.engines.continuous.batches import small

POLICY = Policy(
    name="p",
    rules=[
        RegexRule(id="word", regex=r"\bass\b"),
        RegexRule(id="plain", regex="assume|class"),
        RegexRule(id="end", regex=r"the\Z"),
    ],
)
REPLY = ReplyFields(
    (FieldMark("<|x|>", "content", "reasoning"), FieldMark("<|y|>", "reasoning", "content")), whole=True
)
PROMPTS, BUDGETS = ["Write", "a cl", "f", "the"], [24, 9, 17, 24]
WAYS: dict[str, dict[str, Any]] = {
    "borders": {"borders": "special"},
    "regions": {"regions": REPLY, "skip_special_tokens": False},
}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    tokenizer = tiny_tokenizer("byte-level", special_tokens=("<s>", "<|x|>", "<|y|>"))
    model = biased_model(tokenizer, ["the"], bonus=7.0)
    for wanted in (["gl<|x|>ass<|y|>o"], ["f", "the<|x|>y"]):
        ids = [token for text in wanted for token in tokenizer(text, add_special_tokens=False).input_ids]
        for before, after in itertools.pairwise(ids):
            model.bonus[before, after] += 40.0
    monkeypatch.setattr(model, "_supports_logits_to_keep", lambda: False)
    return tokenizer, model


@pytest.mark.parametrize("way", WAYS)
def test_each_request_is_masked_as_it_is_cut(way: str, world: Any) -> None:
    tokenizer, model = world
    guard, cutting = Guard(POLICY), WAYS[way]
    alone = [
        guard.generate(model, tokenizer, prompt, max_new_tokens=budget, **cutting)
        for prompt, budget in zip(PROMPTS, BUDGETS, strict=True)
    ]
    found = generate_batch(
        guard,
        model,
        tokenizer,
        PROMPTS,
        max_new_tokens=BUDGETS,
        continuous_batching_config=small(),
        **cutting,
    )
    assert found.token_ids == [each.token_ids[0] for each in alone]
    assert found.reports == [each.reports[0] for each in alone]
    assert all(report.ok for report in found.reports)
    plain = generate_batch(
        guard,
        model,
        tokenizer,
        PROMPTS,
        max_new_tokens=BUDGETS,
        skip_special_tokens=cutting.get("skip_special_tokens", True),
        continuous_batching_config=small(),
    )
    vocabulary = guard.bind(tokenizer, borders="special").vocabulary
    parts = [
        {"parts": vocabulary.parts_of(ids)} if way == "borders" else {"text": text, "regions": REPLY}
        for ids, text in zip(plain.token_ids, plain.texts, strict=True)
    ]
    assert not all(guard.verify(**each).ok for each in parts)  # else nothing was at stake


def test_an_open_batch_reads_as_it_was_told(world: Any) -> None:
    tokenizer, model = world
    guard = Guard(POLICY)
    with pytest.raises(TokenizerError, match="skip_special_tokens"):
        ContinuousBatch(guard, model, tokenizer, regions=REPLY)
    with ContinuousBatch(
        guard, model, tokenizer, continuous_batching_config=small(), max_new_tokens=12, **WAYS["regions"]
    ) as batch:
        batch.submit("Write")
        batch.submit("a cl", guard=Guard(POLICY.with_rules(RegexRule(id="x", regex="[xy]"))))
        results = list(batch.results())
    assert [guard.verify(each.text, regions=REPLY).ok for each in results] == [True, True]
    assert [each.report.ok for each in results] == [True, True]
