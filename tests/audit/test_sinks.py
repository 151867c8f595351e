"""SQLite, OpenTelemetry, the history and the policy's word on failures: the same events, seen in other ways."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nco_guard import Guard, Policy
from nco_guard.audit import (
    DecodeView,
    Event,
    History,
    MemorySink,
    RunRecorder,
    correlated,
    fan_out,
    log_schema,
    tolerant,
    value_hmac,
)
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.errors import AuditError
from nco_guard.policy import StringRule

DIGEST = "cd" * 32
SECRET = "078-05-1120"


def record(sink: Any, *, error: BaseException | None = None, request_id: str | None = None) -> RunRecorder:
    run = RunRecorder(sink, request_id=request_id)
    run.started(
        policy_name="pii",
        policy_digest=DIGEST,
        rule_ids=["email", "ssn"],
        sequences=1,
        tokenizer_digest=DIGEST,
        decode_view=DecodeView(skip_special_tokens=True, covered_ends=("eos",)),
    )
    run.intervention(
        sequence=0, step=3, rule_ids=["email", "ssn"], removed_probability=0.5, first_allowed_rank=2
    )
    run.intervention(sequence=0, step=4, rule_ids=["email"], action="penalized")
    run.dead_end(sequence=0, step=5, resolution="end")
    run.verification(ok=False, length=20, findings=[("ssn", 2, 13)], sequence=0, policy_digest=DIGEST)
    run.finished(
        outcomes=["dead_end"],
        interventions=2,
        tokens=6,
        seconds=0.1,
        error=error,
        back_to="sentence",
        fallbacks=[3],
    )
    return run


class TestSqlite:
    def test_events_are_read_back_by_what_they_are_about(self, tmp_path: Path) -> None:
        memory = MemorySink()
        with SqliteSink(tmp_path / "deep" / "log.db") as sink:
            runs = [record(fan_out(sink, memory), request_id=f"r{number}") for number in range(3)]
            assert sink.events() == list(memory.events)
            assert {event.run_id for event in sink.events(run_id=runs[1].run_id)} == {runs[1].run_id}
            assert len(sink.events(request_id="r2")) == 6
            assert len(sink.events(kind="intervention", rule_id="ssn")) == 3
            assert len(sink.events(rule_id="ssn")) == 6
            assert len(sink.events(limit=2)) == 2
            now = datetime.now(UTC)
            assert sink.events(since=now + timedelta(hours=1)) == []
            assert len(sink.events(until=now + timedelta(hours=1))) == 18
            assert sink.counts("rule_id", kind="intervention") == {"email": 6, "ssn": 3}
            assert sink.counts("kind")["run_started"] == 3
            days = Counter(event.time.strftime("%Y-%m-%d") for event in memory.events)
            assert sink.counts("day") == days
            with pytest.raises(ValueError, match="time zone"):
                sink.events(since=datetime(2026, 1, 1))
        with SqliteSink(tmp_path / "deep" / "log.db") as again:
            assert again.events() == list(memory.events)

    def test_threads_share_it_and_closed_it_refuses(self, tmp_path: Path) -> None:
        sink = SqliteSink(tmp_path / "log.db")
        threads = [threading.Thread(target=record, args=(sink,)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(sink.events()) == 48
        sink.close()
        sink.close()
        with pytest.raises(AuditError, match="closed"):
            record(sink)

    def test_an_event_outlives_a_kill(self, tmp_path: Path) -> None:
        script = (
            "import os, signal, sys; from nco_guard.audit import RunRecorder\n"
            "from nco_guard.audit.sqlite import SqliteSink\n"
            "run = RunRecorder(SqliteSink(sys.argv[1]))\n"
            "for n in range(20): run.intervention(sequence=0, step=n)\n"
            "os.kill(os.getpid(), signal.SIGKILL)\n"
        )
        path = tmp_path / "log.db"
        assert subprocess.run([sys.executable, "-c", script, path], check=False).returncode == -signal.SIGKILL
        with SqliteSink(path) as sink:
            assert len(sink.events()) == 20

    def test_processes_share_a_file_and_a_forked_one_goes_on(self, tmp_path: Path) -> None:
        script = (
            "import sys; from nco_guard.audit import RunRecorder\n"
            "from nco_guard.audit.sqlite import SqliteSink\n"
            "run = RunRecorder(SqliteSink(sys.argv[1]))\n"
            "for n in range(40): run.intervention(sequence=0, step=n, rule_ids=['email'])\n"
        )
        path = tmp_path / "log.db"
        with SqliteSink(path) as sink:
            run = RunRecorder(sink)
            run.intervention(sequence=0, step=0, rule_ids=["email"])
            children = [subprocess.Popen([sys.executable, "-c", script, path]) for _ in range(2)]
            for step in range(1, 20):
                run.intervention(sequence=0, step=step, rule_ids=["email"])
            if hasattr(os, "fork"):
                child = os.fork()
                if child == 0:
                    record(sink)
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
            else:
                record(sink)
            assert [child.wait() for child in children] == [0, 0]
            assert sink.counts("rule_id", kind="intervention") == {"email": 20 + 80 + 2, "ssn": 1}
            assert sorted(sink.counts("run_id").values()) == [6, 20, 40, 40]

    def test_what_is_no_database_is_an_audit_error(self, tmp_path: Path) -> None:
        (tmp_path / "text").write_text("not a database, but long enough to be looked at " * 40)
        with pytest.raises(AuditError, match="audit database"):
            SqliteSink(tmp_path / "text")
        with SqliteSink(tmp_path / "log.db") as sink:
            event = RunRecorder(sink).dead_end(sequence=0, step=0, resolution="end")
            with pytest.raises(AuditError):  # the same number of the same run again
                sink(event)
            assert len(sink.events()) == 1


class TestOpenTelemetry:
    @pytest.fixture
    def exported(self) -> tuple[Any, Any]:
        pytest.importorskip("opentelemetry.sdk.trace", reason="needs the OpenTelemetry SDK")
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        return exporter, provider.get_tracer("test")

    def test_a_run_is_a_span_below_the_current_one(self, exported: tuple[Any, Any]) -> None:
        from nco_guard.audit.otel import SPAN_NAME, OpenTelemetrySink

        exporter, tracer = exported
        memory = MemorySink()
        with tracer.start_as_current_span("chat") as chat:
            run = record(fan_out(OpenTelemetrySink(tracer), memory), error=ValueError(SECRET))
        span, parent = exporter.get_finished_spans()
        assert (span.name, parent.name) == (SPAN_NAME, "chat")
        assert span.parent.span_id == chat.get_span_context().span_id
        assert span.attributes["gen_ai.security.policy.id"] == DIGEST
        assert span.attributes["nco_guard.run.id"] == str(run.run_id)
        assert span.attributes["nco_guard.guarantee.covered_ends"] == ("eos",)
        assert span.attributes["gen_ai.usage.output_tokens"] == 6
        assert span.attributes["error.type"] == "ValueError"
        assert span.attributes["nco_guard.rewind.back_to"] == "sentence"
        assert span.attributes["nco_guard.rewind.fallbacks"] == (3,)
        assert span.status.status_code.name == "ERROR"
        assert [event.name for event in span.events] == [
            "nco_guard.intervention", "nco_guard.intervention", "gen_ai.security.finding",
            "nco_guard.verification", "gen_ai.security.finding",
        ]  # fmt: skip
        assert span.events[0].attributes["gen_ai.security.policy.rule.id"] == ("email", "ssn")
        first, last = memory.events[0].time, memory.events[-1].time
        assert span.start_time == round(first.timestamp() * 1e6) * 1000
        assert span.end_time == round(last.timestamp() * 1e6) * 1000
        assert SECRET not in span.to_json()

    def test_what_belongs_to_no_run_is_a_span_of_no_length(self, exported: tuple[Any, Any]) -> None:
        from nco_guard.audit.otel import OpenTelemetrySink

        exporter, tracer = exported
        RunRecorder(OpenTelemetrySink(tracer)).verification(ok=False, length=9, findings=[("ssn", 0, 9)])
        (span,) = exporter.get_finished_spans()
        assert span.name == "nco_guard.verification"
        assert span.start_time == span.end_time
        assert span.attributes["gen_ai.security.verdict.type"] == "deny"
        assert [event.name for event in span.events] == ["gen_ai.security.finding"]


class TestHistory:
    def test_it_keeps_the_last_runs_and_counts_all(self) -> None:
        history = History(size=2)
        runs = [record(history, request_id=f"r{number}") for number in range(3)]
        assert [run.run_id for run in history.runs] == [run.run_id for run in runs[1:]]
        assert history.interventions == {"email": 6, "ssn": 3}
        assert history.findings == {"ssn": 3}
        last = history.last
        assert last is not None
        assert (last.request_id, last.outcomes, last.tokens, last.steps_changed) == (
            "r2",
            ("dead_end",),
            6,
            2,
        )
        assert (last.interventions, last.dead_ends) == ({"email": 2, "ssn": 1}, 1)
        history.reset()
        assert (history.runs, history.last, history.interventions, history.findings) == ((), None, {}, {})

    def test_a_run_that_is_no_longer_kept_still_counts(self) -> None:
        history = History(size=1)
        first = RunRecorder(history)
        first.started(policy_name="p", policy_digest=DIGEST, rule_ids=[], sequences=1)
        record(history)
        first.intervention(sequence=0, step=0, rule_ids=["email"])
        first.finished(outcomes=[], interventions=1, tokens=1, seconds=0)
        assert len(history) == 1
        assert history.interventions["email"] == 3


def failing(event: Event) -> None:
    raise OSError(SECRET)


class TestOnAuditFailure:
    def test_it_is_raise_unless_the_policy_says_otherwise(self, caplog: pytest.LogCaptureFixture) -> None:
        rule = StringRule(id="a", strings=("x",))
        with pytest.raises(AuditError) as caught:
            Guard(Policy(name="p", rules=(rule,)), audit=failing)
        assert SECRET not in str(caught.value)
        policy = Policy.from_yaml("name: p\non_audit_failure: warn\nrules: [{id: a, strings: [x]}]")
        with caplog.at_level(logging.WARNING, logger="nco_guard.audit"):
            guard = Guard(policy, audit=failing)
            assert guard.log.sink is not None
            record(guard.log.sink)  # whoever writes to the guard's sink is spared too
        assert "policy_loaded" in caplog.text
        assert "OSError" in caplog.text
        assert SECRET not in caplog.text

    def test_the_default_is_no_part_of_the_digest(self) -> None:
        rule = StringRule(id="a", strings=("x",))
        plain = Policy(name="p", rules=(rule,))
        assert "on_audit_failure" not in plain.to_json()
        # The digest that this policy had before the field was there.
        assert plain.digest == "454c9474196a34f0c734f0420f3aea59b2e451a4764084efc322dbda12943ad9"
        warn = Policy(name="p", rules=(rule,), on_audit_failure="warn")
        assert warn.digest != plain.digest
        assert Policy.from_json(warn.to_json()) == warn
        assert Policy.from_yaml(warn.to_yaml()) == warn

    def test_a_tolerant_sink_loses_only_what_failed(self, caplog: pytest.LogCaptureFixture) -> None:
        kept = MemorySink()

        def every_second(event: Event) -> None:
            if event.number % 2:
                raise OSError(SECRET)
            kept(event)

        with caplog.at_level(logging.WARNING, logger="nco_guard.audit"):
            record(tolerant(every_second))
        assert [event.number for event in kept.events] == [0, 2, 4]
        assert "event 1" in caplog.text
        assert SECRET not in caplog.text


def test_ids_of_an_enclosing_block_are_taken_and_given_ones_win() -> None:
    with correlated(request_id="r1", parent_id="p1"):
        inside, own = RunRecorder(MemorySink()), RunRecorder(MemorySink(), request_id="r2")
    outside = RunRecorder(MemorySink())
    events = [run.dead_end(sequence=0, step=0, resolution="end") for run in (inside, own, outside)]
    assert [event.request_id for event in events] == ["r1", "r2", None]
    assert [event.parent_id for event in events] == ["p1", "p1", None]


def test_a_keyed_hash_of_what_matched_is_there_only_where_asked_for() -> None:
    text, key = f"it is {SECRET}, again {SECRET}", os.urandom(16)
    findings = [("ssn", 6, 17), ("ssn", 25, 36)]
    plain = RunRecorder(MemorySink()).verification(ok=False, length=len(text), findings=findings, text=text)
    assert [span.value_hmac for span in plain.findings] == [None, None]
    run = RunRecorder(MemorySink(), correlation_key=key)
    spans = run.verification(ok=False, length=len(text), findings=findings, text=text).findings
    assert spans[0].value_hmac == spans[1].value_hmac == value_hmac(key, SECRET)
    assert spans[0].value_hmac != value_hmac(os.urandom(16), SECRET)
    with pytest.raises(AuditError, match="16 bytes"):
        value_hmac(b"short", SECRET)


def test_an_error_type_with_an_odd_name_is_recorded_all_the_same() -> None:
    names = ("_Private", "Ünlucky", "É")
    kinds = [type(name, (Exception,), {}) for name in names]
    run = RunRecorder(MemorySink())
    ends = [
        run.finished(outcomes=[], interventions=0, tokens=0, seconds=0, error=kind(SECRET)) for kind in kinds
    ]
    assert [end.error for end in ends] == ["Private", "nlucky", "Exception"]


def test_every_line_of_a_log_fits_the_schema_that_is_printed(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    import json

    from nco_guard.audit import HmacSigner, JsonLinesSink

    path = tmp_path / "log.jsonl"
    check = jsonschema.Draft202012Validator(log_schema())
    with JsonLinesSink(path, signer=HmacSigner(bytes(32)), head_every=2) as sink:
        guard = Guard(Policy.from_presets("pii"), audit=sink)
        assert guard.log.sink is not None
        record(guard.log.sink)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert {"chain_opened", "chain_head", "chain_closed", "policy_loaded"} <= {line["kind"] for line in lines}
    for line in lines:
        check.validate(line)
        assert not check.is_valid({**line, "text": SECRET})


class TestFullDisks:
    """What SQLite says about its transaction must not hide that the disk is full."""

    def test_a_full_database_is_said_to_be_full(self, tmp_path: Path) -> None:
        with SqliteSink(tmp_path / "log.db") as sink:
            record(sink)
            connection = sink._connection
            assert connection is not None
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(AuditError, match=r"disk is full; make room on the disk of") as caught:
                [record(sink) for _ in range(400)]
            assert "rollback" not in str(caught.value).casefold()
            connection.execute("PRAGMA max_page_count = 100000")
            record(sink)  # goes on once there is room

    def test_a_write_that_the_system_refuses_is_named(self, tmp_path: Path) -> None:
        program = """
import resource, sys
from tests.audit.test_sinks import record
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.errors import AuditError
sink = SqliteSink(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
try:
    for _ in range(2_000):
        record(sink)
except AuditError as error:
    print(error)
"""
        found = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "log.db")],
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
        assert "the audit database" in found.stdout
        assert "rollback" not in found.stdout.casefold()
        assert "disk" in found.stdout
