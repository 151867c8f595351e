"""Nothing that is guarded leaves a trace: no log, database, span, error, repr, warning or traceback holds it.

The model that ships wants to write addresses and numbers; what it would write, what stands in its prompts and what
policies forbid are the canaries.
"""

from __future__ import annotations

import io
import json
import logging
import re
import secrets
import traceback
import warnings
from pathlib import Path
from typing import Any

import pytest

from nco_guard import Guard, Policy, demo, verify
from nco_guard.audit import (
    Event,
    HmacSigner,
    JsonLinesSink,
    LoggingSink,
    MemorySink,
    correlated,
    fan_out,
    read_events,
    value_hmac,
    verify_log,
)
from nco_guard.audit.sqlite import SqliteSink
from nco_guard.errors import AuditError, DeadEndError, NCOGuardError
from nco_guard.policy import RegexRule, StringRule

CANARIES = ("maria.lopez@canary-mail.example", "078-05-1120", "4111 1111 1111 1111", "+49 30 901820")
TOKENS = 48


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    import torch

    torch.set_num_threads(1)
    return demo.load()


def prompts(how_many: int) -> list[Any]:
    """Chats that want personal data, and hold some."""
    asked = demo.PROMPTS["pii"]
    chats = []
    for number in range(how_many):
        chat = [dict(message) for message in asked[number % len(asked)]]
        chat[-1]["content"] += (
            f" Write to {CANARIES[0]}, call {CANARIES[3]}; number {CANARIES[1]}, {CANARIES[2]}."
        )
        chats.append(chat)
    return chats


def assert_silent(written: str, *texts: str) -> None:
    """Nothing of the canaries, nor of what was generated, stands in what was written."""
    for canary in CANARIES:
        assert canary not in written
        assert canary.split("@")[0] not in written
        assert re.sub(r"\W", "", canary) not in re.sub(r"[\s+.-]", "", written)
    for text in texts:
        for word in re.findall(r"\S{12,}", text):
            assert word not in written


def assert_correlated(texts: list[str], memory: MemorySink, key: bytes) -> None:
    """What was found is told by digests under the key, of exactly what stands there."""
    verified = [event for event in memory.events if event.kind == "verification"]
    found = [
        (text[span.start : span.end], span.value_hmac)
        for text, event in zip(texts, verified, strict=True)
        for span in event.findings  # type: ignore[attr-defined]
    ]
    assert found
    assert all(digest == value_hmac(key, value) for value, digest in found)


