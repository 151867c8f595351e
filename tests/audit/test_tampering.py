"""Whatever is done to a log is found, or the verdict says in words that it could not have been.

Logs of several writers, signed or not, in one file or many, are tampered with at random: lines and files are deleted,
inserted, swapped, edited and cut, by somebody who can make hashes anew but has no key. `explained` says from the lines
alone which of that no verifier can see; all else must be found.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from nco_guard.audit import (
    Anchor,
    HmacSigner,
    IntegrityReport,
    JsonLinesSink,
    RunRecorder,
    log_files,
    make_anchor,
    verify_log,
)
from nco_guard.audit.chain import canonical_line, seal_hash

SIGNER = HmacSigner(bytes(range(32)))
GENESIS = "0" * 64


@dataclass
class Log:
    """A log as it was written: its lines in order, and after how many of them each anchor was made."""

    path: Path
    signed: bool
    anchors: list[Anchor] = field(default_factory=list)
    moments: list[int] = field(default_factory=list)

    @property
    def files(self) -> list[list[bytes]]:
        return [file.read_bytes().splitlines(keepends=True) for file in log_files(self.path)]

    @property
    def lines(self) -> list[bytes]:
        return [line for file in self.files for line in file]

    def anchor(self) -> None:
        report = verify_log(self.path, verifier=SIGNER if self.signed else None, allow_open=True)
        self.anchors.append(make_anchor(report, SIGNER if self.signed else None))
        self.moments.append(report.lines)


def kill(sink: JsonLinesSink) -> None:
    os.close(sink._descriptor)
    sink._open = False


def made(path: Path, rng: random.Random) -> Log:
    """A log of one to four writers that come and go; some are killed."""
    log = Log(path, signed=rng.random() < 0.6)
    options: dict[str, Any] = {
        "signer": SIGNER if log.signed else None,
        "head_every": rng.choice((2, 5, 100)),
        "max_bytes": rng.choice((None, None, 900, 2500)),
    }
    sinks: list[JsonLinesSink] = []
    for step in range(rng.randint(3, 25)):
        if not sinks or (len(sinks) < 4 and rng.random() < 0.2):
            sinks.append(JsonLinesSink(path, **options))
        run = RunRecorder(rng.choice(sinks), request_id=f"r{step}")
        run.verification(ok=rng.random() < 0.8, length=step)
        if rng.random() < 0.15:
            sink = sinks.pop(rng.randrange(len(sinks)))
            sink.close() if rng.random() < 0.7 else kill(sink)
        if rng.random() < 0.15:
            log.anchor()
    everyone_ends = rng.random() < 0.5
    for sink in sinks:
        sink.close() if everyone_ends or rng.random() < 0.5 else kill(sink)
    return log


# -- somebody with a grudge and without the key --------------------------------------------------------------------


def edited(line: bytes) -> bytes:
    """An event that says something else, sealed as before."""
    try:
        fields = json.loads(line)
    except ValueError:
        return line[:-2] + b"\n"
    if "ok" in fields:
        fields["ok"] = not fields["ok"]
    else:
        fields["time"] = "2020-01-01T00:00:00.000000Z"
    return canonical_line(fields).encode() + b"\n"


def sealed_anew(files: list[list[bytes]]) -> list[list[bytes]]:
    """All hashes, numbers and links made to fit; signatures stay what they were."""
    heads: dict[str, tuple[int, str]] = {}
    before: tuple[str, str] | None = None
    result = []
    for lines in files:
        fresh = []
        for place, line in enumerate(lines):
            try:
                fields = json.loads(line)
                seal = fields["seal"]
            except (ValueError, KeyError):
                fresh.append(line)
                continue
            seq, prev = heads.get(seal["chain"], (-1, GENESIS))
            seal["seq"], seal["prev"] = seq + 1, prev
            seal.pop("after", None)
            if before is not None and (before[0] != seal["chain"] or place == 0):
                seal["after"] = before[1]
            seal["sha256"] = seal_hash(fields)
            heads[seal["chain"]] = seal["seq"], seal["sha256"]
            before = seal["chain"], seal["sha256"]
            fresh.append(canonical_line(fields).encode() + b"\n")
        result.append(fresh)
    return result


def tampered(files: list[list[bytes]], rng: random.Random) -> list[list[bytes]]:
    """One thing done to the lines."""
    files = [list(lines) for lines in files]
    number = rng.randrange(len(files))
    lines = files[number]
    at = rng.randrange(len(lines)) if lines else 0
    what = rng.randrange(9)
    if what == 0 and lines:
        del lines[at : at + rng.randint(1, 4)]
    elif what == 1 and lines:
        lines.insert(rng.randrange(len(lines) + 1), rng.choice([line for file in files for line in file]))
    elif what == 2 and len(lines) > 1:
        other = rng.randrange(len(lines))
        lines[at], lines[other] = lines[other], lines[at]
    elif what == 3 and lines:
        lines[at] = edited(lines[at])
    elif what == 4 and lines:
        lines[at] = lines[at][: rng.randrange(len(lines[at]))] + rng.choice((b"", b"\n"))
    elif what == 5:  # the end is gone, perhaps whole files of it
        del files[number + 1 :]
        files[number] = lines[: at + rng.randint(0, 1)]
    elif what == 6:  # the beginning is gone
        files[number] = lines[at:]
        del files[:number]
    elif what == 7 and len(files) > 1:
        if rng.random() < 0.5:
            del files[number]
        else:
            other = rng.randrange(len(files))
            files[number], files[other] = files[other], files[number]
    elif what == 8 and lines:  # more of a chain than its writer wrote
        files[-1].append(edited(lines[at]))
    return files


def laid_down(log: Log, files: list[list[bytes]], rng: random.Random) -> None:
    for file in log_files(log.path):
        file.unlink()
    for number, lines in enumerate(files[:-1], start=1):
        log.path.with_name(f"{log.path.name}.{number:06d}").write_bytes(b"".join(lines))
    if files:
        log.path.write_bytes(b"".join(files[-1]))


# -- what no verifier can see --------------------------------------------------------------------------------------


def explained(
    log: Log, lines: list[bytes], now: list[bytes], report: IntegrityReport, given: dict[str, Any]
) -> bool:
    """Whether a log that was found in order is as it was, but for what the verdict names."""
    said = " | ".join(report.limits)
    known = set(lines)
    whole = [line for line in now if line.endswith(b"\n")]
    forged = [line for line in whole if line not in known]
    if now and not now[-1].endswith(b"\n") and now[-1] + b"\n" not in known:
        assert given["allow_open"]  # cut off in the middle of a line, as a killed writer leaves it
    for anchor in given["anchors"]:
        heads = {(head.chain, head.seq): head.sha256 for head in anchor.heads}
        for line in lines:
            seal = json.loads(line)["seal"]
            if (seal["chain"], seal["seq"]) in heads and not report.absent:
                assert line in now or line.rstrip(b"\n") == now[-1], "an anchored line is gone"
    if forged:
        if given["verifier"] is None:
            return "wrote all of it anew" in said
        chains = {json.loads(line)["seal"]["chain"] for line in forged}
        return report.unsigned >= len(forged) and all(f"end of the chain {chain}" in said for chain in chains)
    begin = lines.index(whole[0]) if whole else 0
    if begin:
        assert given["archived"], "a beginning that is gone was accepted"
        if begin not in log.moments or report.absent < 1 or "put away" not in report.verdict:
            return False
    if whole != lines[begin : begin + len(whole)]:
        return False
    gone = [json.loads(line)["seal"]["chain"] for line in lines[begin + len(whole) :]]
    here = {json.loads(line)["seal"]["chain"] for line in whole}
    ends = not here.intersection(gone) or "from the ends of chains" in said
    return ends and (not set(gone) - here or "chains are gone" in said)


def attack(folder: Path, seed: int) -> str:
    """Make a log, tamper with it, verify it under all that an auditor may have; what came of it."""
    rng = random.Random(seed)
    log = made(folder / "log.jsonl", rng)
    lines, files = log.lines, log.files
    everything: dict[str, Any] = {"verifier": SIGNER if log.signed else None, "anchors": log.anchors}
    as_made = verify_log(log.path, **everything, allow_open=True)
    assert as_made.ok, (seed, as_made.problems[:3])
    assert verify_log(log.path, **everything).counts.keys() <= {"open"}
    way, anew = rng.random(), rng.random() < 0.4
    if way < 0.2 and log.moments:  # cut exactly where an anchor was made
        cut = rng.choice(log.moments)
        changed = [list(lines[cut:])]
    elif way < 0.4:  # the end says something else
        changed, anew = [*files[:-1], [*files[-1][:-1], edited(files[-1][-1])]], True
    else:
        changed = files
        for _ in range(rng.choice((1, 1, 1, 2, 3))):
            changed = tampered(changed, rng) if changed else changed
    if anew:
        changed = sealed_anew(changed)
    if changed == files:
        return "nothing"
    laid_down(log, changed, rng)
    now = log.lines if log.path.exists() else []
    outcome = "found"
    for verifier in {everything["verifier"], None}:
        for anchors in ([], log.anchors):
            for archived in (False, True):
                for allow_open in (False, True):
                    given = {
                        "verifier": verifier,
                        "anchors": anchors,
                        "archived": archived,
                        "allow_open": allow_open,
                    }
                    report = verify_log(log.path, **given)
                    assert all(problem.file for problem in report.problems)
                    if report.ok and now != lines:
                        assert explained(log, lines, now, report, given), (seed, given, report)
                        outcome = "named"
    return outcome


def attacks(folder: Path, seeds: range) -> None:
    outcomes = {"nothing": 0, "found": 0, "named": 0}
    for seed in seeds:
        place = folder / str(seed)
        outcomes[attack(place, seed)] += 1
        shutil.rmtree(place)
    assert outcomes["found"] > len(seeds) / 3
    assert outcomes["named"] > len(seeds) / 20


@pytest.mark.skipif(not hasattr(os, "fork"), reason="files are rotated on POSIX systems only")
def test_all_tampering_is_found_or_named_in_the_verdict(tmp_path: Path) -> None:
    attacks(tmp_path, range(250))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="files are rotated on POSIX systems only")
def test_all_tampering_is_found_or_named_in_the_verdict_at_length(tmp_path: Path) -> None:
    attacks(tmp_path, range(1000, 9000))
