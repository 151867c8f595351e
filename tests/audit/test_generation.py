"""What a log says of real generations: the same whether or not somebody looks at every row of every step."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, demo
from nco_guard.audit import Event, MemorySink
from nco_guard.engines.hf import StepReport
from nco_guard.errors import AuditError
from nco_guard.policy import RegexRule

MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "temperature": 1.2},
    "beams": {"num_beams": 3},
    "sequences": {"do_sample": True, "num_return_sequences": 2},
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
}


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return demo.load()


def policy_of(**fields: Any) -> Policy:
    """Hard rules, and soft ones: vowels are penalised, so that first choices are too."""
    vowels = RegexRule(id="vowels", regex="[aeiou]{2}", penalty=4.0)
    return Policy(name="p", rules=(*Policy.from_presets("pii").rules, vowels), **fields)


def generated(
    model: tuple[Any, Any], sink: MemorySink, reports: list[StepReport] | None, prompts: int, **options: Any
) -> list[str]:
    torch.manual_seed(5)
    guard = Guard(policy_of(), audit=sink)
    watcher = None if reports is None else reports.append
    chats = [demo.PROMPTS["pii"][n % len(demo.PROMPTS["pii"])] for n in range(prompts)]
    return guard.generate(*model, chats, max_new_tokens=24, on_step=watcher, **options).texts


def plain(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    without = {"run_id", "time", "monotonic_ns", "seconds"}
    return [event.model_dump(exclude=without) for event in events]


@pytest.mark.parametrize(
    ("mode", "dtype"), [*((mode, torch.float32) for mode in MODES), ("greedy", torch.bfloat16)]
)
def test_a_log_of_changes_says_what_reports_of_every_row_say(
    mode: str, dtype: torch.dtype, model: tuple[Any, Any]
) -> None:
    network = model[0]
    network.to(dtype)
    try:
        quick, full = MemorySink(), MemorySink()
        reports: list[StepReport] = []
        prompts = 1 if mode == "prompt lookup" else 3
        texts = generated(model, quick, None, prompts, **MODES[mode])
        assert texts == generated(model, full, reports, prompts, **MODES[mode])
    finally:
        network.to(torch.float32)
    assert plain(quick.events) == plain(full.events)
    changes = [event for event in quick.events if event.kind == "intervention"]
    assert "masked" in {event.action for event in changes}  # type: ignore[attr-defined]
    if mode != "prompt lookup":  # there, positions are scored that are discarded
        listed = [
            (row, step)
            for report in reports
            for row, step, *changed in zip(
                report.rows, report.steps, report.top_forbidden, report.top_penalized, strict=True
            )
            if any(changed)
        ]
        assert [(event.sequence, event.step) for event in changes] == listed  # type: ignore[attr-defined]
        assert "penalized" in {event.action for event in changes}  # type: ignore[attr-defined]
        assert len(listed) < sum(len(report.rows) for report in reports)


@pytest.mark.parametrize("kind", ["intervention", "verification", "run_finished"])
def test_a_sink_that_fails_ends_a_generation_unless_the_policy_lets_it_go_on(
    kind: str, model: tuple[Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    kept: list[Event] = []

    def failing(event: Event) -> None:
        if event.kind == kind:
            raise OSError("the disk is full")
        kept.append(event)

    chats = demo.PROMPTS["pii"][:1]
    with pytest.raises(AuditError, match=f"{kind}.*OSError"):
        Guard(policy_of(), audit=failing).generate(*model, chats, max_new_tokens=40)
    kept.clear()
    guard = Guard(policy_of(on_audit_failure="warn"), audit=failing)
    with caplog.at_level(logging.WARNING, logger="nco_guard.audit"):
        result = guard.generate(*model, chats, max_new_tokens=40)
    assert result.reports[0].ok
    numbers = [event.number for event in kept if event.run_id == kept[-1].run_id]
    lost = caplog.text.count(f"({kind}) of run")
    assert lost > 0
    assert len(numbers) + lost == guard.log.history.runs[0].steps_changed + 3
    if kind != "run_finished":  # the gap shows
        assert numbers[-1] == len(numbers) + lost - 1
