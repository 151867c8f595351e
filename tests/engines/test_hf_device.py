"""Generation with tables on the device: the same texts as with those of the host, and no step waits for the device."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import LogitsProcessor

from nco_guard import Guard, Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink
from nco_guard.engines.hf import GuardLogitsProcessor, generate
from nco_guard.engines.hf.device import DeviceLogitsProcessor, chosen_tables
from nco_guard.engines.hf.device_rows import DeviceRows
from nco_guard.errors import (
    DeadEndError,
    GenerationError,
    StateLimitError,
    TokenizerError,
    UnsupportedError,
)
from nco_guard.masking import joint as host_states
from nco_guard.masking.device import DEVICE_ENDED, DEVICE_LOST, DEVICE_VIOLATED
from nco_guard.policy import presets
from nco_guard.session import BoundGuard
from nco_guard.testing import random_model, tiny_tokenizer
from tests.engines.no_reads import NoReads
from tests.engines.test_hf_generate import MODES, ONE, PROMPTS
from tests.masking import random_policies

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture(autouse=True)
def nothing_is_read_back(monkeypatch: pytest.MonkeyPatch) -> None:
    call = DeviceLogitsProcessor.__call__

    def watched(self: DeviceLogitsProcessor, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        with NoReads():
            return call(self, input_ids, scores)

    monkeypatch.setattr(DeviceLogitsProcessor, "__call__", watched)


@pytest.fixture(scope="module")
def small_guard(guard_of: Any) -> Any:
    """Hard and soft rules with few joint states."""
    return guard_of(
        StringRule(id="strings", strings=("fuck", "café")),
        StringRule(id="word", strings=("ass",), whole_word=True, case="fold"),
        RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com"),
        RegexRule(id="line", regex=r"^the", penalty=3.0),
    )


@pytest.mark.parametrize("mode", [*MODES, "static cache", "more tokens"])
def test_the_texts_are_those_of_the_host(mode: str, tokenizer: Any, model_of: Any, small_guard: Any) -> None:
    model, options = model_of(tokenizer), dict(MODES.get(mode, {}))
    if mode == "static cache":
        options = {"cache_implementation": "static"}
    if "assistant_model" in options:
        options["assistant_model"] = model_of(tokenizer, 2)
    one = bool(ONE & set(options)) or mode == "guidance"
    for batch in [PROMPTS[:1], PROMPTS[1:2]] if one else [PROMPTS]:
        results = []
        for tables in ("host", "device"):
            torch.manual_seed(3)
            results.append(
                generate(
                    small_guard,
                    model,
                    tokenizer,
                    batch,
                    max_new_tokens=70 if mode == "more tokens" else 20,
                    tables=tables,
                    **options,
                )
            )
        host, device = results
        assert device.token_ids == host.token_ids
        assert device.outcomes == host.outcomes
        assert all(small_guard.clean(text) for text in device.texts)


def test_the_shipped_model_writes_the_same(byte_level: Any) -> None:
    from nco_guard.demo import load

    model, tokenizer = load()
    guard = Guard.from_presets("pii_paper")
    texts = []
    for tables in ("host", "device"):
        torch.manual_seed(0)
        result = guard.generate(
            model, tokenizer, ["My address is", "Call"], max_new_tokens=30, do_sample=True, tables=tables
        )
        texts.append(result.texts)
    assert texts[0] == texts[1]


# -- scores, bit by bit ------------------------------------------------------------------------------------------


def tables_of(bound: BoundGuard, where: str = "cpu") -> Any:
    try:
        return bound.device_tables(where, max_states=1500)
    except (StateLimitError, UnsupportedError):
        return None


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("engine_ends", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_scores_are_those_of_the_host_bit_by_bit(seed: int, engine_ends: bool, where: str) -> None:
    """Random policies, rows that are permuted and dropped, forced tokens, the last tokens before the limit.

    A row into which a forbidden token was forced is guarded on by the host, and is left nothing on the device.
    """
    rng = random.Random(seed)
    torch.manual_seed(seed)
    tables = None
    while tables is None:
        bound = random_policies.bound(rng)
        tables = tables_of(bound, where)
    width, rows, prompt = bound.vocabulary.width, 4, 3
    options: dict[str, Any] = {"max_length": prompt + 12, "engine_ends": engine_ends, "beams": 2}
    host = GuardLogitsProcessor(bound, **options, on_forced=lambda _: None)
    device = DeviceLogitsProcessor(bound, tables, **options)
    ids = torch.randint(0, width, (rows, prompt))
    for step in range(14):
        scores = torch.randn(len(ids), width) * 4
        scores[:, : width // 8] = -torch.inf
        try:
            wanted = host(ids, scores)
        except DeadEndError:
            device(ids.to(where), scores.to(where))
            if not any(host._tracker.broken):
                with pytest.raises(DeadEndError):
                    device.check()
            return
        found = device(ids.to(where), scores.to(where)).cpu()
        broken = torch.tensor(host._tracker.broken)
        assert torch.equal(found[~broken].view(torch.int32), wanted[~broken].view(torch.int32)), step
        ended = torch.tensor(host._tracker.advance(ids.numpy()) == host_states.ENDED)
        assert bool((found[broken & ~ended] == -torch.inf).all()), step
        chosen = torch.multinomial(wanted.softmax(-1).nan_to_num(1.0), 1)
        if rng.random() < 0.1:
            chosen[rng.randrange(len(ids))] = rng.randrange(width)  # forced by somebody else
        ids = torch.cat([ids, chosen], 1)[[rng.randrange(len(ids)) for _ in ids]]
    device.check()


def test_half_precision_and_in_place(byte_level: Any, small_guard: Any) -> None:
    bound = small_guard.bind(byte_level)
    tables = bound.device_tables("cpu")
    ids = torch.tensor([[5, 6], [7, 8]])
    for dtype in (torch.float16, torch.bfloat16):
        scores = torch.randn(2, bound.vocabulary.width).to(dtype)
        wanted = GuardLogitsProcessor(bound)(ids, scores)
        assert torch.equal(DeviceLogitsProcessor(bound, tables)(ids, scores), wanted)
        DeviceLogitsProcessor(bound, tables, in_place=True)(ids, scores)
        assert torch.equal(scores, wanted)


# -- rows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("seed", range(10))
def test_rows_get_the_states_of_their_ids(seed: int, where: str, byte_level: Any, small_guard: Any) -> None:
    """Rows are permuted, repeated and dropped, cut back and lengthened; replaying every row is the definition."""
    rng = random.Random(seed)
    bound = small_guard.bind(byte_level)
    tables = bound.device_tables(where)
    # Few different tokens, so that rows and their hashes often look alike.
    some = [rng.randrange(bound.vocabulary.width) for _ in range(3)]

    def draw(rows: int, count: int) -> torch.Tensor:
        return torch.tensor([rng.choice(some) for _ in range(rows * count)]).to(torch.int64).view(rows, count)

    prompt = rng.randrange(4)
    ids = draw(rng.randint(1, 5), prompt).to(where)
    rows = DeviceRows(tables, prompt)
    for _ in range(60):
        assert torch.equal(rows.advance(ids), DeviceRows(tables, prompt).replay(ids))
        chosen = torch.tensor([rng.randrange(len(ids)) for _ in range(rng.randint(1, 6))], device=where)
        ids = ids.index_select(0, chosen)
        cut = rng.random() < 0.3
        if cut:
            ids = ids[:, : rng.randint(prompt, ids.shape[1])]
        if rng.random() < 0.8:
            more = 1 if cut else rng.choice([1, 1, 1, 1, 4])
            ids = torch.cat([ids, draw(len(ids), more).to(where)], 1)


def test_rows_of_unknown_origin_are_lost_and_reported(byte_level: Any, small_guard: Any) -> None:
    bound = small_guard.bind(byte_level)
    tables = bound.device_tables("cpu")
    rows = DeviceRows(tables, 1)
    rows.advance(torch.tensor([[1], [1]]))
    rows.advance(torch.tensor([[1, 70, 71], [1, 72, 73]]))
    states = rows.advance(torch.tensor([[1, 72, 73, 74], [1, 70, 73, 74]]))
    assert (states == DEVICE_LOST).tolist() == [False, True]
    assert rows.advance(torch.tensor([[1, 70, 73, 74, 75]])).tolist() == [DEVICE_LOST]

    processor = DeviceLogitsProcessor(bound, tables)
    scores = torch.randn(1, bound.vocabulary.width)
    processor(torch.tensor([[1]]), scores)
    processor(torch.tensor([[1, 70, 71]]), scores)
    processor.check()
    masked = processor(torch.tensor([[1, 72, 73, 74]]), scores)
    assert (masked > -torch.inf).nonzero().tolist() == [[0, bound.vocabulary.eos_ids[0]]]
    with pytest.raises(GenerationError, match="continues no row"):
        processor.check()


def test_one_object_serves_one_generation(byte_level: Any, small_guard: Any) -> None:
    bound = small_guard.bind(byte_level)
    processor = DeviceLogitsProcessor(bound, bound.device_tables("cpu"))
    scores = torch.zeros(1, bound.vocabulary.width)
    processor(torch.tensor([[1, 2, 3]]), scores)
    with pytest.raises(GenerationError, match="one generation"):
        processor(torch.tensor([[1, 2]]), scores)
    with pytest.raises(TokenizerError, match="columns"):
        processor(torch.tensor([[1, 2, 3]]), scores[:, 1:])
    with pytest.raises(UnsupportedError, match="continuous batching"):
        processor(torch.tensor([1]), scores)


# -- nothing waits -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_dead_end", ["raise", "end", "fallback"])
@pytest.mark.parametrize("engine_ends", [True, False])
@pytest.mark.parametrize("beams", [1, 3])
def test_steps_run_on_tensors_without_values(
    beams: int, engine_ends: bool, on_dead_end: str, byte_level: Any
) -> None:
    """Whatever asks such a tensor for a value, or for a shape that depends on one, raises."""
    rules = (StringRule(id="s", strings=("fuck",)), RegexRule(id="r", regex=r"ab\b", penalty=1.0))
    policy = Policy(
        name="p", rules=rules, on_dead_end=on_dead_end, fallback="x" if on_dead_end == "fallback" else None
    )
    bound = Guard(policy).bind(byte_level)
    with FakeTensorMode(allow_non_fake_inputs=True):
        tables = bound.device_tables("meta")
        processor = DeviceLogitsProcessor(
            bound, tables, max_length=40, beams=beams, engine_ends=engine_ends, prompt_length=3
        )
        for rows, length in ((6, 3), (6, 4), (6, 5), (3, 6), (3, 4), (3, 5), (3, 12), (6, 13), (6, 41)):
            ids = torch.zeros((rows, length), dtype=torch.int64, device="meta")
            scores = torch.zeros((rows, bound.vocabulary.width), device="meta")
            assert processor(ids, scores).shape == scores.shape
    with pytest.raises((RuntimeError, NotImplementedError)):
        processor.check()  # this one reads


# -- dead ends ---------------------------------------------------------------------------------------------------


class MaskFrom(LogitsProcessor):  # type: ignore[misc]
    """Masks everything from some length on."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf) if input_ids.shape[1] >= self.length else scores


