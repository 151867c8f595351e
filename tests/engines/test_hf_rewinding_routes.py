"""Texts go back by whichever way generation is asked for, and the log says how often they could not go back so far."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import pipeline

from nco_guard import Guard, Policy, Rewind
from nco_guard.audit import Intervention, MemorySink, RunFinished
from nco_guard.engines.hf import generate, stream, wrap
from nco_guard.errors import UnsupportedError
from nco_guard.testing import random_model

PROMPTS = ["what the", "a class of passengers said", "f"]


def ends_of(sink: MemorySink) -> list[RunFinished]:
    return [event for event in sink.events if isinstance(event, RunFinished)]


@pytest.mark.parametrize(
    "rewind",
    [Rewind(per_text=2), Rewind(back_to="sentence", per_match=1), Rewind(back_to="text", per_text=1)],
)
def test_the_end_of_a_run_says_how_often_each_text_fell_back(
    rewind: Rewind, byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    sink = MemorySink()
    guard = guard_of(*guard.policy.rules, audit=sink)
    torch.manual_seed(0)
    options: dict[str, Any] = {"max_new_tokens": 24, "do_sample": True, "num_return_sequences": 2}
    result = guard.generate(model_of(byte_level), byte_level, PROMPTS, rewind=rewind, **options)
    (end,) = ends_of(sink)
    assert end.back_to == rewind.back_to
    assert result.rewinds is not None
    assert end.fallbacks == tuple(counts.fallbacks for counts in result.rewinds)
    assert any(end.fallbacks)
    assert guard.log.history.last.fallbacks == end.fallbacks
    guard.generate(model_of(byte_level), byte_level, PROMPTS, **options)
    masked = ends_of(sink)[-1]
    assert (masked.back_to, masked.fallbacks) == (None, None)


def test_each_guard_of_a_batch_records_what_its_own_texts_fell_back(
    byte_level: Any, model_of: Any, guard: Any
) -> None:
    sinks = MemorySink(), MemorySink()
    far: list[dict[str, Any]] = [{"back_to": "sentence", "per_match": 1}, {"back_to": "text", "per_text": 1}]
    guards = [
        Guard(Policy(name="p", rules=guard.policy.rules, rewind=rewind), audit=sink)
        for sink, rewind in zip(sinks, far, strict=True)
    ]
    torch.manual_seed(0)
    result = generate(
        guards[0],
        model_of(byte_level),
        byte_level,
        PROMPTS,
        guards=[None, guards[1], None],
        max_new_tokens=24,
        do_sample=True,
    )
    assert result.rewinds is not None
    first, second, third = (counts.fallbacks for counts in result.rewinds)
    ends = [ends_of(sink)[0] for sink in sinks]
    assert [(end.back_to, end.fallbacks) for end in ends] == [
        ("sentence", (first, third)),
        ("text", (second,)),
    ]
    assert first + second + third > 0


def test_going_back_less_far_is_told_though_the_mask_did_not_act(
    byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    """From the sentence to the match: a falling back that no other event tells of."""
    sink = MemorySink()
    guard = guard_of(*guard.policy.rules, audit=sink)
    torch.manual_seed(0)
    rewind = Rewind(back_to="sentence", per_match=1, per_text=None)
    guard.generate(
        model_of(byte_level), byte_level, PROMPTS, max_new_tokens=40, do_sample=True, rewind=rewind
    )
    masked = [event for event in sink.events if isinstance(event, Intervention) and event.action == "masked"]
    (end,) = ends_of(sink)
    assert end.fallbacks is not None
    assert sum(end.fallbacks) > len(masked)


@pytest.mark.parametrize("rewind", [Rewind(), {"back_to": "sentence"}, {"back_to": "text", "per_text": 4}])
def test_a_guarded_pipeline_goes_back_as_generate_does(
    rewind: Any, byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    sink = MemorySink()
    guard, model = guard_of(*guard.policy.rules, audit=sink), model_of(byte_level)
    texts = [
        generate(guard, model, byte_level, prompt, max_new_tokens=20, do_sample=False, rewind=rewind).texts[0]
        for prompt in PROMPTS
    ]
    pipe = wrap(guard, pipeline("text-generation", model=model, tokenizer=byte_level, device="cpu"))
    common: dict[str, Any] = {"return_full_text": False, "max_new_tokens": 20, "do_sample": False}
    for options in (
        {"rewind": rewind},
        {"rewind": rewind, "when_blocked": "rewind", "batch_size": 3},
    ):
        seen = len(sink.events)
        found = [answer["generated_text"] for (answer,) in pipe(PROMPTS, **common, **options)]
        assert found == texts
        actions = [event.action for event in sink.events[seen:] if isinstance(event, Intervention)]
        assert "rewound" in actions
        back_to = {end.back_to for end in ends_of(sink) if end in sink.events[seen:]}
        assert back_to == {Rewind.model_validate(rewind).back_to}
    ids = byte_level(PROMPTS[0], return_tensors="pt").input_ids
    found_ids = pipe.model.generate(ids, max_new_tokens=20, do_sample=False, rewind=rewind)
    assert byte_level.decode(found_ids[0, ids.shape[1] :], skip_special_tokens=True) == texts[0]
    masked = [answer["generated_text"] for (answer,) in pipe(PROMPTS, **common)]
    assert masked != texts
    with pytest.raises(UnsupportedError, match="rewind"):
        pipe(PROMPTS, **common, rewind=rewind, when_blocked="mask")


def test_drafts_of_another_model_are_refused_where_texts_go_back(byte_level: Any, guard: Any) -> None:
    model, draft = random_model(byte_level), random_model(byte_level)
    options: dict[str, Any] = {"max_new_tokens": 4, "assistant_model": draft}
    by_policy = Guard(Policy(name="p", rules=guard.policy.rules, rewind=Rewind()))
    with pytest.raises(UnsupportedError, match=r"assistant_model.*when_blocked='mask'"):
        generate(guard, model, byte_level, "f", when_blocked="rewind", **options)
    with pytest.raises(UnsupportedError, match="assistant_model"):
        stream(guard, model, byte_level, "f", when_blocked="rewind", **options)
    with pytest.raises(UnsupportedError, match="assistant_model"):
        generate(by_policy, model, byte_level, "f", **options)
    result = generate(by_policy, model, byte_level, "f", when_blocked="mask", **options)
    assert result.reports[0].ok
    assert result.rewinds is None
