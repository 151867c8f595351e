"""Two policies enforced together: what each says of every setting beside its rules, and whose sink hears of it."""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage
from test_reasoning import blocks, chat

from langchain_nco_guard import ChatNCOGuard, NCOGuardMiddleware, VerifiedChatModel
from langchain_nco_guard._guards import joined
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy, StringRule
from nco_guard.audit import Event, MemorySink
from nco_guard.errors import AuditError, PolicyError, UnsupportedError
from nco_guard.guards import seeing_through_json

BLUE, RED = "Bluebird", "Redbird"
THOUGHT = f"<think>{BLUE}.</think>Yes."


def guard(word: str, audit: Any = None, **settings: Any) -> Guard:
    name, rules = word.lower(), [StringRule(id="bird", strings=[word])]
    return Guard(Policy(name=name, rules=rules, **settings), audit=audit)


# What one policy says, what the other says, and what both together do (or the field that they cannot agree on).
END, WRITE = {"on_dead_end": "end"}, {"on_dead_end": "fallback", "fallback": " no"}
BACK, FAR = {"when_blocked": "rewind"}, {"rewind": {"back_to": "sentence"}}
SETTINGS: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any] | str]] = [
    ({}, {}, {"on_dead_end": "raise", "when_blocked": "mask", "on_audit_failure": "raise", "rewind": None}),
    ({"on_audit_failure": "warn"}, {}, {"on_audit_failure": "raise"}),
    ({"on_audit_failure": "warn"}, {"on_audit_failure": "warn"}, {"on_audit_failure": "warn"}),
    (END, {}, {**END, "fallback": None}),
    (WRITE, {}, WRITE),
    (END, END, END),
    (WRITE, WRITE, WRITE),
    (END, WRITE, "on_dead_end"),
    (WRITE, {**WRITE, "fallback": " yes"}, "fallback"),
    (BACK, {}, {**BACK, "rewind": None}),
    (FAR, {}, {**BACK, "rewind": Policy(name="x", rules=[{"preset": "pii"}], **FAR).rewind}),
    (BACK, {"rewind": {}}, BACK),
    (BACK, FAR, "rewind"),
    ({"applies_to": {"reasoning": "hidden"}}, {}, {"unbound_fields": ("reasoning",)}),
    ({"applies_to": {"reasoning": "free"}}, {}, {"unbound_fields": ()}),
]


@pytest.mark.parametrize(("one", "other", "both"), SETTINGS)
def test_settings_of_two_policies(one: Any, other: Any, both: Any) -> None:
    for first, second in ((one, other), (other, one)):
        guards = guard(BLUE, **first), guard(RED, **second)
        if isinstance(both, str):
            with pytest.raises(PolicyError, match=r"the policies .* are enforced together") as caught:
                joined(*guards)
            assert caught.value.field == both
            assert "'bluebird'" in str(caught.value)
            assert "'redbird'" in str(caught.value)
            continue
        policy = joined(*guards).policy
        assert {name: getattr(policy, name) for name in both} == both
        assert [rule.id for rule in policy.rules] == ["bird", "bird-2"]


def test_every_setting_of_a_policy_is_decided() -> None:
    decided = {name for one, other, _ in SETTINGS for name in (*one, *other)}
    assert decided | {"name", "description", "rules"} == set(Policy.model_fields)


def test_policies_that_disagree_are_refused_before_anything_is_asked(loaded: tuple[Any, Any]) -> None:
    model = chat(loaded, "Yes.", guard=guard(BLUE, **END))
    with pytest.raises(PolicyError, match="on_dead_end"):
        model.with_further_guard(guard(RED, **WRITE))
    agent = create_agent(model, middleware=[NCOGuardMiddleware(guard(RED, **WRITE))])
    with pytest.raises(PolicyError, match="on_dead_end"):
        agent.invoke({"messages": "Hello"})


