"""`nco-guard verify`: where the rules of a policy match in files, and copies of the files without that."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nco_guard.cli.inputs import load_policy
from nco_guard.cli.output import console, print_json, say, warn
from nco_guard.errors import InputError, NCOGuardError
from nco_guard.scan import Verifier
from nco_guard.scan.files.jobs import verify_files
from nco_guard.scan.files.sources import STDIN, Form, Found, Source, find_sources
from nco_guard.scan.files.task import FileResult, FileTask, Place
from nco_guard.scan.replacing import Replacer

__all__ = ["VerifySettings", "run_verify"]

Format = Literal["text", "json", "sarif"]


@dataclass(frozen=True)
class VerifySettings:
    """How files are read, what is printed, and where redacted copies go. `jobs` 0: a process for each core."""

    fields: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    form: Form | None = None
    jobs: int = 1
    format: Format = "text"
    show: bool = False
    redact: Path | None = None
    replacement: str | None = None


def run_verify(policy: str, paths: Sequence[str], settings: VerifySettings) -> int:
    """Verify files and folders; returns the exit status: 1 if a hard rule matches somewhere, 2 after an error.

    What cannot be read does not stop the rest.
    """
    if settings.show and settings.format == "sarif":
        raise NCOGuardError(
            "--show: SARIF goes to other systems, so it never holds what matched; use text or json"
        )
    verifier = Verifier(load_policy(policy))
    sought = find_sources(paths, globs=settings.globs, form=settings.form)
    sources, unread = sought.sources, sought.errors
    for error in (*unread, *sought.passed):
        warn(str(error))
    if not sources and not unread:
        unread.append(InputError(", ".join(paths), f"nothing to verify: {_why_nothing(sought, settings)}"))
        warn(str(unread[0]))
    tasks = _tasks(verifier, sources, paths, settings)
    results: list[FileResult] = []
    jobs = settings.jobs or os.cpu_count() or 1
    with _progress(sum(source.size for source in sources)) as progress:
        for result in verify_files(verifier, tasks, jobs=jobs, progress=progress):
            for error in result.errors:
                warn(str(error))
            if result.error_count > len(result.errors):
                warn(f"{result.name}: {result.error_count - len(result.errors):,} more errors")
            if settings.format == "text":
                _print(result)
                # What was printed need not be kept; one shows that there were some.
                result.findings = [place for place in result.findings if place.mode == "hard"][:1]
            results.append(result)
    unread += _fields_missed(results, settings.fields)
    errors = len(unread) + sum(result.error_count for result in results)
    found = any(not result.ok for result in results)
    if settings.format == "json":
        print_json(_document(verifier, results, sought, ok=not found and not errors))
    elif settings.format == "sarif":
        from nco_guard import __version__
        from nco_guard.scan.files.sarif import sarif_log

        print_json(sarif_log(verifier.compiled, results, unread, version=__version__))
    elif any(source.found for source in sources) or sought.binary:
        _print_summary(results, errors, sought.binary)
    return 2 if errors else 1 if found else 0


def _fields_missed(results: Sequence[FileResult], fields: Sequence[str]) -> list[InputError]:
    """An error for each field that no record of any file holds: its name is likely wrong, and nothing was verified."""
    records = [result for result in results if result.form == "jsonl" and result.lines]
    held = frozenset[str]().union(*(result.fields for result in records))
    names = ", ".join(result.name for result in records[:3]) + (", ..." if len(records) > 3 else "")
    missed = [
        InputError(names, f"no record holds the field {field!r}; nothing was verified under that name")
        for field in fields
        if records and field not in held
    ]
    for error in missed:
        warn(str(error))
    return missed


def _why_nothing(sought: Found, settings: VerifySettings) -> str:
    if sought.binary or sought.passed:
        return "no text file is among what was found"
    return "no file fits --glob" if settings.globs else "there are no files, or only hidden ones"


def _tasks(
    verifier: Verifier, sources: Sequence[Source], paths: Sequence[str], settings: VerifySettings
) -> list[FileTask]:
    if settings.fields and sources and not any(source.form == "jsonl" for source in sources):
        raise NCOGuardError("--field is for JSON lines, and no file is read as such; use --as jsonl")
    targets = [None] * len(sources) if settings.redact is None else _targets(sources, paths, settings.redact)
    if settings.redact is not None:
        Replacer(
            verifier.compiled, settings.replacement
        )  # a replacement that is forbidden is refused at once
    return [
        FileTask(source, settings.fields, settings.show, target, settings.replacement)
        for source, target in zip(sources, targets, strict=True)
    ]


def _targets(sources: Sequence[Source], paths: Sequence[str], out: Path) -> list[str]:
    """Where the copy of each file goes: never onto a file that is there."""
    one = len(paths) == 1 and not os.path.isdir(paths[0]) and not out.is_dir()
    if any(source.name == STDIN for source in sources) and not one:
        raise NCOGuardError("--redact: standard input goes to a file, alone")
    targets = [out if one else out / source.relative for source in sources]
    seen: set[Path] = set()
    for source, target in zip(sources, targets, strict=True):
        if target.exists():
            raise NCOGuardError(
                f"--redact: {target} is there already, and nothing is overwritten; choose another place"
            )
        if target in seen:
            raise NCOGuardError(f"--redact: {source.name} and another file would both become {target}")
        seen.add(target)
    return [str(target) for target in targets]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None] | None]:
    """A bar on stderr, on a terminal only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=total or None)
        yield lambda count: bar.advance(task, count)


