"""Arguments that cannot be meant: every public function of the core answers each with an error of this library.

Each function is called with what it takes, one argument at a time exchanged for something else. It may take that, but
it may not fail in the middle of its work with somebody else's error, and not take one text for many.
"""

from __future__ import annotations

import math
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nco_guard import BoundGuard, Guard, Policy, RegexRule, Session, StringRule, Verifier, verify
from nco_guard.audit import (
    History,
    HmacSigner,
    JsonLinesSink,
    MemorySink,
    RunRecorder,
    correlated,
    fan_out,
    keyed_digests,
    parse_event,
    policy_hmac,
    read_events,
    tolerant,
    value_hmac,
    verify_log,
)
from nco_guard.audit.report import read_report, render_report
from nco_guard.errors import ArgumentError, ArgumentValueError, AuditError, ClosedError, NCOGuardError
from nco_guard.replies import ReplyReader, as_reply_format
from nco_guard.scan import SafeEnds, StreamVerifier, default_replacement, exposure, redact, require
from nco_guard.session import TextState
from nco_guard.testing import toy_vocabulary
from nco_guard.values import Cleaner, Role, register, texts_of

OTHERS: tuple[Any, ...] = (
    None,
    b"bytes",
    3,
    2.5,
    math.nan,
    math.inf,
    -1,
    True,
    "",
    "x",
    "\ud800",
    "a\0b",
    [],
    [None],
    [b"x"],
    ["x", None],
    {},
    {"a": 1},
    object(),
    ["\ud800"],
    range(3),
    np.array([1.5]),
)
POLICY = Policy(
    name="p",
    rules=(
        StringRule(id="word", strings=("bad",)),
        RegexRule(id="number", regex=r"\d{3}-\d\d"),
        RegexRule(id="prompt", regex="foo.{0,3}bar", context="prompt"),
    ),
)
GUARD = Guard(POLICY)
BOUND = BoundGuard(GUARD.verifier.compiled, toy_vocabulary())
KEY = b"k" * 16
DIGEST = "0" * 64


def _advanced() -> Session:
    session = BOUND.session()
    session.advance(97)
    return session


def _read(reader: Any, text: Any) -> None:
    reader.feed(text)
    reader.finish()


def _recorder() -> RunRecorder:
    return RunRecorder(MemorySink())


def _device_tables(**given: Any) -> None:
    BoundGuard(Guard(POLICY.without("prompt")).verifier.compiled, toy_vocabulary()).device_tables(**given)


class _Kind:
    a: str


CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Guard": (
        Guard,
        {"policy": POLICY, "audit": None, "cache": None, "correlation_key": None, "digest_key": None},
    ),
    "Guard.from_file": (Guard.from_file, {"path": "/nowhere.yaml"}),
    "Guard.with_policy": (GUARD.with_policy, {"policy": POLICY}),
    "Guard.with_audit": (GUARD.with_audit, {"audit": MemorySink()}),
    "Guard.with_rules": (lambda rule: GUARD.with_rules(rule), {"rule": StringRule(id="z", strings=("z",))}),
    "Guard.without": (lambda rule: GUARD.without(rule), {"rule": "word"}),
    "verify": (verify, {"policy": POLICY, "text": "hi", "context": ""}),
    "exposure": (exposure, {"policy": POLICY, "text": "hi"}),
    "Guard.verify": (GUARD.verify, {"text": "hi", "context": ""}),
    "Verifier.verify_many": (GUARD.verifier.verify_many, {"texts": ["hi"]}),
    "Verifier.verify_many, one": (lambda text: GUARD.verifier.verify_many(["a", text]), {"text": "hi"}),
    "Guard.redact": (GUARD.redact, {"text": "hi", "replacement": "-", "context": ""}),
    "redact": (redact, {"policy": POLICY, "text": "hi", "replacement": "-", "context": ""}),
    "require": (require, {"policy": POLICY, "text": "hi", "context": ""}),
    "Guard.stream_verifier": (GUARD.stream_verifier, {"action": "raise", "replacement": "-", "context": ""}),
    "StreamVerifier": (StreamVerifier, {"policy": POLICY}),
    "StreamVerifier.feed": (lambda text: _read(GUARD.stream_verifier(), text), {"text": "hi"}),
    "SafeEnds": (SafeEnds, {"policy": POLICY, "context": ""}),
    "SafeEnds.feed": (lambda text: SafeEnds(POLICY).feed(text), {"text": "hi"}),
    "default_replacement": (default_replacement, {"policy": POLICY}),
    "Verifier": (Verifier, {"policy": POLICY}),
    "Verifier.verify": (GUARD.verifier.verify, {"text": "hi", "context": ""}),
    "Verifier.find_many": (lambda texts: [*GUARD.verifier.find_many(texts)], {"texts": ["hi"]}),
    "Verifier.stream": (GUARD.verifier.stream, {"piece": 3}),
    "FindingStream.feed": (lambda text: _read(GUARD.verifier.stream(), text), {"text": "hi"}),
    "Guard.bind": (
        GUARD.bind,
        {"tokenizer": None, "vocab_width": None, "skip_special_tokens": True, "eos_token_ids": None},
    ),
    "BoundGuard": (
        BoundGuard,
        {
            "compiled": GUARD.verifier.compiled,
            "vocabulary": BOUND.vocabulary,
            "memory_limit": None,
            "store": None,
        },
    ),
    "BoundGuard.session": (BOUND.session, {"context": "hi"}),
    "BoundGuard.revised": (BOUND.revised, {"compiled": GUARD.verifier.compiled}),
    "BoundGuard.device_tables": (
        _device_tables,
        {"device": "cpu", "max_states": 10_000, "max_bytes": 1 << 20},
    ),
    "Session": (Session, {"state": TextState(BOUND)}),
    "Session.advance": (lambda token: BOUND.session().advance(token), {"token": 97}),
    "Session.mask": (lambda left: BOUND.session().mask(left), {"left": None}),
    "Session.forbidden_ids": (lambda left: BOUND.session().forbidden_ids(left), {"left": None}),
    "Session.explain": (lambda token: BOUND.session().explain(token), {"token": 97}),
    "Session.explain, all": (
        lambda **given: BOUND.session().explain(**given),
        {"remaining": None, "limit": 3},
    ),
    "Session.with_guard": (lambda bound: BOUND.session().with_guard(bound), {"bound": BOUND}),
    "Session.rollback": (lambda n: _advanced().rollback(n), {"n": 1}),
    "Cleaner": (Cleaner, {"guard": GUARD, "action": "redact", "replacement": "-", "record": None}),
    "ReplyReader": (
        ReplyReader,
        {
            "guard": GUARD,
            "context": "",
            "stop": (),
            "form": "hermes",
            "tools": [],
            "prefix": "",
            "begun": "",
            "hidden": (),
        },
    ),
    "ReplyReader.feed": (lambda text: _read(ReplyReader(GUARD), text), {"text": "hi"}),
    "as_reply_format": (as_reply_format, {"source": "hermes"}),
    "texts_of": (lambda value: [*texts_of(value)], {"value": "hi"}),
    "register": (register, {"kind": _Kind, "fields": {"a": Role.TEXT}, "rebuild": None, "chunk": None}),
    "RunRecorder": (RunRecorder, {"sink": MemorySink(), "correlation_key": None}),
    "correlated": (
        lambda **given: correlated(**given).__enter__(),
        {"request_id": None, "parent_id": None},
    ),
    "RunRecorder.intervention": (
        lambda **given: _recorder().intervention(**given),
        {
            "sequence": 0,
            "step": 0,
            "action": "masked",
            "rule_ids": ["word"],
            "removed_probability": 0.5,
            "first_choice_forbidden": True,
            "first_allowed_rank": 1,
        },
    ),
    "RunRecorder.dead_end": (
        lambda **given: _recorder().dead_end(**given),
        {"sequence": 0, "step": 0, "resolution": "raise", "rule_ids": ["word"]},
    ),
    "RunRecorder.finished": (
        lambda **given: _recorder().finished(**given),
        {"outcomes": ["ended"], "interventions": 0, "tokens": 1, "seconds": 1.0},
    ),
    "RunRecorder.verification": (
        lambda **given: _recorder().verification(**given),
        {"ok": True, "length": 3, "findings": [], "sequence": 0, "text": "abc", "exposures": None},
    ),
    "RunRecorder.verification, one": (
        lambda finding: _recorder().verification(ok=False, length=3, findings=[finding]),
        {"finding": ("word", 0, 1)},
    ),
    "RunRecorder.started": (
        lambda **given: _recorder().started(**given),
        {
            "policy_name": "p",
            "policy_digest": DIGEST,
            "rule_ids": ["word"],
            "sequences": 1,
            "decode_view": None,
        },
    ),
    "RunRecorder.policy_loaded": (
        lambda rules: _recorder().policy_loaded(
            policy_name="p", policy_digest=DIGEST, rules=rules, on_dead_end="raise", on_audit_failure="raise"
        ),
        {"rules": [("word", "strings", "hard")]},
    ),
    "History": (History, {"size": 2}),
    "policy_hmac": (policy_hmac, {"key": KEY, "digest": DIGEST}),
    "value_hmac": (value_hmac, {"key": KEY, "value": "hi"}),
    "keyed_digests": (keyed_digests, {"sink": MemorySink(), "key": KEY}),
    "fan_out": (lambda sink: fan_out(sink), {"sink": MemorySink()}),
    "tolerant": (tolerant, {"sink": MemorySink()}),
    "HmacSigner": (HmacSigner, {"key": bytes(32)}),
    "JsonLinesSink": (
        lambda **given: JsonLinesSink(os.devnull, **given).close(),
        {"fsync": False, "chain": True, "head_every": 256, "max_bytes": None},
    ),
    "read_report": (read_report, {"path": "/nowhere", "max_events": 10, "exposure_from": 8}),
    "render_report": (render_report, {"report": None}),
    "verify_log": (verify_log, {"path": "/nowhere"}),
    "read_events": (read_events, {"path": "/nowhere"}),
    "parse_event": (parse_event, {"line": "{}"}),
    "Policy": (Policy, {"name": "p", "rules": POLICY.rules}),
    "StringRule": (StringRule, {"id": "a", "strings": ("x",), "case": "exact", "whole_word": False}),
    "RegexRule": (RegexRule, {"id": "a", "regex": "x", "case": "exact"}),
}
for _action in ("redact", "raise", "report"):
    _cleaner = Cleaner(GUARD, _action)  # type: ignore[arg-type]
    for _way in (_cleaner.value, _cleaner.metadata, _cleaner.rules):
        CALLS[f"Cleaner.{_way.__name__}, {_action}"] = _way, {"value": "hi"}
    for _way in (_cleaner.text, _cleaner.json_text, _cleaner.identifier, _cleaner.name):
        CALLS[f"Cleaner.{_way.__name__}, {_action}"] = _way, {"text": "hi"}
    CALLS[f"Cleaner.texts, {_action}"] = _cleaner.texts, {"pieces": ["hi"]}
    CALLS[f"Cleaner.field, {_action}"] = _cleaner.field, {"value": "hi", "role": Role.TEXT}
    CALLS[f"Cleaner.error, {_action}"] = _cleaner.error, {"error": ValueError("hi"), "kind": ValueError}
    CALLS[f"Cleaner.stream, {_action}"] = _cleaner.stream, {"role": Role.TEXT}
    CALLS[f"ValueStream.feed, {_action}"] = lambda it, c=_cleaner: _read(c.stream(), it), {"it": "hi"}


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the texts are paths as well."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", CALLS)
def test_what_cannot_be_meant_is_an_error_of_this_library(name: str) -> None:
    function, given = CALLS[name]
    for argument in given:
        for other in OTHERS:
            with suppress(NCOGuardError):
                function(**{**given, argument: other})