@pytest.mark.parametrize("options", [{}, {"do_sample": True}, {"num_beams": 2}])
@pytest.mark.parametrize("on_dead_end", ["raise", "end", "fallback"])
def test_dead_ends_come_out_as_on_the_host(on_dead_end: str, options: dict[str, Any]) -> None:
    tokenizer = tiny_tokenizer("byte-level")
    model = random_model(tokenizer, seed=3)
    guard = Guard(
        Policy(
            name="corner",
            rules=(StringRule(id="s", strings=("zq",)),),
            on_dead_end=on_dead_end,
            fallback="x" if on_dead_end == "fallback" else None,
        )
    )
    prompt = torch.tensor([tokenizer("the").input_ids])
    outcomes = []
    for tables in ("host", "device"):
        torch.manual_seed(2)
        try:
            result = guard.generate(
                model,
                tokenizer,
                prompt,
                max_new_tokens=8,
                logits_processor=[MaskFrom(prompt.shape[1] + 3)],
                tables=tables,
                **options,
            )
        except DeadEndError:
            outcomes.append("dead end")
        else:
            outcomes.append((result.outcomes, result.token_ids))
    assert outcomes[0] == outcomes[1]


# -- which tables ------------------------------------------------------------------------------------------------


def test_the_host_is_chosen_where_the_device_would_not_do(byte_level: Any, small_guard: Any) -> None:
    bound = small_guard.bind(byte_level)
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    nothing = {"reports": False, "streams": False}
    assert chosen_tables([bound], cpu, "auto", **nothing) is None
    assert chosen_tables([bound], cuda, "host", **nothing) is None
    assert chosen_tables([bound], cuda, "auto", reports=True, streams=False) is None
    assert chosen_tables([bound], cuda, "auto", reports=False, streams=True) is None
    assert chosen_tables([bound], cpu, "device", **nothing) is bound.device_tables("cpu")
    other = Guard(small_guard.policy).bind(byte_level)
    assert chosen_tables([bound, other], cuda, "auto", **nothing) is None
    with pytest.raises(UnsupportedError, match="guards of single prompts"):
        chosen_tables([bound, other], cpu, "device", **nothing)


