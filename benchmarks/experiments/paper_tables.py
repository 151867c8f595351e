"""The paper's tables 1 and 2 on an accelerator, unattended: models of real shapes with random weights in bf16.

    python benchmarks/gpu.py -o gpu-results [--tokenizer FOLDER | --tokenizer llama3=FOLDER ...]
    python benchmarks/gpu.py -o gpu-small --cpu-small         the same with small shapes on the CPU, in a minute or two

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

import argparse
import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.harness.record import Case, Measurement, Record, Status, commit, load, this_machine, versions
from benchmarks.harness.targets import judge_accelerator
from benchmarks.inputs.constraints import PAPER_PII, SUBSTRINGS, ConstraintSet
from benchmarks.inputs.models import Replay
from benchmarks.methods.baselines import NCO, GuardTrie, Prepared, RejectionSampling
from benchmarks.methods.world import World
from benchmarks.report import targets_table
from nco_guard import Guard
from nco_guard.errors import NCOGuardError
from nco_guard.tokens import read_vocabulary
from tools.demo_model.corpus import documents

BASE = "base"
METHODS = (BASE, "rejection", "guard-trie", "paper-nco", "ours")
TITLES = {
    BASE: "base, tokens/s",
    "rejection": "rejection sampling",
    "guard-trie": "GUARD",
    "paper-nco": "NCO (paper)",
    "ours": "nco-guard",
}
TABLES: dict[str, ConstraintSet] = {"1: profanity": SUBSTRINGS, "2: PII": PAPER_PII}
PROMPT = 32


@dataclass(frozen=True)
class Shape:
    """A model by its configuration. small: what is different in the form for a CPU."""

    title: str
    family: str
    config: dict[str, Any]
    small: dict[str, Any]


SHAPES = {
    "llama3": Shape(
        "Llama-3.1-8B shape",
        "Llama",
        {
            "vocab_size": 128256,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
        {"num_attention_heads": 4, "num_key_value_heads": 2},
    ),
    "qwen2.5": Shape(
        "Qwen2.5-7B shape",
        "Qwen2",
        {
            "vocab_size": 152064,
            "hidden_size": 3584,
            "intermediate_size": 18944,
            "num_hidden_layers": 28,
            "num_attention_heads": 28,
            "num_key_value_heads": 4,
            "max_position_embeddings": 8192,
            "tie_word_embeddings": False,
        },
        {"num_attention_heads": 4, "num_key_value_heads": 2},
    ),
    "gpt-neo": Shape(
        "GPT-Neo-2.7B shape",
        "GPTNeo",
        {
            "vocab_size": 50257,
            "hidden_size": 2560,
            "num_layers": 32,
            "num_heads": 20,
            "attention_types": [[["global", "local"], 16]],
            "max_position_embeddings": 2048,
        },
        {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]},
    ),
}


def small_config(shape: Shape) -> dict[str, Any]:
    """The configuration of the CPU's form: two layers of 128, a vocabulary of 4,096."""
    small = {"vocab_size": 4096, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
    known = {name: value for name, value in small.items() if name in shape.config}
    return {**shape.config, **known, **shape.small}


def build_model(shape: Shape, config: dict[str, Any], device: str, dtype: torch.dtype) -> Any:
    """Random weights, made on the device, in evaluation mode."""
    import transformers

    made = getattr(transformers, f"{shape.family}Config")(
        **config, bos_token_id=None, eos_token_id=None, pad_token_id=None
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(made, dtype=dtype)
    return model.eval()


def synthetic_tokenizer(width: int) -> Any:
    """A byte-level BPE of `width` tokens: merges learned from the shipped corpus, then merges of what there is."""
    import random

    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=min(width - 1, 4000), initial_alphabet=alphabet, show_progress=False
    )
    texts = (d.text or "\n".join(str(m.get("content") or "") for m in d.messages) for d in documents(2000))
    learned.train_from_iterator(texts, trainer)
    state = json.loads(learned.to_str())["model"]
    vocabulary: dict[str, int] = state["vocab"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in state["merges"]]
    names, rng = list(vocabulary), random.Random(0)
    while len(vocabulary) < width - 1:
        left, right = rng.choice(names), rng.choice(names)
        if left + right not in vocabulary and len(left + right) <= 16:
            vocabulary[left + right] = len(vocabulary)
            names.append(left + right)
            merges.append((left, right))
    full = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    full.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    full.decoder = decoders.ByteLevel()
    end = "<|end|>"
    full.add_special_tokens([end])
    return PreTrainedTokenizerFast(tokenizer_object=full, eos_token=end, pad_token=end)


def read_tokenizer(folder: Path | None, width: int) -> Any:
    """The tokenizer of a folder, or a synthetic one. Raises `NCOGuardError` for one that does not fit the width."""
    from transformers import AutoTokenizer

    if folder is None:
        return synthetic_tokenizer(width)
    if not folder.is_dir():
        raise NCOGuardError(f"{folder}: no such folder")
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    if len(tokenizer) > width:
        raise NCOGuardError(f"{folder}: {len(tokenizer)} tokens do not fit a model of {width} columns")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


@dataclass
class Output:
    """The record under way, in a folder."""

    folder: Path
    options: dict[str, Any]
    record: Record

    @classmethod
    def open(cls, folder: Path, options: dict[str, Any]) -> Output:
        """Go on with the record in the folder, or begin one. Raises `NCOGuardError` if it had other options."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "results.json"
        if path.exists():
            record = Record.model_validate_json(path.read_bytes())
            if record.options != options:
                raise NCOGuardError(f"{path} is of a run with other options; choose another folder")
            return cls(folder, options, record)
        record = Record(
            started=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            seconds=0,
            command=" ".join(["python", "benchmarks/gpu.py", *sys.argv[1:]]),
            machine=this_machine(),
            versions=versions(),
            commit=commit(),
            options=options,
            notes=[],
            measurements=[],
            checks=[],
        )
        return cls(folder, options, record)

    def has(self, case: Case) -> bool:
        """Whether the case was measured, now or in an earlier run."""
        return any(m.case == case for m in self.record.measurements)

    def add(self, found: Sequence[Measurement], seconds: float, note: str) -> None:
        """Keep measurements on disk; a file is never half written."""
        notes = list(dict.fromkeys([*self.record.notes, note]))
        self.record = self.record.model_copy(
            update={
                "measurements": [*self.record.measurements, *found],
                "seconds": self.record.seconds + round(seconds, 1),
                "notes": notes,
                "machine": self.record.machine.model_copy(update={"load_after": load()}),
            }
        )
        self.record = self.record.model_copy(update={"targets": judge_accelerator(self.record)})
        for name, text in (
            ("results.json", self.record.model_dump_json(indent=1) + "\n"),
            ("results.md", markdown(self.record)),
        ):
            part = self.folder / f"{name}.part"
            part.write_text(text, encoding="utf-8")
            part.replace(self.folder / name)


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
            for method in METHODS:
                row = {m.case.batch: m for m in these if m.case.model == model and m.case.method == method}
                cells = [cell(row.get(batch)) for batch in batches]
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


def cell(measurement: Measurement | None) -> str:
    """Mean and deviation, or why there are none."""
    if measurement is None:
        return "-"
    if measurement.status != "ok":
        return measurement.status
    base = measurement.case.method == BASE
    values = measurement.samples["tokens_per_s" if base else "relative_ratio"]
    factor = 1 if base else 100
    mean = factor * statistics.mean(values)
    deviation = factor * (statistics.stdev(values) if len(values) > 1 else 0.0)
    return f"{mean:,.1f} ± {deviation:,.1f}"


def prepare(
    key: str, constraint: ConstraintSet, world: World, device: str
) -> tuple[Prepared | Guard | None, float]:
    """A method's tables for the model, and seconds of making them."""
    started = time.perf_counter()
    if key == BASE:
        return None, 0.0
    if key == "ours":
        guard = Guard(constraint.policy, cache=False)
        guard.bind(world.tokenizer, vocab_width=world.vocabulary.width)
        return guard, time.perf_counter() - started
    texts, patterns = constraint.plain
    corpus = world.corpus() if patterns else ()
    method = {"rejection": RejectionSampling(), "guard-trie": GuardTrie(corpus=corpus), "paper-nco": NCO()}[
        key
    ]
    ready = method.setup(texts, patterns, world.tokenizer, vocabulary=world.vocabulary, device=device)
    return ready, time.perf_counter() - started


def synchronise(device: str) -> None:
    """Wait for the device."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def free(device: str) -> None:
    """Give memory back before the next case."""
    gc.collect()
    if device.startswith("cuda"):
        torch.cuda.empty_cache()


class Bench:
    """One model: its tokenizer, its weights, and what it generates."""

    def __init__(
        self, title: str, model: Any, world: World, device: str, new_tokens: int, repeats: int
    ) -> None:
        self.title, self.model, self.world, self.device = title, model, world, device
        self.new_tokens, self.repeats = new_tokens, repeats
        self.text = world.text(64 * (PROMPT + new_tokens))

    def rows(self, batch: int) -> torch.Tensor:
        """int64 [batch, PROMPT + new tokens]: the text from different places."""
        length = PROMPT + self.new_tokens
        starts = [row * 61 % (len(self.text) - length) for row in range(batch)]
        return torch.tensor([self.text[s : s + length] for s in starts], device=self.device)

    def batch(
        self, table: str, constraint: ConstraintSet, batch: int, ready: dict[str, Prepared | Guard | None]
    ) -> dict[str, tuple[Status, str, dict[str, list[float]]]]:
        """All methods at one batch size, in turns."""
        rows = self.rows(batch)
        replay = Replay(rows[:, PROMPT:])
        prompt = rows[:, :PROMPT].clone()
        inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
        fixed = {
            "max_new_tokens": self.new_tokens,
            "min_new_tokens": self.new_tokens,
            "do_sample": False,
            "pad_token_id": self.world.tokenizer.pad_token_id,
        }
        calls: dict[str, Callable[..., Any]] = {}
        for key, made in ready.items():
            if isinstance(made, Guard):
                calls[key] = partial(made.generate, self.model, self.world.tokenizer, inputs)
            elif made is None:
                calls[key] = partial(self.model.generate, **inputs)
            else:
                calls[key] = partial(made.generate, self.model, **inputs)
        found: dict[str, tuple[Status, str, dict[str, list[float]]]] = {}
        speeds: dict[str, list[float]] = {key: [] for key in calls}
        peaks: dict[str, float] = {}
        order = list(calls)
        hook = self.model.get_output_embeddings().register_forward_hook(replay)
        try:
            for number in range(-1, self.repeats):  # the first warms up
                first = number % len(order)
                for key in (*order[first:], *order[:first]):
                    if key in found:
                        continue
                    replay.restart()
                    try:
                        speeds_of, peak = self._time(calls[key], batch, fixed)
                    except torch.OutOfMemoryError:
                        free(self.device)
                        found[key] = ("over memory", "the device had no more", {})
                        continue
                    except NCOGuardError as error:
                        found[key] = ("failed", str(error), {})
                        continue
                    peaks[key] = max(peaks.get(key, 0.0), peak)
                    if number >= 0:
                        speeds[key].append(speeds_of)
        finally:
            hook.remove()
        base = None if BASE in found else speeds[BASE]
        for key, reached in speeds.items():
            if key in found:
                continue
            samples = {"tokens_per_s": reached, "device_peak_mib": [peaks[key]]}
            if base is None:
                found[key] = ("failed", "the model alone did not run", {})
                continue
            if key != BASE:
                samples["relative_ratio"] = [r / b for r, b in zip(reached, base, strict=True)]
            found[key] = ("ok", "", samples)
        return found

    def _time(self, call: Callable[..., Any], batch: int, fixed: dict[str, Any]) -> tuple[float, float]:
        if self.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
        synchronise(self.device)
        started = time.perf_counter()
        call(**fixed)
        synchronise(self.device)
        elapsed = time.perf_counter() - started
        peak = torch.cuda.max_memory_allocated() / 2**20 if self.device.startswith("cuda") else 0.0
        return batch * self.new_tokens / elapsed, peak


def measure_model(name: str, output: Output, arguments: argparse.Namespace, folder: Path | None) -> None:
    """Both tables for one model; cases that the record has are left out."""
    shape = SHAPES[name]
    device, small = arguments.device, arguments.cpu_small
    config = small_config(shape) if small else shape.config
    if folder is not None and small:
        config = {**config, "vocab_size": shape.config["vocab_size"]}
    title = f"{shape.title}{', small' if small else ''}"
    width = config["vocab_size"]

    def case(table: str, method: str, batch: int) -> Case:
        return Case(
            suite=table,
            method=method,
            constraint=TABLES[table].name,
            tokenizer=label,
            model=title,
            batch=batch,
        )

    label = f"{'synthetic' if folder is None else folder.resolve().name} ({width:,})"
    missing = [
        (table, batch)
        for table in arguments.tables
        for batch in arguments.batches
        if not all(output.has(case(table, method, batch)) for method in arguments.methods)
    ]
    if not missing:
        print(f"{title}: nothing left to measure", flush=True)
        return
    tokenizer = read_tokenizer(folder, width)
    vocabulary = read_vocabulary(tokenizer, vocab_width=width)
    world = World(label, Path(folder or "."), tokenizer, vocabulary, torch.get_num_threads())
    dtype = torch.float32 if small or device == "cpu" else torch.bfloat16
    try:
        model = build_model(shape, config, device, dtype)
    except torch.OutOfMemoryError:
        free(device)
        output.add(
            [
                Measurement(case=case(t, m, b), status="over memory", reason="the weights do not fit")
                for t, b in missing
                for m in arguments.methods
            ],
            0.0,
            f"{title}: not built",
        )
        return
    billions = sum(p.numel() for p in model.parameters()) / 1e9
    note = (
        f"{title}: {billions:.3g} B random weights, {str(dtype).removeprefix('torch.')}, vocabulary {label}"
    )
    bench = Bench(title, model, world, device, arguments.new_tokens, arguments.repeats)
    for table in dict.fromkeys(t for t, _ in missing):
        constraint = TABLES[table]
        ready: dict[str, Prepared | Guard | None] = {}
        setups: dict[str, float] = {}
        failed: dict[str, tuple[Status, str, dict[str, list[float]]]] = {}
        for key in arguments.methods:
            print(f"{title}: table {table}: setting up {TITLES[key]}", flush=True)
            try:
                ready[key], setups[key] = prepare(key, constraint, world, device)
            except (torch.OutOfMemoryError, MemoryError):
                free(device)
                failed[key] = ("over memory", "its tables do not fit", {})
            except NCOGuardError as error:
                failed[key] = ("cannot express", str(error), {})
        for batch in (b for t, b in missing if t == table):
            print(f"{title}: table {table}: batch {batch}", flush=True)
            started = time.perf_counter()
            found = failed | bench.batch(table, constraint, batch, ready)
            measured = []
            for key, (status, reason, samples) in found.items():
                if status == "ok" and key != BASE:
                    samples["setup_s"] = [setups[key]]
                if not output.has(case(table, key, batch)):
                    measured.append(
                        Measurement(
                            case=case(table, key, batch), status=status, reason=reason, samples=samples
                        )
                    )
            output.add(measured, time.perf_counter() - started, note)
        ready.clear()
        free(device)
    del bench, model
    free(device)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder; a run in it is continued")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--tables", nargs="+", choices=("1", "2"), default=["1", "2"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--batches", nargs="+", type=int, help="default: 1 2 4 ... 64; small: 1 4")
    parser.add_argument("--new-tokens", type=int, help="default: 256; small: 16")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tokenizer", action="append", default=[], metavar="[MODEL=]FOLDER")
    parser.add_argument("--device", help="default: cuda")
    parser.add_argument("--cpu-small", action="store_true", help="small shapes, on the CPU")
    found = parser.parse_args(arguments)
    small = found.cpu_small
    found.device = found.device or ("cpu" if small else "cuda")
    found.batches = found.batches or ([1, 4] if small else [1, 2, 4, 8, 16, 32, 64])
    found.new_tokens = found.new_tokens or (16 if small else 256)
    found.tables = [name for name in TABLES if name[0] in found.tables]
    if BASE not in found.methods:
        found.methods.insert(0, BASE)
    if min(found.batches) < 1 or found.new_tokens < 1 or found.repeats < 1:
        parser.error("batches, new tokens and repeats must be 1 or more")
    found.folders = {}
    for text in found.tokenizer:
        name, separator, folder = text.rpartition("=")
        if separator and name not in SHAPES:
            parser.error(f"--tokenizer {text}: there is {', '.join(SHAPES)}")
        found.folders |= dict.fromkeys([name] if separator else SHAPES, Path(folder))
    if found.device.startswith("cuda") and not torch.cuda.is_available():
        parser.error("no CUDA device; use --cpu-small")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure all models; 2 for wrong input."""
    options = parse(arguments)
    kept = {
        "new_tokens": options.new_tokens,
        "repeats": options.repeats,
        "small": options.cpu_small,
        "device": options.device,
    }
    try:
        output = Output.open(options.output, kept)
        for name in options.models:
            measure_model(name, output, options, options.folders.get(name))
    except NCOGuardError as error:
        print(f"gpu.py: {error}", file=sys.stderr)
        return 2
    print(markdown(output.record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
