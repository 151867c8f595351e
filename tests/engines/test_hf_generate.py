"""Guarded `generate` with real models: every decoding option, and not one violation."""

from typing import Any

import pytest
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    StoppingCriteria,
)

from nco_guard.engines.hf import StepReport, generate, stream
from nco_guard.errors import (
    DeadEndError,
    GenerationError,
    TokenizerError,
    UnsupportedError,
)
from nco_guard.policy import RegexRule, StringRule
from nco_guard.testing import biased_model, random_model, tiny_tokenizer

PROMPTS = ["what the", "a class of passengers said", "f"]
ONE = {"prompt_lookup_num_tokens", "assistant_model"}

MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 1.5},
    "several": {"do_sample": True, "num_return_sequences": 3},
    "beams": {"num_beams": 4, "num_return_sequences": 3},
    "beam sampling": {"num_beams": 3, "do_sample": True},
    "early beams": {"num_beams": 2, "early_stopping": True, "length_penalty": 2.0},
    "prompt lookup": {"prompt_lookup_num_tokens": 4},
    "sampled lookup": {"prompt_lookup_num_tokens": 4, "do_sample": True},
    "assisted": {"assistant_model": True},
    "sampled assisted": {"assistant_model": True, "do_sample": True},
    "filters": {"do_sample": True, "top_k": 4, "top_p": 0.8, "min_p": 0.01, "renormalize_logits": True},
    "penalties": {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 8},
    "no cache": {"use_cache": False},
    "guidance": {"guidance_scale": 1.5},
}


@pytest.mark.parametrize("mode", MODES)
def test_no_text_breaks_the_policy(mode: str, tokenizer: Any, model_of: Any, guard: Any) -> None:
    model, options = model_of(tokenizer), dict(MODES[mode])
    if "assistant_model" in options:
        options["assistant_model"] = model_of(tokenizer, 2)
    one = bool(ONE & set(options)) or mode == "guidance"
    batches = [PROMPTS[:1], PROMPTS[1:2]] if one else [PROMPTS]
    for seed in range(1 if one else 2):
        torch.manual_seed(seed)
        for batch in batches:
            result = generate(guard, model, tokenizer, batch, max_new_tokens=20, **options)
            assert len(result.texts) == len(batch) * options.get("num_return_sequences", 1)
            for text, ids, report in zip(result.texts, result.token_ids, result.reports, strict=True):
                assert report.ok
                assert guard.clean(text), mode
                assert text == tokenizer.decode(ids, skip_special_tokens=True)
                assert len(ids) <= 20


def test_the_unguarded_model_writes_what_is_forbidden(tokenizer: Any, model_of: Any, guard: Any) -> None:
    """Else the other tests would prove nothing."""
    inputs = tokenizer(PROMPTS, return_tensors="pt", padding=True, return_token_type_ids=False)
    torch.manual_seed(0)
    output = model_of(tokenizer).generate(**inputs, max_new_tokens=40, do_sample=True, num_return_sequences=8)
    texts = tokenizer.batch_decode(output[:, inputs.input_ids.shape[1] :], skip_special_tokens=True)
    assert sum(not guard.clean(text) for text in texts) >= 4


def test_allowed_logits_are_bit_identical(byte_level: Any, model_of: Any, guard: Any) -> None:
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        PROMPTS,
        max_new_tokens=15,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    for scores, logits in zip(result.output.scores, result.output.logits, strict=True):
        masked = scores == -torch.inf
        assert bool(masked.any())
        assert bool(torch.isfinite(logits).all())
        assert torch.equal(scores[~masked], logits[~masked])


def test_beams_keep_the_scores_that_the_model_gives_them(byte_level: Any, model_of: Any, guard: Any) -> None:
    """Nothing is renormalised: a beam's score is the sum of the unguarded model's log-probabilities."""
    model, prompt = model_of(byte_level), "what the"
    result = generate(
        guard,
        model,
        byte_level,
        prompt,
        max_new_tokens=12,
        num_beams=4,
        num_return_sequences=4,
        length_penalty=0.0,
        return_dict_in_generate=True,
        output_scores=True,
    )
    asked = byte_level(prompt).input_ids
    for ids, score in zip(result.token_ids, result.output.sequences_scores.tolist(), strict=True):
        with torch.no_grad():
            logits = model(torch.tensor([[*asked, *ids]])).logits[0, len(asked) - 1 : -1]
        chosen = logits.log_softmax(-1)[torch.arange(len(ids)), torch.tensor(ids)]
        assert score == pytest.approx(chosen.sum().item(), abs=1e-3)


