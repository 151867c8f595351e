"""The paper's metrics, against models whose likelihoods are known."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass

import pytest

from nco_guard.demo.metrics import perplexity, relative_throughput, throughput, violation_rate


@dataclass(frozen=True)
class Verdict:
    ok: bool


def tiny_model(vocabulary: int = 7):  # type: ignore[no-untyped-def]
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=32,
    )
    return transformers.LlamaForCausalLM(config).eval()


def test_violation_rate_counts_responses_and_not_findings() -> None:
    assert violation_rate([Verdict(True), Verdict(False), Verdict(True), Verdict(True)]) == 25.0
    assert violation_rate([Verdict(True)]) == 0.0


def test_a_rate_over_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        violation_rate([])


def test_throughput_is_tokens_per_second_and_relative_to_base_in_percent() -> None:
    assert throughput(128, 2.0) == 64.0
    assert relative_throughput(throughput(63, 1.0), throughput(64, 1.0)) == pytest.approx(98.4375)
    for tokens, seconds in ((-1, 1.0), (1, 0.0), (1, math.nan)):
        with pytest.raises(ValueError, match="throughput needs"):
            throughput(tokens, seconds)
    with pytest.raises(ValueError, match="base"):
        relative_throughput(1.0, 0.0)


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary() -> None:
    model = tiny_model(7)
    model.lm_head.weight.data.zero_()
    assert perplexity(model, [[1, 2], [3]], [[4, 5, 6], [0]]) == pytest.approx(7.0)


def test_perplexity_is_the_transformers_loss_over_the_output_alone() -> None:
    import torch

    model = tiny_model()
    prompt, output = [1, 2, 3], [4, 5]
    labels = torch.tensor([[-100] * len(prompt) + output])
    loss = model(input_ids=torch.tensor([prompt + output]), labels=labels).loss.item()
    assert perplexity(model, [prompt], [output]) == pytest.approx(math.exp(loss), rel=1e-5)


def test_the_mean_is_over_tokens_of_all_sequences_and_empty_outputs_weigh_nothing() -> None:
    model = tiny_model()
    first, second = perplexity(model, [[1]], [[2, 3, 4]]), perplexity(model, [[5]], [[6]])
    pooled = math.exp((3 * math.log(first) + math.log(second)) / 4)
    assert perplexity(model, [[1], [5], [1]], [[2, 3, 4], [6], []]) == pytest.approx(pooled)


def test_perplexity_refuses_what_has_no_likelihood() -> None:
    model = tiny_model()
    with pytest.raises(ValueError, match="prompts but"):
        perplexity(model, [[1]], [])
    with pytest.raises(ValueError, match="prompt token"):
        perplexity(model, [[]], [[1]])
    with pytest.raises(ValueError, match="generated token"):
        perplexity(model, [[1]], [[]])


def test_importing_the_metrics_does_not_import_torch() -> None:
    code = "import sys, nco_guard.demo.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
