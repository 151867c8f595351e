"""Continuous batching with real models: requests of all lengths come and go, and not one text breaks the policy."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import torch
from transformers import GenerationConfig
from transformers.generation.continuous_batching.offloading_manager import OffloadingManager

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.engines.hf import StepReport
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.errors import GenerationError
from nco_guard.testing import random_model
from tests.engines.continuous.batches import BUDGETS, DEMO_PROMPTS, PROMPTS, singles, small

# The text may not end with a letter or a digit.
OPEN_END = RegexRule(id="end", regex=r"[a-zA-Z0-9]\Z")


@pytest.fixture(scope="module")
def pii() -> Guard:
    return Guard.from_presets("pii")


@pytest.fixture
def preemptions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests lost their cache, each time it was full."""
    seen: list[int] = []
    offload = OffloadingManager.offload_requests

    def spied(self: OffloadingManager) -> bool:
        before = len(self.scheduler.active_requests)
        result = offload(self)
        seen.append(before - len(self.scheduler.active_requests))
        return bool(result)

    monkeypatch.setattr(OffloadingManager, "offload_requests", spied)
    return seen


# -- no violation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_sample": True, "temperature": 1.5},
        {"do_sample": True, "top_k": 3, "top_p": 0.8, "min_p": 0.01, "renormalize_logits": True},
        {"do_sample": True, "num_return_sequences": 4},
    ],
)
def test_no_text_breaks_the_policy(options: dict[str, Any], tokenizer: Any, wanting: Any, guard: Any) -> None:
    torch.manual_seed(0)
    result = generate_batch(
        guard,
        wanting(tokenizer),
        tokenizer,
        PROMPTS * 2,
        max_new_tokens=BUDGETS * 2,
        continuous_batching_config=small(),
        **options,
    )
    answers = options.get("num_return_sequences", 1)
    budgets = [budget for budget in BUDGETS * 2 for _ in range(answers)]
    assert len(result.texts) == len(budgets)
    for text, ids, report, budget in zip(
        result.texts, result.token_ids, result.reports, budgets, strict=True
    ):
        assert report.ok
        assert guard.clean(text)
        assert text == tokenizer.decode(ids, skip_special_tokens=True)
        assert 0 < len(ids) <= budget
    assert not set(result.outcomes) & {"trimmed", "dead_end", "stopped"}


def test_unguarded_the_same_requests_break_it(tokenizer: Any, wanting: Any, guard: Any) -> None:
    """Else the other tests would prove nothing."""
    config = GenerationConfig(do_sample=True, max_new_tokens=33, eos_token_id=tokenizer.eos_token_id)
    outputs = wanting(tokenizer).generate_batch(
        [tokenizer(prompt).input_ids for prompt in PROMPTS * 2],
        generation_config=config,
        continuous_batching_config=small(seed=0),
    )
    texts = [tokenizer.decode(o.generated_tokens, skip_special_tokens=True) for o in outputs.values()]
    assert sum(not guard.clean(text) for text in texts) >= 4


def test_tables_replaced_under_way_change_nothing(
    byte_level: Any, wanting: Any, guard_of: Any, guard: Any
) -> None:
    """States are replayed from the ids of each request, at each replacement."""
    own, model, seen = guard_of(*guard.policy.rules), wanting(byte_level), []
    bound = own.bind(byte_level, vocab_width=len(byte_level), eos_token_ids=[byte_level.eos_token_id])

    def forget(report: StepReport) -> None:
        seen.append(bound.tables)
        seen[-1].full = len(seen) % 5 == 0

    result = generate_batch(
        own,
        model,
        byte_level,
        PROMPTS,
        max_new_tokens=BUDGETS,
        on_step=forget,
        continuous_batching_config=small(max_batch_tokens=8, max_requests_per_batch=4),
    )
    assert len(set(map(id, seen))) > 3
    assert result.token_ids == singles(guard, model, byte_level, PROMPTS, BUDGETS)


# -- what it generates is what `generate` does -----------------------------------------------------------------


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_greedy_requests_equal_greedy_singles(demo: Any, pii: Guard, attention: str) -> None:
    (model, tokenizer), guard = demo, pii
    budgets = [5, 30, 17, 48, 24]
    model.set_attn_implementation(attention)
    try:
        result = generate_batch(guard, model, tokenizer, DEMO_PROMPTS, max_new_tokens=budgets)
        assert result.token_ids == singles(guard, model, tokenizer, DEMO_PROMPTS, budgets)
        assert model.config._attn_implementation == attention
    finally:
        model.set_attn_implementation("sdpa")
    assert {"ended", "length"} == set(result.outcomes)
    assert [output.generated_tokens for output in result.output] == result.token_ids