def test_a_batch_equals_its_rows_one_by_one(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)
    together = generate(guard, model, byte_level, PROMPTS, max_new_tokens=15)
    for prompt, text in zip(PROMPTS, together.texts, strict=True):
        assert generate(guard, model, byte_level, prompt, max_new_tokens=15).texts == [text]


def test_greedy_equals_prompt_lookup_and_assisted(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)
    prompt = "what the fuck what the fuck what the"
    plain = generate(guard, model, byte_level, prompt, max_new_tokens=25)
    for options in ({"prompt_lookup_num_tokens": 6}, {"assistant_model": model_of(byte_level, 2)}):
        assert generate(guard, model, byte_level, prompt, max_new_tokens=25, **options).texts == plain.texts


def test_where_nothing_is_forbidden_nothing_changes(byte_level: Any, model_of: Any, guard_of: Any) -> None:
    """A policy that the model never meets leaves greedy output as it is."""
    quiet = guard_of(StringRule(id="quiet", strings=("never written by this model",)))
    model = model_of(byte_level)
    inputs = byte_level("the", return_tensors="pt", return_token_type_ids=False)
    output = model.generate(**inputs, max_new_tokens=25)[0, inputs.input_ids.shape[1] :].tolist()
    assert generate(quiet, model, byte_level, "the", max_new_tokens=25).token_ids == [output]


def test_prompts_of_every_form(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)

    def texts(prompts: Any) -> list[str]:
        return generate(guard, model, byte_level, prompts, max_new_tokens=8).texts

    chat = [{"role": "user", "content": "hi"}]
    inputs = byte_level("what", return_tensors="pt", return_token_type_ids=False)
    assert (
        texts("what")
        == texts(["what"])
        == texts(inputs)
        == texts(inputs.input_ids)
        == texts(inputs.input_ids[0])
    )
    assert texts(chat) == texts([chat]) == texts("user: hi\nassistant: ")
    assert texts([chat, chat]) == texts(chat) * 2
    prefilled = [*chat, {"role": "assistant", "content": "what"}]
    assert len(texts(prefilled)) == 1
    for wrong in ([], [1, "a"], [chat, prefilled], [chat, "text"]):
        with pytest.raises(UnsupportedError):
            texts(wrong)


def test_lengths_are_those_of_transformers(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)
    prompt = byte_level("what the").input_ids
    for options, expected in [
        ({}, 20),
        ({"max_new_tokens": 7}, 7),
        ({"max_length": len(prompt) + 5}, 5),
        ({"generation_config": GenerationConfig(max_new_tokens=9)}, 9),
    ]:
        result = generate(guard, model, byte_level, "what the", **options)
        assert [len(ids) for ids in result.token_ids] == [expected]
        assert result.outcomes == ["length"]


@pytest.mark.parametrize("limit", range(1, 12))
def test_a_text_cut_by_the_limit_may_end_there(limit: int, tokenizer: Any, model_of: Any, guard: Any) -> None:
    torch.manual_seed(limit)
    options = {"max_new_tokens": limit, "do_sample": True, "num_return_sequences": 2}
    result = generate(guard, model_of(tokenizer), tokenizer, PROMPTS, **options)
    assert all(map(guard.clean, result.texts))
    assert set(result.outcomes) <= {"length", "ended"}
    assert not any("\ufffd" in text for text in result.texts)


def test_stop_strings_that_end_badly_are_trimmed(byte_level: Any, model_of: Any, guard: Any) -> None:
    """The stop string ` ass` is itself a forbidden word at the end of the text."""
    model, seen = model_of(byte_level), set()
    for seed, stops in [(seed, stops) for seed in range(4) for stops in ([" ass", " as"], ["th"])]:
        torch.manual_seed(seed)
        result = generate(
            guard, model, byte_level, PROMPTS, max_new_tokens=60, do_sample=True, stop_strings=stops
        )
        assert all(map(guard.clean, result.texts))
        seen.update(result.outcomes)
        for text, ids in zip(result.texts, result.token_ids, strict=True):
            assert text == byte_level.decode(ids, skip_special_tokens=True)
        rows = [byte_level.decode(row, skip_special_tokens=True) for row in result.output]
        for row, text in zip(rows, result.texts, strict=True):
            assert row.endswith(text)
    assert {"stopped", "trimmed"} <= seen


