"""`nco-guard audit`: whether a log is as it was written, and anchors that show it later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import typer

from nco_guard.audit import (
    IntegrityReport,
    load_signer,
    load_verifier,
    make_anchor,
    read_anchors,
    verify_log,
)
from nco_guard.cli.output import print_json
from nco_guard.errors import AuditError

__all__ = ["run_audit_anchor", "run_audit_verify"]


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
    typer.echo(f"{log}: {len(anchor.heads)} chains anchored in {output}")
    return 0


def _print(report: IntegrityReport, *, signed: bool) -> None:
    for problem in report.problems:
        typer.echo(str(problem))
    verdict = "as it was written" if report.ok else f"{len(report.problems)} problems"
    typer.echo(
        f"{report.files[-1]}: {verdict} ({report.events} events, {len(report.chains)} chains, "
        f"{len(report.files)} files)"
    )
    for chain in report.chains if signed else ():
        covered = "nothing" if chain.signed is None else f"up to number {chain.signed}"
        if chain.signed != chain.seq:
            typer.echo(f"chain {chain.chain}: signed {covered}, goes on to number {chain.seq}")
