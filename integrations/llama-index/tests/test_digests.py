"""What observers of LlamaIndex are told of a policy cannot be tried against policies, where the guard has a key."""

from __future__ import annotations

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.instrumentation.events.llm import LLMChatEndEvent, LLMChatStartEvent
from llama_index.core.llms import MockLLM
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.llms.nco_guard import NCOGuardAuditHandler, NCOGuardPostprocessor, VerifiedLLM

from nco_guard import Guard, Policy
from nco_guard.audit import MemorySink, policy_hmac, value_hmac
from nco_guard.policy import StringRule

KEY = bytes(range(32))
ASK = [ChatMessage(role="user", content="Hello")]


def test_a_keyed_guard_shows_keyed_digests_everywhere() -> None:
    policy = Policy(name="codenames", rules=[StringRule(id="codename", strings=["Bluebird"])])
    recorded, elsewhere = MemorySink(), MemorySink()
    guard = Guard(policy, audit=recorded, digest_key=KEY)
    other = Guard(policy, digest_key=KEY)
    llm = VerifiedLLM(MockLLM(), guard=guard)
    answer = llm.chat(ASK)
    keyed = policy_hmac(KEY, policy.digest)
    assert answer.raw["policy_digest"] == llm.policy_digest == keyed
    assert NCOGuardPostprocessor(other, audit=elsewhere).policy_digest == keyed
    handler = NCOGuardAuditHandler(other, elsewhere)
    handler.handle(LLMChatStartEvent(messages=ASK, additional_kwargs={}, model_dict={}))
    handler.handle(LLMChatEndEvent(messages=ASK, response=answer))
    said = [answer.model_dump_json(), str(llm.to_payload()), repr(llm), str(llm.to_dict())]
    said += [event.to_json() for event in (*recorded.events, *elsewhere.events)]
    assert len(elsewhere.events) >= 3
    assert not any(policy.digest[:12] in text for text in said)


def test_findings_carry_the_value_s_hash_where_the_guard_has_a_correlation_key() -> None:
    policy = Policy(name="codenames", rules=[StringRule(id="codename", strings=["Bluebird"])])
    recorded, elsewhere = MemorySink(), MemorySink()
    guard = Guard(policy, audit=recorded, correlation_key=KEY)
    other = Guard(policy, correlation_key=KEY)
    echo = MockLLM()
    ask = [ChatMessage(role="user", content="It is Bluebird.")]
    llm = VerifiedLLM(echo, guard=guard, action="redact")
    llm.chat(ask)
    list(llm.stream_complete("It is Bluebird."))
    node = NodeWithScore(node=TextNode(text="It is Bluebird."))
    NCOGuardPostprocessor(other, audit=elsewhere).postprocess_nodes([node])
    handler = NCOGuardAuditHandler(other, elsewhere)
    handler.handle(LLMChatStartEvent(messages=ask, additional_kwargs={}, model_dict={}))
    handler.handle(LLMChatEndEvent(messages=ask, response=echo.chat(ask)))
    for sink in (recorded, elsewhere):
        found = [one for event in sink.events for one in getattr(event, "findings", ())]
        assert len(found) >= 2
        assert {one.value_hmac for one in found} == {value_hmac(KEY, "Bluebird")}