def test_a_criterion_of_ones_own_stops_and_trims(byte_level: Any, model_of: Any, guard: Any) -> None:
    class AtLength(StoppingCriteria):
        def __init__(self, length: int) -> None:
            self.length = length

        def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            return torch.full((len(input_ids),), input_ids.shape[1] >= self.length)

    start = len(byte_level("what the").input_ids)
    for length in range(1, 20):
        result = generate(
            guard,
            model_of(byte_level),
            byte_level,
            "what the",
            max_new_tokens=50,
            stopping_criteria=[AtLength(start + length)],
        )
        assert all(map(guard.clean, result.texts))
        assert result.output.shape[1] == start + len(result.token_ids[0])
        assert result.outcomes[0] == ("stopped" if len(result.token_ids[0]) == length else "trimmed")


class Prefer(LogitsProcessor):
    """Raises some tokens at some step."""

    def __init__(self, tokens: list[int], after: int) -> None:
        self.tokens, self.after = tokens, after

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        if input_ids.shape[1] >= self.after:
            scores[:, self.tokens] += 1000.0
        return scores


def test_a_token_that_a_criterion_writes_ends_what_is_returned_and_shows_in_the_outcome(
    byte_level: Any, model_of: Any, guard: Any
) -> None:
    """The row itself is guarded on; what a reader gets ends before the forced token."""
    k = byte_level("k", add_special_tokens=False).input_ids[0]
    fuc = byte_level("fuc", add_special_tokens=False).input_ids

    written, start = [*fuc, k], byte_level("what the", return_tensors="pt").input_ids.shape[1] + 2

    class Writing(StoppingCriteria):  # type: ignore[misc]
        def __init__(self) -> None:
            self.length = 0

        def __call__(self, ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
            self.length = ids.shape[1]
            if 0 <= self.length - 1 - start < len(written):
                ids[:, -1] = written[self.length - 1 - start]
            return torch.zeros(len(ids), dtype=torch.bool)

    criterion = Writing()
    reports: list[StepReport] = []
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        "what the",
        max_new_tokens=40,
        stopping_criteria=[criterion],
        on_step=reports.append,
    )
    assert result.outcomes == ["violated"]
    assert result.texts[0].endswith("fuc")
    assert guard.clean(result.texts[0])
    assert criterion.length > start + len(written), "the row went on"
    assert any(report.forced == [("strings",)] for report in reports)
    streamed = stream(
        guard, model_of(byte_level), byte_level, "what the", max_new_tokens=40, stopping_criteria=[Writing()]
    )
    assert guard.clean("".join(streamed)), "a stream shows tokens before criteria do anything to them"
    with pytest.raises(GenerationError, match="forbids"):
        generate(
            guard,
            model_of(byte_level),
            byte_level,
            "what the",
            max_new_tokens=40,
            stopping_criteria=[Writing()],
            tables="device",
        )


def test_processors_of_ones_own_run_before_the_guard(byte_level: Any, model_of: Any, guard: Any) -> None:
    k = byte_level("k").input_ids
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        "what the",
        max_new_tokens=20,
        logits_processor=[Prefer(k, 12)],
    )
    assert guard.clean(result.texts[0])
    assert "k" in result.texts[0]


def test_the_text_ends_at_the_tokenizers_end_too(byte_level: Any, model_of: Any, guard: Any) -> None:
    """The model's own configuration names another end; decode() would show what follows."""
    end, other = byte_level.eos_token_id, byte_level("x").input_ids
    length = len(byte_level("what the").input_ids)
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        "what the",
        max_new_tokens=20,
        eos_token_id=other,
        logits_processor=[Prefer([end], length + 5)],
    )
    assert result.outcomes == ["ended"]
    assert result.token_ids[0][-1] == end or result.texts[0].endswith("x")


def test_special_tokens_are_no_reset(byte_level: Any, model_of: Any, guard: Any) -> None:
    """`fu`, a special token, `ck`: decode() reads one word."""
    special = byte_level.convert_tokens_to_ids("<s>")
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        "what the",
        max_new_tokens=40,
        do_sample=True,
        sequence_bias={(special,): 16.0},
    )
    assert special in result.token_ids[0]
    assert guard.clean(result.texts[0])
    shown = generate(
        guard, model_of(byte_level), byte_level, "a", max_new_tokens=9, skip_special_tokens=False
    )
    assert shown.texts == [byte_level.decode(shown.token_ids[0], skip_special_tokens=False)]


