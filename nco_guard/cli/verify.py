"""`nco-guard verify`: where the rules of a policy match in finished texts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from nco_guard.cli.inputs import load_policy, read_text
from nco_guard.cli.output import print_json, warn
from nco_guard.compiler import compile_policy
from nco_guard.errors import NCOGuardError
from nco_guard.verify import Finding, verify

__all__ = ["run_verify"]


@dataclass(frozen=True)
class Place:
    """One finding, placed for a reader: line and column count from 1, columns and offsets in code points."""

    rule_id: str
    mode: str
    line: int
    column: int
    start: int
    end: int


def run_verify(policy: str, files: Sequence[str], *, show: bool, as_json: bool) -> int:
    """Verify each file; returns the exit status: 1 if a hard rule matches somewhere, 2 after an error.

    A file that cannot be read does not stop the others.
    """
    compiled = compile_policy(load_policy(policy))
    documents, findings, errors = [], 0, 0
    for name in files:
        try:
            text = read_text(name)
        except NCOGuardError as error:
            warn(str(error))
            errors += 1
            continue
        report = verify(compiled, text)
        places = _places(text, report.findings)
        findings += not report.ok
        documents.append(_document(name, text, places, ok=report.ok, show=show))
        if not as_json:
            _print(name, text, places, show=show)
    if as_json:
        print_json({"ok": not findings and not errors, "policy": compiled.digest, "files": documents})
    return 2 if errors else 1 if findings else 0


def _places(text: str, findings: Sequence[Finding]) -> list[Place]:
    starts = [0, *(index + 1 for index, char in enumerate(text) if char == "\n")]
    places = []
    for found in findings:
        line = bisect_right(starts, found.start)
        column = found.start - starts[line - 1] + 1
        places.append(Place(found.rule_id, found.mode, line, column, found.start, found.end))
    return places


def _print(name: str, text: str, places: Sequence[Place], *, show: bool) -> None:
    if not places:
        typer.echo(f"{name}: clean")
    for place in places:
        length = place.end - place.start
        rule = place.rule_id if place.mode == "hard" else f"{place.rule_id} [{place.mode}]"
        size = f"{length} character{'' if length == 1 else 's'}"
        line = f"{name}:{place.line}:{place.column}: {rule} (offsets {place.start} to {place.end}, {size})"
        typer.echo(f"{line}: {text[place.start : place.end]!a}" if show else line)


def _document(name: str, text: str, places: Sequence[Place], *, ok: bool, show: bool) -> dict[str, object]:
    findings = []
    for place in places:
        finding: dict[str, object] = {
            "rule_id": place.rule_id,
            "mode": place.mode,
            "start": place.start,
            "end": place.end,
            "length": place.end - place.start,
            "line": place.line,
            "column": place.column,
        }
        if show:
            finding["text"] = text[place.start : place.end]
        findings.append(finding)
    return {"file": name, "ok": ok, "length": len(text), "findings": findings}