@pytest.mark.parametrize(
    "name", [name for name, (_, given) in CALLS.items() if "text" in given or "texts" in given]
)
@pytest.mark.parametrize("other", [None, b"bytes", 3, ["x"]])
def test_what_is_no_text_is_refused_by_its_name(name: str, other: Any) -> None:
    function, given = CALLS[name]
    argument = "text" if "text" in given else "texts"
    if (argument == "texts" and other == ["x"]) or name == "RunRecorder.verification":
        return
    with pytest.raises(ArgumentError, match=rf"text(s|s\[1\])?: .* needed, not {type(other).__name__}"):
        function(**{**given, argument: other})


def test_one_text_is_not_taken_for_its_letters() -> None:
    for wrong in ("bad", b"bad", {"bad": 1}, {"bad"}):
        with pytest.raises(ArgumentError, match="a list of texts is needed"):
            GUARD.verifier.verify_many(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="list of texts"):
        Cleaner(GUARD).texts("bad")
    with pytest.raises(AuditError, match="rule_ids: a list"):
        _recorder().intervention(sequence=0, step=0, rule_ids="word")


def test_halves_of_characters_are_searched_like_any_other() -> None:
    for half in ("\ud800", "a\udc00b"):
        text = f"{half}bad{half}"
        assert [(f.start, f.end) for f in GUARD.verify(text).findings] == [(len(half), len(half) + 3)]
        assert GUARD.verify(text).findings == verify(POLICY, text).findings
        assert GUARD.redact(text).text == f"{half}[redacted]{half}"
        assert BOUND.session(text).text == ""


@pytest.mark.parametrize("given", [2.0, math.inf, -0.1, math.nan, "x", np.array([0.5, 2.0])])
def test_a_probability_is_one(given: Any) -> None:
    with pytest.raises(AuditError, match="removed_probability"):
        _recorder().intervention(sequence=0, step=0, removed_probability=given)


def test_a_sum_of_rounded_probabilities_counts_as_one() -> None:
    assert (
        _recorder().intervention(sequence=0, step=0, removed_probability=1 + 1e-6).removed_probability == 1.0
    )


def test_values_and_types_are_told_apart_and_both_are_argument_errors() -> None:
    with pytest.raises(ArgumentValueError, match="action 'shout': one of 'redact', 'raise', 'report'"):
        GUARD.stream_verifier(action="shout")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="remaining must be 0 or more"):
        BOUND.session().mask(-1)
    with pytest.raises(TypeError, match="action: one of"):
        GUARD.stream_verifier(action=3)  # type: ignore[arg-type]
    stream = GUARD.stream_verifier()
    stream.finish()
    with pytest.raises(ClosedError, match="use a new"):
        stream.feed("x")
    error = pickle.loads(pickle.dumps(ArgumentValueError("a message")))
    assert str(error) == "a message"


@pytest.mark.parametrize("path", [None, 3, b"x", "a\0b", "\ud800", [], object()])
def test_paths(path: Any) -> None:
    for takes in (Policy.from_file, JsonLinesSink, read_events, verify_log):
        with pytest.raises((ArgumentError, AuditError)):
            takes(path)
    if path is not None:
        with pytest.raises(ArgumentError, match="cache"):
            Guard(POLICY, cache=path)
