"""The three measures of the paper's appendix "Evaluation Metrics": violation rate, perplexity, throughput.

Rates are percentages, as in the paper's tables. torch is imported by `perplexity` only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from nco_guard.errors import MissingExtraError

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["perplexity", "relative_throughput", "throughput", "violation_rate"]


class HasVerdict(Protocol):
    """What `violation_rate` needs of a verifier's report."""

    @property
    def ok(self) -> bool:
        """Whether no rule matched."""


def violation_rate(reports: Iterable[HasVerdict]) -> float:
    """Percentage of responses in which at least one rule matched.

    Raises `ValueError` without any report: a rate over nothing is not 0.
    """
    verdicts = [report.ok for report in reports]
    if not verdicts:
        raise ValueError("a violation rate needs at least one report")
    return 100.0 * verdicts.count(False) / len(verdicts)


def throughput(tokens: int, seconds: float) -> float:
    """Generated tokens per second of wall-clock time, masking and checking included.

    Raises `ValueError` unless `seconds` is positive and `tokens` is not negative.
    """
    if tokens < 0 or not seconds > 0:
        raise ValueError("throughput needs tokens >= 0 and seconds > 0")
    return tokens / seconds


def relative_throughput(method: float, base: float) -> float:
    """Throughput of a method as a percentage of the unconstrained model's, both in tokens per second.

    Meaningful only for the same model, batch size and machine, measured in turns. Raises `ValueError` unless
    `base` is positive.
    """
    if not base > 0:
        raise ValueError("relative throughput needs a base throughput above 0")
    return 100.0 * (method / base)


def perplexity(model: Any, prompt_ids: Sequence[Sequence[int]], output_ids: Sequence[Sequence[int]]) -> float:
    """exp of the mean negative log-likelihood of generated tokens, each given all that came before it.

    `model` is a causal language model of transformers, `prompt_ids[i]` and `output_ids[i]` the ids of one
    sequence without padding. The mean is over all generated tokens of all sequences, so long outputs weigh
    more; empty outputs weigh nothing. The likelihood is that of the bare model at temperature 1, whatever the
    tokens were sampled with.

    Cost: one forward pass per sequence, no gradients. Raises `ValueError` where the two lists differ in
    length, a prompt is empty (its first token would have no condition), or there is no generated token at
    all.
    """
    if len(prompt_ids) != len(output_ids):
        raise ValueError(f"{len(prompt_ids)} prompts but {len(output_ids)} outputs")
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("perplexity", "hf") from error

    total, count = 0.0, 0
    with torch.inference_mode():
        for prompt, output in zip(prompt_ids, output_ids, strict=True):
            if not prompt:
                raise ValueError("perplexity needs at least one prompt token before each output")
            if not output:
                continue
            ids = torch.tensor([[*prompt, *output]], device=model.device)
            logits: Tensor = model(input_ids=ids).logits[0]
            # The logits at position t predict token t + 1.
            chosen = torch.log_softmax(logits[len(prompt) - 1 : -1].double(), dim=-1)
            total -= chosen.gather(1, ids[0, len(prompt) :, None]).sum().item()
            count += len(output)
    if not count:
        raise ValueError("perplexity needs at least one generated token")
    return math.exp(total / count)
