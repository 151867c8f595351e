"""`nco-guard demo`: the model that ships, without the guard, masked, and going back; same prompts, same seeds.

All ways run in turns, batch by batch, the first one changing from batch to batch, after a warm-up batch
each: what the machine does meanwhile falls on all alike. The guarded time includes masking, the final
verification and the audit log.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nco_guard.cli.inputs import require_hf
from nco_guard.cli.output import console, marked, print_json, table, warn

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from nco_guard.audit import Event, Sink
    from nco_guard.guard import Guard

__all__ = ["DemoSettings", "run_demo"]

Chat = Sequence[Mapping[str, Any]]

PRESETS = {"pii": ("pii", "secrets", "pii_paper"), "profanity": ("ldnoobw",)}
#: The ways of generating, as the JSON and as the table call them.
ARMS = {"base": "off", "guarded": "mask", "rewound": "going back"}
TITLES = {"pii": "Personal data and secrets", "profanity": "Profanity"}


@dataclass(frozen=True)
class DemoSettings:
    """How much to generate: texts per policy and arm, prompts per batch, tokens per text; pairs to show."""

    samples: int = 28
    batch_size: int = 4
    max_new_tokens: int = 96
    seed: int = 0
    show: int = 3


@dataclass
class _Arm:
    """What one way of generating gave under one policy."""

    texts: list[str] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)
    reports: list[Any] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return sum(map(len, self.token_ids))

    @property
    def violations(self) -> int:
        return sum(not report.ok for report in self.reports)


@dataclass
class _Task:
    """One policy with the prompts that invite its violation, and all arms."""

    name: str
    guard: Guard
    sink: _CountingSink
    prompts: list[Chat]
    arms: dict[str, _Arm] = field(default_factory=lambda: {name: _Arm() for name in ARMS})

    @property
    def base(self) -> _Arm:
        """Without the guard."""
        return self.arms["base"]

    @property
    def violations(self) -> int:
        """Guarded texts that break the policy, whichever way."""
        return sum(arm.violations for name, arm in self.arms.items() if name != "base")


class _CountingSink:
    """Passes events on and counts the interventions among them, by the arm that is at work."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.arm = ""
        self.interventions: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        self.interventions[self.arm] += event.kind == "intervention"
        self._sink(event)


def run_demo(settings: DemoSettings, *, audit: Path, as_json: bool) -> int:
    """Run both tasks and print the comparison; returns 1 if a guarded text violates its policy, else 0."""
    require_hf("the demo")
    from nco_guard import demo
    from nco_guard.audit import JsonLinesSink

    out = console(stderr=as_json)
    model, tokenizer = demo.load()
    with JsonLinesSink(audit) as log, _one_thread(), _progress(out) as progress:
        tasks = [_task(name, settings, log) for name in PRESETS]
        for task in tasks:
            _run(task, model, tokenizer, settings, progress)
    results = {task.name: _measure(task, model, tokenizer) for task in tasks}
    ok = not any(task.violations for task in tasks)
    if as_json:
        print_json({"ok": ok, "settings": asdict(settings), "tasks": results, "audit": str(audit)})
    else:
        for task in tasks if settings.show else ():
            _print_pairs(out, task, settings.show)
        _print_table(out, results, settings)
        out.print(f"Audit log (ids, counts and offsets; no text): {audit}", soft_wrap=True, markup=False)
    for task in tasks:
        if task.violations:
            warn(f"THE GUARD FAILED: {task.violations} guarded texts violate policy {task.name!r}")
    return 0 if ok else 1


