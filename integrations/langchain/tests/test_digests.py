"""What tracers and caches of LangChain are told of a policy cannot be tried against policies, where there is a key."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models.fake_chat_models import FakeListChatModel

from langchain_nco_guard import NCOGuardAuditHandler, NCOGuardMiddleware, VerifiedChatModel
from nco_guard import Guard, Policy
from nco_guard.audit import MemorySink, policy_hmac, value_hmac
from nco_guard.demo import TOOLS
from nco_guard.policy import StringRule

KEY = bytes(range(32))


def test_a_keyed_guard_shows_keyed_digests_everywhere() -> None:
    policy = Policy(name="codenames", rules=[StringRule(id="codename", strings=["Bluebird"])])
    recorded, elsewhere = MemorySink(), MemorySink()
    guard = Guard(policy, audit=recorded, digest_key=KEY)
    other = Guard(policy, digest_key=KEY)
    model = VerifiedChatModel(inner=FakeListChatModel(responses=["Hello"]), guard=guard)
    handler = NCOGuardAuditHandler(other, elsewhere)
    answer = model.invoke("Hi", config={"callbacks": [handler]})
    name = NCOGuardMiddleware(guard).name
    assert name.endswith(policy_hmac(KEY, policy.digest)[-8:])
    said = [answer.model_dump_json(), repr(model), str(model._identifying_params), name]
    said += [event.to_json() for event in (*recorded.events, *elsewhere.events)]
    assert len(elsewhere.events) >= 3
    assert not any(policy.digest[:8] in text for text in said)


def test_findings_carry_the_value_s_hash_where_the_guard_has_a_correlation_key() -> None:
    policy = Policy(name="codenames", rules=[StringRule(id="codename", strings=["Bluebird"])])
    recorded, elsewhere = MemorySink(), MemorySink()
    guard = Guard(policy, audit=recorded, correlation_key=KEY)
    other = Guard(policy, correlation_key=KEY)
    answers = FakeListChatModel(responses=["It is Bluebird."])
    model = VerifiedChatModel(inner=answers, guard=guard, action="redact")
    model.invoke("Hi")
    "".join(chunk.text for chunk in model.stream("Hi"))
    answers.invoke("Hi", config={"callbacks": [NCOGuardAuditHandler(other, elsewhere)]})
    answers.invoke("Hi", config={"callbacks": [NCOGuardAuditHandler(guard)]})
    for sink, most in ((recorded, 3), (elsewhere, 1)):
        found = [one for event in sink.events for one in getattr(event, "findings", ())]
        assert len(found) >= most
        assert {one.value_hmac for one in found} == {value_hmac(KEY, "Bluebird")}


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "keyed"])
def test_an_answer_of_a_local_model_names_the_policy_of_its_run(local: Any, key: bytes | None) -> None:
    """Also where rules are read a second time, through JSON escapes: for tools, and for text that is parsed."""
    first, second = (
        Policy(name=word, rules=[StringRule(id=word, strings=[word])]) for word in ("Bluebird", "Redbird")
    )
    recorded = MemorySink()
    model = local(Guard(first, audit=recorded, digest_key=key), max_tokens=4)
    parsed = model.bind(response_format={"type": "json_object"})
    seen = set()
    for one in (model, model.bind_tools(TOOLS), parsed):
        for options in ({}, {"guard": second}):
            streamed = list(one.stream("Hi", **options))[-1]
            for answer in (one.invoke("Hi", **options), streamed):
                seen.add(answer.response_metadata["policy_digest"])
    started = [event.policy_digest for event in recorded.events if event.kind == "run_started"]
    assert len(started) == 12
    assert seen == set(started)
    assert len(seen) == 4  # of two policies, each with and without second readings
