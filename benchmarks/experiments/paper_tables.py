"""The paper's tables 1 and 2 on an accelerator, unattended: models of real shapes with random weights in bf16.

Throughput of rejection sampling, GUARD's trie, the paper's NCO and nco-guard, relative to the model alone, for
profanity (LDNOOBW-en as substrings, table 1) and for PII (four patterns, table 2). Models are built from their
configurations, nothing is downloaded. What random weights would write is noise, so the last layer is pushed towards the
next token of a text full of both; greedy decoding, equally many new tokens for all.

Every method generates once per repeat, another one first each time; reported are mean and deviation over the repeats.
`results.json` and `results.md` are written after each batch size, and a run that finds them goes on where they end.
What does not fit into the device's memory is in the record as such. Without a tokenizer a synthetic byte-level
vocabulary of the model's width stands in.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.experiments.architectures import ARCHITECTURES, small_config
from benchmarks.experiments.model_tokenizers import read_tokenizer
from benchmarks.experiments.options import BARE, COMPARED, TABLES, ExperimentOptions
from benchmarks.experiments.output import Output
from benchmarks.harness.generating import Generator, Ready, Run, prepared, replayed
from benchmarks.harness.record import Case, Measurement, Record
from benchmarks.harness.timing import timed, turns
from benchmarks.inputs.constraints import PAPER_PII, SUBSTRINGS, ConstraintSet
from benchmarks.inputs.models import random_weights
from benchmarks.methods.world import World
from benchmarks.report import targets_table
from nco_guard.errors import NCOGuardError
from nco_guard.guard import Guard
from nco_guard.tokens import Binding, read_vocabulary

__all__ = ["markdown", "run"]

TITLES = {
    BARE: "base, tokens/s",
    "rejection": "rejection sampling",
    "guard-trie": "GUARD",
    "paper-nco": "NCO (paper)",
    "ours": "nco-guard",
}
CONSTRAINTS: dict[str, ConstraintSet] = dict(zip(TABLES.values(), (SUBSTRINGS, PAPER_PII), strict=True))
PROMPT = 32


def run(options: ExperimentOptions, folder: Path, say: Callable[[str], None]) -> Record:
    """Measure all models, both tables. Raises `NCOGuardError` for a folder with a record of other options."""
    if options.where.startswith("cuda") and not torch.cuda.is_available():
        raise NCOGuardError("no CUDA device; use --cpu-small")
    kept = {
        "new_tokens": options.tokens,
        "repeats": options.repeats,
        "small": options.cpu_small,
        "device": options.where,
    }
    output = Output.open(folder, kept, markdown)
    for name in options.chosen_models:
        _Experiment.of(name, options, output, say).run()
    return output.record


@dataclass(frozen=True)
class _Experiment:
    """One model: what it is, and what of it is to be measured."""

    title: str
    label: str
    config: Mapping[str, Any]
    name: str
    folder: Path | None
    options: ExperimentOptions
    output: Output
    say: Callable[[str], None]

    @classmethod
    def of(
        cls, name: str, options: ExperimentOptions, output: Output, say: Callable[[str], None]
    ) -> _Experiment:
        """The model of a name, as large as the options say."""
        shape, folder, small = ARCHITECTURES[name], options.folders.get(name), options.cpu_small
        config = small_config(shape) if small else shape.config
        if folder is not None and small:
            config = {**config, "vocab_size": shape.config["vocab_size"]}
        title = f"{shape.title}{', small' if small else ''}"
        label = f"{'synthetic' if folder is None else folder.resolve().name} ({config['vocab_size']:,})"
        return cls(title, label, config, name, folder, options, output, say)

    def case(self, table: str, method: str, batch: int) -> Case:
        """A case's name."""
        return Case(
            suite=table,
            method=method,
            constraint=CONSTRAINTS[table].name,
            tokenizer=self.label,
            model=self.title,
            batch=batch,
        )

    def missing(self) -> list[tuple[str, int]]:
        """Tables and batch sizes that the record does not have yet."""
        return [
            (table, batch)
            for table in self.options.chosen_tables
            for batch in self.options.sizes
            if not all(self.output.has(self.case(table, m, batch)) for m in self.options.chosen_methods)
        ]

    def run(self) -> None:
        """Measure what is missing."""
        missing = self.missing()
        if not missing:
            self.say(f"{self.title}: nothing left to measure")
            return
        width, device = self.config["vocab_size"], self.options.where
        tokenizer = read_tokenizer(self.folder, width)
        vocabulary = read_vocabulary(tokenizer, Binding(vocab_width=width))
        world = World(self.label, Path(self.folder or "."), tokenizer, vocabulary, torch.get_num_threads())
        exact = self.options.cpu_small or device == "cpu"
        dtype = torch.float32 if exact else torch.bfloat16
        try:
            model = random_weights(ARCHITECTURES[self.name].family, self.config, device, dtype)
        except torch.OutOfMemoryError:
            _free(device)
            self._not_built(missing)
            return
        billions = sum(p.numel() for p in model.parameters()) / 1e9
        kind = str(dtype).removeprefix("torch.")
        note = f"{self.title}: {billions:.3g} B random weights, {kind}, vocabulary {self.label}"
        for table in dict.fromkeys(table for table, _ in missing):
            self._table(table, [batch for each, batch in missing if each == table], model, world, note)
            _free(device)
        del model
        _free(device)

    def _not_built(self, missing: list[tuple[str, int]]) -> None:
        found = [
            Measurement(case=self.case(t, m, b), status="over memory", reason="the weights do not fit")
            for t, b in missing
            for m in self.options.chosen_methods
        ]
        self.output.add(found, 0.0, f"{self.title}: not built")

    def _table(self, table: str, batches: list[int], model: Any, world: World, note: str) -> None:
        """One table: methods are set up once, then generate at each batch size."""
        ready: dict[str, Ready] = {}
        setups: dict[str, float] = {}
        failed: dict[str, Run] = {}
        for key in self.options.chosen_methods:
            self.say(f"{self.title}: table {table}: setting up {TITLES[key]}")
            try:
                ready[key], setups[key] = _prepare(key, CONSTRAINTS[table], world, self.options.where)
            except (torch.OutOfMemoryError, MemoryError):
                _free(self.options.where)
                failed[key] = Run("over memory", "its tables do not fit", {})
            except NCOGuardError as error:
                failed[key] = Run("cannot express", str(error), {})
        text = world.text(64 * (PROMPT + self.options.tokens))
        for batch in batches:
            self.say(f"{self.title}: table {table}: batch {batch}")
            generator = _generator(model, world, text, batch, ready, self.options.tokens)
            found, seconds = timed(lambda g=generator: failed | _compare(g, self.options.repeats))  # type: ignore[misc]
            measured = []
            for key, each in found.items():
                samples = dict(each.samples)
                if each.status == "ok" and key != BARE:
                    samples["setup_s"] = [setups[key]]
                case = self.case(table, key, batch)
                if not self.output.has(case):
                    measured.append(
                        Measurement(case=case, status=each.status, reason=each.reason, samples=samples)
                    )
            self.output.add(measured, seconds, note)


