"""Each prompt of a batch under a guard of its own: the text is what that guard alone would have let through."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from transformers import ContinuousBatchingConfig, LogitsProcessorList

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.demo import load
from nco_guard.engines.hf import GuardLogitsProcessor, StepReport
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.errors import AuditError, DeadEndError, GenerationError, TokenizerError, UnsupportedError
from nco_guard.testing import biased_model, random_model, tiny_tokenizer

# What the models of these tests write otherwise, in every mode.
FIVES = StringRule(id="fives", strings=("555", "fé"))
VOWELS = RegexRule(id="vowels", regex="[aeiou]")
FIVE = StringRule(id="five", strings=("5", "the"))
# The text may not end with a letter or a digit.
OPEN_END = RegexRule(id="end", regex=r"[a-zA-Z0-9]\Z")
PROMPT = "what the"


@pytest.fixture(scope="module")
def four(guard_of: Any) -> list[Any]:
    """Guards of four policies, the last of which forbids next to nothing."""
    return [
        guard_of(FIVES),
        guard_of(
            VOWELS,
        ),
        guard_of(FIVE, OPEN_END),
        guard_of(StringRule(id="x", strings=("~~~",))),
    ]


def same_prompts(tokenizer: Any, count: int) -> torch.Tensor:
    return torch.tensor([tokenizer(PROMPT).input_ids] * count)


def check(result: Any, guards: list[Any]) -> None:
    answers = len(result.texts) // len(guards)
    for number, text in enumerate(result.texts):
        guard = guards[number // answers]
        assert guard.clean(text)
        assert result.reports[number].policy_digest == guard.policy.digest
        assert result.reports[number].ok


# -- alone and together ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3},
        {"num_beams": 4, "num_return_sequences": 3},
        {"use_cache": False},
        {"repetition_penalty": 1.4, "min_new_tokens": 5},
        {"stop_strings": ["a"]},
    ],
    ids=str,
)
def test_one_prompt_under_four_guards_is_as_under_each_alone(
    options: dict[str, Any], tokenizer: Any, model_of: Any, four: list[Any]
) -> None:
    """The ids of the rows are equal at first, and only the guards tell them apart."""
    model = model_of(tokenizer)
    order = [four[0], None, four[2], four[3], four[0]]
    together = four[1].generate(
        model, tokenizer, same_prompts(tokenizer, 5), guards=order, max_new_tokens=25, **options
    )
    guards = [guard or four[1] for guard in order]
    alone = [
        guard.generate(model, tokenizer, same_prompts(tokenizer, 1), max_new_tokens=25, **options)
        for guard in guards
    ]
    check(together, guards)
    assert together.texts == [text for result in alone for text in result.texts]
    assert together.token_ids == [ids for result in alone for ids in result.token_ids]
    assert together.outcomes == [outcome for result in alone for outcome in result.outcomes]
    assert len(set(together.texts)) > 2, "the policies matter"


@pytest.mark.parametrize(
    "options",
    [
        {"do_sample": True, "num_return_sequences": 4, "temperature": 1.5},
        {"do_sample": True, "num_beams": 3},
        {"do_sample": True, "top_k": 4, "renormalize_logits": True},
        {"num_beams": 2, "early_stopping": True},
    ],
    ids=str,
)
def test_each_text_keeps_its_own_policy(
    options: dict[str, Any], tokenizer: Any, model_of: Any, four: list[Any]
) -> None:
    prompts = [PROMPT, "f", "a class of passengers said", PROMPT]
    broken = 0
    for seed in range(3):
        torch.manual_seed(seed)
        result = four[0].generate(
            model_of(tokenizer), tokenizer, prompts, guards=four, max_new_tokens=30, **options
        )
        check(result, four)
        broken += any(not four[0].clean(text) for text in result.texts)
    assert broken, "what one guard forbids, another lets through"


def test_drafts_under_one_guard_in_a_list(byte_level: Any, model_of: Any, four: list[Any]) -> None:
    model, prompt = model_of(byte_level), same_prompts(byte_level, 1)
    expected = four[1].generate(model, byte_level, prompt, max_new_tokens=25).texts
    for options in ({"prompt_lookup_num_tokens": 4}, {"assistant_model": model_of(byte_level, 2)}):
        result = four[0].generate(model, byte_level, prompt, guards=[four[1]], max_new_tokens=25, **options)
        assert result.texts == expected


def test_encoder_decoder_rows_begin_with_equal_ids(four: list[Any]) -> None:
    tokenizer = tiny_tokenizer("unigram")
    model = biased_model(tokenizer, ("fuck", "jo@enron.com", "ass"), seq2seq=True)
    for options in ({}, {"num_beams": 3, "num_return_sequences": 2}):
        result = four[0].generate(
            model, tokenizer, ["what the"] * 4, guards=four, max_new_tokens=20, **options
        )
        check(result, four)
        alone = [
            guard.generate(model, tokenizer, ["what the"], max_new_tokens=20, **options).texts
            for guard in four
        ]
        assert result.texts == [text for texts in alone for text in texts]


def test_replaced_tables_change_no_text(
    byte_level: Any, model_of: Any, guard_of: Any, four: list[Any]
) -> None:
    model, prompts = model_of(byte_level), same_prompts(byte_level, 4)
    expected = four[0].generate(model, byte_level, prompts, guards=four, max_new_tokens=25)
    small = [guard_of(*guard.policy.rules, memory_limit=1) for guard in four]
    result = small[0].generate(model, byte_level, prompts, guards=small, max_new_tokens=25)
    assert result.texts == expected.texts


# -- what is a guard's own -------------------------------------------------------------------------------------


def test_only_rules_that_read_the_prompt_see_it(byte_level: Any) -> None:
    """One policy forbids what its prompt has begun, one does not look, and a third has another prompt before it."""
    model = biased_model(byte_level, ("zz",), 1)
    z = byte_level("z").input_ids
    reads, blind = (
        Guard(Policy(name=context, rules=(StringRule(id="z", strings=("zz",), context=context),)))
        for context in ("prompt", "output")
    )
    prompts = torch.tensor([z, z, byte_level("y").input_ids])
    result = reads.generate(model, byte_level, prompts, guards=[reads, blind, reads], max_new_tokens=3)
    assert [text.startswith("z") for text in result.texts[:2]] == [False, True]
    alone = [reads.generate(model, byte_level, prompts[at : at + 1], max_new_tokens=3) for at in (0, 2)]
    assert result.texts[::2] == [one.texts[0] for one in alone]


def test_the_last_token_ends_the_text_where_the_own_policy_asks_for_it(
    byte_level: Any, model_of: Any, four: list[Any]
) -> None:
    result = four[0].generate(
        model_of(byte_level),
        byte_level,
        same_prompts(byte_level, 8),
        guards=[four[3], four[2]] * 4,
        max_new_tokens=7,
    )
    assert all(text and not text[-1].isalnum() for text in result.texts[1::2])
    assert any(text[-1].isalnum() for text in result.texts[::2])


class _Nothing:
    """Masks everything from some step on."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf) if input_ids.shape[1] >= self.length else scores


