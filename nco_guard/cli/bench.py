"""`nco-guard bench`: runs the benchmark, or renders a record of one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nco_guard.cli.inputs import require_hf
from nco_guard.cli.output import say, say_text, warn
from nco_guard.errors import NCOGuardError

if TYPE_CHECKING:
    from nco_guard.bench import BenchOptions

__all__ = ["run_bench", "run_render"]


def bench_options(
    tokenizers: list[Path],
    only: list[str],
    models: list[str],
    *,
    quick: bool,
    rounds: int | None,
    threads: int | None,
    steps: int | None,
    regexpspace: Path | None,
    seconds: float | None,
    mib: float | None,
) -> BenchOptions:
    """The options, checked. Raises `NCOGuardError` for a suite or a model that there is not."""
    require_hf("nco-guard bench")
    from nco_guard.bench import MODELS, SUITES, BenchOptions

    if unknown := [name for name in only if name not in SUITES]:
        raise NCOGuardError(f"--only {unknown[0]}: there is {', '.join(SUITES)}")
    if unknown := [name for name in models if name not in MODELS]:
        raise NCOGuardError(f"--model {unknown[0]}: there is {', '.join(MODELS)}")
    return BenchOptions.model_validate(
        {
            "tokenizers": tuple(tokenizers),
            "only": tuple(only),
            "models": tuple(models),
            "quick": quick,
            "rounds": rounds,
            "threads": threads,
            "steps": steps,
            "regexpspace": regexpspace,
            "seconds": seconds,
            "mib": mib,
        }
    )


def run_bench(options: BenchOptions, folder: Path) -> int:
    """Measure and write; progress on stderr, targets and paths on stdout. 1 if any mask differs."""
    from nco_guard.bench import run, targets_table, write

    record = run(options, lambda line: say(line, err=True))
    paths = write(record, folder)
    say_text(targets_table(record))
    for path in paths:
        say(str(path))
    if record.agrees:
        return 0
    wrong = [c for c in record.checks if c.differences]
    for check in wrong:
        warn(
            f"{check.differences} of {check.compared} masks differ: {check.constraint}, against {check.against}"
        )
    return 1


def run_render(results: list[Path], into: Path | None) -> int:
    """The record, or several as one, as Markdown on stdout, or into a page between its marks."""
    require_hf("nco-guard bench")
    from nco_guard.bench import evaluate, joined, page, read_record, report

    record, *others = [read_record(path) for path in results]
    if others:
        record = joined([record, *others])
        record = record.model_copy(update={"targets": evaluate(record)})
    if into is None:
        say_text(report(record))
    else:
        text = into.read_text(encoding="utf-8")
        try:
            rendered = page(record, text)
        except ValueError as error:
            raise NCOGuardError(f"{into.name}: {error}") from error
        into.write_text(rendered, encoding="utf-8")
        say(str(into))
    return 0 if record.agrees else 1