def _prepare(key: str, constraint: ConstraintSet, world: World, device: str) -> tuple[Ready, float]:
    """A method's tables for the model, and seconds of making them."""
    started = time.perf_counter()
    made = None if key == BARE else prepared(key, constraint, world, device=device)
    if isinstance(made, Guard):
        made.bind(world.tokenizer, vocab_width=world.vocabulary.width)
    return made, time.perf_counter() - started


def _generator(
    model: Any, world: World, text: list[int], batch: int, ready: Mapping[str, Ready], new_tokens: int
) -> Generator:
    """The text from different places, a row of it for each sequence."""
    inputs, replay = replayed(text, batch, PROMPT, new_tokens, model.device)
    options = {
        "max_new_tokens": new_tokens,
        "min_new_tokens": new_tokens,
        "do_sample": False,
        "pad_token_id": world.tokenizer.pad_token_id,
    }
    return Generator(model, world.tokenizer, inputs, ready, new_tokens, options, replay)


def _compare(generator: Generator, repeats: int) -> dict[str, Run]:
    """All methods at one batch size, in turns; the first round warms up."""
    failed: dict[str, Run] = {}
    speeds: dict[str, list[float]] = {key: [] for key in generator.ready}
    peaks = dict.fromkeys(generator.ready, 0.0)
    with generator.pushed():
        for number, key in turns(list(generator.ready), 1 + repeats):
            if key in failed:
                continue
            try:
                speed, peak = _speed_and_peak(generator, key)
            except torch.OutOfMemoryError:
                _free(str(generator.model.device))
                failed[key] = Run("over memory", "the device had no more", {})
                continue
            except NCOGuardError as error:
                failed[key] = Run("failed", str(error), {})
                continue
            peaks[key] = max(peaks[key], peak)
            if number:
                speeds[key].append(speed)
    for key in set(speeds) - set(failed) if BARE in failed else ():
        failed[key] = Run("failed", "the model alone did not run", {})
    runs: dict[str, Run] = {}
    for key, reached in speeds.items():
        samples = {"tokens_per_s": reached, "device_peak_mib": [peaks[key]]}
        if key != BARE and key not in failed:
            samples["relative_ratio"] = [r / b for r, b in zip(reached, speeds[BARE], strict=True)]
        runs[key] = failed.get(key) or Run("ok", "", samples)
    return runs


