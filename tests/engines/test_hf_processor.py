"""The logits processor by itself: what it writes, what it leaves alone, and how it fails."""

import copy
import math
import random
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, pipeline

from nco_guard import Guard
from nco_guard.engines.hf import (
    DeviceLogitsProcessor,
    GuardLogitsProcessor,
    StepReport,
    generate,
    stream,
    wrap,
)
from nco_guard.engines.hf.requests import RequestsProcessor
from nco_guard.engines.recording import Recording
from nco_guard.engines.requests import GuardedRequest
from nco_guard.errors import (
    DeadEndError,
    ForcedTokenWarning,
    GenerationError,
    TokenizerError,
    UnsupportedError,
)

INF = -math.inf


def scores_for(bound: Any, rows: int = 1, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, bound.vocabulary.width, generator=torch.Generator().manual_seed(seed))


def ids_of(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False).input_ids)


def test_forbidden_columns_are_minus_infinity_and_the_rest_is_bit_identical(
    byte_level: Any, guard: Any
) -> None:
    bound = guard.bind(byte_level)
    processor = GuardLogitsProcessor(bound)
    prompt, text = ids_of(byte_level, "the"), ids_of(byte_level, "what fuc")
    for length in range(len(prompt), len(prompt) + len(text) + 1):
        ids = torch.tensor([[*prompt, *text][:length]])
        scores = scores_for(bound)
        before = scores.clone()
        result = processor(ids, scores)
        state = bound.tables.start
        for token in text[: length - len(prompt)]:
            state = bound.tables.next(state, token)
        forbidden = torch.zeros(bound.vocabulary.width, dtype=torch.bool)
        forbidden[bound.tables.forbidden(state).tolist()] = True
        assert torch.equal(result[0] == INF, forbidden)
        assert torch.equal(result[0][~forbidden], before[0][~forbidden])
        assert torch.equal(scores, before), "transformers may keep this tensor"
    assert forbidden[ids_of(byte_level, "k")[0]]