def test_prompts_that_come_in_pieces(demo: Any, pii: Guard) -> None:
    """With eight tokens a step, long prompts wait while others already generate."""
    (model, tokenizer), guard = demo, pii
    prompts = [
        DEMO_PROMPTS[0],
        "Please answer this rather long message from a customer: call me, or " + "x" * 40,
    ]
    assert len(tokenizer(prompts[1]).input_ids) > 24
    prompts, budgets = [*prompts, DEMO_PROMPTS[1]], [20, 20, 20]
    result = generate_batch(
        guard,
        model,
        tokenizer,
        prompts,
        max_new_tokens=20,
        continuous_batching_config=small(max_batch_tokens=8, max_requests_per_batch=4),
    )
    assert result.token_ids == singles(guard, model, tokenizer, prompts, budgets)


@pytest.mark.parametrize("context", ["output", "prompt"])
def test_requests_that_lose_their_cache(demo: Any, pii: Guard, preemptions: list[int], context: str) -> None:
    """They come back as longer prompts; what they had generated still counts, for rules and for the budget."""
    model, tokenizer = demo
    rules = (RegexRule(id="hard", regex=r"(?i)(?:phone|at|to).{0,12}?\d\d", context="prompt"),)
    guard = pii if context == "output" else Guard(Policy(name="prompt", rules=rules))
    prompts, budgets = DEMO_PROMPTS[:3], [60, 48, 56]
    result = generate_batch(
        guard,
        model,
        tokenizer,
        prompts * 3,
        max_new_tokens=budgets * 3,
        continuous_batching_config=small(num_blocks=10, allow_block_sharing=False),
    )
    assert sum(preemptions) >= 2
    assert result.token_ids == singles(guard, model, tokenizer, prompts, budgets) * 3


def test_equal_prompts_share_their_cache(demo: Any, pii: Guard) -> None:
    (model, tokenizer), guard = demo, pii
    result = generate_batch(
        guard, model, tokenizer, [DEMO_PROMPTS[0] * 4] * 3, max_new_tokens=24, num_return_sequences=2
    )
    assert len(result.texts) == 6
    assert len(set(result.texts)) == 1
    assert result.token_ids[:1] == singles(guard, model, tokenizer, [DEMO_PROMPTS[0] * 4], [24])


def test_soft_rules_and_prompts_count_as_in_generate(demo: Any) -> None:
    model, tokenizer = demo
    rules = (
        RegexRule(id="soft", regex=r"\d\d\d", penalty=4.0),
        RegexRule(id="hard", regex=r"(?i)(?:phone|at|to).{0,12}?\d\d", context="prompt"),
    )
    guard = Guard(Policy(name="both", rules=rules))
    result = generate_batch(guard, model, tokenizer, DEMO_PROMPTS, max_new_tokens=32)
    assert result.token_ids == singles(guard, model, tokenizer, DEMO_PROMPTS, [32] * 5)
    for prompt, text in zip(DEMO_PROMPTS, result.texts, strict=True):
        assert re.search(rules[1].regex, prompt + text) is None
    alone = generate_batch(
        Guard(Policy(name="one", rules=rules[:1])), model, tokenizer, DEMO_PROMPTS, max_new_tokens=32
    )
    free = generate_batch(
        Guard(Policy(name="none", rules=(StringRule(id="s", strings=("zqzq",)),))),
        model,
        tokenizer,
        DEMO_PROMPTS,
        max_new_tokens=32,
    )
    assert len({tuple(r.texts) for r in (result, alone, free)}) == 3


# -- ends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampled", [False, True])
def test_each_request_ends_well_within_its_own_budget(tokenizer: Any, sampled: bool) -> None:
    """Tokens after which the text could not end in time are masked, by what this very request has left."""
    guard = Guard(Policy(name="end", rules=(OPEN_END, StringRule(id="s", strings=(". ", ".,")))))
    budgets = list(range(1, 13)) * 2
    result = generate_batch(
        guard,
        random_model(tokenizer, 5),
        tokenizer,
        ["the"] * len(budgets),
        max_new_tokens=budgets,
        do_sample=sampled,
        continuous_batching_config=small(),
    )
    assert set(result.outcomes) <= {"ended", "length"}
    for text, ids, budget in zip(result.texts, result.token_ids, budgets, strict=True):
        assert len(ids) <= budget
        assert re.search(OPEN_END.regex, text) is None
    lengths = [
        len(ids)
        for ids, outcome in zip(result.token_ids, result.outcomes, strict=True)
        if outcome == "length"
    ]
    assert len(set(lengths)) > 3