def dead_ends(byte_level: Any) -> tuple[Any, Guard, Guard, Guard]:
    model = random_model(byte_level, seed=3)

    def named(**options: Any) -> Guard:
        return Guard(Policy(name="corner", rules=(StringRule(id="s", strings=("zq",)),), **options))

    return model, named(on_dead_end="end"), named(on_dead_end="fallback", fallback="k"), named()


def test_dead_ends_are_resolved_by_the_own_policy(byte_level: Any) -> None:
    model, ends, falls, raises = dead_ends(byte_level)
    prompts = same_prompts(byte_level, 3)
    options: dict[str, Any] = {
        "max_new_tokens": 6,
        "logits_processor": [_Nothing(prompts.shape[1] + 3)],
    }
    result = ends.generate(model, byte_level, prompts, guards=[None, falls, ends], **options)
    assert [len(ids) for ids in result.token_ids] == [4, 6, 4]
    assert result.texts[1].endswith("kkk")
    with pytest.raises(DeadEndError, match=r"row 1.*on_dead_end: raise"):
        ends.generate(model, byte_level, prompts, guards=[ends, raises, falls], **options)


def test_the_verifier_of_each_text_is_its_own_guard(
    byte_level: Any, model_of: Any, doubting_guard_of: Any, four: list[Any]
) -> None:
    doubting = doubting_guard_of(StringRule(id="never", strings=("never",)))
    model, prompts = model_of(byte_level), same_prompts(byte_level, 2)
    doubting.generate(model, byte_level, prompts, guards=[four[0], four[1]], max_new_tokens=5)
    with pytest.raises(GenerationError, match="never"):
        doubting.generate(model, byte_level, prompts, guards=[four[0], None], max_new_tokens=5)