def test_in_place_writes_into_the_scores_contiguous_or_not(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    ids = torch.tensor([ids_of(byte_level, "the")] * 2)
    expected = GuardLogitsProcessor(bound)(ids, scores_for(bound, 2))
    for scores in (scores_for(bound, 2), torch.stack([scores_for(bound, 2)] * 3, dim=2)[:, :, 1]):
        assert GuardLogitsProcessor(bound, in_place=True)(ids, scores) is scores
        assert torch.equal(scores, expected)


def test_another_width_is_an_error_that_names_both(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    width = bound.vocabulary.width
    with pytest.raises(TokenizerError, match=f"{width + 8} columns .* {width}"):
        GuardLogitsProcessor(bound)(torch.tensor([[1]]), torch.zeros(1, width + 8))


def test_padding_columns_of_wider_logits_are_forbidden(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level, vocab_width=len(byte_level) + 8)
    result = GuardLogitsProcessor(bound)(torch.tensor([[1]]), scores_for(bound))
    assert torch.equal(result[0, -8:], torch.full((8,), INF))


def test_no_token_left_is_an_error_and_never_token_zero(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    prompt = ids_of(byte_level, "the")
    scores = torch.full((2, bound.vocabulary.width), INF)
    only = ids_of(byte_level, "k")[0]
    scores[0, :] = 0.0
    scores[1, only] = 1.0
    processor = GuardLogitsProcessor(bound)
    processor(torch.tensor([prompt, prompt]), torch.zeros_like(scores))
    for length in range(1, 4):
        ids = torch.tensor([[*prompt, *ids_of(byte_level, text)[:length]] for text in ("was", "fuc")])
        if length < 3:
            processor(ids, torch.zeros_like(scores))
    with pytest.raises(DeadEndError, match=r"row 1"):
        processor(ids, scores)
    beams = GuardLogitsProcessor(bound, beams=2)
    for length in range(len(prompt), ids.shape[1]):
        beams(ids[:, :length], torch.zeros_like(scores))
    result = beams(ids, scores)
    assert bool((result[1] == INF).all()), "one dead beam of two is no dead end"


def test_the_last_token_of_a_prompt_is_no_way_out_of_a_dead_end(byte_level: Any, guard: Any) -> None:
    """It may be a special token, like the pads that a row gets after it was stopped from outside."""
    bound = guard.bind(byte_level)
    special = next(iter(bound.vocabulary.silent_ids - set(bound.vocabulary.eos_ids)))
    scores = torch.full((1, bound.vocabulary.width), INF)
    prompt = torch.tensor([[*ids_of(byte_level, "the"), special]])
    with pytest.raises(DeadEndError, match=r"row 0"):
        GuardLogitsProcessor(bound)(prompt, scores.clone())
    tables = bound.device_tables("cpu")
    processor = DeviceLogitsProcessor(bound, tables, engine_ends=True)
    processor(prompt, scores.clone())
    with pytest.raises(DeadEndError, match=r"row 0"):
        processor.check()


def test_nothing_can_be_added_after_the_end(byte_level: Any, guard: Any) -> None:
    """Where the engine does not stop at an end-of-sequence of the vocabulary, the text stays as it was."""
    bound = guard.bind(byte_level)
    prompt = ids_of(byte_level, "the")
    processor = GuardLogitsProcessor(bound)
    scores = scores_for(bound)
    processor(torch.tensor([prompt]), scores)
    ended = torch.tensor([[*prompt, byte_level.eos_token_id]])
    allowed = (processor(ended, scores)[0] > INF).nonzero().ravel().tolist()
    assert allowed == list(bound.vocabulary.special_ids)
    scores[:, allowed] = INF
    again = torch.cat([ended, torch.tensor([[byte_level.pad_token_id]])], dim=1)
    assert (processor(again, scores)[0] > INF).nonzero().ravel().tolist() == allowed


def test_a_row_into_which_somebody_forced_a_token_is_guarded_on_and_told_once(
    byte_level: Any, guard: Any
) -> None:
    bound = guard.bind(byte_level)
    reports: list[StepReport] = []
    processor = GuardLogitsProcessor(bound, on_step=reports.append)
    prompt, k = ids_of(byte_level, "the"), ids_of(byte_level, "k")[0]
    first = [*ids_of(byte_level, "fuc"), k]
    ids = [*prompt, *first, *ids_of(byte_level, ", what the "), *ids_of(byte_level, "fuc")]
    scores = scores_for(bound)
    with pytest.warns(ForcedTokenWarning, match=r"row 0: .*'strings'.*guarded") as told:  # noqa: PT031
        for length in range(len(prompt), len(ids) + 1):
            result = processor(torch.tensor([ids[:length]]), scores)
    assert len(told) == 1
    assert bool(result[0, k] == INF)
    assert [report.steps[0] for report in reports if report.forced != [None]] == [len(first)]
    assert reports[len(first)].forced == [("strings",)]
    assert __file__ == told[0].filename, "it points at who called"


def test_a_processor_that_forces_every_token_does_not_silence_the_report(
    byte_level: Any, guard: Any, model_of: Any
) -> None:
    """Each forbidden token is told, whatever is left of the scores, and also where only changes are listened to."""
    bound = guard.bind(byte_level)
    k = ids_of(byte_level, "k")[0]
    text = [*ids_of(byte_level, "fuc"), k, *ids_of(byte_level, " ")] * 4
    inputs = byte_level("the", return_tensors="pt", return_token_type_ids=False)
    start = inputs.input_ids.shape[1]

    class Forcing(LogitsProcessor):  # type: ignore[misc]
        def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            forced = torch.full_like(scores, INF)
            forced[:, text[ids.shape[1] - start]] = 0.0
            return forced

    for changes_only in (False, True):
        reports: list[StepReport] = []
        told: list[str] = []
        processor = GuardLogitsProcessor(
            bound, on_step=reports.append, changes_only=changes_only, on_forced=told.append
        )
        output = model_of(byte_level).generate(
            **inputs, max_new_tokens=len(text), logits_processor=LogitsProcessorList([processor, Forcing()])
        )
        assert output[0, start:].tolist() == text
        assert len(told) == text.count(k) == sum(report.forced == [("strings",)] for report in reports)


@pytest.mark.parametrize("seed", range(3))
def test_rows_with_forced_tokens_end_where_they_may_also_at_the_limit(
    seed: int, byte_level: Any, guard: Any
) -> None:
    """Nothing that is forced leaves a row without a token, and every rule goes on."""
    bound = guard.bind(byte_level)
    rng = torch.Generator().manual_seed(seed)
    words = ["fuck", " ass", " ass ", "caf", "\u00e9", "jo@a.com", " 555-12", "\nthe", "x", " "]
    for _ in range(12):
        chosen = [words[i] for i in torch.randint(len(words), (5,), generator=rng).tolist()]
        ids = [*ids_of(byte_level, "the"), *ids_of(byte_level, "".join(chosen))]
        limit = int(torch.randint(1, len(ids) + 4, (1,), generator=rng))
        processor = GuardLogitsProcessor(bound, max_new_tokens=limit, on_forced=lambda _: None)
        for length in range(1, len(ids) + 1):
            result = processor(torch.tensor([ids[:length]]), scores_for(bound))
            assert bool((result > INF).any())


def test_a_forced_end_ends_the_text_and_is_told(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    eos = bound.vocabulary.eos_ids[0]
    ids = [*ids_of(byte_level, "x "), *ids_of(byte_level, "ass"), eos, eos]
    processor = GuardLogitsProcessor(bound)
    with pytest.warns(ForcedTokenWarning, match="'word'") as told:  # noqa: PT031
        for length in range(1, len(ids) + 1):
            result = processor(torch.tensor([ids[:length]]), scores_for(bound))
    assert len(told) == 1
    assert set((result[0] > INF).nonzero().ravel().tolist()) == set(bound.vocabulary.silent_ids)


def test_on_the_device_a_row_with_a_forced_token_is_lost_and_named(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    fuck = [*ids_of(byte_level, "fuc"), *ids_of(byte_level, "k")]
    ids = torch.tensor([[*ids_of(byte_level, "the"), *fuck, *ids_of(byte_level, " it")]] * 2)
    ids[0, 2:] = ids_of(byte_level, "x")[0]
    for drafts in (False, True):
        processor = DeviceLogitsProcessor(bound, bound.device_tables("cpu"), drafts=drafts)
        for length in range(1, ids.shape[1] + 1):
            result = processor(ids[:, :length], scores_for(bound, 2))
        assert (result[1] > INF).nonzero().ravel().tolist() == [bound.vocabulary.eos_ids[0]]
        assert int((result[0] > INF).sum()) > 10
        if drafts:
            processor.check()
        else:
            with pytest.raises(GenerationError, match=r"row 1: .*forbids.*tables='host'"):
                processor.check()


def test_the_last_tokens_lead_to_where_the_text_may_end(byte_level: Any, guard: Any) -> None:
    """`ass` as a whole word may be begun, but not as the last token."""
    bound = guard.bind(byte_level)
    prompt = ids_of(byte_level, "x ")
    s, accent = ids_of(byte_level, "s")[0], bound.vocabulary.tokens.index(b"\xc3")
    ids = [*prompt, *ids_of(byte_level, "a"), s]
    for last in (False, True):
        processor = GuardLogitsProcessor(bound, max_new_tokens=3 if last else 4)
        total = GuardLogitsProcessor(bound, max_length=len(prompt) + (3 if last else 4))
        for length in range(len(prompt), len(ids) + 1):
            here = torch.tensor([ids[:length]])
            result = processor(here, scores_for(bound))
            assert torch.equal(result, total(here, scores_for(bound)))
        assert bool(result[0, s] == INF) is last
        assert bool(result[0, accent] == INF) is last


def test_past_the_limit_the_masks_are_those_of_a_text_without_one(byte_level: Any, guard: Any) -> None:
    """Somebody else's limit may be further away, and a text may be continued with the same object."""
    bound = guard.bind(byte_level)
    prompt, text = ids_of(byte_level, "the"), ids_of(byte_level, "what fuc")
    rows = torch.tensor([[*prompt, *text]])
    scores = scores_for(bound)
    tables = bound.device_tables("cpu")
    makers: list[Callable[..., Any]] = [
        lambda **limits: GuardLogitsProcessor(bound, **limits),
        lambda **limits: DeviceLogitsProcessor(bound, tables, prompt_length=len(prompt), **limits),
    ]
    for make in makers:
        for told in ({"max_new_tokens": 3}, {"max_length": len(prompt) + 3}, {"max_new_tokens": 0}):
            limited, free = make(**told), make()
            for length in range(len(prompt), rows.shape[1] + 1):
                found, expected = limited(rows[:, :length], scores), free(rows[:, :length], scores)
                if length >= len(prompt) + max(told.get("max_new_tokens", 3), 0):
                    assert torch.equal(found, expected)
            assert bool(found[0, ids_of(byte_level, "k")[0]] == INF)


def test_a_continued_text_has_a_new_budget_where_that_can_be_told(byte_level: Any, guard: Any) -> None:
    """`ass` as a whole word may be begun where a token may follow, but not as the last one."""
    bound = guard.bind(byte_level)
    prompt, s = ids_of(byte_level, "x a"), ids_of(byte_level, "s")[0]
    processor = GuardLogitsProcessor(bound, max_new_tokens=2)
    processor(torch.tensor([prompt]), scores_for(bound))
    processor(torch.tensor([[*prompt, s]]), scores_for(bound))
    longer = [*prompt, s, *ids_of(byte_level, " xx a")]
    result = processor(torch.tensor([longer]), scores_for(bound))
    assert torch.equal(
        result, GuardLogitsProcessor(bound, max_new_tokens=2)(torch.tensor([longer]), scores_for(bound))
    )
    assert not bool(result[0, s] == INF), "one token may still follow"
    # The next step's ids: the old budget goes on, and then there is none.
    again = GuardLogitsProcessor(bound, max_new_tokens=1)
    again(torch.tensor([prompt]), scores_for(bound))
    fuc = ids_of(byte_level, "fuc")
    for length in range(1, len(fuc) + 1):
        result = again(torch.tensor([[*prompt, *fuc[:length]]]), scores_for(bound))
    assert bool(result[0, ids_of(byte_level, "k")[0]] == INF)


def test_a_model_that_writes_more_than_the_processor_was_told_stays_guarded(
    byte_level: Any, guard: Any, model_of: Any
) -> None:
    model = copy.deepcopy(model_of(byte_level))
    model.generation_config.max_new_tokens = 40
    bound = guard.bind(byte_level)
    inputs = byte_level(
        ["what the", "a class"], return_tensors="pt", padding=True, return_token_type_ids=False
    )
    length = inputs.input_ids.shape[1]
    torch.manual_seed(0)
    processor = GuardLogitsProcessor(bound, max_length=length + 5)
    for options in ({}, {"do_sample": True, "num_return_sequences": 8}):
        output = model.generate(
            **inputs, max_length=length + 5, logits_processor=LogitsProcessorList([processor]), **options
        )
        assert output.shape[1] > length + 5
        for row in output[:, length:]:
            assert guard.clean(byte_level.decode(row, skip_special_tokens=True))
        # Once more from where it ended, with the same object.
        more = model.generate(output, max_new_tokens=40, logits_processor=LogitsProcessorList([processor]))
        for row in more[:, length:]:
            assert guard.clean(byte_level.decode(row, skip_special_tokens=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_scores_that_are_no_numbers_are_an_error_that_says_so(
    dtype: torch.dtype, byte_level: Any, guard: Any
) -> None:
    bound = guard.bind(byte_level)
    prompt = torch.tensor([ids_of(byte_level, "the")] * 2)
    for column in (3, bound.vocabulary.width - 1):
        scores = scores_for(bound, 2).to(dtype)
        scores[1, column] = math.nan
        with pytest.raises(GenerationError, match=r"row 1: .*NaN.*dtype"):
            GuardLogitsProcessor(bound)(prompt, scores.clone())
        with pytest.raises(GenerationError, match=r"row 1: .*NaN.*dtype"):
            GuardLogitsProcessor(bound)(prompt, torch.stack([scores] * 2, dim=2)[:, :, 1])
        device = DeviceLogitsProcessor(bound, bound.device_tables("cpu"))
        result = device(prompt, scores.clone())
        assert not bool(result[1].isnan().any())
        with pytest.raises(GenerationError, match=r"row 1: .*NaN.*dtype"):
            device.check()
    ended = torch.tensor([[*prompt[0].tolist(), bound.vocabulary.eos_ids[0]]] * 2)
    processor = GuardLogitsProcessor(bound, engine_ends=True)
    processor(prompt, scores_for(bound, 2))
    processor(ended, scores)  # nobody reads the scores of a text that is over


@pytest.mark.parametrize("wrong", [2.5, "20", -1, True, [3]])
def test_limits_that_are_no_counts_are_refused_by_name(wrong: Any, byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    for name in ("max_length", "max_new_tokens"):
        with pytest.raises(UnsupportedError, match=f"{name}: a whole number"):
            GuardLogitsProcessor(bound, **{name: wrong})


def test_reports_say_what_the_mask_did(byte_level: Any, guard: Any) -> None:
    bound = guard.bind(byte_level)
    reports: list[StepReport] = []
    processor = GuardLogitsProcessor(bound, on_step=reports.append, in_place=True)
    prompt, text = ids_of(byte_level, "the"), ids_of(byte_level, "fuc")
    k, e = ids_of(byte_level, "k")[0], ids_of(byte_level, "e")[0]
    for length in range(len(prompt), len(prompt) + len(text) + 1):
        scores = torch.full((1, bound.vocabulary.width), -20.0)
        scores[0, k], scores[0, e] = math.log(3.0), 0.0
        processor(torch.tensor([[*prompt, *text][:length]]), scores)
    assert [report.steps for report in reports] == [[step] for step in range(len(text) + 1)]
    assert [report.top_forbidden for report in reports] == [[False]] * len(text) + [[True]]
    assert reports[-1].rule_ids == [("strings",)]
    assert reports[-1].best_allowed_rank == [1]
    assert reports[-1].removed_mass[0] == pytest.approx(0.75, abs=1e-3)
    assert reports[0].removed_mass[0] == pytest.approx(0.0, abs=1e-3)


def test_one_processor_serves_generate_again_and_again(byte_level: Any, guard: Any, model_of: Any) -> None:
    """Plain `model.generate` with one object: batches, beams, sampling, and other processors."""
    model = model_of(byte_level)
    bound = guard.bind(byte_level)
    processor = GuardLogitsProcessor(bound, max_new_tokens=25)
    torch.manual_seed(3)
    for prompts, options in [
        (["what the", "a class", "hello hello", "x"], {}),
        (["what the"], {"do_sample": True}),
        (["what the", "a class"], {"num_beams": 3, "num_return_sequences": 2}),
        (["what the", "a class"], {"do_sample": True, "top_k": 5, "temperature": 1.3, "top_p": 0.9}),
        (["what the"], {"num_beams": 3, "do_sample": True}),
        (
            ["what the", "a class"],
            {"repetition_penalty": 1.3, "no_repeat_ngram_size": 3, "min_new_tokens": 5},
        ),
        (["what the fuck what the"], {"prompt_lookup_num_tokens": 4}),
    ]:
        inputs = byte_level(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
        output = model.generate(
            **inputs, max_new_tokens=25, logits_processor=LogitsProcessorList([processor]), **options
        )
        for row in output[:, inputs.input_ids.shape[1] :]:
            text = byte_level.decode(row, skip_special_tokens=True)
            assert text == bound.vocabulary.text_of(row.tolist())
            assert guard.clean(text), options


class Dictates(LogitsProcessor):  # type: ignore[misc]
    """Makes the model want some tokens, one after another."""

    def __init__(self, start: int, tokens: list[int]) -> None:
        self.start, self.tokens = start, tokens

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, self.tokens[input_ids.shape[1] - self.start]] += 1000.0
        return scores


@pytest.mark.parametrize("way", ["generate", "stream", "wrap"])
def test_each_call_begins_a_text_and_a_budget_of_its_own(
    way: str, byte_level: Any, model_of: Any, guard: Any
) -> None:
    """A prompt that is an earlier prompt with its answer begins another text: what the prompt holds is no match."""
    model, (k,) = model_of(byte_level), byte_level("k", add_special_tokens=False).input_ids
    fuc = byte_level("fuc", add_special_tokens=False).input_ids
    guarded = wrap(guard, pipeline("text-generation", model=model, tokenizer=byte_level, device="cpu"))

    def written(prompt: torch.Tensor, tokens: list[int]) -> str:
        start = prompt.shape[1]
        options = {"max_new_tokens": len(tokens), "logits_processor": [Dictates(start, tokens)]}
        if way == "wrap":
            return str(byte_level.decode(guarded.model.generate(prompt, **options)[0, start:]))
        if way == "stream":
            return "".join(stream(guard, model, byte_level, {"input_ids": prompt}, **options))
        return generate(guard, model, byte_level, {"input_ids": prompt}, **options).texts[0]

    prompt = byte_level("what the", return_tensors="pt").input_ids
    for _ in range(2):
        assert written(prompt, fuc) == "fuc"
        assert written(torch.cat([prompt, torch.tensor([fuc])], dim=1), [k]) == "k"
        assert written(prompt, [*fuc, k]) != "fuck"


def test_threads_whose_tables_are_replaced_all_the_time_get_the_masks_of_their_rows(
    byte_level: Any, guard: Any
) -> None:
    """Eight threads share a guard whose memory limit is met between any two steps, as rows and as requests."""
    oracle = guard.bind(byte_level)
    shared = Guard(guard.policy).bind(byte_level)
    shared._memory_limit = shared._tables.memory_limit = int(1.02 * shared._tables.nbytes)
    rng = random.Random(2)
    words = ["what", " fuc", " as", "s", " caf", "jo@", "enron", ".co", " 555-1", "\nth", "x", " "]
    length = 14
    texts = []
    while len(texts) < 16:
        ids = ids_of(byte_level, "".join(rng.choice(words) for _ in range(12)))
        if guard.clean(byte_level.decode(ids)) and len(ids) >= length:
            texts.append([1, *ids[:length]])
    plain = torch.zeros(2, oracle.vocabulary.width)
    expected = []
    for pair in zip(texts[::2], texts[1::2], strict=True):
        processor = GuardLogitsProcessor(oracle, on_forced=lambda _: None)
        rows = torch.tensor(pair)
        expected.append([processor(rows[:, :n], plain) for n in range(1, length + 2)])
    wrong: list[Any] = []
    tables: dict[int, object] = {}  # held, so that no other has its id

    def write(number: int) -> None:
        try:
            rows = torch.tensor([texts[2 * number], texts[2 * number + 1]])
            processor = GuardLogitsProcessor(shared, on_forced=lambda _: None)
            requests = RequestsProcessor(shared.vocabulary.width)
            for name in "ab":
                requests.announce(name, GuardedRequest(0, shared, [1], 10**6, Recording(None, None)))
            for n in range(1, length + 2):
                held = shared.tables
                tables[id(held)] = held
                if not torch.equal(processor(rows[:, :n], plain), expected[number][n - 1]):
                    wrong.append(("rows", number, n))
                scores = plain.clone()
                asked = [in_batch(name, row[1:n].tolist()) for name, row in zip("ab", rows, strict=True)]
                requests(scores, requests.prepare_tensor_args(asked))
                if not torch.equal(scores, expected[number][n - 1]):
                    wrong.append(("requests", number, n))
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[:3]
    assert len(tables) > 3


def in_batch(name: str, generated: list[int]) -> Any:
    """What a request of a continuous batch shows of itself."""
    output = SimpleNamespace(request_id=name, generated_tokens=generated)
    return SimpleNamespace(state=SimpleNamespace(to_generation_output=lambda: output))
