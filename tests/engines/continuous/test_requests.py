"""Continuous batching where something is special: dead ends, records, wrong input, and steps that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, pipeline

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.engines.endings import settle
from nco_guard.engines.hf import StepReport
from nco_guard.engines.hf.continuous import ContinuousBatch, generate_batch
from nco_guard.engines.hf.requests import RequestsProcessor
from nco_guard.engines.recording import Recording
from nco_guard.engines.requests import GuardedRequest
from nco_guard.errors import DeadEndError, GenerationError, TokenizerError, UnsupportedError
from nco_guard.testing import random_model
from tests.engines.continuous.batches import BUDGETS, DEMO_PROMPTS, PROMPTS, small

# -- dead ends -------------------------------------------------------------------------------------------------


@pytest.fixture
def corner(byte_level: Any) -> Callable[..., Any]:
    """Only "x" can be written, and after the prompt "A" the policy forbids that."""
    (allowed,) = byte_level("x").input_ids
    suppressed = [index for index in range(len(byte_level)) if index != allowed]

    def run(**policy: Any) -> tuple[Iterator[Any], list[str], Any, MemorySink]:
        sink = MemorySink()
        rules = (RegexRule(id="r", regex="Ax", context="prompt"),)
        guard = Guard(Policy(name="corner", rules=rules, **policy), audit=sink)
        batch = ContinuousBatch(
            guard,
            random_model(byte_level, 3),
            byte_level,
            suppress_tokens=suppressed,
            max_new_tokens=6,
            continuous_batching_config=small(),
        )
        with batch:
            order = [batch.submit(prompt) for prompt in ("A", "B", "C")]
            found: dict[str, Any] = {}
            errors = []
            while len(found) + len(errors) < 3:
                try:
                    found |= {result.request_id: result for result in batch.results()}
                except DeadEndError as error:
                    errors.append(error)
        return [found.get(request) for request in order], errors, guard, sink  # type: ignore[return-value]

    return run


def test_a_dead_end_ends_its_request_alone(corner: Any) -> None:
    (none, first, last), errors, _, sink = corner()
    assert none is None
    assert len(errors) == 1
    assert first.text == last.text == "xxxxxx"
    ends = [event for event in sink.events if event.kind == "dead_end"]
    assert [(event.step, event.resolution) for event in ends] == [(0, "error")]
    failed = [event for event in sink.events if event.kind == "run_finished" and event.error]
    assert [event.error for event in failed] == ["DeadEndError"]


def test_the_policy_may_end_the_text_there(corner: Any) -> None:
    (cornered, first, last), errors, _, sink = corner(on_dead_end="end")
    assert not errors
    assert first.text == last.text == "xxxxxx"
    # Here the text may end, though another processor has masked the end.
    assert (cornered.text, cornered.outcome) == ("", "ended")
    assert [event.resolution for event in sink.events if event.kind == "dead_end"] == ["end"]


def test_or_write_its_fallback(corner: Any) -> None:
    (cornered, first, last), errors, _, sink = corner(on_dead_end="fallback", fallback=".")
    assert not errors
    assert first.text == last.text == "xxxxxx"
    assert cornered.text == ".xxxxx"
    assert [event.resolution for event in sink.events if event.kind == "dead_end"] == ["fallback"]


def test_generate_batch_raises_it(byte_level: Any) -> None:
    guard = Guard(Policy(name="none", rules=(StringRule(id="s", strings=("zq",)),)))
    with pytest.raises(DeadEndError, match="no token is left"):
        generate_batch(
            guard,
            random_model(byte_level, 3),
            byte_level,
            ["the", "a"],
            suppress_tokens=list(range(len(byte_level))),
            continuous_batching_config=small(),
        )


# -- reports and audit -----------------------------------------------------------------------------------------


def test_the_audit_log_says_what_that_of_generate_says(demo: Any) -> None:
    model, tokenizer = demo
    policy = Policy(name="digits", rules=(RegexRule(id="digits", regex=r"\d\d\d"),))

    def runs(record: Callable[[Guard], Any], *ends: str) -> list[list[tuple[Any, ...]]]:
        sink = MemorySink()
        record(Guard(policy, audit=sink))
        kept: dict[Any, list[tuple[Any, ...]]] = {}
        for event in sink.events:
            fields = event.model_dump(
                exclude={"run_id", "time", "monotonic_ns", "seconds", "removed_probability"}
            )
            if view := fields.get("decode_view"):
                assert view.pop("covered_ends") == ends  # how texts can end is all that the two differ in
            assert fields["number"] == len(kept.setdefault(event.run_id, []))
            kept[event.run_id].append(tuple(sorted(fields.items(), key=lambda item: item[0])))
        return list(kept.values())

    def one_by_one(guard: Guard) -> None:
        for prompt in DEMO_PROMPTS:
            guard.generate(model, tokenizer, prompt, max_new_tokens=30)

    def at_once(guard: Guard) -> None:
        generate_batch(guard, model, tokenizer, DEMO_PROMPTS, max_new_tokens=30)

    together = runs(at_once, "eos", "max_length")
    assert together == runs(one_by_one, "eos", "max_length", "stop_strings", "stopping_criteria")
    assert sum(dict(event)["kind"] == "intervention" for run in together for event in run) > 5


def test_the_sink_counts_requests(byte_level: Any, wanting: Any, guard: Any) -> None:
    reports: list[StepReport] = []
    result = generate_batch(
        guard,
        wanting(byte_level),
        byte_level,
        PROMPTS,
        max_new_tokens=BUDGETS,
        on_step=reports.append,
        # So few tokens at a time that requests begin one after the other.
        continuous_batching_config=small(max_batch_tokens=8, max_requests_per_batch=4),
    )
    steps: dict[int, list[int]] = {}
    for report in reports:
        for row, step in zip(report.rows, report.steps, strict=True):
            steps.setdefault(row, []).append(step)
    assert steps == {number: list(range(len(ids))) for number, ids in enumerate(result.token_ids)}


def test_a_sink_that_fails_stops_the_batch(byte_level: Any, wanting: Any, guard: Any) -> None:
    def broken(report: StepReport) -> None:
        if report.steps[0] == 2:
            raise RuntimeError("the sink is broken")

    with ContinuousBatch(
        guard, wanting(byte_level), byte_level, on_step=broken, continuous_batching_config=small()
    ) as batch:
        batch.submit("the")
        batch.submit("a")
        with pytest.raises(GenerationError, match="RuntimeError") as caught:
            list(batch.results())
        assert isinstance(caught.value.__cause__, RuntimeError)
        with pytest.raises(GenerationError):
            batch.submit("the")


# -- wrong input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_beams": 2}, "num_beams"),
        ({"stop_strings": ["."]}, "stop_strings"),
        ({"generation_config": GenerationConfig(stop_strings=["."])}, "stop_strings"),
        ({"min_new_tokens": 3}, "min_new_tokens"),
        ({"repetition_penalty": 1.2}, "repetition_penalty"),
        ({"prompt_lookup_num_tokens": 3}, "prompt_lookup_num_tokens"),
        ({"logits_processor": []}, "logits_processor"),
        ({"streamer": None}, "streamer"),
        ({"penalty_alpha": 0.5}, "penalty_alpha"),
        ({"forced_eos_token_id": 1}, "forced_eos_token_id"),
        ({"num_return_sequences": 0}, "num_return_sequences"),
        ({"max_new_tokens": 0}, "max_new_tokens"),
        ({"max_new_tokens": [3]}, "max_new_tokens"),
        ({"max_new_tokens": [3, 2.5]}, "max_new_tokens"),
        ({"max_length": 1}, "max_new_tokens"),
        ({"continuous_batching_config": small(use_async_batching=True)}, "use_async_batching"),
        ({"continuous_batching_config": small(use_cuda_graph=True)}, "use_cuda_graph"),
        ({"continuous_batching_config": small(use_cuda_graph=(False, True))}, "use_cuda_graph"),
        ({"continuous_batching_config": small(default_compile_level=1)}, "default_compile_level"),
        ({"continuous_batching_config": small(varlen_compile_config={})}, "varlen_compile_config"),
        ({"continuous_batching_config": {"page_size": 16}}, "continuous_batching_config"),
    ],
)
def test_what_would_not_hold_is_refused_by_name(
    byte_level: Any, guard: Any, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(UnsupportedError, match=named):
        generate_batch(guard, random_model(byte_level), byte_level, ["the", "a"], **options)


@pytest.mark.parametrize(
    "prompts", ["the", torch.tensor([[1, 2]]), [1, 2], [None], [[1, 10**6]], [[-1]], [[True]], [3.5], [[0.5]]]
)
def test_prompts_that_are_none(byte_level: Any, guard: Any, prompts: Any) -> None:
    with pytest.raises(UnsupportedError, match="prompt"):
        generate_batch(guard, random_model(byte_level), byte_level, prompts)


def test_every_form_of_a_prompt(byte_level: Any, wanting: Any, guard: Any) -> None:
    model, chat = wanting(byte_level), [{"role": "user", "content": "f"}]
    ids = byte_level("the").input_ids
    texts = generate_batch(
        guard, model, byte_level, ["the", ids, torch.tensor(ids), chat, [7]], max_new_tokens=8
    ).texts
    assert texts[0] == texts[1] == texts[2]
    assert texts[3:4] == guard.generate(model, byte_level, chat, max_new_tokens=8).texts
    assert generate_batch(guard, model, byte_level, []).texts == []
    with pytest.raises(UnsupportedError, match="empty prompt"):
        generate_batch(guard, model, byte_level, [""])


def test_options_of_single_requests(byte_level: Any, wanting: Any, guard: Any) -> None:
    model = wanting(byte_level)
    options = {"do_sample": True, "temperature": 2.0}
    with ContinuousBatch(
        guard, model, byte_level, continuous_batching_config=small(per_request_processors=True), **options
    ) as batch:
        cold = [batch.submit("the", max_new_tokens=12, temperature=1e-4) for _ in range(3)]
        hot = [batch.submit("the", max_new_tokens=12) for _ in range(3)]
        with pytest.raises(UnsupportedError, match="temperature"):
            batch.submit("the", temperature="hot")
        found = {result.request_id: result.text for result in batch.results()}
    greedy = guard.generate(model, byte_level, "the", max_new_tokens=12).texts[0]
    assert [found[request] for request in cold] == [greedy] * 3
    assert any(found[request] != greedy for request in hot)
    assert all(map(guard.clean, found.values()))


def test_models_that_cannot(byte_level: Any, guard: Any) -> None:
    with pytest.raises(UnsupportedError, match="decoder-only"):
        generate_batch(guard, random_model(byte_level, seq2seq=True), byte_level, ["the"])
    model = random_model(byte_level)
    config = GenerationConfig(max_new_tokens=2, eos_token_id=byte_level.eos_token_id)
    model.generate_batch(
        [[5]], generation_config=config, continuous_batching_config=small(), persistent_manager=True
    )
    with pytest.raises(UnsupportedError, match="destroy_cached_continuous_batching_manager"):
        generate_batch(guard, model, byte_level, ["the"])
    model.destroy_cached_continuous_batching_manager()
    assert generate_batch(guard, model, byte_level, ["the"], max_new_tokens=2).outcomes == ["length"]


def test_the_plain_processor_refuses_it(byte_level: Any, guard: Any) -> None:
    processor = guard.logits_processor(byte_level)
    with pytest.raises(UnsupportedError, match="ContinuousBatch"):
        processor(torch.tensor([5, 6]), torch.zeros(2, len(byte_level)))


def test_a_pipeline_does_too(byte_level: Any, guard: Any) -> None:
    pipe = guard.wrap(pipeline("text-generation", model=random_model(byte_level), tokenizer=byte_level))
    asked: list[bool] = []

    class Curious(type(pipe._pipe)):  # type: ignore[misc]
        def __call__(self, *_: Any, **__: Any) -> None:
            with pytest.raises(UnsupportedError, match=r"continuous\.generate_batch"):
                _ = self.model.generate_batch
            asked.append(True)

    pipe._pipe.__class__ = Curious
    pipe("the")
    assert asked


def test_a_batch_must_be_open(byte_level: Any, guard: Any) -> None:
    batch = ContinuousBatch(guard, random_model(byte_level), byte_level, continuous_batching_config=small())
    with pytest.raises(GenerationError, match="not open"):
        batch.submit("the")


def test_requests_that_do_not_fit_are_an_error(byte_level: Any, guard: Any) -> None:
    with pytest.raises(GenerationError, match="continuous batching failed"):
        generate_batch(
            guard,
            random_model(byte_level),
            byte_level,
            ["the " * 100],
            max_new_tokens=100,
            continuous_batching_config=small(num_blocks=4),
        )


# -- the processor ---------------------------------------------------------------------------------------------


def shown(request_id: str, generated: list[int]) -> Any:
    """As much of transformers' request as the processor looks at."""
    output = SimpleNamespace(request_id=request_id, generated_tokens=generated)
    return SimpleNamespace(state=SimpleNamespace(to_generation_output=lambda: output))


