"""What observers of LlamaIndex are told of a policy cannot be tried against policies, where the guard has a key."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMChatStartEvent
from llama_index.core.llms import MockLLM
from llama_index.llms.nco_guard import NCOGuardAuditHandler, NCOGuardPostprocessor, VerifiedLLM

from nco_guard import Guard, Policy
from nco_guard.audit import MemorySink, policy_hmac
from nco_guard.policy import StringRule

KEY = bytes(range(32))
ASK = [ChatMessage(role="user", content="Hello")]


def test_a_keyed_guard_shows_keyed_digests_everywhere() -> None:
    policy = Policy(name="codenames", rules=[StringRule(id="codename", strings=["Bluebird"])])
    recorded, elsewhere = MemorySink(), MemorySink()
    guard = Guard(policy, audit=recorded, digest_key=KEY)
    llm = VerifiedLLM(MockLLM(), guard=guard)
    answer = llm.chat(ASK)
    keyed = policy_hmac(KEY, policy.digest)
    assert answer.raw["policy_digest"] == llm.policy_digest == keyed
    assert NCOGuardPostprocessor(guard, audit=elsewhere).policy_digest == keyed
    handler = NCOGuardAuditHandler(guard, elsewhere)
    handler.handle(LLMChatStartEvent(messages=ASK, additional_kwargs={}, model_dict={}))
    handler.handle(LLMChatEndEvent(messages=ASK, response=answer))
    said = [answer.model_dump_json(), str(llm.to_payload()), repr(llm), str(llm.to_dict())]
    said += [event.to_json() for event in (*recorded.events, *elsewhere.events)]
    assert len(elsewhere.events) >= 3
    assert not any(policy.digest[:12] in text for text in said)
