"""The chain: whatever is done to a log is found and placed; what was accepted survives a kill."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nco_guard.audit import (
    Ed25519Signer,
    HmacSigner,
    IntegrityReport,
    JsonLinesSink,
    RunRecorder,
    load_signer,
    load_verifier,
    log_files,
    make_anchor,
    parse_event,
    read_anchors,
    read_events,
    verify_log,
)
from nco_guard.audit.chain import canonical_line, seal_hash
from nco_guard.errors import ArgumentValueError, AuditError

WRITER = Path(__file__).parent / "writer.py"
KEY = bytes(range(32))


def write(path: Path, events: int, *, close: bool = True, **options: object) -> None:
    """A log of so many events."""
    sink = JsonLinesSink(path, **options)  # type: ignore[arg-type]
    run = RunRecorder(sink, request_id="r")
    for number in range(events):
        run.intervention(sequence=0, step=number, rule_ids=["email"], removed_probability=number / 1000)
    if close:
        sink.close()
    else:
        os.close(sink._descriptor)
        sink._open = False


def lines_of(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def what(report: IntegrityReport) -> set[str]:
    return {problem.what for problem in report.problems}


@pytest.fixture(scope="module", params=[80, pytest.param(500, marks=pytest.mark.slow)])
def long_log(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    path = tmp_path_factory.mktemp("log") / "log.jsonl"
    write(path, request.param, signer=HmacSigner(KEY), head_every=40)
    assert verify_log(path, verifier=HmacSigner(KEY)).ok
    return lines_of(path)


def test_a_log_as_written_verifies_and_its_events_read_back(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 20)
    report = verify_log(path)
    assert report.ok
    assert (report.events, len(report.chains), report.lines) == (20, 1, 22)
    assert [event.step for event in read_events(path).events] == list(range(20))  # type: ignore[union-attr]
    for line in lines_of(path)[1:-1]:
        assert parse_event(line).to_json() != line.decode()  # the seal is no part of the event


def test_a_seal_is_what_the_module_says_by_plain_python(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 5)
    before = "0" * 64
    for number, line in enumerate(lines_of(path)):
        fields = json.loads(line)
        seal = fields["seal"]
        digest = seal.pop("sha256")
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        assert hashlib.sha256(text.encode()).hexdigest() == digest
        assert (seal["seq"], seal["prev"]) == (number, before)
        before = digest


def found_at(path: Path, lines: list[bytes], line: int) -> bool:
    """Whether a log of these lines has a problem at that line, counted from 1, or at the next."""
    path.write_bytes(b"".join(lines))
    report = verify_log(path)
    return any(problem.line in (line, line + 1) for problem in report.problems)


def test_every_flipped_character_of_every_line_is_found_where_it_is(
    long_log: list[bytes], tmp_path: Path
) -> None:
    path, rng = tmp_path / "log.jsonl", random.Random(0)
    for at, line in enumerate(long_log):
        position = rng.randrange(len(line))
        flipped = line[:position] + bytes([line[position] ^ 1 << rng.randrange(8)]) + line[position + 1 :]
        assert found_at(path, [*long_log[:at], flipped, *long_log[at + 1 :]], at + 1), (at, position)


@pytest.mark.parametrize("apart", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_a_flipped_bit_in_any_byte_is_found(apart: int, tmp_path: Path) -> None:
    path, rng = tmp_path / "log.jsonl", random.Random(2)
    write(path, 3, signer=HmacSigner(KEY), head_every=2)
    whole = path.read_bytes()
    for at in range(0, len(whole), apart):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << rng.randrange(8)]) + whole[at + 1 :])
        report = verify_log(path, verifier=HmacSigner(KEY))
        line = whole.count(b"\n", 0, at) + 1
        assert any(problem.line in (line, line + 1) for problem in report.problems), at


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b"NaN", "edited"),
        (b"-Infinity", "edited"),
        (b"1e999", "edited"),
        (b"0.250", "edited"),
        (b'0.25,"step":1', "edited"),
        (b"true", "edited"),
        (b'"\\ud800"', "edited"),
        (b"[" * 700 + b"]" * 700, "edited"),
        (b"[" * 100_000, "torn"),
        (b"9" * 5_000, "torn"),
        (b'"\xff"', "torn"),
        (b"0.25\r", "edited"),
    ],
)
def test_what_no_writer_writes_is_found_and_breaks_nothing(value: bytes, found: str, tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 3, signer=HmacSigner(KEY))
    lines = lines_of(path)
    lines[2] = lines[2].replace(b'"removed_probability":0.001', b'"removed_probability":' + value)
    path.write_bytes(b"".join(lines))
    for verifier in (None, HmacSigner(KEY)):
        problems = verify_log(path, verifier=verifier).problems
        assert (problems[0].what, problems[0].line) == (found, 3)
        assert {problem.line for problem in problems} <= {3, 4}


def test_a_head_with_what_no_writer_writes_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 2, signer=HmacSigner(KEY), head_every=1)
    lines = lines_of(path)
    for at in (0, 2, len(lines) - 1):
        edited = [*lines]
        edited[at] = edited[at].replace(b'"schema_version":1', b'"schema_version":Infinity')
        path.write_bytes(b"".join(edited))
        problem = verify_log(path, verifier=HmacSigner(KEY)).problems[0]
        assert (problem.what, problem.line) == ("edited", at + 1)


def test_every_edited_event_is_found_even_with_its_own_hash_made_anew(
    long_log: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "log.jsonl"
    for at, line in enumerate(long_log):
        fields = json.loads(line)
        if fields["kind"] == "intervention":
            fields["step"] += 1
        else:
            fields["time"] = "2020-01-01T00:00:00.000000Z"
        fields["seal"]["sha256"] = seal_hash(fields)
        edited = canonical_line(fields).encode() + b"\n"
        path.write_bytes(b"".join([*long_log[:at], edited, *long_log[at + 1 :]]))
        report = verify_log(path, verifier=HmacSigner(KEY))
        assert report.problems[0].line in (at + 1, at + 2), at


def test_every_dropped_line_is_found_where_it_was(long_log: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for at in range(len(long_log) - 1):
        path.write_bytes(b"".join([*long_log[:at], *long_log[at + 1 :]]))
        report = verify_log(path)
        assert "removed" in what(report), at
        assert report.problems[0].line == at + 1
        assert report.problems[0].seq == at + 1


def test_every_swapped_and_every_repeated_line_is_found(long_log: list[bytes], tmp_path: Path) -> None:
    path, rng = tmp_path / "log.jsonl", random.Random(1)
    for at in range(len(long_log) - 1):
        other = rng.randrange(at + 1, len(long_log))
        swapped = list(long_log)
        swapped[at], swapped[other] = swapped[other], swapped[at]
        assert found_at(path, swapped, at + 1), (at, other)
        assert found_at(path, [*long_log[: at + 1], *long_log[at:]], at + 2), at


def test_every_truncation_of_a_closed_log_is_found(long_log: list[bytes], tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for at in range(len(long_log)):
        path.write_bytes(b"".join(long_log[:at]))
        report = verify_log(path)
        assert what(report) == ({"open"} if at else {"empty"}), at
        path.write_bytes(b"".join(long_log[:at]) + long_log[at][:-9])
        assert not verify_log(path).ok


def test_an_anchor_shows_a_truncation_of_a_log_in_use(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 50, close=False)
    anchor = make_anchor(verify_log(path, allow_open=True), HmacSigner(KEY))
    lines = lines_of(path)
    assert verify_log(path, anchors=[anchor], verifier=None, allow_open=True).ok
    for at in range(1, len(lines)):
        path.write_bytes(b"".join(lines[:at]))
        assert verify_log(path, allow_open=True).ok  # the chain alone cannot tell
        assert what(verify_log(path, anchors=[anchor], allow_open=True)) == {"anchor"}


def test_an_anchor_shows_that_a_whole_chain_is_gone_or_written_anew(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 5)
    anchors = [make_anchor(verify_log(path))]
    path.unlink()
    write(path, 5)
    assert verify_log(path).ok
    assert what(verify_log(path, anchors=anchors)) == {"anchor"}


def test_who_has_not_the_key_cannot_write_a_log_anew_or_close_a_cut_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for signer in (None, HmacSigner(bytes(32)), Ed25519Signer.generate()):
        write(path, 5, signer=signer)
        assert verify_log(path).ok
        assert what(verify_log(path, verifier=HmacSigner(KEY))) == {"signature"}
        path.unlink()


@pytest.mark.parametrize("kind", ["hmac", "ed25519"])
def test_keys_in_files_sign_and_verify(kind: str, tmp_path: Path) -> None:
    private, public = tmp_path / "private", tmp_path / "public"
    if kind == "hmac":
        private.write_bytes(KEY)
        public.write_bytes(KEY)
    else:
        signer = Ed25519Signer.generate()
        private.write_bytes(signer.to_pem())
        public.write_bytes(signer.verifier.to_pem())
    path = tmp_path / "log.jsonl"
    write(path, 10, signer=load_signer(private), head_every=3)
    report = verify_log(path, verifier=load_verifier(public))
    assert report.ok
    assert report.chains[0].signed == report.chains[0].seq
    assert load_verifier(private).valid(b"x", load_signer(private).signature(b"x"))
    assert KEY.hex() not in repr(load_verifier(public)) + repr(load_signer(private))


def test_bad_keys_are_audit_errors_that_do_not_quote_them(tmp_path: Path) -> None:
    path = tmp_path / "key"
    for data in (
        b"short",
        b"-----BEGIN PRIVATE KEY-----\nQ2FuYXJ5\n",
        b"-----BEGIN PUBLIC KEY-----\nQ2FuYXJ5\n",
    ):
        path.write_bytes(data)
        with pytest.raises(AuditError) as caught:
            load_verifier(path)
        assert "Q2FuYXJ5" not in str(caught.value)
    with pytest.raises(AuditError, match="cannot read"):
        load_signer(tmp_path / "none")


def test_a_chain_goes_on_over_rotated_files_and_a_missing_one_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 100, max_bytes=4000)
    files = log_files(path)
    assert len(files) > 5
    report = verify_log(path)
    assert report.ok
    assert (report.events, len(report.chains)) == (100, 1)
    assert sum(len(read_events(file).events) for file in files) == 100
    for file in files[:-1]:
        kept = file.read_bytes()
        file.unlink()
        assert "removed" in what(verify_log(path))
        file.write_bytes(kept)


def test_an_anchor_vouches_for_files_that_were_put_away(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    sink = JsonLinesSink(path, max_bytes=3000)
    run = RunRecorder(sink)
    for number in range(20):
        run.intervention(sequence=0, step=number)
    os.rename(path, tmp_path / f"log.jsonl.{len(log_files(path)):06d}")
    older = log_files(path)
    anchor = make_anchor(verify_log(older, allow_open=True))
    for number in range(20):
        run.intervention(sequence=0, step=20 + number)
    sink.close()
    for file in older:
        file.unlink()
    assert what(verify_log(path)) == {"removed"}
    assert what(verify_log(path, anchors=[anchor])) == {"removed", "anchor"}
    report = verify_log(path, anchors=[anchor], archived=True)
    assert report.ok
    assert report.absent == 21
    assert "put away" in report.verdict
    assert "21 lines" in report.limits[0]
    assert what(verify_log(path, archived=True)) == {"removed"}  # nobody but an anchor knows where it was cut


def test_a_torn_line_is_vouched_for_by_the_next_writer_and_cannot_be_edited(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 5, close=False)
    path.write_bytes(path.read_bytes()[:-20])
    report = verify_log(path, allow_open=True)
    assert report.ok
    assert f"what {path}:6 was to say" in report.limits[0]
    assert "torn" in what(verify_log(path))
    write(path, 5)
    assert verify_log(path, allow_open=True).ok
    lines = lines_of(path)
    lines[5] = lines[5].replace(b"email", b"eMail")
    path.write_bytes(b"".join(lines))
    assert "torn" in what(verify_log(path, allow_open=True))


def test_bytes_behind_a_closed_and_signed_log_stand_in_the_verdict(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 5, signer=HmacSigner(KEY))
    with path.open("ab") as stream:
        stream.write(b'{"kind":"verification","forged')
    assert what(verify_log(path, verifier=HmacSigner(KEY))) == {"torn"}
    report = verify_log(path, verifier=HmacSigner(KEY), allow_open=True)
    assert any("the last line is cut" in limit for limit in report.limits)


def test_a_line_that_lacks_only_its_break_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 5, close=False)
    path.write_bytes(path.read_bytes()[:-1])
    write(path, 5)
    report = verify_log(path, allow_open=True)
    assert report.ok
    assert report.events == 10


def test_a_plain_line_in_a_chained_log_is_found(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 3)
    write(path, 1, chain=False)
    assert what(verify_log(path)) == {"unsealed"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_chain_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        run = RunRecorder(sink)
        run.intervention(sequence=0, step=0)
        child = os.fork()
        if child == 0:
            for number in range(50):
                RunRecorder(sink).intervention(sequence=1, step=number)
            sink.close()
            os._exit(0)
        for number in range(50):
            run.intervention(sequence=0, step=number)
        assert os.waitpid(child, 0)[1] == 0
    report = verify_log(path)
    assert report.ok, report.problems[:3]
    assert (report.events, len(report.chains)) == (101, 2)


def start(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, WRITER, *map(str, arguments)], stdout=subprocess.PIPE)


def test_processes_share_a_file_rotate_it_and_no_two_lines_can_change_places(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    children = [start(path, 300, 20_000) for _ in range(2)]
    for child in children:
        child.communicate()
    assert [child.returncode for child in children] == [0, 0]
    report = verify_log(path)
    assert report.ok, report.problems[:3]
    assert (report.events, len(report.chains)) == (600, 2)
    assert len(report.files) > 5
    # Woven: where lines of the two stand side by side, they cannot be swapped or removed unseen.
    whole = b"".join(file.read_bytes() for file in log_files(path))
    lines = whole.splitlines(keepends=True)
    chains = [json.loads(line)["seal"]["chain"] for line in lines]
    borders = [at for at in range(1, len(lines)) if chains[at] != chains[at - 1]]
    single = tmp_path / "single.jsonl"
    single_report = None
    for at in borders[:40]:
        if at + 1 < len(lines) and "after" in json.loads(lines[at])["seal"]:
            swapped = [*lines[: at - 1], lines[at], lines[at - 1], *lines[at + 1 :]]
            single.write_bytes(b"".join(swapped))
            single_report = verify_log(single)
            assert any(problem.line in (at, at + 1, at + 2) for problem in single_report.problems), at
    assert single_report is not None or len(borders) < 2


def kill_writers(path: Path, times: int) -> None:
    """Kill a writing process again and again; what it was told is accepted must be in the log."""
    rng = random.Random(times)
    accepted: dict[str, int] = {}
    for _ in range(times):
        child = start(path, 10**9, 2_000_000)
        assert child.stdout is not None
        run = child.stdout.readline().decode().strip()
        child.stdout.readline()  # it writes now
        time.sleep(rng.uniform(0, 0.03))
        child.send_signal(signal.SIGKILL)
        numbers = child.stdout.read().split(b"\n")[:-1]
        child.wait()
        accepted[run] = int(numbers[-1]) if numbers else 0
    report = verify_log(path, allow_open=True)
    assert report.ok, report.problems[:3]
    assert len(report.chains) == times
    assert what(verify_log(path)) == {"open"}
    steps: dict[str, list[int]] = {}
    for file in log_files(path):
        log = read_events(file)
        assert not log.damaged_lines or log.damaged_lines[0] > 0
        for event in log.events:
            steps.setdefault(str(event.run_id), []).append(event.number)
    for run, last in accepted.items():
        assert steps[run][: last + 1] == list(range(last + 1))
        assert len(steps[run]) <= last + 2  # at most the one that was being written besides


def test_a_killed_writer_loses_nothing_that_was_accepted(tmp_path: Path) -> None:
    kill_writers(tmp_path / "log.jsonl", 10)


@pytest.mark.slow
def test_a_hundred_killed_writers_lose_nothing_that_was_accepted(tmp_path: Path) -> None:
    kill_writers(tmp_path / "log.jsonl", 100)


@pytest.mark.parametrize("fsync", [True, "heads", False])
def test_every_way_of_flushing_writes_the_same(tmp_path: Path, fsync: bool | str) -> None:
    path = tmp_path / "log.jsonl"
    write(path, 10, fsync=fsync, signer=HmacSigner(KEY), head_every=4)
    report = verify_log(path, verifier=HmacSigner(KEY))
    assert report.ok
    assert report.lines == 10 + 2 + 2


def test_a_log_that_is_removed_under_its_writer_is_begun_anew_and_that_shows(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        run = RunRecorder(sink)
        run.intervention(sequence=0, step=0)
        path.unlink()
        run.intervention(sequence=0, step=1)
    assert what(verify_log(path)) == {"removed"}


def test_anchors_are_read_back_and_other_files_are_refused(tmp_path: Path) -> None:
    path, anchors = tmp_path / "log.jsonl", tmp_path / "anchors"
    write(path, 3)
    anchor = make_anchor(verify_log(path), HmacSigner(KEY))
    anchors.write_text(anchor.to_json() + "\n")
    assert read_anchors(anchors) == [anchor]
    forged = anchor.model_copy(update={"time": "2020-01-01T00:00:00.000000Z"})
    write(path, 1, signer=HmacSigner(KEY))
    problems = verify_log(path, verifier=HmacSigner(KEY), anchors=[forged]).problems
    assert any("anchor of 2020" in problem.message for problem in problems)
    with pytest.raises(AuditError, match="not an anchor"):
        read_anchors(path)
    path.write_bytes(path.read_bytes().replace(b"email", b"eMail"))
    with pytest.raises(AuditError, match="vouch"):
        make_anchor(verify_log(path))


def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    for options in ({"head_every": 0}, {"max_bytes": 0}):
        with pytest.raises(ArgumentValueError, match="1 or more"):
            JsonLinesSink(tmp_path / "log.jsonl", **options)
    with pytest.raises(AuditError, match="chain=True"):
        JsonLinesSink(tmp_path / "log.jsonl", chain=False, signer=HmacSigner(KEY))
    with pytest.raises(AuditError, match="32 bytes"):
        HmacSigner(b"short")
