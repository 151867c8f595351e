"""What tracers and caches of LangChain are told of a policy cannot be tried against policies, where there is a key."""

from __future__ import annotations

from langchain_core.language_models.fake_chat_models import FakeListChatModel

from langchain_nco_guard import NCOGuardAuditHandler, NCOGuardMiddleware, VerifiedChatModel
from nco_guard import Guard, Policy
from nco_guard.audit import MemorySink, policy_hmac
from nco_guard.policy import StringRule

KEY = bytes(range(32))


def test_a_keyed_guard_shows_keyed_digests_everywhere() -> None:
    policy = Policy(name="codenames", rules=[StringRule(id="codename", strings=["Bluebird"])])
    recorded, elsewhere = MemorySink(), MemorySink()
    guard = Guard(policy, audit=recorded, digest_key=KEY)
    model = VerifiedChatModel(inner=FakeListChatModel(responses=["Hello"]), guard=guard)
    handler = NCOGuardAuditHandler(guard, elsewhere)
    answer = model.invoke("Hi", config={"callbacks": [handler]})
    name = NCOGuardMiddleware(guard).name
    assert name.endswith(policy_hmac(KEY, policy.digest)[-8:])
    said = [answer.model_dump_json(), repr(model), str(model._identifying_params), name]
    said += [event.to_json() for event in (*recorded.events, *elsewhere.events)]
    assert len(elsewhere.events) >= 3
    assert not any(policy.digest[:8] in text for text in said)
