"""Logs tampered with by hand: what is found, and which words the verdict has for what cannot be."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nco_guard.audit import (
    Event,
    JsonLinesSink,
    RunRecorder,
    log_files,
    make_anchor,
    read_anchors,
    verify_log,
)
from nco_guard.audit.chain import canonical_line, seal_hash
from nco_guard.audit.report import read_report
from nco_guard.audit.report.verdicts import answers
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.cli import app
from nco_guard.errors import AuditError
from tests.audit.report_logs import verdict
from tests.audit.test_tampering import SIGNER, edited, kill, sealed_anew


def one_writer(path: Path, events: int, *, ok: bool = True, close: bool = True, **options: Any) -> None:
    """A log of one writer: a run with a verification for each text."""
    sink = JsonLinesSink(path, **options)
    run = RunRecorder(sink)
    run.started(
        policy_name="p", policy_digest="a" * 64, rule_ids=["r"], sequences=events, tokenizer_digest="c" * 64
    )
    for number in range(events):
        run.verification(ok=ok or number > 0, length=9, sequence=number)
    run.finished(outcomes=["ended"] * events, interventions=0, tokens=9, seconds=0.1)
    sink.close() if close else kill(sink)


def call(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return done.exit_code, done.output


def test_a_log_that_was_cut_at_an_anchored_head_says_no_word_for_what_is_gone(tmp_path: Path) -> None:
    path, anchors = tmp_path / "log.jsonl", tmp_path / "anchors.jsonl"
    one_writer(path, 3, ok=False)
    assert verdict(read_report(path).numbers, "violations") == "Yes"
    assert call("audit", "anchor", path, "-o", anchors)[0] == 0
    first = path.read_bytes()
    one_writer(path, 3)
    whole = path.read_bytes()
    assert verdict(read_report(path).numbers, "violations") == "Yes"
    path.write_bytes(whole.removeprefix(first))

    status, output = call("audit", "verify", path, "--anchors", anchors)
    assert status == 1
    assert "log.jsonl:1: removed" in output
    assert "anchor: number 6 of the anchored chain" in output
    numbers = read_report(path, anchors=read_anchors(anchors)).numbers
    assert numbers.integrity.state == "altered"
    assert verdict(numbers, "violations") == "Not known"

    status, output = call("audit", "verify", path, "--anchors", anchors, "--archived")
    assert status == 0
    assert "its beginning was put away, and is not part of this verdict" in output
    assert "not told: what the 7 lines say that were put away" in output
    numbers = read_report(path, anchors=read_anchors(anchors), archived=True).numbers
    assert numbers.integrity.absent == 7
    assert verdict(numbers, "violations") == "Not on record"
    assert any("7 lines that were put away were not read" in note for note in answers(numbers)[1].notes)
    assert not any(answer.tone == "good" for answer in answers(numbers))

    # The auditor's word holds for the place that an anchor names, and for no other.
    for cut in range(1, 6):
        path.write_bytes(b"".join(whole.removeprefix(first).splitlines(keepends=True)[cut:]))
        assert call("audit", "verify", path, "--anchors", anchors, "--archived")[0] == 1
    path.write_bytes(b"".join(whole.splitlines(keepends=True)[3:]))
    assert call("audit", "verify", path, "--anchors", anchors, "--archived")[0] == 1
    path.write_bytes(whole)
    assert call("audit", "verify", path, "--anchors", anchors, "--archived")[0] == 0
    assert "put away" not in call("audit", "verify", path, "--anchors", anchors, "--archived")[1]


def test_a_chain_whose_line_before_is_named_and_gone_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    one_writer(path, 2)
    first = path.read_bytes()
    one_writer(path, 2)
    path.write_bytes(path.read_bytes().removeprefix(first))
    (problem,) = verify_log(path).problems
    assert (problem.what, problem.file, problem.line) == ("removed", str(path), 1)
    assert "other chains" in problem.message


def rotated_log(path: Path) -> list[Path]:
    """Each writer fills a file: no chain links one file to the next."""
    for number in range(1, 6):
        one_writer(path, 4)
        os.rename(path, f"{path}.{number:06d}")
    one_writer(path, 4)
    files = log_files(path)
    assert len(files) == 6
    assert verify_log(path).ok
    return files


posix = pytest.mark.skipif(not hasattr(os, "fork"), reason="files are rotated on POSIX systems only")


@posix
def test_a_missing_file_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    files = rotated_log(path)
    for number, file in enumerate(files[:-1], start=1):
        kept = file.read_bytes()
        file.unlink()
        status, output = call("audit", "verify", path)
        assert status == 1
        if number < 5:
            assert f"{path}.{number:06d}: removed: the file number {number} is not there" in output
        assert f"{files[number]}:1: {'removed' if number == 1 else 'moved'}: " in output
        assert number == 1 or f"after {files[number - 2]}" in output
        file.write_bytes(kept)
    for state, done in (("is not there", path.unlink), ("holds nothing", path.touch)):
        done()
        status, output = call("audit", "verify", path)
        assert status == 1
        assert f"{path}: open: {state}, though files were rotated from it" in output
        status, output = call("audit", "verify", path, "--allow-open")
        assert status == 0
        assert f"not told: what was written to {path}, which {state}, after the rotated files" in output


@posix
def test_files_that_changed_places_or_closed_a_gap_are_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    files = rotated_log(path)
    contents = [file.read_bytes() for file in files]
    for first in range(len(files)):
        for second in range(first + 1, len(files)):
            files[first].write_bytes(contents[second])
            files[second].write_bytes(contents[first])
            problems = verify_log(path).problems
            assert any(problem.file in (str(files[first]), str(files[second])) for problem in problems)
            files[first].write_bytes(contents[first])
            files[second].write_bytes(contents[second])
    for gone in range(len(files) - 1):  # those behind it are renamed
        for file in files:
            file.unlink(missing_ok=True)
        left = contents[:gone] + contents[gone + 1 :]
        for file, content in zip([*files[: len(left) - 1], files[-1]], left, strict=True):
            file.write_bytes(content)
        problems = verify_log(path).problems
        assert {problem.what for problem in problems} <= {"removed", "moved"}
        assert problems[0].line == 1
        assert problems[0].file == str(files[gone] if gone < len(left) - 1 else files[-1]), gone


@posix
@pytest.mark.parametrize("kind", ["directory", "pipe", "nothing"])
def test_what_is_no_file_among_the_files_is_named_and_never_waited_on(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    files = rotated_log(path)
    files[1].unlink()
    if kind == "directory":
        files[1].mkdir()
    elif kind == "pipe":
        os.mkfifo(files[1])
    else:
        files[1].symlink_to(tmp_path / "nowhere")
    status, output = call("audit", "verify", path)
    assert status == 1
    assert f"{files[1]}: removed:" in output
    assert "where a file of the log should be" in output
    assert (
        f"{files[2]}:1: moved: this file was begun after another line than the last one of {files[0]}"
        in output
    )
    with JsonLinesSink(path) as sink:  # nor does a writer
        RunRecorder(sink).verification(ok=True, length=1)


@posix
@pytest.mark.parametrize("way", ["verify", "anchor", "report"])
def test_a_log_that_may_have_no_end_is_refused_and_never_waited_on(way: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    output = ("-o", tmp_path / "written") if way != "verify" else ()
    for log in (pipe, Path("/dev/zero")):
        command = [sys.executable, "-m", "nco_guard.cli", "audit", way, log, *output]
        found = subprocess.run(
            list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False
        )  # fmt: skip
        assert (found.returncode, found.stdout) == (2, ""), found
        assert f"cannot read the audit log {log}: no regular file" in found.stderr
    with pytest.raises(AuditError, match="no regular file"):
        verify_log([pipe])
    assert not (tmp_path / "written").exists()


@posix
def test_put_away_files_are_vouched_for_by_an_anchor_of_them(tmp_path: Path) -> None:
    path, anchors = tmp_path / "log.jsonl", tmp_path / "anchors.jsonl"
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    sinks = [JsonLinesSink(path, signer=SIGNER, head_every=3, max_bytes=2000) for _ in range(3)]
    for round_ in range(4):
        for step in range(12):
            RunRecorder(sinks[step % (3 - (round_ > 1))]).verification(ok=True, length=step)
        if round_ == 1:
            sinks.pop().close()
        status, output = call(
            *("audit", "anchor", path, "-o", anchors, "--key", key, "--rotated"),
            *(("--anchors", anchors, "--archived") if round_ else ()),
        )
        assert status == 0, output
        for file in log_files(path)[:-1]:
            file.rename(tmp_path / f"away-{round_}-{file.name}")
        given = ("audit", "verify", path, "--key", key, "--anchors", anchors, "--allow-open")
        assert call(*given)[0] == 1
        status, output = call(*given, "--archived")
        assert status == 0, output
        assert "its beginning was put away" in output
        lines = path.read_bytes().splitlines(keepends=True)
        if len(lines) > 1:
            path.write_bytes(b"".join(lines[1:]))
            assert call(*given, "--archived")[0] == 1
            path.write_bytes(b"".join(lines))
    assert len(read_anchors(anchors)) == 4


def test_a_tail_that_nobody_signed_is_named_before_and_after_an_anchor(tmp_path: Path) -> None:
    path, anchors, key = tmp_path / "log.jsonl", tmp_path / "anchors.jsonl", tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    one_writer(path, 3, ok=False, close=False, signer=SIGNER)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(sealed_anew([[*lines[:2], edited(lines[2]), *lines[3:]]])[0]))
    chain = json.loads(lines[0])["seal"]["chain"]
    named = f"chain {chain}: numbers 1 to 5 are not signed, up to {path}:6"
    status, output = call("audit", "anchor", path, "-o", anchors, "--key", key)
    assert status == 0
    assert named in output
    assert "not for who wrote them" in output
    assert read_anchors(anchors)[0].heads[0].signed == 0
    status, output = call("audit", "verify", path, "--key", key, "--anchors", anchors)
    assert status == 1
    assert f"{path}:6: open: the chain has no end after number 5; numbers 1 to 5 are not signed" in output
    status, output = call("audit", "verify", path, "--key", key, "--anchors", anchors, "--allow-open")
    assert status == 0
    assert named in output
    assert "what is signed of it is as it was written, 5 lines are not signed" in output
    assert "what is here is as it was written" not in output
    numbers = read_report(path, verifier=SIGNER, anchors=read_anchors(anchors), allow_open=True).numbers
    assert not any(answer.tone == "good" for answer in answers(numbers))
    assert verdict(numbers, "violations") == "Not on record"


def test_what_cannot_be_found_stands_in_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    one_writer(path, 2, signer=SIGNER)
    kept = path.read_bytes()
    one_writer(path, 2, ok=False, signer=SIGNER)
    anchor = make_anchor(verify_log(path), SIGNER)
    path.write_bytes(kept)  # the last chain is gone, with the violation in it
    report = verify_log(path, verifier=SIGNER)
    assert report.ok
    assert report.limits == ("whether whole chains are gone from the end of the log: no anchor was given",)
    numbers = read_report(path, verifier=SIGNER).numbers
    assert verdict(numbers, "violations") == "No, in what is here"
    assert any("No anchor was given" in note for note in answers(numbers)[1].notes)
    assert not verify_log(path, verifier=SIGNER, anchors=[anchor]).ok
    one_writer(tmp_path / "other.jsonl", 2, signer=SIGNER)
    other = make_anchor(verify_log(tmp_path / "other.jsonl"), SIGNER)
    numbers = read_report(tmp_path / "other.jsonl", verifier=SIGNER, anchors=[other]).numbers
    assert (verdict(numbers, "integrity"), verdict(numbers, "violations")) == ("Yes", "No")


def test_anchors_that_contradict_each_other_are_both_held_against_the_log(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    one_writer(path, 2)
    anchor = make_anchor(verify_log(path))
    forged = anchor.model_copy(update={"heads": (anchor.heads[0].model_copy(update={"sha256": "f" * 64}),)})
    for anchors in ([anchor, forged], [forged, anchor]):
        assert verify_log(path, anchors=anchors).counts == {"anchor": 1}
    (tmp_path / "anchors").write_text("")
    with pytest.raises(AuditError, match="no anchor"):
        read_anchors(tmp_path / "anchors")


def test_seals_that_no_writer_makes_are_none(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    one_writer(path, 2)
    lines = path.read_bytes().splitlines(keepends=True)
    changes: list[Callable[[dict[str, Any]], object]] = [
        lambda seal: seal.update(chain="x\x1b[2J"),
        lambda seal: seal.update(seq=True),
        lambda seal: seal.update(seq=-1),
        lambda seal: seal.update(prev="F" * 64),
        lambda seal: seal.update(after=None),
        lambda seal: seal.update(after="as it was written"),
    ]
    for change in changes:
        fields = json.loads(lines[2])
        change(fields["seal"])
        fields["seal"]["sha256"] = seal_hash(fields)
        path.write_bytes(b"".join([*lines[:2], canonical_line(fields).encode() + b"\n", *lines[3:]]))
        assert verify_log(path).problems[0].what == "unsealed"
    # A forged hash in a last line does not get into the seals of others.
    fields["seal"]["sha256"] = "as it was written"
    path.write_bytes(b"".join([*lines, canonical_line(fields).encode() + b"\n"]))
    one_writer(path, 1)
    assert "after" not in json.loads(path.read_bytes().splitlines()[len(lines) + 1])["seal"]


def test_of_a_database_nothing_can_be_told_whatever_was_done_to_it(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    with SqliteSink(path) as sink:
        run = RunRecorder(sink)
        for number in range(5):
            run.verification(ok=number != 2, length=1)
    statements = (
        "SELECT 1",
        "DELETE FROM events WHERE number = 4",
        "DELETE FROM events WHERE number = 2",
        "UPDATE events SET line = replace(line, 'false', 'true')",
        "UPDATE events SET id = id + 100 WHERE number < 2",
        "DELETE FROM events",
    )
    for statement in statements:
        with sqlite3.connect(path) as database:
            database.execute(statement)
        database.close()
        report = verify_log(path)
        assert not report.ok
        status, output = call("audit", "verify", path)
        assert status == 1
        assert "nobody can tell whether it is as it was written" in output
        numbers = read_report(path).numbers
        assert verdict(numbers, "integrity") == "Cannot be told"
        assert not verdict(numbers, "violations").startswith("No,")
        assert verdict(numbers, "violations") != "No"


@posix
def test_a_log_that_is_rotated_while_it_is_verified_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path, max_bytes=3000) as sink:
        for number in range(40):
            RunRecorder(sink).verification(ok=True, length=number)
        read: list[Event] = []

        def written_meanwhile(event: Event) -> None:
            read.append(event)
            if len(read) < 40:  # each line that is read brings another
                RunRecorder(sink).verification(ok=True, length=1000 + len(read))

        files = len(log_files(path))
        report = verify_log(path, allow_open=True, each=written_meanwhile)
    assert report.ok, report.problems
    assert len(report.files) > files + 3
    assert report.files[-1] == str(path)
    assert len(read) >= 40 + 30
