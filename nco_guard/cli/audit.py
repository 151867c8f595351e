"""`nco-guard audit`: whether a log is as it was written, anchors that show it later, and a report of what it says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TypedDict

from nco_guard.audit import (
    Anchor,
    IntegrityReport,
    load_signer,
    load_verifier,
    log_files,
    make_anchor,
    policy_hmac,
    read_anchors,
    verify_log,
)
from nco_guard.audit.jsonl import rotated_files
from nco_guard.audit.signing import SignatureVerifier
from nco_guard.cli.inputs import load_policy, read_key
from nco_guard.cli.output import print_json, say
from nco_guard.errors import AuditError
from nco_guard.visible import visible

__all__ = ["run_audit_anchor", "run_audit_digest", "run_audit_report", "run_audit_verify"]

_VERDICTS = {
    "intact": "what is here of the log is as it was written",
    "open": "the log has no end, so lines may be missing there",
    "altered": "THE LOG IS NOT AS IT WAS WRITTEN",
    "untold": "nobody can tell whether the log is as it was written",
}


class _Vouching(TypedDict):
    """What vouches for a log."""

    verifier: SignatureVerifier | None
    anchors: list[Anchor]


def _vouching(key: Path | None, anchors: Sequence[Path]) -> _Vouching:
    return {
        "verifier": None if key is None else load_verifier(key),
        "anchors": [anchor for path in anchors for anchor in read_anchors(path)],
    }


def run_audit_verify(
    log: Path,
    key: Path | None,
    anchors: Sequence[Path],
    *,
    allow_open: bool,
    archived: bool,
    as_json: bool,
) -> int:
    """Verify a log; returns 0 if what is here is as it was written, else 1."""
    report = verify_log(
        log,
        **_vouching(key, anchors),
        allow_open=allow_open,
        archived=archived,
    )
    if as_json:
        print_json({"ok": report.ok, "verdict": report.verdict, **asdict(report)})
    else:
        _print(report)
    return 0 if report.ok else 1


def run_audit_anchor(
    log: Path, output: Path, key: Path | None, anchors: Sequence[Path], *, archived: bool, rotated: bool
) -> int:
    """Append an anchor for the log to a file; returns 1, and writes none, if the log is not as it was written.

    rotated: only of the files that were rotated from it, which is where a log goes on when they are put away.
    """
    signer = None if key is None else load_signer(key)
    files = [file for _, file in rotated_files(log)] if rotated else log
    if not files:
        raise AuditError(f"no file was rotated from {log}, so there is nothing to put away")
    report = verify_log(
        files,
        **_vouching(key, anchors),
        allow_open=True,
        archived=archived,
    )
    if not report.ok:
        _print(report)
        return 1
    anchor = make_anchor(report, signer)
    try:
        with output.open("a", encoding="ascii") as stream:
            stream.write(anchor.to_json() + "\n")
    except OSError as error:
        raise AuditError(f"cannot write the anchor to {output}: {error.strerror}") from error
    _print(report)
    chains = f"{len(anchor.heads):,} chain{'' if len(anchor.heads) == 1 else 's'}"
    say(
        f"{log}: {chains} anchored in {output}; it vouches that these lines were there, not for who wrote them"
    )
    return 0


def run_audit_digest(policy: str, key: Path | None) -> None:
    """Print a policy's digest as the log of a guard with this digest key has it."""
    digest = load_policy(policy).digest
    if key is not None:
        digest = policy_hmac(read_key(key), digest)
    say(digest)


def run_audit_report(
    log: Path,
    output: Path | None,
    key: Path | None,
    anchors: Sequence[Path],
    *,
    allow_open: bool,
    archived: bool,
    max_events: int,
    exposure_from: int,
    as_json: bool,
) -> int:
    """Write a report as a page, or print its numbers; returns 0 if the log was shown to be as it was written."""
    # The page's engine is not what other commands should wait for.
    from nco_guard.audit.report import read_report, render_report
    from nco_guard.audit.report.wording import plural

    if output is not None and any(output.exists() and output.samefile(file) for file in log_files(log)):
        raise AuditError(f"{output} is the log itself; write the report elsewhere")
    report = read_report(
        log,
        **_vouching(key, anchors),
        allow_open=allow_open,
        archived=archived,
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
            f"{output}: {plural(totals.events, 'event')} of {plural(totals.runs, 'run')}, "
            f"{plural(report.numbers.violations, 'violation')}; {_VERDICTS[integrity.state]}"
        )
        _print_limits(integrity.limits)
    return 0 if integrity.state == "intact" else 1


def _write_page(output: Path, page: str) -> None:
    """The page as a file that its owner alone can read if it is a new one, as logs are."""
    try:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(page)
    except OSError as error:
        raise AuditError(f"cannot write the report {output}: {error.strerror}") from error


def _print(report: IntegrityReport) -> None:
    for problem in report.problems:
        say(str(problem))
    say(f"{report.files[-1]}: {report.verdict}")
    _print_limits(report.limits)


def _print_limits(limits: Sequence[str]) -> None:
    """What could not be told belongs to the verdict."""
    for limit in limits:
        say(f"not told: {limit}")