def test_wider_logits_than_the_tokenizer(byte_level: Any, guard: Any) -> None:
    wide = biased_model(byte_level, ["fuck"], vocab_width=len(byte_level) + 24)
    result = generate(guard, wide, byte_level, "what the", max_new_tokens=20, do_sample=True)
    assert max(result.token_ids[0]) < len(byte_level)
    assert all(map(guard.clean, result.texts))
    with pytest.raises(TokenizerError, match="columns"):
        generate(guard, random_model(byte_level, vocab_width=len(byte_level) - 4), byte_level, "what")


def test_dead_ends_are_named(byte_level: Any, model_of: Any, guard: Any) -> None:
    """Somebody else allows one way on, and it leads into a forbidden string."""
    only = (
        byte_level("f").input_ids
        + byte_level("u").input_ids
        + byte_level("c").input_ids
        + byte_level("k").input_ids
    )
    start = len(byte_level("what the").input_ids)
    with pytest.raises(DeadEndError, match="no token is left"):
        generate(
            guard,
            model_of(byte_level),
            byte_level,
            "what the",
            max_new_tokens=30,
            prefix_allowed_tokens_fn=lambda _, ids: [only[(len(ids) - start) % 4]],
        )


def test_rules_that_read_the_prompt_see_a_match_across_the_border(
    byte_level: Any, model_of: Any, guard_of: Any
) -> None:
    prompt, dot_com = "write to jo@enron", byte_level(".com").input_ids
    start = len(byte_level(prompt).input_ids)

    def pushing(_: int, ids: torch.Tensor) -> list[int]:
        step = len(ids) - start
        return dot_com[step : step + 1] or list(range(len(byte_level)))

    def run(context: str, **options: Any) -> Any:
        guard = guard_of(RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com", context=context))
        return generate(guard, model_of(byte_level), byte_level, prompt, max_new_tokens=12, **options)

    assert run("output", prefix_allowed_tokens_fn=pushing).texts[0].startswith(".com")
    with pytest.raises(DeadEndError):
        run("prompt", prefix_allowed_tokens_fn=pushing)
    assert not (prompt + run("prompt").texts[0]).startswith(prompt + ".com")


def test_soft_rules_subtract_their_penalty_and_nothing_else(
    byte_level: Any, model_of: Any, guard_of: Any
) -> None:
    guard = guard_of(StringRule(id="soft", strings=("a",), penalty=2.5))
    result = generate(
        guard,
        model_of(byte_level),
        byte_level,
        "what the",
        max_new_tokens=12,
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
    )
    tokens = guard.bind(byte_level).vocabulary.tokens
    penalised = torch.tensor([b"a" in token for token in tokens])
    for scores, logits in zip(result.output.scores, result.output.logits, strict=True):
        masked = scores == -torch.inf
        assert torch.equal(scores[~masked & ~penalised], logits[~masked & ~penalised])
        assert torch.equal(scores[~masked & penalised], logits[~masked & penalised] - 2.5)


def test_tables_replaced_under_way_change_nothing(
    byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    plain, small = guard_of(*guard.policy.rules), guard_of(*guard.policy.rules, memory_limit=1)
    texts = []
    for each in (plain, small):
        torch.manual_seed(5)
        options: dict[str, Any] = {"max_new_tokens": 120, "do_sample": True, "temperature": 4.0}
        texts.append(
            generate(each, model_of(byte_level), byte_level, PROMPTS, num_return_sequences=2, **options).texts
        )
    assert texts[0] == texts[1]
    (kept,), (replaced,) = plain._bound.values(), small._bound.values()
    assert replaced.stats["joint_states"] < 0.7 * kept.stats["joint_states"], "they were replaced on the way"


@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"early_stopping": True}])
def test_fewer_candidates_than_beams_bring_nothing_forbidden_back(
    options: dict[str, Any], byte_level: Any, model_of: Any, guard: Any
) -> None:
    few = [byte_level(letter).input_ids[0] for letter in "fuck"]
    try:
        result = generate(
            guard,
            model_of(byte_level),
            byte_level,
            PROMPTS,
            max_new_tokens=10,
            num_beams=4,
            num_return_sequences=4,
            prefix_allowed_tokens_fn=lambda _, ids: few,
            **options,
        )
    except DeadEndError:
        assert "do_sample" in options
        return
    assert all(map(guard.clean, result.texts))
    assert set("".join(result.texts)) <= set("fuck")