# -- the record ------------------------------------------------------------------------------------------------


def events_of(sink: MemorySink) -> list[Any]:
    """Events without what differs from run to run."""
    return [event.model_dump(exclude={"run_id", "time", "monotonic_ns", "seconds"}) for event in sink.events]


@pytest.mark.parametrize("options", [{}, {"num_beams": 3, "num_return_sequences": 2}], ids=str)
def test_each_guard_records_its_own_prompts_as_if_they_were_alone(
    options: dict[str, Any], byte_level: Any, model_of: Any, guard_of: Any
) -> None:
    """Also in rows between which others stand, and whether or not the others have a log."""
    model = model_of(byte_level)
    rules = ((FIVES,), (VOWELS,), (FIVE, OPEN_END))
    together = [MemorySink(), MemorySink()]
    guards = [
        guard_of(*rules[0], audit=together[0]),
        guard_of(*rules[1], audit=together[1]),
        guard_of(*rules[2]),
    ]
    seen: list[StepReport] = []
    guards[2].generate(
        model,
        byte_level,
        same_prompts(byte_level, 5),
        guards=[guards[1], guards[0], None, guards[1], guards[0]],
        max_new_tokens=25,
        on_step=seen.append,
        **options,
    )
    for number, sink in enumerate(together):
        alone = MemorySink()
        guard_of(*rules[number], audit=alone).generate(
            model, byte_level, same_prompts(byte_level, 2), max_new_tokens=25, **options
        )
        found, expected = events_of(sink), events_of(alone)
        if options:
            # Beams of a prompt that is done are scored on as long as another prompt's are not.
            found, expected = (
                [e | {"interventions": 0, "number": 0} for e in events if e["kind"] != "intervention"]
                for events in (found, expected)
            )
            assert found == expected
            continue
        keys = (
            "kind",
            "sequence",
            "step",
            "rule_ids",
            "first_allowed_rank",
            "number",
            "outcomes",
            "policy_digest",
        )
        assert [[e.get(key) for key in keys] for e in found] == [
            [e.get(key) for key in keys] for e in expected
        ]
        assert any(e["kind"] == "intervention" for e in found)
        assert found[0]["policy_digest"] == guards[number].policy.digest
        runs = [event for event in sink.events if event.kind not in ("policy_loaded", "guarantee_configured")]
        assert {event.run_id for event in runs} == {runs[0].run_id}
    assert all(report.rows == sorted(report.rows) for report in seen)
    assert len(seen[0].rows) == 5 * options.get("num_beams", 1)
    assert not any(mass != mass for report in seen for mass in report.removed_mass)


def test_a_log_that_fails_ends_every_run(byte_level: Any, model_of: Any, guard_of: Any) -> None:
    sink = MemorySink()

    def broken(event: Any) -> None:
        if event.kind == "run_started":
            raise OSError("the disk is full")

    good, bad = guard_of(FIVES, audit=sink), guard_of(VOWELS, audit=broken)
    with pytest.raises(AuditError, match="OSError"):
        good.generate(model_of(byte_level), byte_level, same_prompts(byte_level, 2), guards=[good, bad])
    kinds = ["policy_loaded", "guarantee_configured", "run_started", "run_finished"]
    assert [event.kind for event in sink.events] == kinds
    assert sink.events[-1].error == "AuditError"


# -- wrong input -----------------------------------------------------------------------------------------------