@pytest.fixture
def processor(byte_level: Any, guard: Any) -> RequestsProcessor:
    bound = guard.bind(byte_level)
    processor = RequestsProcessor(bound.vocabulary.width)
    for number, request in enumerate("ab"):
        processor.announce(request, GuardedRequest(number, bound, [5], 9, Recording(None, None)))
    return processor


def test_allowed_scores_and_rows_of_nobody_stay_bit_identical(
    processor: RequestsProcessor, byte_level: Any, guard: Any
) -> None:
    words = {"a": byte_level("what the fuc").input_ids, "b": byte_level("as").input_ids}
    numbers = processor.prepare_tensor_args([shown(name, ids) for name, ids in words.items()])
    scores = torch.randn(4, guard.bind(byte_level).vocabulary.width)
    result = processor(scores.clone(), torch.cat([numbers, torch.tensor([0, 7], dtype=torch.int32)]))
    for row, (name, ids) in enumerate(words.items()):
        session = guard.bind(byte_level).session()
        for token in ids:
            session.advance(token)
        mask = torch.from_numpy(session.mask(9 - len(ids) - 1))
        assert bool(mask.any()), name
        assert torch.equal(result[row] == -torch.inf, mask)
        assert torch.equal(result[row][~mask], scores[row][~mask])
    assert torch.equal(result[2:], scores[2:])