def test_guarded_runs_over_personal_data_leave_no_canary_anywhere(
    model: tuple[Any, Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from transformers import set_seed

    log, database, memory = tmp_path / "log.jsonl", tmp_path / "log.db", MemorySink()
    stream = io.StringIO()
    logger = logging.getLogger("canary-test")
    logger.addHandler(logging.StreamHandler(stream))
    # Besides the preset: a rule that only records, so that what it finds is really written by the model.
    words = RegexRule(id="long-words", regex=r"\b[a-z]{6,}\b", monitor=True)
    policy = Policy.from_presets("pii").with_rules(words, StringRule(id="own", strings=CANARIES))
    signer = HmacSigner(secrets.token_bytes(32))
    with (
        JsonLinesSink(log, signer=signer) as lines,
        SqliteSink(database) as rows,
        caplog.at_level(logging.DEBUG),
        warnings.catch_warnings(record=True) as warned,
    ):
        warnings.simplefilter("always")
        key = secrets.token_bytes(16)
        guard = Guard(policy, audit=fan_out(lines, rows, memory, LoggingSink(logger)), correlation_key=key)
        set_seed(3)
        with correlated(request_id="request-1", parent_id="trace-1"):
            result = guard.generate(*model, prompts(8), max_new_tokens=TOKENS, do_sample=True)
            shown = "".join(guard.stream(*model, prompts(1)[0], max_new_tokens=TOKENS))
    set_seed(3)
    unguarded = Guard(Policy(name="none", rules=(words,))).generate(
        *model, prompts(8), max_new_tokens=TOKENS, do_sample=True
    )
    pii = Policy.from_presets("pii")
    wanted = [text[one.start : one.end] for text in unguarded.texts for one in verify(pii, text).findings]
    assert wanted, "the model must want what is forbidden, or this shows nothing"
    kinds = {event.kind for event in memory.events}
    assert kinds >= {"policy_loaded", "guarantee_configured", "run_started", "intervention", "verification"}
    runs = {event.run_id for event in memory.events if event.request_id == "request-1"}
    assert len(runs) == 2  # the batch, and the stream in its thread
    assert_correlated([*result.texts, shown], memory, key)
    everything = "\n".join(
        [
            log.read_text(),
            database.read_bytes().decode("latin-1"),
            stream.getvalue(),
            caplog.text,
            *capfd.readouterr(),
            *map(repr, memory.events),
            *(str(one.message) for one in warned),
            repr(guard), repr(guard.log.history), *map(repr, guard.log.history.runs), repr(lines), repr(rows),
        ]
    )  # fmt: skip
    assert_silent(everything, *result.texts, *unguarded.texts, shown)
    for value in wanted:
        assert len(value) < 6 or value not in everything
    assert key.hex() not in everything
    assert repr(key) not in everything
    assert verify_log(log, verifier=signer).ok


def test_errors_and_their_traces_hold_no_canary(model: tuple[Any, Any], tmp_path: Path) -> None:
    allowed = model[1]("a", add_special_tokens=False)["input_ids"][-1:]
    policy = Policy(
        name="dead", rules=(RegexRule(id="letters", regex="[ab]"), StringRule(id="own", strings=CANARIES))
    )
    caught: list[str] = []

    def kept(error: BaseException) -> None:
        # As a program would log it, with causes and contexts.
        caught.append("".join(traceback.format_exception(error)) + repr(error))

    with JsonLinesSink(tmp_path / "log.jsonl") as sink:
        guard = Guard(policy, audit=sink)
        with pytest.raises(DeadEndError) as dead:
            guard.generate(
                *model,
                [" ".join(CANARIES)],
                max_new_tokens=8,
                prefix_allowed_tokens_fn=lambda *_: allowed,
            )
        kept(dead.value)

    def broken(event: Event) -> None:
        if event.kind == "run_finished":
            raise OSError(28, "No space left on device")

    with pytest.raises(AuditError) as full:
        Guard(policy, audit=broken).generate(*model, prompts(1), max_new_tokens=4)
    kept(full.value)
    with pytest.raises(NCOGuardError) as options:
        guard.generate(*model, prompts(1), max_new_tokens=4, use_cache="x", guidance_scale=2.0)
    kept(options.value)
    assert_silent("\n".join(caught) + (tmp_path / "log.jsonl").read_text())
    events = read_events(tmp_path / "log.jsonl").events
    assert [event.error for event in events if event.kind == "run_finished"] == ["DeadEndError"]


def test_spans_hold_no_canary(model: tuple[Any, Any]) -> None:
    pytest.importorskip("opentelemetry.sdk.trace", reason="needs the OpenTelemetry SDK")
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from nco_guard.audit.otel import OpenTelemetrySink

    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    guard = Guard(Policy.from_presets("pii"), audit=OpenTelemetrySink(provider.get_tracer("test")))
    result = guard.generate(*model, prompts(2), max_new_tokens=TOKENS)
    spans = exporter.get_finished_spans()
    assert spans
    assert_silent("\n".join(span.to_json() for span in spans), *result.texts)
    (run,) = [span for span in spans if span.name.startswith("run_guardrail")]
    assert json.loads(run.to_json())["attributes"]["nco_guard.interventions"] > 0


def test_the_history_of_a_guard_counts_by_rule_where_steps_are_recorded(model: tuple[Any, Any]) -> None:
    plain, audited = Guard.from_presets("pii"), Guard.from_presets("pii", audit=MemorySink())
    for guard in (plain, audited):
        guard.generate(*model, prompts(2), max_new_tokens=TOKENS)
        (run,) = guard.log.history.runs
        assert (run.sequences, len(run.outcomes), run.error) == (2, 2, None)
        assert run.tokens
    assert plain.log.history.interventions == {}  # nobody looks at the scores of a guard without a sink
    assert sum(audited.log.history.interventions.values()) >= audited.log.history.runs[0].steps_changed > 0
    audited.log.history.reset()
    assert audited.log.history.runs == ()


class Careless:
    """A streamer of somebody's that quotes what it cannot handle."""

    def put(self, value: Any) -> None:
        """Fail."""
        raise ValueError(f"cannot show {CANARIES[0]} and {CANARIES[1]}")

    def end(self) -> None:
        """Nothing to do."""


def test_an_agent_that_reads_personal_data_from_its_tools_leaves_no_canary(
    model: tuple[Any, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Turns of one conversation: tools return canaries, the last turn fails in the middle with one in its error."""
    log, database, memory = tmp_path / "log.jsonl", tmp_path / "log.db", MemorySink()
    texts: list[str] = []
    with (
        JsonLinesSink(log) as lines,
        SqliteSink(database) as rows,
        caplog.at_level(logging.DEBUG),
        correlated(parent_id="conversation-1"),
    ):
        guard = Guard(Policy.from_presets("pii"), audit=fan_out(lines, rows, memory))
        chat = prompts(1)[0]
        for turn in range(3):
            with correlated(request_id=f"turn-{turn}", parent_id="conversation-1"):
                text = guard.generate(*model, [chat], max_new_tokens=TOKENS).texts[0]
            texts.append(text)
            tool = f"directory: {CANARIES[turn]}, {CANARIES[3]}"
            chat = [
                *chat,
                {"role": "assistant", "content": text},
                {"role": "user", "content": f"The tool says: {tool}. Write the letter."},
            ]
        with pytest.raises(ValueError, match="cannot show"):
            guard.generate(*model, [chat], max_new_tokens=TOKENS, streamer=Careless())
    finished = [event for event in memory.events if event.kind == "run_finished"]
    assert [event.error for event in finished] == [None, None, None, "ValueError"]  # type: ignore[attr-defined]
    assert {event.parent_id for event in memory.events[2:]} == {"conversation-1"}
    assert any(event.kind == "intervention" for event in memory.events)
    everything = log.read_text() + database.read_bytes().decode("latin-1") + caplog.text
    assert_silent(everything + "".join(map(repr, (guard.log.history.runs, *memory.events))), *texts)
    assert verify_log(log).ok