def test_unigram_vocabularies(model_of: Any, guard: Any) -> None:
    tokenizer = tiny_tokenizer("unigram")
    model = biased_model(tokenizer, ["fuck", "jo@enron.com"])
    for seed in range(3):
        torch.manual_seed(seed)
        result = generate(
            guard, model, tokenizer, PROMPTS, max_new_tokens=30, do_sample=True, num_return_sequences=3
        )
        for text, ids, report in zip(result.texts, result.token_ids, result.reports, strict=True):
            assert report.ok
            assert guard.clean(text)
            assert text == tokenizer.decode(ids, skip_special_tokens=True)


def test_reports_of_steps_reach_the_sink(byte_level: Any, model_of: Any, guard: Any) -> None:
    steps: list[StepReport] = []
    result = generate(
        guard, model_of(byte_level), byte_level, PROMPTS, max_new_tokens=20, on_step=steps.append
    )
    assert len(steps) == max(len(ids) for ids in result.token_ids)
    assert any(any(step.top_forbidden) for step in steps)


@pytest.mark.parametrize("mode", ["greedy", "sampling", "beams", "prompt lookup", "assisted"])
def test_runs_are_recorded_without_text(
    mode: str, byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    events: list[Any] = []
    audited = guard_of(*guard.policy.rules, audit=events.append)
    options = dict(MODES[mode])
    if "assistant_model" in options:
        options["assistant_model"] = model_of(byte_level, 2)
    prompts = PROMPTS[:1] if ONE & set(options) else PROMPTS
    torch.manual_seed(1)
    result = generate(audited, model_of(byte_level), byte_level, prompts, max_new_tokens=30, **options)
    # The guard's own events come first, under an id of its own.
    assert [event.kind for event in events[:2]] == ["policy_loaded", "guarantee_configured"]
    assert events[0].run_id == events[1].run_id != events[2].run_id
    del events[:2]
    assert [event.number for event in events] == list(range(len(events)))
    assert events[0].kind == "run_started"
    assert events[-1].kind == "run_finished"
    assert events[-1].outcomes == tuple(result.outcomes)
    assert events[-1].tokens == sum(map(len, result.token_ids))
    interventions = [event for event in events if event.kind == "intervention"]
    assert len(interventions) == events[-1].interventions > 0
    assert {name for event in interventions for name in event.rule_ids} <= {
        *(rule.id for rule in audited.policy.rules),
        "utf-8",
    }
    assert any(event.rule_ids for event in interventions)
    assert [event.ok for event in events if event.kind == "verification"] == [True] * len(result.texts)
    assert not any(text in event.to_json() for event in events for text in result.texts if len(text) > 3)
    if mode == "greedy":
        seen = {(event.sequence, event.step) for event in interventions}
        assert len(seen) == len(interventions)


def test_what_drafts_leave_is_what_plain_decoding_records(
    byte_level: Any, model_of: Any, guard: Any, guard_of: Any
) -> None:
    recorded = []
    for options in ({}, {"prompt_lookup_num_tokens": 4}, {"assistant_model": model_of(byte_level, 2)}):
        events: list[Any] = []
        audited = guard_of(*guard.policy.rules, audit=events.append)
        generate(audited, model_of(byte_level), byte_level, "what the", max_new_tokens=30, **options)
        recorded.append([(event.step, event.rule_ids) for event in events if event.kind == "intervention"])
    assert recorded[0] == recorded[1] == recorded[2]


def test_errors_are_recorded_by_name(byte_level: Any, model_of: Any, guard: Any, guard_of: Any) -> None:
    events: list[Any] = []
    audited = guard_of(*guard.policy.rules, audit=events.append)
    few = byte_level("k").input_ids
    only = byte_level("f").input_ids + byte_level("u").input_ids + byte_level("c").input_ids + few
    start = len(byte_level("what the").input_ids)
    with pytest.raises(DeadEndError):
        generate(
            audited,
            model_of(byte_level),
            byte_level,
            "what the",
            prefix_allowed_tokens_fn=lambda _, ids: [only[(len(ids) - start) % 4]],
        )
    del events[:2]  # the policy and the guarantee
    assert [event.kind for event in events] == ["run_started", "intervention", "dead_end", "run_finished"]
    assert events[2].step == 3
    assert events[-1].error == "DeadEndError"


def test_a_text_that_the_verifier_rejects_is_not_returned(
    byte_level: Any, model_of: Any, doubting_guard_of: Any
) -> None:
    """Should masks and verifier ever disagree, nothing is returned."""
    guard = doubting_guard_of(StringRule(id="never", strings=("never",)))
    with pytest.raises(GenerationError, match="never"):
        generate(guard, model_of(byte_level), byte_level, "what the")