def test_scores_of_another_step_are_never_masked(
    processor: RequestsProcessor, byte_level: Any, guard: Any
) -> None:
    width = guard.bind(byte_level).vocabulary.width
    old = processor.prepare_tensor_args([shown("a", [])])
    new = processor.prepare_tensor_args([shown("b", [])])
    with pytest.raises(GenerationError, match="another step"):
        processor(torch.zeros(1, width), old)
    assert bool((processor(torch.zeros(1, width), new) == -torch.inf).any())
    with pytest.raises(GenerationError, match="another step"):
        processor(torch.zeros(1, width), new)
    with pytest.raises(TokenizerError, match="columns"):
        processor(torch.zeros(1, width + 1), new)


def test_requests_that_cannot_be_are_never_masked(processor: RequestsProcessor, byte_level: Any) -> None:
    with pytest.raises(GenerationError, match="does not know"):
        processor.prepare_tensor_args([shown("c", [])])
    with pytest.raises(GenerationError, match="after its end"):
        processor.prepare_tensor_args([shown("a", [byte_level.eos_token_id])])
    with pytest.raises(GenerationError, match="after its end"):
        processor.prepare_tensor_args([shown("b", [5] * 9)])


def test_a_request_into_which_a_token_was_forced_is_guarded_on(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    reports: list[Any] = []
    processor = RequestsProcessor(bound.vocabulary.width, reports.append)
    request = GuardedRequest(0, bound, [1], 30, Recording(None, None))
    processor.announce("a", request)
    k = byte_level("k", add_special_tokens=False).input_ids[0]
    fuc = byte_level("fuc", add_special_tokens=False).input_ids
    text = [*fuc, k, *byte_level(", what a ", add_special_tokens=False).input_ids, *fuc]
    for length in range(len(text) + 1):
        scores = torch.zeros(1, bound.vocabulary.width)
        processor(scores, processor.prepare_tensor_args([shown("a", text[:length])]))
        assert bool(scores[0, k] == -torch.inf) is (text[max(0, length - len(fuc)) : length] == fuc)
        assert bool(request.text.forced) is (length > len(fuc))
    told = [report.steps for report in reports if report.forced != [None]]
    assert told == [[len(fuc) + 1]]
    assert settle(bound, [1], text, None, 30) == (fuc, "violated")


def test_a_cancelled_request_may_be_in_one_more_step(processor: RequestsProcessor) -> None:
    processor.prepare_tensor_args([shown("a", []), shown("b", [])])
    processor.retire("a")
    processor.prepare_tensor_args([shown("a", [5]), shown("b", [5])])
    processor.prepare_tensor_args([shown("b", [5, 5])])
    with pytest.raises(GenerationError, match="does not know"):
        processor.prepare_tensor_args([shown("a", [5, 5])])


def test_a_state_follows_from_the_ids_even_where_they_change(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    request = GuardedRequest(0, bound, [5], 9, Recording(None, None))
    texts = ["wha", "what the f", "what the fu", "what the fu", "as", "", "555-1", "555-12"]
    for text in texts:
        ids = byte_level(text).input_ids
        state = bound.tables.start
        for token in ids:
            state = bound.tables.next(state, token)
        assert request.text.rewrite(bound.tables, ids) == state