def test_each_request_has_its_own_ends_of_sequence(demo: Any) -> None:
    model, tokenizer = demo
    guard, prompt = Guard.from_presets("ldnoobw"), tokenizer(DEMO_PROMPTS[1]).input_ids
    with ContinuousBatch(
        guard, model, tokenizer, max_new_tokens=24, continuous_batching_config=small()
    ) as batch:
        free = batch.submit(prompt)
        first = next(iter(batch.results())).token_ids
        stops = [first[3], next(token for token in first[4:] if token not in first[:4])]
        requests = {free: None, batch.submit(prompt): None}
        requests |= {batch.submit(prompt, eos_token_id=stop): [stop] for stop in stops}
        requests[batch.submit(prompt, eos_token_id=stops)] = stops
        found = {result.request_id: result for result in batch.results()}
    del requests[free]
    for request, ends in requests.items():
        alone = guard.generate(model, tokenizer, torch.tensor(prompt), max_new_tokens=24, eos_token_id=ends)
        assert found[request].token_ids == alone.token_ids[0]
        assert found[request].outcome == alone.outcomes[0] == "ended"
        assert found[request].text == alone.texts[0]
    assert len({len(found[request].token_ids) for request in requests}) >= 3


def test_limits_follow_transformers(byte_level: Any) -> None:
    guard = Guard(Policy(name="end", rules=(StringRule(id="s", strings=("zq",)),)))
    model, prompt = random_model(byte_level, 4), byte_level("the quick").input_ids
    length = len(prompt)
    for options, limit in [
        ({}, 20),
        ({"max_length": length + 3}, 3),
        ({"generation_config": GenerationConfig(max_new_tokens=5)}, 5),
        ({"generation_config": GenerationConfig(max_new_tokens=5), "max_new_tokens": 4}, 4),
    ]:
        (ids,) = generate_batch(guard, model, byte_level, [prompt], **options).token_ids
        assert len(ids) == limit


# -- joining and leaving ---------------------------------------------------------------------------------------


def test_requests_join_while_others_generate(tokenizer: Any, wanting: Any, guard: Any) -> None:
    seen: dict[str, Any] = {}
    with ContinuousBatch(
        guard, wanting(tokenizer), tokenizer, do_sample=True, continuous_batching_config=small(seed=1)
    ) as batch:
        order = [batch.submit(prompt, max_new_tokens=40) for prompt in PROMPTS]
        for result in batch.results():
            seen[result.request_id] = result
            if len(order) < 14:
                order.append(batch.submit(PROMPTS[len(order) % 5], max_new_tokens=3 + len(order)))
    assert len(seen) == len(set(order)) == 14
    assert all(guard.clean(result.text) and result.report.ok for result in seen.values())


def test_threads_may_submit(byte_level: Any, wanting: Any, guard: Any) -> None:
    model, ids = wanting(byte_level), []
    with ContinuousBatch(guard, model, byte_level, continuous_batching_config=small()) as batch:

        def ask(prompt: str) -> None:
            ids.extend((batch.submit(prompt, max_new_tokens=budget), prompt, budget) for budget in (3, 9))

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in PROMPTS[:4]]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = {result.request_id: result.token_ids for result in batch.results()}
    wanted = singles(guard, model, byte_level, [p for _, p, _ in ids], [b for _, _, b in ids])
    assert [found[request] for request, _, _ in ids] == wanted


def test_cancelled_requests_leave_the_others_alone(byte_level: Any, wanting: Any, guard: Any) -> None:
    model = wanting(byte_level)
    with ContinuousBatch(guard, model, byte_level, continuous_batching_config=small()) as batch:
        long = [batch.submit("the", max_new_tokens=900 + number) for number in range(3)]
        kept = [batch.submit("the", max_new_tokens=limit) for limit in (2, 30, 60)]
        batch.cancel("nobody")
        found = {}
        for result in batch.results():
            found[result.request_id] = result.token_ids
            batch.cancel(result.request_id)
            batch.cancel(long[len(found) - 1])
    assert found == dict(zip(kept, singles(guard, model, byte_level, ["the"] * 3, [2, 30, 60]), strict=True))


def test_leaving_early_gives_the_rest_up(byte_level: Any, wanting: Any, guard_of: Any, guard: Any) -> None:
    sink, before = MemorySink(), set(threading.enumerate())
    recorded = guard_of(*guard.policy.rules, audit=sink)
    model = wanting(byte_level)
    with ContinuousBatch(recorded, model, byte_level, continuous_batching_config=small()) as batch:
        batch.submit("the", max_new_tokens=900)
        short = batch.submit("the", max_new_tokens=2)
        assert next(batch.results()).request_id == short
    assert set(threading.enumerate()) <= before
    ends = [event for event in sink.events if event.kind == "run_finished"]
    assert sorted((event.error or "", event.outcomes) for event in ends) == [
        ("", ("length",)),
        ("GenerationError", ()),
    ]
    with pytest.raises(GenerationError, match="opened before"):
        batch.__enter__()
    assert generate_batch(guard, model, byte_level, ["the"], max_new_tokens=2).outcomes == ["length"]
