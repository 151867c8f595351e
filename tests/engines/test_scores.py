"""Masks written and seen through NumPy are those of torch's operations on whole rows, bit for bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from nco_guard.compiler import compile_policy
from nco_guard.engines.rows import LiveRows, RowMasker, StepReport
from nco_guard.engines.scores import Look
from nco_guard.engines.tensors import DenseScores, HostTensor, scores_of
from nco_guard.errors import GenerationError
from nco_guard.policy import Policy, RegexRule, StringRule
from nco_guard.session import BoundGuard
from nco_guard.testing import toy_vocabulary

INF = math.inf
WIDTH = 600
TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NOTHING = np.zeros(0, np.int64)


def sample(rng: np.random.Generator, share: float) -> Any:
    return np.flatnonzero(rng.random(WIDTH) < share).astype(np.int64)


def random_scores(rng: np.random.Generator, rows: int, dtype: torch.dtype) -> torch.Tensor:
    """Ties, -inf of other processors, and rows that are nothing else."""
    values = np.round(rng.normal(size=(rows, WIDTH)) * 4, int(rng.integers(0, 4)))
    values[rng.random((rows, WIDTH)) < rng.choice([0.0, 0.5, 0.99])] = -INF
    values[rng.random(rows) < 0.1] = -INF
    return torch.tensor(values).to(dtype)


def bits(scores: torch.Tensor) -> torch.Tensor:
    return scores.contiguous().view(torch.uint8)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("seed", range(15))
def test_both_ways_are_the_same(seed: int, dtype: torch.dtype) -> None:
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 6))
    scores = random_scores(rng, rows, dtype)
    strided = torch.stack([scores] * 2, dim=2)[:, :, 1]
    columns = {}
    for row in rng.permutation(rows)[: int(rng.integers(1, rows + 1))].tolist():
        columns[row] = sample(rng, float(rng.choice([0.0, 0.01, 0.5, 0.9, 1.0])))
    looks = [
        Look(row, ids, sample(rng, 0.2), int(rng.integers(WIDTH)) if rng.random() < 0.5 else None)
        for row, ids in columns.items()
    ]
    plain = scores.clone()
    dense, host, apart = DenseScores(plain), HostTensor(scores, {}), HostTensor(strided, {})
    expected = dense.look(looks)
    for other in (host, apart):
        found = other.look(looks)
        for row, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
            assert mine.rank == theirs.rank
            assert mine.removed == pytest.approx(theirs.removed, abs=1e-5)
            values = plain[looks[row].row]
            assert values[mine.top] == values.max(), "the first choice, or one as good"
            if mine.top == theirs.top:
                assert mine.penalised == theirs.penalised
        asked = [look.row for look in looks]
        for some in (asked, asked[:1], list(range(rows))):
            for row, top in zip(some, other.first_choices(some), strict=True):
                assert plain[row, top] == plain[row].max()
    probe = int(rng.integers(WIDTH))
    left = [kind.forbid(columns, probe) for kind in (dense, host, apart)]
    assert torch.equal(bits(scores), bits(plain))
    assert torch.equal(bits(strided), bits(plain))
    empty = {row for row in columns if bool((plain[row] == -INF).all())}
    assert left == [empty] * 3


def test_a_mask_that_leaves_little_is_written_from_what_is_left() -> None:
    """One allowed value of every kind of bits comes back as it was."""
    few = torch.tensor([0.0, -0.0, INF, 1e-45, -1.5])
    scores = torch.zeros(1, WIDTH)
    forbidden = np.setdiff1d(np.arange(WIDTH), np.arange(100, 105))
    complements: dict[int, Any] = {}
    for _ in range(2):
        scores = torch.zeros(1, WIDTH)
        scores[0, 100:105] = few
        HostTensor(scores, complements).forbid({0: forbidden}, 0)
        assert torch.equal(bits(scores[0, 100:105]), bits(few))
        assert bool((scores[0, torch.from_numpy(forbidden)] == -INF).all())
    assert len(complements) == 1
    for _ in range(100):
        HostTensor(scores, complements).forbid({0: forbidden.copy()}, 0)
    assert len(complements) <= 64


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("others", [0.0, INF, -INF, "mixed"])
def test_one_score_that_is_no_number_is_found_wherever_it_is(dtype: torch.dtype, others: Any) -> None:
    """In forbidden columns too, with either sign, beside infinite scores; rows that nobody masks are not read."""
    rng = np.random.default_rng(0)
    clean = torch.zeros(3, WIDTH, dtype=dtype)
    clean[:] = random_scores(rng, 3, dtype) if others == "mixed" else others
    clean[:, ::7] = INF
    forbidden = np.arange(0, WIDTH, 3)
    for column in (0, 1, 2, 255, WIDTH - 2, WIDTH - 1):
        for value in (math.nan, -math.nan):
            scores = clean.clone()
            scores[1, column] = value
            for kind in (HostTensor(scores.clone(), {}), DenseScores(scores.clone())):
                assert kind.forbid({0: forbidden, 2: forbidden}, 1) == set()
            for kind in (HostTensor(scores.clone(), {}), DenseScores(scores.clone())):
                with pytest.raises(GenerationError, match=r"row 1: .*NaN"):
                    kind.forbid({0: forbidden, 1: forbidden}, 1)
            host = HostTensor(scores.clone(), {})
            for _ in range(2):
                with pytest.raises(GenerationError, match=r"row 1: .*NaN"):
                    host.first_choices([0, 1])
            with pytest.raises(GenerationError, match=r"row 1: .*NaN"):
                host.look([Look(1, forbidden, NOTHING, None)])


def test_the_pad_that_revives_a_row_counts_as_allowed() -> None:
    scores = torch.full((1, WIDTH), -INF)
    scores[0, [3, 4]] = torch.tensor([1.0, 2.0])
    everything = np.arange(WIDTH)
    for kind in (HostTensor(scores, {}), DenseScores(scores)):
        (found,) = kind.look([Look(0, everything, NOTHING, 3)])
        assert (found.top, found.rank) == (4, 1)
        assert found.removed == pytest.approx(math.exp(2) / (math.exp(1) + math.exp(2)))
        (found,) = kind.look([Look(0, everything, NOTHING, None)])
        assert (found.rank, found.removed) == (2, 1.0)


def test_tensors_of_other_kinds_take_the_way_of_whole_rows() -> None:
    assert isinstance(scores_of(torch.zeros(1, 4), {}), HostTensor)
    assert isinstance(scores_of(torch.zeros(1, 4, device="meta"), {}), DenseScores)
    trained = torch.zeros(1, 4, requires_grad=True) + 1
    scores_of(trained, {}).forbid({0: np.array([2])}, 0)
    assert trained.tolist() == [[1.0, 1.0, -INF, 1.0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("seed", range(5))
def test_arrays_of_numpy_are_masked_as_tensors_are(seed: int, dtype: Any) -> None:
    """What an engine without torch hands over: penalties, masks, dead ends and reports are the same, bit for bit."""
    rules = (
        StringRule(id="duck", strings=("duck", "duckling")),
        RegexRule(id="soft", regex="du", penalty=0.3),
        RegexRule(id="corner", regex=r"ass\b|assx"),
    )
    policy = Policy(name="p", rules=rules, on_dead_end="end")
    bound = BoundGuard(compile_policy(policy), toy_vocabulary(["d", "du", "uck", "ass", "x"]))
    rng, width = np.random.default_rng(seed), bound.vocabulary.width
    rows = LiveRows.none(bound, bound.tables)
    for row, text in enumerate((b"", b"d", b"du", b"duc", b"as")):
        state = bound.tables.start
        for byte in text:
            state = bound.tables.next(state, byte)
        rows.add(row, state, None, len(text), None)
    given = (rng.normal(size=(5, width)) * 4).astype(dtype)
    given[1] = -INF  # somebody else left nothing
    array, tensor = given.copy(), torch.from_numpy(given.copy())
    told: list[StepReport] = []
    RowMasker(engine_ends=True, on_step=told.append).apply(array, [rows])
    whole = tensor.clone()
    RowMasker(engine_ends=True, on_step=told.append, scores_of=scores_of).apply(tensor, [rows])
    RowMasker(engine_ends=True, scores_of=lambda scores, _: DenseScores(scores)).apply(whole, [rows])
    assert torch.equal(bits(torch.from_numpy(array)), bits(tensor))
    assert torch.equal(bits(whole), bits(tensor))
    assert told[0] == told[1]
    assert told[0].dead_end == [None, "end", None, None, None]
    assert array[0, 257] == given[0, 257] - dtype(np.float32(0.3))  # "du"
    assert array[3, ord("k")] == -INF
