"""One row's text brings a rule to its limit: that row ends by name, the others go on, and the guard is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from nco_guard import Guard, Policy
from nco_guard.automata import automaton
from nco_guard.errors import StateLimitError
from nco_guard.masking import bruteforce, ways
from nco_guard.policy import RegexRule, StringRule

GROWING = RegexRule(id="growing", regex=r"a.{12}b")
THINK = RegexRule(id="think", regex=r"(?s)<(?!.*::)")
TOKENS = 300


class Writes(LogitsProcessor):  # type: ignore[misc]
    """Makes some rows write some letters at random, as far as the guard lets them."""

    def __init__(self, tokenizer: Any, letters: dict[int, str]) -> None:
        vocabulary = [tokenizer.decode([i]) for i in range(len(tokenizer))]
        self._ids = {row: [vocabulary.index(c) for c in text] for row, text in letters.items()}

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        random = torch.Generator().manual_seed(int(input_ids.shape[1]))
        for row, ids in self._ids.items():
            scores[row, ids] += 50 + 10 * torch.rand(len(ids), generator=random)
        return scores


def generated(guard: Guard, model: Any, tokenizer: Any, letters: list[str], **options: Any) -> Any:
    writes = Writes(tokenizer, dict(enumerate(letters)))
    given = {"do_sample": False, "max_new_tokens": TOKENS, "logits_processor": LogitsProcessorList([writes])}
    return guard.generate(model, tokenizer, ["x"] * len(letters), **{**given, **options})


def guard_of_growing() -> Guard:
    rules = (GROWING, StringRule(id="words", strings=("weather",)))
    return Guard(Policy(name="limits", rules=rules))


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(automaton, "_STATE_LIMIT", 220)


@pytest.mark.usefixtures("tight")
def test_one_row_ends_and_the_others_go_on(byte_level: Any, model_of: Callable[..., Any]) -> None:
    guard, model = guard_of_growing(), model_of(byte_level)
    result = generated(guard, model, byte_level, ["xyz", "aac", "yzx"])
    assert result.outcomes == ["length", "state_limit", "length"]
    assert len(result.token_ids[0]) == len(result.token_ids[2]) == TOKENS
    assert 20 < len(result.token_ids[1]) < TOKENS
    assert all(report.ok for report in result.reports)
    # Whole again, and each text as it would be alone.
    again = generated(guard, model, byte_level, ["xyz"])
    assert again.outcomes == ["length"]
    assert again.texts[0] == result.texts[0]


@pytest.mark.usefixtures("tight")
def test_a_stream_ends_where_its_text_does(byte_level: Any, model_of: Callable[..., Any]) -> None:
    guard, model = guard_of_growing(), model_of(byte_level)
    options = {"do_sample": False, "max_new_tokens": TOKENS}
    writes = LogitsProcessorList([Writes(byte_level, {0: "aac"})])
    pieces = list(guard.stream(model, byte_level, "x", logits_processor=writes, **options))
    whole = generated(guard, model, byte_level, ["aac"])
    assert whole.outcomes == ["state_limit"]
    assert whole.texts[0].startswith("".join(pieces))
    assert len("".join(pieces)) > 20


@pytest.mark.usefixtures("tight")
def test_a_bare_processor_says_so_by_a_typed_error(byte_level: Any, model_of: Callable[..., Any]) -> None:
    guard, model = guard_of_growing(), model_of(byte_level)
    inputs = byte_level(["x"], return_tensors="pt")
    chain = LogitsProcessorList([Writes(byte_level, {0: "aac"}), guard.logits_processor(byte_level)])
    with pytest.raises(StateLimitError, match="row 0"):
        model.generate(**inputs, do_sample=False, max_new_tokens=TOKENS, logits_processor=chain)
    assert generated(guard, model, byte_level, ["xyz"]).outcomes == ["length"]


def test_what_is_not_known_to_be_closable_is_not_opened(
    byte_level: Any, model_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    guard, model = Guard(Policy(name="think", rules=(THINK,))), model_of(byte_level)
    guard.bind(byte_level, vocab_width=model.config.vocab_size)
    monkeypatch.setattr(bruteforce, "SMALL", 0)
    result = generated(guard, model, byte_level, ["<xy"], max_new_tokens=20)
    assert result.reports[0].ok
    assert "<" in result.texts[0]
    assert "::" in result.texts[0]
    # With so small a bound nothing is decided.
    monkeypatch.setattr(ways, "STATES", 1)
    fresh = Guard(Policy(name="think", rules=(THINK,)))
    result = generated(fresh, model, byte_level, ["<xy"], max_new_tokens=20)
    assert "<" not in result.texts[0]
    assert result.outcomes == ["length"]
