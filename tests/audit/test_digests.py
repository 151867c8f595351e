"""What a log says of a policy cannot be tried against policies, where there is a key for it; runs still compare."""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from nco_guard import Guard, Policy
from nco_guard.audit import (
    Ed25519Signer,
    Event,
    HmacSigner,
    JsonLinesSink,
    MemorySink,
    RunRecorder,
    fan_out,
    keyed_digests,
    policy_hmac,
    read_events,
    verify_log,
)
from nco_guard.audit.report import read_report
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.cli import app
from nco_guard.errors import AuditError
from nco_guard.policy import StringRule

KEY = bytes(range(1, 33))
NAMES = [f"Project {word}" for word in ("Heron", "Falcon", "Bluebird", "Osprey", "Merlin")]


def policy(name: str = "Project Bluebird") -> Policy:
    return Policy(name="codenames", rules=[StringRule(id="codename", strings=[name])])


def found_by_trial(log: str, hints: tuple[bytes, ...] = ()) -> list[str]:
    """The names whose policy's digest is in a log: plain, or under anything that the log's readers have as a key."""
    found = []
    for name in NAMES:
        digest = policy(name).digest
        tried = [digest, *(hashlib.sha256(hint + digest.encode()).hexdigest() for hint in hints)]
        for hint in hints:
            if len(hint) >= 16:
                tried.append(policy_hmac(hint, digest))
            tried.append(hmac.new(hint, digest.encode(), hashlib.sha256).hexdigest())
            tried.append(hmac.new(hint, bytes.fromhex(digest), hashlib.sha256).hexdigest())
        if any(one in log for one in tried):
            found.append(name)
    return found


def recorded(guard: Guard, sink: Any) -> None:
    """What a guard and others that share its log write of a policy."""
    for recorder in (RunRecorder(guard.log.sink), RunRecorder(guard.log.keyed(sink))):  # type: ignore[arg-type]
        recorder.started(
            policy_name="codenames", policy_digest=guard.policy.digest, rule_ids=["codename"], sequences=1
        )
        recorder.verification(ok=True, length=3, sequence=0, policy_digest=guard.verify("all").policy_digest)
        recorder.finished(outcomes=["ended"], interventions=0, tokens=1, seconds=0.1)


def test_without_a_key_the_policy_is_found_by_trial(tmp_path: Path) -> None:
    """As the documentation says."""
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        recorded(Guard(policy(), audit=sink), sink)
    assert found_by_trial(path.read_text()) == ["Project Bluebird"]


@pytest.mark.parametrize("signed", ["no", "hmac", "ed25519"])
@pytest.mark.parametrize("field", ["digest_key", "correlation_key"])
def test_with_a_key_it_is_not_found_by_any_reader(field: str, signed: str, tmp_path: Path) -> None:
    path, database, memory = tmp_path / "log.jsonl", tmp_path / "log.db", MemorySink()
    hints: tuple[bytes, ...] = (b"", b"nco-guard")
    signer: Any = None
    if signed == "ed25519":
        signer = Ed25519Signer.generate()
        public = signer.verifier
        hints += (public._key.public_bytes_raw(), public.to_pem(), public.key_id.encode())
    elif signed == "hmac":
        signer = HmacSigner(secrets.token_bytes(32))
        hints += (signer.key_id.encode(),)
    with JsonLinesSink(path, signer=signer) as sink, SqliteSink(database) as rows:
        everywhere = fan_out(sink, rows, memory)
        guard = Guard(policy(), audit=everywhere, **{field: KEY})  # type: ignore[arg-type]
        recorded(guard, everywhere)
        lines = "".join(event.to_json() for event in rows.events())
    for text in (path.read_text(), lines, "".join(event.to_json() for event in memory.events), repr(guard)):
        assert found_by_trial(text, hints) == []
    assert found_by_trial(path.read_text(), (KEY,)) == ["Project Bluebird"]  # who has the key can compare
    assert verify_log(path).ok
    digests = {event.policy_digest for event in read_events(path).events if hasattr(event, "policy_digest")}
    assert digests == {policy_hmac(KEY, policy().digest)} == {guard.log.digest}