def _speed_and_peak(generator: Generator, key: str) -> tuple[float, float]:
    """Tokens a second, and the most that the device held, in MiB; 0 on a CPU."""
    cuda = generator.model.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    speed = generator.speed(key)
    return speed, torch.cuda.max_memory_allocated() / 2**20 if cuda else 0.0


def _free(device: str) -> None:
    """Give memory back before the next case."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


def markdown(record: Record) -> str:
    """Tables as the paper's: per cent of the base model at the same batch size, mean and deviation."""
    machine = record.machine
    lines = [
        "# Relative throughput",
        "",
        f"{machine.accelerator if machine.accelerator != 'none' else machine.processor}; {machine.system}; Python "
        f"{machine.python}; torch {record.versions['torch']}, transformers {record.versions['transformers']}; commit "
        f"{record.commit or 'unknown'}. {record.options['new_tokens']} new tokens, "
        f"{record.options['repeats']} repeats.",
        "",
        *(f"* {note}" for note in record.notes),
        "",
    ]
    if record.targets:
        lines += [targets_table(record)]
    for table in dict.fromkeys(m.case.suite for m in record.measurements):
        these = record.find(table)
        batches = sorted({m.case.batch or 0 for m in these})
        lines += [f"## Table {table}: {these[0].case.constraint}", ""]
        lines += [
            f"| model | method | {' | '.join(map(str, batches))} | set-up |",
            "|---|---|" + "---|" * (len(batches) + 1),
        ]
        for model in dict.fromkeys(m.case.model for m in these):
            for method in COMPARED:
                row = {m.case.batch: m for m in these if m.case.model == model and m.case.method == method}
                cells = [_cell(row.get(batch)) for batch in batches]
                setups = [s for m in row.values() for s in m.samples.get("setup_s", [])]
                setup = f"{statistics.mean(setups):,.3g} s" if setups else "-"
                lines.append(f"| {model} | {TITLES[method]} | {' | '.join(cells)} | {setup} |")
        lines.append("")
        failed = [m for m in these if m.status != "ok"]
        lines += [
            f"* {m.case.model}, {TITLES[m.case.method]}, batch {m.case.batch}: {m.status}: {m.reason}"
            for m in failed
        ]
        lines.append("")
    return "\n".join(lines)


def _cell(measurement: Measurement | None) -> str:
    """Mean and deviation, or why there are none."""
    if measurement is None:
        return "-"
    if measurement.status != "ok":
        return measurement.status
    base = measurement.case.method == BARE
    values = measurement.samples["tokens_per_s" if base else "relative_ratio"]
    factor = 1 if base else 100
    mean = factor * statistics.mean(values)
    deviation = factor * (statistics.stdev(values) if len(values) > 1 else 0.0)
    return f"{mean:,.1f} ± {deviation:,.1f}"
