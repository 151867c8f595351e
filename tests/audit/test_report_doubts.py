"""No report is better than its log; and the command that makes one."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nco_guard.audit import (
    HmacSigner,
    JsonLinesSink,
    RunFinished,
    RunRecorder,
    RunStarted,
    Verification,
    make_anchor,
    verify_log,
)
from nco_guard.audit.report import LogReport, read_report, render_report
from nco_guard.audit.report.verdicts import answers
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.cli import app
from tests.audit.report_logs import clean_log, lines_of, random_events, verdict, write_log

KEY = bytes(range(32))


# -- no report is better than its log ------------------------------------------------------------------------------


def test_nothing_let_through_is_said_of_an_intact_log_only(tmp_path: Path) -> None:
    path = clean_log(tmp_path / "log.jsonl", signer=HmacSigner(KEY))
    vouched = {"verifier": HmacSigner(KEY), "anchors": [make_anchor(verify_log(path), HmacSigner(KEY))]}
    numbers = read_report(path, **vouched).numbers  # type: ignore[arg-type]
    assert (verdict(numbers, "integrity"), verdict(numbers, "violations")) == ("Yes", "No")
    assert verdict(numbers, "mishaps") == "No"
    assert {answer.tone for answer in answers(numbers)} == {"good", "plain"}
    # Without a key and anchors more may have happened than stands here, and each answer says so.
    numbers = read_report(path).numbers
    assert verdict(numbers, "integrity") == "Yes, as far as it goes"
    assert verdict(numbers, "violations") == verdict(numbers, "mishaps") == "No, in what is here"
    assert not any(answer.tone == "good" for answer in answers(numbers))
    lines = path.read_bytes().splitlines(keepends=True)
    verification = next(place for place, line in enumerate(lines) if b'"kind":"verification"' in line)
    tampered = {
        "edited": [line.replace(b'"length":', b'"length":1', 1) for line in lines],
        "removed": lines[:verification] + lines[verification + 1 :],
        "swapped": [*lines[:5], lines[6], lines[5], *lines[7:]],
        "torn": [*lines[:5], lines[5][:40] + b"\n", *lines[6:]],
        "no beginning": lines[3:],
        "no JSON": [*lines, b"\xff\n"],
        "emptied": [],
    }
    for name, content in tampered.items():
        path.write_bytes(b"".join(content))
        numbers = read_report(path).numbers
        assert numbers.integrity.state == "altered", name
        assert numbers.integrity.problems, name
        assert verdict(numbers, "integrity") == "No", name
        assert verdict(numbers, "violations") not in ("No", "Yes"), name
        assert not any(answer.tone == "good" for answer in answers(numbers)), name
        page = render_report(read_report(path))
        assert "This log is not as it was written" in page, name
    path.write_bytes(b"".join(lines[:-1]))
    numbers = read_report(path).numbers
    assert numbers.integrity.state == "open"
    assert verdict(numbers, "integrity") == "Not confirmed"
    assert verdict(numbers, "violations") == "Not on record"
    assert not any(answer.tone == "good" for answer in answers(numbers))
    assert "Nobody can say whether this log is complete" in render_report(read_report(path))
    numbers = read_report(path, allow_open=True).numbers
    assert numbers.integrity.state == "intact"
    assert verdict(numbers, "integrity") == "Yes, as far as it goes"
    assert verdict(numbers, "violations") == "Not on record"


def test_a_hidden_violation_is_not_a_clean_log(tmp_path: Path) -> None:
    """Whoever turns a violation into a clean text leaves an edited line, and the report says nothing is known."""
    path = write_log(tmp_path / "log.jsonl", random_events(60, 8, faults=False))
    assert verdict(read_report(path).numbers, "violations") == "Yes"
    path.write_text(path.read_text().replace('"ok":false', '"ok":true'))
    numbers = read_report(path).numbers
    assert numbers.violations == 0
    assert verdict(numbers, "violations") == "Not known"


@pytest.mark.parametrize("chain", [False, "sqlite"])
def test_of_logs_without_a_chain_nothing_can_be_told(tmp_path: Path, chain: bool | str) -> None:
    path = tmp_path / "log"
    events = list(random_events(30, 7, violations=False, faults=False))
    if chain == "sqlite":
        with SqliteSink(path) as sink:
            for event in events:
                sink(event)
    else:
        write_log(path, iter(events), chain=False)
    report = read_report(path)
    chained = read_report(write_log(tmp_path / "chained.jsonl", iter(events)))
    assert report.numbers.integrity.state == "untold"
    assert verdict(report.numbers, "integrity") == "Cannot be told"
    assert verdict(report.numbers, "violations") == "Not on record"
    same = {"integrity", "generated"}
    assert report.numbers.model_dump(exclude=same) == chained.numbers.model_dump(exclude=same)
    assert report.table == chained.table


def test_one_unsealed_line_in_a_chained_log_is_an_addition(tmp_path: Path) -> None:
    path = clean_log(tmp_path / "log.jsonl")
    line = next(one for one in lines_of(path) if one["kind"] == "verification")
    del line["seal"]
    with path.open("a") as stream:
        stream.write(json.dumps({**line, "ok": False}) + "\n")
    numbers = read_report(path).numbers
    assert numbers.integrity.problem_counts == {"unsealed": 1}
    assert numbers.integrity.state == "altered"
    assert numbers.violations == 1  # it is counted all the same: the page shows what stands there


def test_keys_and_anchors_are_held_against_the_log(tmp_path: Path) -> None:
    signer = HmacSigner(KEY)
    path = clean_log(tmp_path / "log.jsonl", signer=signer)
    anchor = make_anchor(verify_log(path), signer)
    good = read_report(path, verifier=signer, anchors=[anchor]).numbers
    assert good.integrity.state == "intact"
    assert (good.integrity.signed_chains, good.integrity.anchors) == (1, 1)
    assert not any("not checked" in note for note in answers(good)[0].notes)
    other = read_report(path, verifier=HmacSigner(secrets.token_bytes(32))).numbers
    assert other.integrity.state == "altered"
    assert "signature" in other.integrity.problem_counts
    assert any("not checked" in note for note in answers(read_report(path).numbers)[0].notes)
    (tmp_path / "rewritten").mkdir()
    anew = clean_log(tmp_path / "rewritten" / "log.jsonl")
    assert read_report(anew, anchors=[anchor]).numbers.integrity.problem_counts == {"anchor": 1}


def test_missing_verifications_and_events_leave_doubt(tmp_path: Path) -> None:
    events = list(random_events(30, 7, violations=False, faults=False))
    several = {
        event.run_id
        for event in events
        if isinstance(event, RunStarted) and event.tokenizer_digest and event.sequences > 1
    }
    gone = next(
        event
        for event in events
        if isinstance(event, Verification) and event.sequence == 0 and event.run_id in several
    )
    numbers = read_report(
        write_log(tmp_path / "lost.jsonl", (event for event in events if event is not gone))
    ).numbers
    assert (numbers.integrity.state, numbers.totals.lost) == ("intact", 1)
    assert verdict(numbers, "violations") == "Not on record"
    # One text verified twice does not make up for another that was not.
    again = next(
        event
        for event in events
        if isinstance(event, Verification) and event.sequence == 1 and event.run_id == gone.run_id
    )
    twice = gone.model_copy(update={"sequence": 1, "length": again.length})
    numbers = read_report(
        write_log(tmp_path / "twice.jsonl", (twice if event is gone else event for event in events))
    ).numbers
    assert (numbers.totals.lost, numbers.totals.guarded_unverified) == (0, 1)
    assert verdict(numbers, "violations") == "Not on record"
    end = max(place for place, event in enumerate(events) if isinstance(event, RunFinished))
    numbers = read_report(
        write_log(tmp_path / "unfinished.jsonl", (e for place, e in enumerate(events) if place != end))
    ).numbers
    assert numbers.totals.unfinished == 1
    assert verdict(numbers, "violations") == "Not on record"


def test_problems_are_bounded_and_all_counted(tmp_path: Path) -> None:
    path = write_log(tmp_path / "log.jsonl", random_events(60, 9))
    whole = verify_log(path)
    path.write_text(path.read_text().replace('"seal":', '"seel":'))
    integrity = read_report(path).numbers.integrity
    assert len(integrity.problems) == 100
    assert integrity.problem_counts["unsealed"] == whole.lines
    path.write_text(path.read_text().replace('"seel":', '"seal":').replace('"prev":"', '"prev":"0'))
    full, some = verify_log(path), verify_log(path, max_problems=5)
    assert full.problems[:5] == some.problems
    assert full.counts == some.counts
    assert sum(full.counts.values()) == len(full.problems)


# -- the command ---------------------------------------------------------------------------------------------------


def test_the_command_writes_the_page_and_says_whether_the_log_is_whole(tmp_path: Path) -> None:
    log, page = clean_log(tmp_path / "log.jsonl"), tmp_path / "report.html"
    done = CliRunner().invoke(app, ["audit", "report", str(log), "-o", str(page)])
    assert done.exit_code == 0, done.output
    assert "what is here of the log is as it was written" in done.output
    assert (
        "not told: whether whole chains are gone from the end of the log: no anchor was given" in done.output
    )
    assert page.stat().st_mode & 0o777 == 0o600
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    printed = CliRunner().invoke(app, ["audit", "report", str(log), "--json"])
    assert printed.exit_code == 0
    numbers = LogReport.model_validate_json(printed.output)
    assert numbers.totals == read_report(log).numbers.totals
    log.write_text(log.read_text().replace('"ok":true', '"ok":false', 1))
    done = CliRunner().invoke(app, ["audit", "report", str(log), "-o", str(page)])
    assert done.exit_code == 1
    assert "NOT AS IT WAS WRITTEN" in done.output


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    log = clean_log(tmp_path / "log.jsonl", max_bytes=4000)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert len(before) > 2
    for arguments in (
        [str(log)],
        [str(log), "-o", str(log)],
        [str(log), "-o", str(log) + ".000001"],
        [str(log), "-o", str(tmp_path / "nowhere" / "page.html")],
        [str(tmp_path / "none.jsonl"), "--json"],
    ):
        done = CliRunner().invoke(app, ["audit", "report", *arguments])
        assert done.exit_code == 2, arguments
    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_report_of_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").touch()
    report = read_report(tmp_path / "log.jsonl")
    assert report.numbers.integrity.problem_counts == {"empty": 1}
    assert "not as it was written" in render_report(report)
    with JsonLinesSink(tmp_path / "one.jsonl") as sink:
        RunRecorder(sink).verification(ok=True, length=3)
    assert "one.jsonl" in render_report(read_report(tmp_path / "one.jsonl"))