def _print(result: FileResult) -> None:
    # Of a folder only what was found is listed.
    if not result.findings and not result.error_count and not result.found:
        nothing = result.lines and not result.documents
        say(f"{result.name}: nothing to verify" if nothing else f"{result.name}: clean")
    for place in result.findings:
        length = place.end - place.start
        rule = place.rule_id if place.mode == "hard" else f"{place.rule_id} [{place.mode}]"
        size = f"{length} character{'' if length == 1 else 's'}"
        where = f"{place.line}:{place.column}" if place.field is None else f"{place.line}"
        inside = f" in {place.field}" if place.field else ""
        line = f"{result.name}:{where}: {rule}{inside} (offsets {place.start} to {place.end}, {size})"
        say(line if place.text is None else f"{line}: {place.text!a}")


def _print_summary(results: Sequence[FileResult], errors: int, passed: int) -> None:
    broken = sum(not result.ok for result in results)
    parts = [f"{len(results):,} files", f"{broken:,} with matches of hard rules"]
    if errors:
        parts.append(f"{errors:,} errors")
    if passed:
        parts.append(f"{passed:,} binary files passed over")
    warn(", ".join(parts))


def _document(
    verifier: Verifier, results: Sequence[FileResult], sought: Found, *, ok: bool
) -> dict[str, object]:
    unread = sought.errors
    errors = [_error(error) for error in unread] + [_error(e) for result in results for e in result.errors]
    return {
        "ok": ok,
        "policy": verifier.digest,
        "files": [_file(result) for result in results],
        "errors": errors,
        "error_count": len(unread) + sum(result.error_count for result in results),
        "passed_over": sought.binary + len(sought.passed),
    }


def _error(error: InputError) -> dict[str, object]:
    return {"file": error.file, "line": error.line, "problem": error.problem}


def _file(result: FileResult) -> dict[str, object]:
    document: dict[str, object] = {
        "file": result.name,
        "ok": result.ok,
        "form": result.form,
        "length": result.length,
        "lines": result.lines,
        "documents": result.documents,
        "error_count": result.error_count,
        "findings": [_finding(place) for place in result.findings],
    }
    if result.redacted is not None:
        document["redacted"] = result.redacted
    return document


def _finding(place: Place) -> dict[str, object]:
    finding: dict[str, object] = {
        "rule_id": place.rule_id,
        "mode": place.mode,
        "start": place.start,
        "end": place.end,
        "length": place.end - place.start,
        "line": place.line,
    }
    if place.field is None:
        finding["column"] = place.column
    else:
        finding["field"] = place.field
    if place.text is not None:
        finding["text"] = place.text
    return finding