def test_a_report_groups_runs_of_a_policy_by_the_keyed_digest(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for name in ("Project Bluebird", "Project Heron", "Project Bluebird"):
        with JsonLinesSink(path) as sink:
            recorded(Guard(policy(name), audit=sink, digest_key=KEY), sink)
    numbers = read_report(path).numbers
    assert [(one.loaded, one.runs) for one in numbers.policies] == [(2, 4), (1, 2)]
    assert [one.policy_digest for one in numbers.policies] == [
        policy_hmac(KEY, policy(name).digest) for name in ("Project Bluebird", "Project Heron")
    ]
    other = policy_hmac(secrets.token_bytes(32), policy().digest)
    assert other not in {one.policy_digest for one in numbers.policies}


def test_a_sink_of_ones_own_keys_digests_too(tmp_path: Path) -> None:
    memory = MemorySink()
    run = RunRecorder(keyed_digests(memory, KEY))
    given = run.started(policy_name="p", policy_digest=policy().digest, rule_ids=[], sequences=1)
    run.intervention(sequence=0, step=0)
    run.verification(ok=True, length=1)
    assert given.policy_digest == policy().digest  # the caller's own is as it was
    events: tuple[Any, ...] = memory.events
    assert events[0].policy_digest == policy_hmac(KEY, policy().digest)
    assert isinstance(events[1], Event)
    assert events[2].policy_digest is None
    # What is keyed already stays: a guard's own key counts.
    guard = Guard(policy(), audit=keyed_digests(memory, KEY), digest_key=bytes(32))
    assert memory.events[-1].policy_digest == guard.log.digest  # type: ignore[attr-defined]


def test_guards_for_other_policies_keep_the_key() -> None:
    memory = MemorySink()
    guard = Guard(policy(), audit=memory, digest_key=KEY).with_policy(policy("Project Heron"))
    assert guard.log.digest == policy_hmac(KEY, policy("Project Heron").digest)
    assert [event.policy_digest for event in memory.events] == [  # type: ignore[attr-defined]
        policy_hmac(KEY, policy().digest),
        guard.log.digest,
    ]


@pytest.mark.parametrize("key", [b"", b"short", "a string that is long enough", 7])
@pytest.mark.parametrize("field", ["digest_key", "correlation_key"])
def test_keys_that_can_be_guessed_are_refused_before_anything_runs(field: str, key: Any) -> None:
    with pytest.raises(AuditError, match=field) as caught:
        Guard(policy(), audit=MemorySink(), **{field: key})
    assert "short" not in str(caught.value)
    with pytest.raises(AuditError, match=field):
        Guard(policy(), **{field: key})
    with pytest.raises(AuditError, match="digest_key"):
        keyed_digests(MemorySink(), key)


def test_the_command_prints_a_digest_as_logs_have_it(tmp_path: Path) -> None:
    file, key = tmp_path / "policy.json", tmp_path / "key"
    file.write_text(policy().to_json())
    key.write_bytes(KEY)
    printed = CliRunner().invoke(app, ["audit", "digest", str(file), "--key", str(key)])
    assert printed.output.strip() == policy_hmac(KEY, policy().digest)
    assert CliRunner().invoke(app, ["audit", "digest", str(file)]).output.strip() == policy().digest
    key.write_bytes(b"short")
    assert CliRunner().invoke(app, ["audit", "digest", str(file), "--key", str(key)]).exit_code == 2
    assert CliRunner().invoke(app, ["audit", "digest", str(file), "--key", "nowhere"]).exit_code == 2


def test_findings_for_other_systems_hold_no_digest(tmp_path: Path) -> None:
    file, text = tmp_path / "policy.json", tmp_path / "reply.txt"
    file.write_text(policy().to_json())
    text.write_text("Project Bluebird")
    printed = CliRunner().invoke(app, ["verify", str(file), str(text), "--format", "sarif"])
    assert json.loads(printed.output)["runs"][0]["results"]
    assert found_by_trial(printed.output) == []