def test_wrong_guards_are_refused_before_anything_runs(
    byte_level: Any, four: list[Any], monkeypatch: Any
) -> None:
    model = random_model(byte_level)

    def never(*args: Any, **options: Any) -> None:
        raise AssertionError("the model ran")

    monkeypatch.setattr(model, "forward", never)
    for guards, named in (
        (four[:2], "2 guards for 3 prompts"),
        ([], "0 guards for 3 prompts"),
        (four[0], "give a list"),
        ("abc", "give a list"),
        ([*four[:2], four[0].policy], r"guards\[2\]: Policy"),
        ([four[0].bind(byte_level), None, None], r"guards\[0\]: BoundGuard"),
    ):
        for way in (four[0].generate, partial(generate_batch, four[0])):
            with pytest.raises(UnsupportedError, match=named):
                way(model, byte_level, ["a", "b", "c"], guards=guards)
    with pytest.raises(UnsupportedError, match="a stream has one prompt"):
        next(four[0].stream(model, byte_level, "a", guards=[None]))


def test_a_processor_takes_guards_of_one_vocabulary(byte_level: Any, four: list[Any]) -> None:
    bound = four[0].bind(byte_level)
    with pytest.raises(TokenizerError, match=r"bound\[1\]: bound to another vocabulary"):
        GuardLogitsProcessor([bound, four[1].bind(tiny_tokenizer("byte-fallback"))])
    with pytest.raises(UnsupportedError, match=r"bound\[1\]: CheckedGuard is no bound guard"):
        GuardLogitsProcessor([bound, four[1]])
    with pytest.raises(UnsupportedError, match="at least one"):
        GuardLogitsProcessor([])


def test_a_processor_for_several_prompts_serves_plain_generate(
    byte_level: Any, model_of: Any, four: list[Any]
) -> None:
    processor = four[0].logits_processor(byte_level, guards=[None, four[1]], max_new_tokens=25)
    prompts = same_prompts(byte_level, 2)
    for options in ({}, {"num_beams": 3}, {"do_sample": True, "num_return_sequences": 4}):
        output = model_of(byte_level).generate(
            prompts, max_new_tokens=25, logits_processor=LogitsProcessorList([processor]), **options
        )
        texts = byte_level.batch_decode(output[:, prompts.shape[1] :], skip_special_tokens=True)
        half = len(texts) // 2
        assert all(four[0].clean(text) for text in texts[:half])
        assert all(four[1].clean(text) for text in texts[half:])
        processor.reset()


# -- continuous batching ---------------------------------------------------------------------------------------


def test_requests_of_a_continuous_batch_have_guards_of_their_own() -> None:
    model, tokenizer = load()
    sinks = [MemorySink(), MemorySink()]
    guards = [
        Guard.from_presets("pii", audit=sinks[0]),
        Guard(Policy(name="vowels", rules=(VOWELS,)), audit=sinks[1]),
    ]
    prompts = ["Dear Maria, my phone", "Call me at", "Dear Maria, my phone", "Write to"]
    own = [guards[0], guards[1], guards[1], None]
    expected = [
        (guard or guards[0]).generate(model, tokenizer, prompt, max_new_tokens=20)
        for guard, prompt in zip(own, prompts, strict=True)
    ]
    before = [len(sink.events) for sink in sinks]
    result = generate_batch(guards[0], model, tokenizer, prompts, guards=own, max_new_tokens=20)
    assert result.token_ids == [one.token_ids[0] for one in expected]
    assert result.outcomes == [one.outcomes[0] for one in expected]
    assert [report.policy_digest for report in result.reports] == [
        (guard or guards[0]).policy.digest for guard in own
    ]
    assert not set(result.texts[1] + result.texts[2]) & set("aeiou")
    for sink, guard, old in zip(sinks, guards, before, strict=True):
        started = [event for event in sink.events[old:] if event.kind == "run_started"]
        assert [event.policy_digest for event in started] == [guard.policy.digest] * 2

    cache = ContinuousBatchingConfig(page_size=16, num_blocks=64, max_batch_tokens=128)
    with ContinuousBatch(guards[0], model, tokenizer, continuous_batching_config=cache) as batch:
        with pytest.raises(UnsupportedError, match="Policy is no guard"):
            batch.submit("Call me at", guard=guards[1].policy)
        first = batch.submit("Call me at", guard=guards[1], max_new_tokens=20)
        batch.submit("Write to", max_new_tokens=20)
        found = {one.request_id: one for one in batch.results()}
    assert found.pop(first).token_ids == expected[1].token_ids[0]
    assert [one.token_ids for one in found.values()] == [expected[3].token_ids[0]]
