"""Guarded generation that goes back, with real models: not one violation, and what is thrown away is seen nowhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import Intervention, MemorySink
from nco_guard.compiler import UTF8_RULE
from nco_guard.engines.hf import generate, stream
from nco_guard.engines.hf import rewinding as loops
from nco_guard.errors import UnsupportedError
from nco_guard.policy import Rewind
from nco_guard.testing import biased_model, random_model, tiny_tokenizer

PROMPTS = ["what the", "a class of passengers said", "f"]
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 1.5},
    "several": {"do_sample": True, "num_return_sequences": 3},
    "one choice": {"do_sample": True, "top_k": 1},
    "filters": {"do_sample": True, "top_k": 4, "top_p": 0.8, "min_p": 0.01},
    "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 8},
    "no cache": {"use_cache": False, "do_sample": True},
    "static cache": {"cache_implementation": "static"},
    "beams": {"num_beams": 3},
}
SETTINGS = {
    "match": Rewind(),
    "sentence": Rewind(back_to="sentence"),
    "text": Rewind(back_to="text", per_match=4),
    "once": Rewind(per_match=1, per_text=1),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("back_to", SETTINGS)
def test_no_text_breaks_the_policy(
    mode: str, back_to: str, tokenizer: Any, model_of: Any, guard: Any
) -> None:
    model, options = model_of(tokenizer), MODES[mode]
    torch.manual_seed(0)
    result = generate(
        guard, model, tokenizer, PROMPTS, max_new_tokens=20, rewind=SETTINGS[back_to], **options
    )
    assert len(result.texts) == len(PROMPTS) * options.get("num_return_sequences", 1)
    for text, ids, report in zip(result.texts, result.token_ids, result.reports, strict=True):
        assert report.ok
        assert guard.clean(text)
        assert text == tokenizer.decode(ids, skip_special_tokens=True)
        assert len(ids) <= 20
    if mode == "beams":
        assert result.rewinds is None
    else:
        assert result.rewinds is not None
        assert len(result.rewinds) == len(result.texts)
        assert all((one.rewinds > 0) == (one.discarded > 0) for one in result.rewinds)
        assert any(one.rewinds for one in result.rewinds)


@pytest.mark.parametrize("options", [{}, {"do_sample": True}])
@pytest.mark.parametrize("back_to", ["match", "sentence", "text"])
def test_a_row_writes_the_same_alone_and_in_a_batch(
    options: dict[str, Any],
    back_to: Any,
    tokenizer: Any,
    model_of: Any,
    guard: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = [7, 8, 9]

    def written(prompts: list[str], own: list[int]) -> list[str]:
        monkeypatch.setattr(loops, "_seeds", lambda count: own)
        rewind = Rewind(back_to=back_to)
        return generate(
            guard, model_of(tokenizer), tokenizer, prompts, max_new_tokens=30, rewind=rewind, **options
        ).texts

    together = written(PROMPTS, seeds)
    assert together == [written([p], [s])[0] for p, s in zip(PROMPTS, seeds, strict=True)]


def test_an_encoder_decoder_goes_back(byte_level: Any) -> None:
    guard = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["fuck"])]))
    model = biased_model(byte_level, ["fuck"], seq2seq=True)
    torch.manual_seed(0)
    result = generate(
        guard, model, byte_level, PROMPTS, max_new_tokens=20, do_sample=True, when_blocked="rewind"
    )
    assert all(report.ok for report in result.reports)
    assert result.rewinds is not None
    assert sum(one.rewinds for one in result.rewinds) > 0


def test_what_is_streamed_is_never_taken_back(tokenizer: Any, model_of: Any, guard: Any) -> None:
    for seed in range(4):
        for back_to in ("match", "sentence"):
            results: list[Any] = []
            torch.manual_seed(seed)
            pieces = list(
                stream(
                    guard,
                    model_of(tokenizer),
                    tokenizer,
                    PROMPTS[0],
                    max_new_tokens=40,
                    do_sample=True,
                    rewind=Rewind(back_to=back_to),
                    on_result=results.append,
                )
            )
            assert "".join(pieces) == results[0].texts[0]
            assert guard.clean("".join(pieces))
            assert back_to == "sentence" or len(pieces) > 1


def test_scores_are_those_of_the_text_that_stays(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)
    torch.manual_seed(0)
    result = generate(
        guard,
        model,
        byte_level,
        PROMPTS[:2],
        max_new_tokens=20,
        do_sample=True,
        rewind=Rewind(),
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        top_k=0,
    )
    assert sum(one.rewinds for one in result.rewinds) > 0
    prompt = byte_level(PROMPTS[:2], padding=True, padding_side="left", return_tensors="pt")
    sequences = result.output.sequences
    pads = torch.ones(2, sequences.shape[1] - prompt.input_ids.shape[1], dtype=torch.long)
    mask = torch.cat([prompt.attention_mask, pads], dim=1)
    places = (mask.cumsum(1) - 1).clamp(min=0)
    logits = model(input_ids=sequences, attention_mask=mask, position_ids=places).logits
    begin = prompt.input_ids.shape[1] - 1
    for row, ids in enumerate(result.token_ids):
        for step in range(len(ids)):
            torch.testing.assert_close(
                result.output.logits[step][row], logits[row, begin + step], atol=1e-3, rtol=1e-3
            )
            wanted = torch.log_softmax(logits[row, begin + step], dim=-1)
            torch.testing.assert_close(result.output.scores[step][row], wanted, atol=1e-3, rtol=1e-3)


def test_stop_strings_and_criteria_end_a_text(byte_level: Any, model_of: Any, guard: Any) -> None:
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        PROMPTS,
        max_new_tokens=40,
        rewind=Rewind(),
        stop_strings=["e"],
    )
    for text, ids, outcome in zip(result.texts, result.token_ids, result.outcomes, strict=True):
        assert ("e" in text) == (outcome == "stopped")
        assert "e" not in byte_level.decode(ids[:-1])


def test_soft_rules_weigh_and_prompts_count(byte_level: Any) -> None:
    rules = [
        StringRule(id="soft", strings=["s"], penalty=100.0),
        RegexRule(id="joined", regex="the fuck", context="prompt"),
    ]
    guard = Guard(Policy(name="p", rules=rules))
    model = biased_model(byte_level, ["s", " fuck"])
    for seed in range(3):
        torch.manual_seed(seed)
        result = generate(
            guard, model, byte_level, "what the", max_new_tokens=12, do_sample=True, when_blocked="rewind"
        )
        assert "s" not in result.texts[0]
        assert result.reports[0].ok
        assert not ("the" + result.texts[0]).startswith("the fuck")


def test_a_policy_says_it_for_all_calls(byte_level: Any, model_of: Any) -> None:
    rule = StringRule(id="strings", strings=("fuck", "ass "))
    policy = Policy(name="p", rules=[rule], when_blocked="rewind", rewind={"back_to": "sentence"})
    assert Policy.from_yaml(policy.to_yaml()) == policy
    assert Policy(name="p", rules=[rule], when_blocked="mask").digest == Policy(name="p", rules=[rule]).digest
    model = model_of(byte_level)
    assert generate(Guard(policy), model, byte_level, "f", max_new_tokens=8).rewinds is not None
    masked = generate(Guard(policy), model, byte_level, "f", max_new_tokens=8, when_blocked="mask")
    assert masked.rewinds is None
    other = Guard(Policy(name="q", rules=[rule]))
    with pytest.raises(UnsupportedError, match="differ"):
        generate(Guard(policy), model, byte_level, ["f", "g"], guards=[None, other], max_new_tokens=8)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
        ({"return_dict_in_generate": True, "output_hidden_states": True}, "output_hidden_states"),
        ({"guidance_scale": 1.5}, "guidance_scale"),
        ({"tables": "device"}, "tables"),
    ],
)
def test_what_cannot_go_back_is_refused_by_name(options: dict[str, Any], named: str, byte_level: Any) -> None:
    model, guard = (
        random_model(byte_level),
        Guard(Policy(name="p", rules=[StringRule(id="a", strings=["a"])])),
    )
    with pytest.raises(UnsupportedError, match=named):
        generate(guard, model, byte_level, "f", max_new_tokens=4, when_blocked="rewind", **options)


def test_wrong_choices_are_refused_at_the_call() -> None:
    tokenizer = tiny_tokenizer("byte-level")
    model, guard = random_model(tokenizer), Guard(Policy(name="p", rules=[StringRule(id="a", strings=["a"])]))
    for wrong, named in (
        ({"when_blocked": "retry"}, "when_blocked"),
        ({"rewind": "match"}, "rewind"),
        ({"rewind": Rewind(), "when_blocked": "mask"}, "rewind"),
    ):
        with pytest.raises(match=named):
            generate(guard, model, tokenizer, "f", max_new_tokens=4, **wrong)
        with pytest.raises(match=named):
            stream(guard, model, tokenizer, "f", max_new_tokens=4, **wrong)
    with pytest.raises(UnsupportedError, match="streamed"):
        stream(guard, model, tokenizer, "f", max_new_tokens=4, rewind=Rewind(back_to="text"))


def test_steps_and_events_tell_of_each_going_back(
    byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    sink, steps = MemorySink(), list[Any]()
    guard = guard_of(*guard.policy.rules, audit=sink)
    torch.manual_seed(0)
    result = guard.generate(
        model_of(byte_level),
        byte_level,
        PROMPTS,
        max_new_tokens=30,
        do_sample=True,
        rewind=Rewind(per_text=3),
        on_step=steps.append,
    )
    assert result.rewinds is not None
    told = [
        (row, discarded)
        for step in steps
        for row, discarded in zip(step.rows, step.discarded, strict=True)
        if discarded is not None
    ]
    events = [event for event in sink.events if isinstance(event, Intervention)]
    back = [event for event in events if event.action == "rewound"]
    assert told == [(event.sequence, event.discarded) for event in back]
    for row, counts in enumerate(result.rewinds):
        own = [discarded for number, discarded in told if number == row]
        assert (len(own), sum(own)) == (counts.rewinds, counts.discarded)
    assert any(counts.fallbacks for counts in result.rewinds)
    assert any(event.action == "masked" for event in events)
    known = {UTF8_RULE, *(rule.id for rule in guard.policy.rules)}
    assert all(set(event.rule_ids) <= known for event in back)
    assert sum(bool(event.rule_ids) for event in back) > 0
