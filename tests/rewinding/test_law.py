"""What going back draws from, on models whose texts can all be written down."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch

from nco_guard.policy import Rewind
from tests.rewinding.toys import Text, Toy

FREE = Rewind(back_to="text", per_match=None, per_text=None)


def counted(toy: Toy, rewind: Rewind, number: int, **options: int) -> tuple[np.ndarray, float]:
    """How often each text came, and the share of texts with a fallback."""
    random = np.random.default_rng(toy.seed + 1)
    found: Counter[Text] = Counter()
    fallen = 0
    for _ in range(number):
        row = toy.row(rewind, random, **options)
        found[toy.write(row)] += 1
        fallen += row.counts.fallbacks > 0
    assert set(found) <= set(toy.texts)  # no match in any
    return np.array([found[text] for text in toy.texts]), fallen / number


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """The probability of counts at least as far from the law; rare texts are counted as one."""
    expected = law * counts.sum()
    rare = expected < 5
    observed, wanted = counts[~rare], expected[~rare]
    if rare.any():
        observed, wanted = np.append(observed, counts[rare].sum()), np.append(wanted, expected[rare].sum())
    distance = float(((observed - wanted) ** 2 / wanted).sum())
    half = torch.tensor([len(wanted) - 1, distance], dtype=torch.float64) / 2
    return float(torch.special.gammaincc(half[0], half[1]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [1 << 20, 64])
def test_back_to_the_beginning_is_exact(seed: int, most: int) -> None:
    toy = Toy(seed, length=4)
    counts, fallen = counted(toy, FREE, 4000, most=most)
    assert fallen == 0
    assert chi_square(counts, toy.law) > 0.001


def test_the_mask_alone_is_not() -> None:
    toy = Toy(0, length=4)
    counts, _ = counted(toy, Rewind(back_to="match", per_match=1, per_text=1), 4000)
    assert chi_square(counts, toy.law) < 0.001


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_back_to_the_beginning_is_exact_in_many_texts(seed: int) -> None:
    toy = Toy(seed)
    counts, fallen = counted(toy, FREE, 50_000)
    assert fallen == 0
    assert chi_square(counts, toy.law) > 0.001


@pytest.mark.parametrize("budget", [1, 2, 4, 8])
def test_budgets_cost_at_most_the_share_that_fell_back(budget: int) -> None:
    toy = Toy(7, length=4)
    number = 4000
    rewind = Rewind(back_to="text", per_match=None, per_text=budget)
    counts, fallen = counted(toy, rewind, number)
    distance = 0.5 * np.abs(counts / number - toy.law).sum()
    noise = 0.5 * np.sqrt(2 / np.pi * toy.law * (1 - toy.law) / number).sum()
    assert distance <= fallen + 2 * noise


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 3, 7, 13, 15])  # toys that often fall back
@pytest.mark.parametrize("budget", [1, 2, 4, 8])
def test_budgets_cost_at_most_the_share_that_fell_back_in_many_texts(budget: int, seed: int) -> None:
    """Together 10^6 texts; what chance adds is bounded, and below what the smaller budgets cost."""
    toy = Toy(seed, length=4, push=2.5)
    number = 50_000
    counts, fallen = counted(toy, Rewind(back_to="text", per_match=None, per_text=budget), number)
    distance = 0.5 * np.abs(counts / number - toy.law).sum()
    noise = 0.5 * np.sqrt(2 / np.pi * toy.law * (1 - toy.law) / number).sum()
    # A text changes the distance by 1 / number at most: it and the share are beyond this once in 10^4 times.
    slack = 2 * np.sqrt(np.log(1e4) / (2 * number))
    assert noise + slack < 0.04
    assert distance <= fallen + noise + slack
    if budget == 1:
        assert fallen > 0.1  # so that there is something to bound
        assert distance > noise + slack