def test_policies_with_too_many_states_stay_with_the_host(byte_level: Any) -> None:
    bound = Guard(Policy(name="p", rules=presets.load("pii"))).bind(byte_level)
    with pytest.raises(StateLimitError, match=r"more than 2000 states.*at most 2000"):
        bound.device_tables("cpu", max_states=2000)
    assert "more than 2000 states" in bound.stats["device_tables"]["refused"]
    assert chosen_tables([bound], torch.device("cpu"), "auto", reports=False, streams=False) is None


def test_bytes_are_bounded_too(byte_level: Any, small_guard: Any) -> None:
    bound = Guard(small_guard.policy).bind(byte_level)
    with pytest.raises(StateLimitError, match=r"classes of tokens bytes.*at most 5000"):
        bound.device_tables("cpu", max_bytes=5000)
    tables = bound.device_tables("cpu")
    stats = bound.stats["device_tables"]["cpu"]
    assert (stats["states"], stats["classes"], stats["bytes"]) == (
        tables.states,
        tables.classes,
        tables.nbytes,
    )


def test_what_needs_the_host_in_every_step_is_refused_by_name(byte_level: Any, model_of: Any) -> None:
    rule = StringRule(id="s", strings=("zq",))
    policy = Policy(name="p", rules=(rule,))
    model, options = model_of(byte_level), {"max_new_tokens": 3, "tables": "device"}
    with pytest.raises(UnsupportedError, match="step reports and audits"):
        Guard(policy).generate(model, byte_level, "the", on_step=lambda report: None, **options)
    sink = MemorySink()
    with pytest.raises(UnsupportedError, match="step reports and audits"):
        Guard(policy, audit=sink).generate(model, byte_level, "the", **options)
    assert sink.events[-1].kind == "run_finished"
    prompted = Policy(name="p", rules=(StringRule(id="s", strings=("zq",), context="prompt"),))
    with pytest.raises(UnsupportedError, match="context='prompt'"):
        Guard(prompted).generate(model, byte_level, "the", **options)


def test_streams_may_use_them(byte_level: Any, model_of: Any, small_guard: Any) -> None:
    model = model_of(byte_level)
    texts = [
        "".join(small_guard.stream(model, byte_level, "the", max_new_tokens=12, tables=tables))
        for tables in ("host", "device")
    ]
    assert texts[0] == texts[1]


def test_special_states_are_no_texts(byte_level: Any, small_guard: Any) -> None:
    tables = small_guard.bind(byte_level).device_tables("cpu")
    states = torch.tensor([DEVICE_ENDED, DEVICE_VIOLATED, DEVICE_LOST])
    assert tables.forbidden(states).sum(1).tolist() == [0, tables.width, tables.width]
    for token in range(-1, tables.width + 1):
        assert torch.equal(tables.next(states, torch.full((3,), token)), states)
    assert tables.may_end(states).tolist() == [True, False, False]
    assert not tables.penalties(states).any()
    assert np.isfinite(tables.penalties(tables.begin(1)).numpy()).all()