@contextmanager
def _one_thread() -> Iterator[None]:
    """The model is so small that more threads mostly wait for one another, and speeds jump about."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _task(name: str, settings: DemoSettings, log: Sink) -> _Task:
    from nco_guard import Guard
    from nco_guard.demo import PROMPTS

    sink = _CountingSink(log)
    return _Task(
        name=name,
        guard=Guard.from_presets(*PRESETS[name], audit=sink),
        sink=sink,
        prompts=list(islice(cycle(PROMPTS[name]), settings.samples)),
    )


def _run(task: _Task, model: Any, tokenizer: Any, settings: DemoSettings, progress: Progress) -> None:
    """Generate all ways, in turns; then verify all with the same verifier, outside of the measured time."""
    from transformers import set_seed

    size = settings.batch_size
    batches = [task.prompts[at : at + size] for at in range(0, len(task.prompts), size)]
    arms = list(task.arms.items())
    bar = progress.add_task(TITLES[task.name], total=len(task.prompts))
    set_seed(settings.seed + len(batches))
    for name, _ in arms:  # states and masks are found lazily: the first texts pay for those that follow
        _generated(name, task, model, tokenizer, batches[0], settings.max_new_tokens)
    task.sink.interventions.clear()
    for index, batch in enumerate(batches):
        turn = index % len(arms)
        for name, arm in (*arms[turn:], *arms[:turn]):
            set_seed(settings.seed + index)
            start = time.perf_counter()
            texts, ids = _generated(name, task, model, tokenizer, batch, settings.max_new_tokens)
            arm.seconds += time.perf_counter() - start
            arm.texts += texts
            arm.token_ids += ids
        progress.advance(bar, len(batch))
    for _, arm in arms:
        arm.reports = [task.guard.verify(text) for text in arm.texts]


def _generated(
    name: str, task: _Task, model: Any, tokenizer: Any, prompts: Sequence[Chat], max_new_tokens: int
) -> tuple[list[str], list[list[int]]]:
    """Texts and their ids, generated in one of the ways."""
    if name == "base":
        return _unguarded(model, tokenizer, prompts, max_new_tokens)
    task.sink.arm = name
    result = task.guard.generate(
        model,
        tokenizer,
        list(prompts),
        max_new_tokens=max_new_tokens,
        do_sample=True,
        when_blocked="rewind" if name == "rewound" else "mask",
    )
    return list(result.texts), [list(ids) for ids in result.token_ids]


def _unguarded(
    model: Any, tokenizer: Any, prompts: Sequence[Chat], max_new_tokens: int
) -> tuple[list[str], list[list[int]]]:
    batch = tokenizer.apply_chat_template(
        list(prompts),
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
        padding_side="left",
    )
    output = model.generate(
        **batch.to(model.device),
        max_new_tokens=max_new_tokens,
        do_sample=True,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
    )
    ends = model.generation_config.eos_token_id
    eos = set(ends if isinstance(ends, list) else [ends])
    ids = []
    for row in output[:, batch["input_ids"].shape[1] :].tolist():
        end = next((at + 1 for at, token in enumerate(row) if token in eos), len(row))
        ids.append(row[:end])
    return [tokenizer.decode(row, skip_special_tokens=True) for row in ids], ids


def _measure(task: _Task, model: Any, tokenizer: Any) -> dict[str, Any]:
    """The paper's metrics for all arms of a task."""
    from nco_guard.demo.metrics import perplexity, relative_throughput, throughput, violation_rate

    prompt_ids = [
        tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)["input_ids"]
        for prompt in task.prompts
    ]
    base_speed = throughput(task.base.tokens, task.base.seconds)
    result: dict[str, Any] = {"presets": list(PRESETS[task.name]), "policy_digest": task.guard.policy.digest}
    for name, arm in task.arms.items():
        speed = throughput(arm.tokens, arm.seconds)
        result[name] = {
            "texts": len(arm.texts),
            "violations": arm.violations,
            "violation_rate": violation_rate(arm.reports),
            "tokens": arm.tokens,
            "tokens_per_second": speed,
            "relative_throughput": relative_throughput(speed, base_speed),
            "perplexity": perplexity(model, prompt_ids, arm.token_ids),
        }
        if name != "base":
            result[name]["interventions"] = task.sink.interventions[name]
    return result


def _progress(out: Console) -> Progress:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out, transient=True, disable=not out.is_terminal)


def _print_pairs(out: Console, task: _Task, show: int) -> None:
    """Unguarded texts that violate the policy, `show` at most, with the guarded ones of the same seed."""
    colours = out.is_terminal and out.color_system is not None
    pairs = [at for at, report in enumerate(task.base.reports) if not report.ok][:show]
    out.rule(TITLES[task.name])
    if not task.base.violations:
        out.print("The unguarded model broke no rule in this run.")
    for at in pairs:
        out.print(f"> {task.prompts[at][-1]['content']}")
        shown = table(out, "guard", "text")
        for name, arm in task.arms.items():
            spans = [(found.start, found.end) for found in arm.reports[at].findings]
            shown.add_row(ARMS[name], marked(arm.texts[at], spans, colours=colours))
        out.print(shown)


def _print_table(out: Console, results: dict[str, dict[str, Any]], settings: DemoSettings) -> None:
    rows = table(
        out, "policy", "guard", ">violations", ">tokens/s", ">relative", ">perplexity", ">interventions"
    )
    for name, result in results.items():
        for arm, called in ARMS.items():
            row = result[arm]
            rows.add_row(
                name if arm == "base" else "",
                called,
                f"{row['violations']}/{row['texts']} ({row['violation_rate']:.1f} %)",
                f"{row['tokens_per_second']:.0f}",
                f"{row['relative_throughput']:.1f} %",
                f"{row['perplexity']:.2f}",
                str(row.get("interventions", "")),
            )
    out.print(rows)
    out.print(
        f"A model of two million parameters on one thread of a CPU, batches of {settings.batch_size}, seed "
        f"{settings.seed}, all ways in turns after a warm-up. Its steps take milliseconds, so that what the "
        "guard adds weighs far more than with a model of usual size: compare speeds within this table only. "
        "Perplexity is under the same model, unguarded."
    )