def test_the_sinks_of_both_hear_once_of_everything(loaded: tuple[Any, Any]) -> None:
    def heard(sink: MemorySink) -> list[str]:
        return [event.kind for event in sink.events[before[id(sink)] :] if event.kind != "policy_loaded"]

    one, other = MemorySink(), MemorySink()
    before = {id(one): 0, id(other): 0}
    model = chat(loaded, "Hello.", guard=guard(BLUE, one))
    for further in (guard(RED, other), guard("Greenbird", one), guard(BLUE, other)):
        model = model.with_further_guard(further)
        before = {id(sink): len(sink.events) for sink in (one, other)}
        model.invoke("Hello")
        assert heard(one) == heard(other)
        assert heard(one).count("run_started") == heard(one).count("run_finished") == 1
    alone = chat(loaded, "Hello.", guard=guard(BLUE)).with_further_guard(guard(RED, other))
    before = {id(sink): len(sink.events) for sink in (one, other)}
    alone.invoke("Hello")
    assert heard(other).count("run_started") == 1
    assert seeing_through_json(alone._enforced()).log.sink is not None


def test_a_sink_that_fails_is_an_error_if_one_policy_says_so(loaded: tuple[Any, Any]) -> None:
    def full(event: Event) -> None:
        if event.kind == "run_started":
            raise OSError("the disk is full")

    warns = guard(BLUE, full, on_audit_failure="warn")
    assert chat(loaded, "Hello.", guard=warns).invoke("Hello").text == "Hello."
    strict = chat(loaded, "Hello.", guard=warns).with_further_guard(guard(RED))
    with pytest.raises(AuditError, match="OSError"):
        strict.invoke("Hello")


class Adds(AgentMiddleware[Any, Any, Any]):
    """Puts thoughts into an answer."""

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        response = handler(request)
        response.result = [AIMessage([{"type": "reasoning", "reasoning": BLUE}, *response.result[0].content])]
        return response


@pytest.mark.parametrize("action", ["redact", "raise"])
@pytest.mark.parametrize("kind", ["free", "hidden"])
def test_the_last_look_of_the_middleware_leaves_reasoning_as_the_policy_says(
    loaded: tuple[Any, Any], kind: str, action: Any
) -> None:
    applied = {"applies_to": {"reasoning": kind}}
    model = chat(loaded, THOUGHT, guard=guard(RED, **applied))
    told = [{"type": "reasoning", "reasoning": f"{BLUE}."}] if kind == "free" else []
    middleware = NCOGuardMiddleware(guard(BLUE, **applied), action=action)
    answer = create_agent(model, middleware=[middleware]).invoke({"messages": "Hello"})["messages"][-1]
    assert blocks(answer) == [*told, {"type": "text", "text": "Yes."}]
    assert ("Bluebird" in repr(answer)) == (kind == "free")
    if kind == "free":
        free = chat(loaded, THOUGHT, guard=guard(RED, **applied))
        between = create_agent(free, middleware=[middleware, Adds()]).invoke({"messages": "Hello"})
        assert blocks(between["messages"][-1])[0] == {"type": "reasoning", "reasoning": BLUE}


def test_hidden_reasoning_is_refused_where_it_cannot_be_hidden(loaded: tuple[Any, Any]) -> None:
    hides = guard(BLUE, applies_to={"reasoning": "hidden"})
    hosted = ScriptedChatModel(script=[AIMessage("Hello.")])
    with pytest.raises(UnsupportedError, match=r"applies_to\.reasoning: 'hidden'.*use ChatNCOGuard"):
        VerifiedChatModel.over(hosted, hides)
    agent = create_agent(hosted, middleware=[NCOGuardMiddleware(hides)])
    with pytest.raises(UnsupportedError, match="use ChatNCOGuard"):
        agent.invoke({"messages": "Hello"})
    inside = chat(loaded, THOUGHT, guard=guard(RED)).with_retry()
    agent = create_agent(inside, middleware=[NCOGuardMiddleware(hides)])
    assert blocks(agent.invoke({"messages": "Hello"})["messages"][-1]) == [{"type": "text", "text": "Yes."}]
    with pytest.raises(UnsupportedError, match="reply_format"):
        chat(loaded, THOUGHT, guard=guard(RED), reply_format="smollm2").with_further_guard(hides)
    assert isinstance(chat(loaded, THOUGHT, guard=hides), ChatNCOGuard)
