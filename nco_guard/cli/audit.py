"""`nco-guard audit`: whether a log is as it was written, anchors that show it later, and a report of what it says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nco_guard.audit import (
    IntegrityReport,
    load_signer,
    load_verifier,
    log_files,
    make_anchor,
    read_anchors,
    verify_log,
)
from nco_guard.cli.output import print_json, say
from nco_guard.errors import AuditError
from nco_guard.visible import visible

__all__ = ["run_audit_anchor", "run_audit_report", "run_audit_verify"]

_VERDICTS = {
    "intact": "the log is as it was written",
    "open": "the log has no end, so lines may be missing there",
    "altered": "THE LOG IS NOT AS IT WAS WRITTEN",
    "untold": "nobody can tell whether the log is as it was written",
}


def run_audit_verify(
    log: Path, key: Path | None, anchors: Sequence[Path], *, allow_open: bool, as_json: bool
) -> int:
    """Verify a log; returns 0 if it is as it was written, else 1."""
    report = verify_log(
        log,
        verifier=None if key is None else load_verifier(key),
        anchors=[anchor for path in anchors for anchor in read_anchors(path)],
        allow_open=allow_open,
    )
    if as_json:
        print_json({"ok": report.ok, **asdict(report)})
    else:
        _print(report, signed=key is not None)
    return 0 if report.ok else 1


def run_audit_anchor(log: Path, output: Path, key: Path | None) -> int:
    """Append an anchor for the log to a file; returns 1, and writes none, if the log is not as it was written."""
    signer = None if key is None else load_signer(key)
    verifier = None if key is None else load_verifier(key)
    report = verify_log(log, verifier=verifier, allow_open=True)
    if not report.ok:
        _print(report, signed=key is not None)
        return 1
    anchor = make_anchor(report, signer)
    try:
        with output.open("a", encoding="ascii") as stream:
            stream.write(anchor.to_json() + "\n")
    except OSError as error:
        raise AuditError(f"cannot write the anchor to {output}: {error.strerror}") from error
    say(f"{log}: {len(anchor.heads)} chains anchored in {output}")
    return 0


def run_audit_report(
    log: Path,
    output: Path | None,
    key: Path | None,
    anchors: Sequence[Path],
    *,
    allow_open: bool,
    max_events: int,
    exposure_from: int,
    as_json: bool,
) -> int:
    """Write a report as a page, or print its numbers; returns 0 if the log was shown to be as it was written."""
    # The page's engine is not what other commands should wait for.
    from nco_guard.audit.report import read_report, render_report

    if output is not None and any(output.exists() and output.samefile(file) for file in log_files(log)):
        raise AuditError(f"{output} is the log itself; write the report elsewhere")
    report = read_report(
        log,
        verifier=None if key is None else load_verifier(key),
        anchors=[anchor for path in anchors for anchor in read_anchors(path)],
        allow_open=allow_open,
        max_events=max_events,
        exposure_from=exposure_from,
    )
    integrity, totals = report.numbers.integrity, report.numbers.totals
    if output is not None:
        _write_page(output, render_report(report, title=f"Audit report: {visible(log.name)}"))
    if as_json:
        print_json(report.numbers.model_dump(mode="json"))
    else:
        say(
            f"{output}: {totals.events} events of {totals.runs} runs, {report.numbers.violations} violations; "
            f"{_VERDICTS[integrity.state]}"
        )
    return 0 if integrity.state == "intact" else 1


def _write_page(output: Path, page: str) -> None:
    """The page as a file that its owner alone can read if it is a new one, as logs are."""
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(page)
    except OSError as error:
        raise AuditError(f"cannot write the report {output}: {error.strerror}") from error


def _print(report: IntegrityReport, *, signed: bool) -> None:
    for problem in report.problems:
        say(str(problem))
    verdict = "as it was written" if report.ok else f"{len(report.problems)} problems"
    say(
        f"{report.files[-1]}: {verdict} ({report.events} events, {len(report.chains)} chains, "
        f"{len(report.files)} files)"
    )
    for chain in report.chains if signed else ():
        covered = "nothing" if chain.signed is None else f"up to number {chain.signed}"
        if chain.signed != chain.seq:
            say(f"chain {chain.chain}: signed {covered}, goes on to number {chain.seq}")
