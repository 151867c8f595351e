"""Guards in copies and in other processes: they travel as policies, and what must stay says so when it is pickled."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import interegular
import numpy as np
import pytest

from nco_guard import Guard, Policy
from nco_guard.audit import (
    HmacSigner,
    JsonLinesSink,
    LoggingSink,
    MemorySink,
    RunRecorder,
    keyed_digests,
)
from nco_guard.engines.hf.device import DeviceLogitsProcessor
from nco_guard.engines.hf.processor import GuardLogitsProcessor
from nco_guard.errors import UnsupportedError
from nco_guard.policy import AutomatonRule, RegexRule, StringRule
from nco_guard.scan import Verifier
from nco_guard.session import BoundGuard, Session
from nco_guard.storage.store import Store
from nco_guard.testing import tiny_tokenizer

POLICY = Policy(
    name="travels",
    on_dead_end="end",
    rules=(
        StringRule(id="word", strings=("ass", "café"), whole_word=True, case="fold"),
        RegexRule(id="mail", regex=r"[a-z]+@[a-z]+\.com", stop_at=r"[a-z]@[a-z]"),
        RegexRule(id="soft", regex=r"\d{3}", penalty=2.0),
        AutomatonRule(id="pair", fsm=interegular.parse_pattern("[^a]b{2}").to_fsm()),
    ),
)
try:  # what Ray and joblib pickle with
    import cloudpickle
except ImportError:
    cloudpickle = pickle
TEXT = "an ass, jo@x.com, cbb 123"


@pytest.fixture(scope="module")
def spawned() -> Iterator[ProcessPoolExecutor]:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


def masks(bound: BoundGuard) -> list[bytes]:
    session = bound.session()
    found = []
    for token in range(3, 40):
        found.append(session.mask().tobytes())
        if not session.mask()[token]:
            session.advance(token)
    return found


def seen(value: Any) -> Any:
    """What a policy, a guard, ... does, run here and in another process."""
    if isinstance(value, Policy):
        return value.digest
    if isinstance(value, Guard):
        text = value.redact(TEXT).text
        return (
            value.policy.digest,
            value.verify(TEXT),
            text,
            value.log.sink,
            len(value.log.history),
            value._store,
        )
    if isinstance(value, BoundGuard):
        return value.policy.digest, value.vocabulary.digest, value._memory_limit, masks(value)
    if isinstance(value, Session):
        return value.mask().tobytes(), value.ids if hasattr(value, "ids") else None, value.may_end
    if isinstance(value, Verifier):
        return value.verify(TEXT)
    return value.policy.digest, [rule.id for rule in value.rules]


def made() -> dict[str, Any]:
    guard = Guard(POLICY)
    bound = guard.bind(tiny_tokenizer("byte-level"))
    session = bound.session("the prompt")
    for token in np.flatnonzero(~session.mask())[5:9].tolist():
        if not session.mask()[token]:
            session.advance(token)
    return {
        "policy": POLICY,
        "guard": guard,
        "bound": bound,
        "session": session,
        "verifier": guard.verifier,
        "compiled": guard.verifier.compiled,
    }


@pytest.mark.parametrize("kind", ["policy", "guard", "bound", "session", "verifier", "compiled"])
def test_they_do_the_same_in_a_process_that_was_spawned(kind: str, spawned: ProcessPoolExecutor) -> None:
    value = made()[kind]
    there, here = spawned.submit(seen, value).result(120), seen(value)
    assert repr(there) == repr(here) if kind == "guard" else there == here
    assert seen(cloudpickle.loads(cloudpickle.dumps(value))) == there if kind != "guard" else True


def test_copies_within_a_process_are_the_thing_itself() -> None:
    sink = MemorySink()
    guard = Guard(POLICY, audit=sink, correlation_key=bytes(16))
    bound = guard.bind(tiny_tokenizer("byte-level"))
    signer = HmacSigner(bytes(32))
    for value in (
        POLICY,
        guard,
        bound,
        guard.verifier,
        guard.verifier.compiled,
        sink,
        signer,
        RunRecorder(sink),
    ):
        assert copy.copy(value) is value
        assert copy.deepcopy(value) is value
        assert copy.deepcopy({"a": [value]})["a"][0] is value


def test_a_copied_session_goes_on_by_itself() -> None:
    session: Session = made()["session"]
    before = session.mask().tobytes()
    for other in (copy.copy(session), copy.deepcopy(session), pickle.loads(pickle.dumps(session))):
        token = int(np.flatnonzero(~other.mask())[0])
        other.advance(token)
        assert session.mask().tobytes() == before
        other.rollback()
        assert other.mask().tobytes() == before


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_sinks_and_keys_stay(protocol: int, dumps: Any, tmp_path: Path) -> None:
    """Refused when it is pickled, with the mend; and the key is nowhere in what was written until then."""
    key = b"0123456789abcdef0123456789abcdef"
    with JsonLinesSink(tmp_path / "log.jsonl") as sink:
        with pytest.raises(UnsupportedError, match=r"audit: .*Guard\(policy, audit"):
            dumps(Guard(POLICY, audit=sink), protocol)
        with pytest.raises(UnsupportedError, match=r"audit: "):
            dumps(Guard(POLICY, audit=print).without("soft"), protocol)  # a sink that could travel
        with pytest.raises(UnsupportedError, match=r"correlation_key: .*Guard\(policy, correlation_key"):
            dumps(Guard(POLICY, correlation_key=key), protocol)
        keyed = keyed_digests(print, key)  # a sink that could travel, and the key with it
        history = Guard(POLICY).log.history
        for staying in (
            sink,
            MemorySink(),
            LoggingSink(),
            HmacSigner(key),
            RunRecorder(sink),
            keyed,
            history,
        ):
            with pytest.raises(UnsupportedError, match=f"a {type(staying).__name__} cannot be pickled"):
                dumps({"nested": [staying]}, protocol)
            assert copy.deepcopy(staying) is staying


def test_a_guard_with_a_sink_is_refused_before_it_reaches_the_other_process(
    spawned: ProcessPoolExecutor,
) -> None:
    with pytest.raises(UnsupportedError, match="audit: "):
        spawned.submit(seen, Guard(POLICY, audit=MemorySink())).result(120)


def test_the_bound_of_a_guard_with_a_sink_travels_without_it() -> None:
    guard = Guard(POLICY, audit=MemorySink(), correlation_key=b"0123456789abcdef")
    data = pickle.dumps(guard.bind(tiny_tokenizer("byte-level")))
    assert b"0123456789abcdef" not in data
    assert b"MemorySink" not in data


def test_the_cache_and_settings_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCO_GUARD_CACHE", raising=False)
    guard = pickle.loads(pickle.dumps(Guard(POLICY, cache=tmp_path / "kept")))
    assert isinstance(guard._store, Store)
    assert guard._store.folder == tmp_path / "kept"
    kept = set((tmp_path / "kept").iterdir())
    assert kept
    plain = pickle.loads(pickle.dumps(Guard(POLICY, cache=False)))
    monkeypatch.setenv("NCO_GUARD_CACHE", str(tmp_path / "other"))
    assert pickle.loads(pickle.dumps(plain))._store is None
    assert not (tmp_path / "other").exists()
    assert (
        pickle.loads(pickle.dumps(guard)).with_rules(RegexRule(id="x", regex="xyz")).policy.rules[-1].id
        == "x"
    )


def test_a_policy_that_comes_with_every_task_is_compiled_once() -> None:
    data = pickle.dumps(Guard(POLICY))
    one, other = pickle.loads(data), pickle.loads(data)
    assert one is not other
    assert one.verifier.compiled is other.verifier.compiled
    assert one.log.history is not other.log.history


def test_a_subclass_keeps_what_it_added() -> None:
    guard = Named(POLICY, "mine")
    again = pickle.loads(pickle.dumps(guard))
    assert type(again) is Named
    assert again.title == "mine"
    assert again.verify(TEXT) == guard.verify(TEXT)


class Named(Guard):
    def __init__(self, policy: Policy, title: str) -> None:
        super().__init__(policy)
        self.title = title


def test_joblib_hands_a_guard_to_its_workers() -> None:
    joblib = pytest.importorskip("joblib")
    guard = Guard(POLICY)
    texts = [TEXT, "clean", "an ass"]
    run = joblib.Parallel(n_jobs=2, backend="loky")
    assert run(joblib.delayed(guard.verify)(text) for text in texts) == [guard.verify(text) for text in texts]


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_streams_that_have_begun_are_refused(way: Any) -> None:
    from nco_guard.values import Cleaner

    guard = Guard.from_presets("pii")
    for stream in (Cleaner(guard).stream(), guard.stream_verifier()):
        stream.feed("jane@")
        with pytest.raises(UnsupportedError, match="make another one"):
            way(stream)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_processors_are_refused(way: Any) -> None:
    policy = Policy(name="p", rules=[StringRule(id="word", strings=["ass"])])
    bound = Guard(policy).bind(tiny_tokenizer("byte-level"))
    tables = bound.device_tables("cpu")
    for processor in (GuardLogitsProcessor(bound), DeviceLogitsProcessor(bound, tables)):
        with pytest.raises(UnsupportedError, match="make another one"):
            way(processor)
