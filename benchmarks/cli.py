"""`run` measures suites, `render` shows what was recorded, `experiments` repeats the paper's tables."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_origin

from pydantic import BaseModel, ValidationError

from benchmarks.experiments.options import TABLES, ExperimentOptions
from benchmarks.harness.options import SUITES, Options
from nco_guard.cli.inputs import require_hf
from nco_guard.errors import NCOGuardError

__all__ = ["add_options", "main", "options_of", "read"]

OUTPUT = ("-o", "--output")
M = TypeVar("M", bound=BaseModel)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. 1 where a mask, a text or a span differed from its definition, 2 for errors, said on stderr."""
    # Asked through the driver, CUDA would be begun in this process, which is forked.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads, neither
    try:
        given = read(arguments)
        status: int = given.command(given)
    except (NCOGuardError, OSError) as error:
        told = (
            f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
        )
        print(f"benchmarks: {told}", file=sys.stderr)
        return 2
    return status


def read(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What was given, its options checked. Raises `NCOGuardError` for a wrong one."""
    given = _parser().parse_args(arguments)
    if given.kind is not None:
        given.options = options_of(given.kind, given)
    return given


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    suites = "\n".join(
        f"  {name:14}{suite.measures}{'' if suite.standard else ' (only if it is named)'}"
        for name, suite in SUITES.items()
    )
    run = commands.add_parser(
        "run",
        help="measure, and write results.json, results.md and plots",
        description="Measures this library beside others; exit status 1 if anything differed from its definition.",
        epilog=f"suites:\n{suites}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    run.add_argument(*OUTPUT, type=Path, default=Path("bench-results"), metavar="FOLDER")
    add_options(run, Options)
    run.set_defaults(command=_run, kind=Options)
    experiments = commands.add_parser(
        "experiments",
        help="the paper's tables 1 and 2, on an accelerator",
        description="The paper's tables 1 and 2 with models of real shapes and random weights, on an accelerator.",
        allow_abbrev=False,
    )
    experiments.add_argument(
        *OUTPUT, type=Path, default=Path("gpu-results"), metavar="FOLDER", help="a run in it is continued"
    )
    add_options(experiments, ExperimentOptions)
    experiments.set_defaults(command=_experiments, kind=ExperimentOptions)
    render = commands.add_parser("render", help="print a results.json, or several as one, as Markdown")
    render.add_argument("results", type=Path, nargs="+", help="of suites that were run apart, if several")
    render.add_argument("--into", type=Path, metavar="PAGE", help="write it between the page's marks")
    render.set_defaults(command=_render, kind=None)
    return parser


def add_options(parser: argparse.ArgumentParser, model: type[BaseModel]) -> None:
    """An option for each field of a model, told by its description; what is not given is not in what was parsed."""
    for name, field in model.model_fields.items():
        how: dict[str, Any] = {"metavar": name.upper()}
        if field.annotation is bool:
            how = {"action": "store_true"}
        elif get_origin(field.annotation) is tuple:
            how |= {"nargs": "+", "action": "extend"}
        told = (field.description or "").replace("%", "%%")
        parser.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, help=told, **how)


def options_of(model: type[M], parsed: argparse.Namespace) -> M:
    """The options, checked. Raises `NCOGuardError` that names the first wrong one."""
    given = {name: value for name, value in vars(parsed).items() if name in model.model_fields}
    try:
        return model.model_validate(given)
    except ValidationError as error:
        first = error.errors()[0]
        told = str(first.get("ctx", {}).get("error", "")) or f"{first['input']}: {first['msg']}"
        raise NCOGuardError(f"--{str(first['loc'][0]).replace('_', '-')} {told}") from None


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _run(given: argparse.Namespace) -> int:
    """Progress on stderr, targets and paths on stdout."""
    require_hf("a benchmark")
    from benchmarks.report import targets_table
    from benchmarks.runner import run, write

    record = run(given.options, _say)
    print(targets_table(record))
    for path in write(record, given.output):
        print(path)
    for check in record.checks:
        if check.differences:
            _say(
                f"{check.differences} of {check.compared} differ: {check.constraint}, against {check.against}"
            )
    return 0 if record.agrees else 1


def _experiments(given: argparse.Namespace) -> int:
    require_hf("an experiment")
    from benchmarks.experiments.paper_tables import markdown, run

    print(markdown(run(given.options, given.output, _say)))
    return 0


def _render(given: argparse.Namespace) -> int:
    from benchmarks.harness.record import joined, read_record
    from benchmarks.harness.targets import evaluate
    from benchmarks.report import page, report

    record, *others = [read_record(path) for path in given.results]
    if others:
        record = joined([record, *others])
        record = record.model_copy(update={"targets": evaluate(record)})
    if any(m.case.suite in TABLES.values() for m in record.measurements):
        from benchmarks.experiments.paper_tables import markdown

        if given.into is not None:
            raise NCOGuardError("--into is for records of suites; this one is of experiments")
        print(markdown(record))
    elif given.into is None:
        print(report(record))
    else:
        try:
            text = page(record, given.into.read_text(encoding="utf-8"))
        except ValueError as error:
            raise NCOGuardError(f"{given.into.name}: {error}") from error
        given.into.write_text(text, encoding="utf-8")
        print(given.into)
    return 0 if record.agrees else 1
