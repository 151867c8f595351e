"""One row's text brings a rule to its limit: that row ends by name, the others go on, and the guard is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList

from nco_guard import Guard, Policy
from nco_guard.automata import automaton
from nco_guard.engines.hf.continuous import ContinuousBatch
from nco_guard.errors import StateLimitError
from nco_guard.masking import bruteforce, ways
from nco_guard.policy import RegexRule, StringRule
from nco_guard.testing import biased_model
from tests.engines.continuous.batches import small

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
@pytest.mark.parametrize("when_blocked", ["mask", "rewind"])
def test_one_row_ends_and_the_others_go_on(
    when_blocked: str, byte_level: Any, model_of: Callable[..., Any]
) -> None:
    guard, model = guard_of_growing(), model_of(byte_level)
    result = generated(guard, model, byte_level, ["xyz", "aac", "yzx"], when_blocked=when_blocked)
    assert result.outcomes == ["length", "state_limit", "length"]
    assert len(result.token_ids[0]) == len(result.token_ids[2]) == TOKENS
    assert 20 < len(result.token_ids[1]) < TOKENS
    assert all(report.ok for report in result.reports)
    # Whole again, and each text as it would be alone.
    again = generated(guard, model, byte_level, ["xyz"])
    assert again.outcomes == ["length"]
    assert again.texts[0] == result.texts[0]


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("when_blocked", ["mask", "rewind"])
def test_a_stream_ends_where_its_text_does(
    when_blocked: Any, byte_level: Any, model_of: Callable[..., Any]
) -> None:
    guard, model = guard_of_growing(), model_of(byte_level)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": TOKENS, "when_blocked": when_blocked}
    writes = LogitsProcessorList([Writes(byte_level, {0: "aac"})])
    pieces = list(guard.stream(model, byte_level, "x", logits_processor=writes, **options))
    whole = generated(guard, model, byte_level, ["aac"], when_blocked=when_blocked)
    assert whole.outcomes == ["state_limit"]
    assert whole.texts[0] == "".join(pieces)
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


def wandering(tokenizer: Any, *alphabets: str) -> Any:
    """A model that goes on at random with the letters among which the last one is."""
    model = biased_model(tokenizer, ["x"], spread=0.2)
    vocabulary = [tokenizer.decode([i]) for i in range(len(tokenizer))]
    model.bonus.zero_()
    for letters in alphabets:
        ids = [vocabulary.index(letter) for letter in letters]
        model.bonus[torch.tensor(ids)[:, None], torch.tensor(ids)] = 30.0
    model._supports_logits_to_keep = lambda: False  # it has to see all tokens to know the last one
    return model


@pytest.mark.usefixtures("tight")
def test_of_requests_too_only_one_ends(byte_level: Any) -> None:
    guard, model = guard_of_growing(), wandering(byte_level, "ac", "xyz")
    options = {"do_sample": True, "max_new_tokens": TOKENS, "continuous_batching_config": small()}
    with ContinuousBatch(guard, model, byte_level, **options) as batch:
        order = [batch.submit(prompt) for prompt in "xay"]
        found = {result.request_id: result for result in batch.results()}
        order.append(batch.submit("z"))
        found |= {result.request_id: result for result in batch.results()}
    assert [found[request].outcome for request in order] == ["length", "state_limit", "length", "length"]
    texts = [found[request].text for request in order]
    assert [len(found[request].token_ids) for request in order if request != order[1]] == [TOKENS] * 3
    assert 20 < len(texts[1]) < TOKENS
    assert all(guard.verify(text).ok for text in texts)


class Tightens(LogitsProcessor):  # type: ignore[misc]
    """From its second step on nothing more is decided, and what the ways out were is forgotten."""

    def __init__(self, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
        self._guard, self._patch, self._steps = guard, monkeypatch, 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self._steps += 1
        if self._steps == 2:
            self._patch.setattr(ways, "STATES", 1)
            for bound in self._guard._bound.values():
                together = bound.tables._together
                together._rows = 0
                together._ways = ways.Ways(together._automata, together._utf8, together._paths.letters)
                together._searched.clear()
        return scores


@pytest.mark.parametrize("context", ["output", "prompt"])
def test_where_only_undecided_tokens_are_left_the_text_ends_alone(
    context: Any, byte_level: Any, model_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = RegexRule(id="think", regex=r"(?s)q(?!.*::)", context=context)
    guard, model = Guard(Policy(name="think", rules=(rule,))), model_of(byte_level)
    writes = Writes(byte_level, {0: "q", 1: "x"})
    result = guard.generate(
        model,
        byte_level,
        ["x", "x"],
        do_sample=False,
        max_new_tokens=20,
        logits_processor=LogitsProcessorList([writes, Tightens(guard, monkeypatch)]),
    )
    assert result.outcomes == ["state_limit", "length"]
    assert result.texts == ["", "x" * 20]


def test_a_prompt_alone_never_bars_the_end(
    byte_level: Any, model_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends in the prompt does not count, so there is a text to cut back to, be it the empty one."""
    monkeypatch.setattr(bruteforce, "SMALL", 0)
    monkeypatch.setattr(ways, "STATES", 1)
    patterns = [r"(?s)<.(?!.*::)", r"(?s)<(?!.*::)", r"<[^>]*\Z", r"(?m)<.*$", r"\b<(?=\Z)|<.*(?<!>)\Z"]
    for pattern in patterns:
        rule = RegexRule(id="open", regex=pattern, context="prompt")
        tables = Guard(Policy(name="open", rules=(rule,))).bind(byte_level).tables
        for prompt in (b"<", b"a <", b"<a", b"<>", b"<a\n"):
            assert tables.may_end(tables.start_after(prompt)), pattern
    rule = RegexRule(id="open", regex=patterns[0], context="prompt")
    guard, model = Guard(Policy(name="open", rules=(rule,))), model_of(byte_level)
    result = guard.generate(model, byte_level, ["<", "x"], do_sample=False, max_new_tokens=20)
    assert result.outcomes == ["ended", "length"]
    assert result.texts[0] == ""
