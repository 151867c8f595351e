"""The audit log: events without text, canonical lines, sinks that do not lose or mix lines."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from nco_guard import Policy, Rewind, verify
from nco_guard.audit import (
    OUTCOMES,
    DeadEnd,
    DecodeView,
    Event,
    GuaranteeConfigured,
    Intervention,
    JsonLinesSink,
    LoadedRule,
    LoggingSink,
    MemorySink,
    PolicyLoaded,
    RunFinished,
    RunRecorder,
    RunStarted,
    Span,
    Verification,
    event_schema,
    fan_out,
    outcome_of,
    parse_event,
    read_events,
)
from nco_guard.audit.events import RewindTarget
from nco_guard.errors import AuditError
from nco_guard.scan import exposure

DIGEST = "ab" * 32
SECRET = "john.doe@enron.com"


def record_a_run(recorder: RunRecorder) -> list[Event]:
    return [
        recorder.started(
            policy_name="pii",
            policy_digest=DIGEST,
            rule_ids=["email", "téléphone\u2028"],
            sequences=2,
            tokenizer_digest=f"sha256:{DIGEST}",
            model_id="models/tiny",
            decode_view=DecodeView(skip_special_tokens=True, covered_ends=("eos", "max_new_tokens")),
        ),
        recorder.intervention(
            sequence=1,
            step=7,
            rule_ids=["email"],
            removed_probability=0.25,
            first_choice_forbidden=True,
            first_allowed_rank=3,
        ),
        recorder.dead_end(sequence=0, step=9, resolution="ended", rule_ids=["email"]),
        recorder.verification(
            ok=False, length=40, findings=[("email", 3, 21)], sequence=0, policy_digest=DIGEST
        ),
        recorder.finished(outcomes=["eos", "length"], interventions=1, tokens=64, seconds=0.5),
    ]


def test_a_run_of_a_policy_is_what_its_events_say_one_by_one() -> None:
    policy = Policy.from_presets("pii")
    text = f"Write to {SECRET}."
    found, exposures = verify(policy, text), exposure(policy, text)
    short, long = MemorySink(), MemorySink()
    run = RunRecorder(short, correlation_key=bytes(16))
    run.begin(policy, sequences=2, model_id="models/tiny")
    run.report(found, sequence=1, text=text, exposures=exposures)
    run.report(verify(policy, "fine"), ok=False)
    run.finished(outcomes=["eos", "length"])
    by_hand = RunRecorder(long, run_id=run.run_id, correlation_key=bytes(16))
    by_hand.started(
        policy_name=policy.name,
        policy_digest=policy.digest,
        rule_ids=[rule.id for rule in policy.rules],
        sequences=2,
        model_id="models/tiny",
    )
    by_hand.verification(
        ok=False,
        length=len(text),
        findings=[("pii.email", 9, 9 + len(SECRET))],
        sequence=1,
        policy_digest=policy.digest,
        text=text,
        exposures=[(one.rule_id, one.start, one.end) for one in exposures],
    )
    by_hand.verification(ok=False, length=4, policy_digest=policy.digest)
    seconds = short.events[-1].seconds
    by_hand.finished(outcomes=["eos", "length"], interventions=0, tokens=0, seconds=seconds)
    when = {"time", "monotonic_ns"}
    assert [one.model_dump(exclude=when) for one in short.events] == [
        one.model_dump(exclude=when) for one in long.events
    ]
    assert exposures
    assert 0 < seconds < 60
    assert not any(SECRET in one.to_json() for one in short.events)


def test_every_event_survives_a_round_trip_through_its_line() -> None:
    for event in record_a_run(RunRecorder(MemorySink(), parent_id="trace-1", request_id="r9")):
        line = event.to_json()
        assert parse_event(line) == event
        assert parse_event(line).to_json() == line


def test_a_line_is_canonical_and_one_line_by_every_definition() -> None:
    event = record_a_run(RunRecorder(MemorySink()))[0]
    line = event.to_json()
    assert line.isascii()
    assert len(line.splitlines()) == 1
    assert line == json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"))
    assert "parent_id" not in line  # absent, not null


NAMES = st.text(min_size=1, max_size=8)
COUNTS = st.integers(0, 2**63)


@given(
    st.uuids(),
    st.none() | NAMES,
    st.datetimes(timezones=st.just(UTC)),
    COUNTS,
    st.tuples(NAMES, NAMES),
    st.floats(0, 1),
    st.none() | COUNTS,
    st.booleans(),
)
def test_a_line_is_what_pydantic_and_json_make_of_the_event(
    run: UUID,
    request_id: str | None,
    moment: datetime,
    count: int,
    rules: tuple[str, str],
    share: float,
    other: int | None,
    yes: bool,
) -> None:
    common = {
        "run_id": run, "number": count, "request_id": request_id, "time": moment, "monotonic_ns": count,
    }  # fmt: skip
    view = DecodeView(skip_special_tokens=yes, covered_ends=("eos",))
    spans = tuple(Span(rule_id=rule, start=0, end=n) for n, rule in enumerate(rules))
    loaded = tuple(LoadedRule(rule_id=rule, type="regex", mode="hard") for rule in rules)
    events: list[Event] = [
        Intervention(
            **common, sequence=count, step=0, rule_ids=rules, removed_probability=share, first_allowed_rank=other
        ),
        DeadEnd(**common, sequence=0, step=count, resolution="end", rule_ids=rules),
        Verification(**common, ok=yes, length=2, findings=spans, sequence=other),
        RunFinished(**common, outcomes=("eos",), interventions=0, tokens=count, seconds=share),
        RunFinished(
            **common, outcomes=("eos",), interventions=0, tokens=0, seconds=0, back_to="text", fallbacks=(count,)
        ),
        RunStarted(
            **common, policy_name=rules[0], policy_digest=DIGEST, rule_ids=rules, sequences=1, decode_view=view
        ),
        GuaranteeConfigured(
            **common, policy_digest=DIGEST, tokenizer_digest=DIGEST, vocabulary_size=1, decode_view=view
        ),
        PolicyLoaded(
            **common, policy_name="p", policy_digest=DIGEST, rules=loaded, on_dead_end="end",
            on_audit_failure="warn",
        ),
    ]  # fmt: skip
    for event in events:
        plain = event.model_dump(mode="json", exclude_none=True)
        assert event.to_json() == json.dumps(plain, sort_keys=True, separators=(",", ":"))
        assert parse_event(event.to_json()) == event


def test_numbers_are_consecutive_and_share_the_run_id() -> None:
    run = uuid4()
    events = record_a_run(RunRecorder(MemorySink(), run_id=run))
    assert [event.number for event in events] == list(range(len(events)))
    assert {event.run_id for event in events} == {run}
    assert [event.monotonic_ns for event in events] == sorted(event.monotonic_ns for event in events)


@given(st.datetimes(min_value=datetime(1990, 1, 1), max_value=datetime(2200, 1, 1)), st.integers(-14, 14))
def test_time_is_utc_with_six_digits_whatever_zone_it_came_in(moment: datetime, hours: int) -> None:
    event = RunFinished(
        run_id=UUID(int=1),
        number=0,
        time=moment.replace(tzinfo=timezone(timedelta(hours=hours))),
        monotonic_ns=0,
        outcomes=("eos",),
        interventions=0,
        tokens=0,
        seconds=0,
    )
    text = json.loads(event.to_json())["time"]
    assert len(text) == len("2026-01-02T03:04:05.000006Z")
    assert text.endswith("Z")
    assert parse_event(event.to_json()).time == event.time


def test_the_end_of_a_run_under_the_mask_is_the_line_that_it_always_was() -> None:
    line = (
        '{"interventions":1,"kind":"run_finished","monotonic_ns":5,"number":3,"outcomes":["ended","length"],'
        '"run_id":"00000000-0000-0000-0000-000000000001","schema_version":1,"seconds":0.5,'
        '"time":"2026-01-02T03:04:05.000006Z","tokens":64}'
    )
    event = RunFinished(
        run_id=UUID(int=1),
        number=3,
        time=datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        monotonic_ns=5,
        outcomes=("ended", "length"),
        interventions=1,
        tokens=64,
        seconds=0.5,
    )
    assert event.to_json() == line
    assert parse_event(line) == event


def test_how_often_texts_fell_back_is_said_of_each_and_of_how_far() -> None:
    recorder = RunRecorder(MemorySink())
    event = recorder.finished(outcomes=["ended", "length"], back_to="sentence", fallbacks=[0, 2])
    assert json.loads(event.to_json())["fallbacks"] == [0, 2]
    assert parse_event(event.to_json()) == event
    assert get_args(RewindTarget) == get_args(Rewind.model_fields["back_to"].annotation)
    wrong: list[dict[str, Any]] = [
        {"back_to": "text"},
        {"fallbacks": [0, 0]},
        {"back_to": "text", "fallbacks": [1]},
        {"back_to": "text", "fallbacks": [0, -1]},
        {"back_to": SECRET, "fallbacks": [0, 0]},
        {"back_to": "text", "fallbacks": "00"},
    ]
    for fields in wrong:
        with pytest.raises(AuditError, match=r"fallbacks|back_to") as caught:
            recorder.finished(outcomes=["ended", "length"], **fields)
        assert SECRET not in str(caught.value)


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValidationError):
        RunStarted(
            run_id=uuid4(), number=0, time=datetime(2026, 1, 1), monotonic_ns=0, policy_name="p",
            policy_digest=DIGEST, rule_ids=(), sequences=1,
        )  # fmt: skip


def test_events_cannot_be_changed() -> None:
    event = record_a_run(RunRecorder(MemorySink()))[1]
    with pytest.raises(ValidationError):
        event.number = 5


@pytest.mark.parametrize("field", ["text", "prompt", "output", "match"])
def test_no_event_accepts_a_field_for_text(field: str) -> None:
    line = json.loads(record_a_run(RunRecorder(MemorySink()))[1].to_json()) | {field: SECRET}
    with pytest.raises(AuditError) as caught:
        parse_event(json.dumps(line))
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        *((outcome, outcome) for outcome in sorted(OUTCOMES)),
        ("STOP", "stop"),
        ("end-turn", "end_turn"),
        ("Max_Tokens", "max_tokens"),
        ("max_output_tokens", "length"),
        ("PROHIBITED_CONTENT", "content_filter"),
        *(
            (said, "other")
            for said in ("Bluebird", "maria.example", "4111111111111111", SECRET, "", "x" * 10**6)
        ),
        *((said, "other") for said in ("stop; maria", "sto\u0440", None, 7, ["stop"], {"stop": 1})),
    ],
)
def test_an_outcome_is_one_of_a_fixed_set_whoever_says_it(said: Any, kept: str) -> None:
    memory = MemorySink()
    event = RunRecorder(memory).finished(outcomes=[said, "ended"], interventions=0, tokens=1, seconds=0.1)
    assert event.outcomes == (kept, "ended")
    line = json.loads(event.to_json())
    assert line["outcomes"] == [kept, "ended"]
    assert parse_event(json.dumps({**line, "outcomes": [said]})).outcomes == (kept,)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("places", "outcome"),
    [
        ((), "answered"),
        ((None, {}, "stop", {"finish_reason": None, "status": ""}), "answered"),
        (({"text": SECRET}, {"finish_reason": SECRET}), "other"),
        (({"finish_reason": None}, {"stop_reason": "end_turn"}), "end_turn"),
        (({"status": "completed", "finish_reason": "Length"},), "length"),
        (({"choices": [{"finish_reason": "stop"}]},), "stop"),
        ((SimpleNamespace(choices=[SimpleNamespace(finish_reason="tool_calls")]),), "tool_calls"),
        (({"choices": []}, SimpleNamespace(status="incomplete")), "incomplete"),
    ],
)
def test_what_a_response_says_of_its_end_is_found(places: tuple[Any, ...], outcome: str) -> None:
    assert outcome_of(*places) == outcome


def test_text_in_the_wrong_place_is_refused_and_not_repeated_in_the_error() -> None:
    recorder = RunRecorder(MemorySink())
    with pytest.raises(AuditError) as caught:
        recorder.dead_end(sequence=0, step=0, resolution=f"wrote {SECRET}")
    assert SECRET not in str(caught.value)
    assert "resolution" in str(caught.value)
    with pytest.raises(ValidationError) as direct:
        Intervention(
            run_id=uuid4(), number=0, time=datetime.now(UTC), monotonic_ns=0, sequence=0, step=SECRET
        )
    assert SECRET not in str(direct.value)


def test_impossible_events_are_refused() -> None:
    recorder = RunRecorder(MemorySink())
    with pytest.raises(AuditError, match="end lies before start"):
        recorder.verification(ok=False, length=9, findings=[("a", 5, 4)])
    with pytest.raises(AuditError, match="past the end"):
        recorder.verification(ok=False, length=9, findings=[("a", 5, 10)])
    with pytest.raises(AuditError, match="first_allowed_rank"):
        recorder.intervention(sequence=0, step=0, first_choice_forbidden=True, first_allowed_rank=0)
    with pytest.raises(AuditError, match="removed_probability"):
        recorder.intervention(sequence=0, step=0, removed_probability=float("nan"))
    assert recorder.intervention(sequence=0, step=0, removed_probability=1.0000002).number == 0


def test_an_error_is_recorded_by_the_name_of_its_type() -> None:
    recorder = RunRecorder(MemorySink())
    event = recorder.finished(outcomes=[], interventions=0, tokens=0, seconds=0, error=ValueError(SECRET))
    assert event.error == "ValueError"
    assert SECRET not in event.to_json()


def test_another_schema_version_is_refused() -> None:
    line = json.loads(record_a_run(RunRecorder(MemorySink()))[0].to_json()) | {"schema_version": 2}
    with pytest.raises(AuditError, match="schema_version"):
        parse_event(json.dumps(line))


def test_the_json_schema_names_every_kind_of_event() -> None:
    schema = event_schema()
    assert set(schema["discriminator"]["mapping"]) == {
        "policy_loaded", "guarantee_configured", "run_started", "intervention", "dead_end", "run_finished",
        "verification",
    }  # fmt: skip
    json.dumps(schema)


def test_json_lines_are_read_back_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "log.jsonl"
    with JsonLinesSink(path) as sink:
        events = record_a_run(RunRecorder(sink))
        # There before the file is closed, behind the record that opens the chain.
        assert len(path.read_bytes().splitlines()) == 1 + len(events)
    with JsonLinesSink(path, fsync=True) as sink:
        events += record_a_run(RunRecorder(sink))
    log = read_events(path)
    assert list(log.events) == events
    assert log.whole
    assert not log.torn
    if os.name == "posix":
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_a_torn_last_line_is_reported_and_does_not_swallow_the_next_event(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path, chain=False) as sink:
        events = record_a_run(RunRecorder(sink))
    path.write_bytes(path.read_bytes()[:-cut])
    kept = events if cut == 1 else events[:-1]  # with only the line break gone, the event is still whole
    log = read_events(path)
    assert list(log.events) == kept
    assert log.torn == (cut > 1)
    with JsonLinesSink(path) as sink:
        more = record_a_run(RunRecorder(sink))
    log = read_events(path)
    assert list(log.events) == kept + more
    assert not log.torn
    assert log.damaged_lines == (() if cut == 1 else (len(events),))


def test_a_line_that_is_no_event_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"kind": "note", "text": "{SECRET}"}}\n')
    with pytest.raises(AuditError, match="line 1") as caught:
        read_events(path)
    assert SECRET not in str(caught.value)


def test_missing_and_unwritable_files_are_audit_errors(tmp_path: Path) -> None:
    with pytest.raises(AuditError, match="cannot read"):
        read_events(tmp_path / "none.jsonl")
    with pytest.raises(AuditError, match="cannot open"):
        JsonLinesSink(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError, match="cannot open"):
        JsonLinesSink(tmp_path / "file" / "log.jsonl")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_an_audit_error() -> None:
    with JsonLinesSink("/dev/full") as sink, pytest.raises(AuditError, match="cannot write"):
        record_a_run(RunRecorder(sink))


def test_a_closed_sink_refuses_events(tmp_path: Path) -> None:
    sink = JsonLinesSink(tmp_path / "log.jsonl")
    sink.close()
    sink.close()
    with pytest.raises(AuditError, match="closed"):
        record_a_run(RunRecorder(sink))


def test_threads_share_a_sink_and_a_run_without_mixing_lines_or_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    with JsonLinesSink(path) as sink:
        recorder = RunRecorder(sink)
        threads = [
            threading.Thread(target=lambda: [recorder.intervention(sequence=0, step=n) for n in range(50)])
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    log = read_events(path)
    assert log.whole
    assert [event.number for event in log.events] == list(range(400))


def test_processes_share_a_file_without_mixing_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    script = (
        "import sys; from nco_guard.audit import JsonLinesSink, RunRecorder\n"
        "r = RunRecorder(JsonLinesSink(sys.argv[1]))\n"
        "for n in range(200): r.intervention(sequence=0, step=n, rule_ids=['x' * 500])\n"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(path)]) for _ in range(2)]
    assert [child.wait() for child in children] == [0, 0]
    log = read_events(path)
    assert log.whole
    assert len(log.events) == 400


def test_a_failing_sink_stops_the_run_by_default() -> None:
    def broken(event: Event) -> None:
        raise OSError(SECRET)

    with pytest.raises(AuditError, match="OSError") as caught:
        record_a_run(RunRecorder(broken))
    assert SECRET not in str(caught.value)


def test_logging_warns_of_dead_ends_and_failed_verifications(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="nco_guard.audit"):
        events = record_a_run(RunRecorder(LoggingSink()))
    assert [record.getMessage() for record in caplog.records] == [event.to_json() for event in events]
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO", "WARNING", "WARNING", "INFO"]


def test_fan_out_reaches_every_sink() -> None:
    first, second = MemorySink(), MemorySink()
    events = record_a_run(RunRecorder(fan_out(first, second)))
    assert list(first.events) == list(second.events) == events


def test_a_clean_verification_keeps_lengths_only() -> None:
    event = RunRecorder(MemorySink()).verification(ok=True, length=12)
    assert isinstance(event, Verification)
    assert event.findings == ()
