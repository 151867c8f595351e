"""Words of other models, what a run says about itself, and the record's labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from langchain_nco_guard import (
    ChatNCOGuard,
    GuardedPipeline,
    NCOGuardAuditHandler,
    NCOGuardMiddleware,
    VerifiedChatModel,
    guard_runnable,
)
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Guard, Policy
from nco_guard.audit import OUTCOMES, MemorySink
from nco_guard.demo import model_path
from nco_guard.errors import ArgumentError, PresetError, UnsupportedError

CHAT = {
    "model": ("x", "this object is one model"),
    "max_new_tokens": (5, "max_tokens"),
    "max_completion_tokens": (5, "max_tokens"),
    "policy": ("pii", r"guard=\.\.\."),
    "seed": (1, "set_seed"),
    "n": (2, "num_return_sequences"),
    "logprobs": (True, "repeat the text in pieces"),
    "top_logprobs": (3, "repeat the text in pieces"),
    "presence_penalty": (0.5, "repetition_penalty"),
    "stop_sequences": (["x"], r"stop=\[\.\.\.\]"),
}


@pytest.mark.parametrize("word", list(CHAT))
def test_words_of_other_chat_models_are_answered_with_the_right_one(local: Any, word: str) -> None:
    value, answer = CHAT[word]
    with pytest.raises(UnsupportedError, match=f"^{word}: .*{answer}"):
        local().invoke("x", **{word: value})
    with pytest.raises(UnsupportedError, match=f"^{word}: .*{answer}"):
        list(local().bind(**{word: value}).stream("x"))


@pytest.mark.parametrize("word", ["max_new_tokens", "seed", "n", "logprobs"])
def test_the_same_words_at_construction(local: Any, word: str) -> None:
    value, answer = CHAT[word]
    with pytest.raises(UnsupportedError, match=f"^{word}: .*{answer}"):
        local(**{word: value})


@pytest.mark.parametrize(
    "word", ["model", "policy", "max_tokens", "max_new_tokens", "seed", "n", "logprobs", "temperature"]
)
def test_words_of_other_llms(pipe: Any, policy: Policy, word: str) -> None:
    llm = GuardedPipeline(pipeline=pipe, guard=policy)
    for use in (lambda: llm.invoke("x", **{word: 1}), lambda: list(llm.stream("x", **{word: 1}))):
        with pytest.raises(UnsupportedError, match=f"^{word}: "):
            use()


@pytest.mark.parametrize("word", ["guard", "policy"])
async def test_a_call_of_a_verified_model_takes_no_guard_of_its_own(policy: Policy, word: str) -> None:
    """It would reach the model inside, which knows nothing of guards; other words are that model's own."""
    inner = ScriptedChatModel(script=[AIMessage("fine")])
    model = VerifiedChatModel.over(inner, policy)
    for use in (
        lambda: model.invoke("x", **{word: "secrets"}),
        lambda: list(model.stream("x", **{word: "secrets"})),
        lambda: model.bind(**{word: "secrets"}).invoke("x"),
        lambda: model.bind_tools([], **{word: "secrets"}).invoke("x"),
    ):
        with pytest.raises(UnsupportedError, match=rf"^{word}: .*VerifiedChatModel\.over"):
            use()
    with pytest.raises(UnsupportedError, match=f"^{word}: "):
        await model.ainvoke("x", **{word: "secrets"})
    assert not inner.asked
    assert model.invoke("x", model="y", seed=1).text == "fine"


def test_a_guard_is_given_in_one_way_everywhere(loaded: tuple[Any, Any], pipe: Any, tmp_path: Path) -> None:
    model, tokenizer = loaded
    pii, written = Policy.from_presets("pii"), tmp_path / "written.yaml"
    written.write_text(pii.to_yaml())
    chat, llm = ChatNCOGuard(model=model, tokenizer=tokenizer, guard="secrets"), pipe
    takes: dict[str, Callable[[Any], Guard]] = {
        "chat": lambda it: ChatNCOGuard(model=model, tokenizer=tokenizer, guard=it).guard,
        "chat, in a call": lambda it: chat._enforced(it),
        "chat, besides": lambda it: chat.with_further_guard(it)._also[0],
        "pipeline": lambda it: GuardedPipeline(pipeline=llm, guard=it).guard,
        "pipeline, in a call": lambda it: (
            GuardedPipeline(pipeline=llm, guard="secrets").for_call({"guard": it}).guard
        ),
        "middleware": lambda it: NCOGuardMiddleware(it).guard,
        "runnable": lambda it: guard_runnable(it).guard,
        "audit": lambda it: NCOGuardAuditHandler(it, MemorySink()).guard,
        "verified": lambda it: VerifiedChatModel.over(ScriptedChatModel(script=[]), it).guard,
    }
    for name, take in takes.items():
        for given in (pii, Guard(pii), "pii", ["pii"], written, str(written)):
            assert take(given).policy.rules == pii.rules, name
        with pytest.raises(PresetError, match="no preset"):
            take("written")
        with pytest.raises(ArgumentError, match="guard: a Guard, a Policy, the path"):
            take(b"pii")


def test_the_profile_says_what_the_model_takes(local: Any) -> None:
    profile = local().profile
    assert profile["max_input_tokens"] > 100
    assert profile["max_output_tokens"] == 40
    assert profile["tool_calling"]
    assert profile["reasoning_output"]
    assert ChatNCOGuard(model=model_path(), guard="pii", max_tokens=40).profile == {
        **profile,
        "name": str(model_path()),
    }
    assert profile["structured_output"]
    assert not profile["image_inputs"]
    hosted = ScriptedChatModel(script=[], profile={"max_input_tokens": 5})
    for inner in (hosted, hosted.bind(stop=["x"]).with_retry()):
        assert VerifiedChatModel.over(inner, "secrets").profile == {"max_input_tokens": 5}


class Ends(BaseCallbackHandler):
    def __init__(self) -> None:
        self.results: list[LLMResult] = []

    def on_llm_end(self, response: LLMResult, **kwargs: Any) -> None:
        self.results.append(response)


async def test_a_guarded_pipeline_says_how_much_it_wrote_and_why_it_ended(pipe: Any, policy: Policy) -> None:
    llm = GuardedPipeline(pipeline=pipe, guard=policy)
    prompts = [
        "<|user|>How can I reach Daniel Cohen?<|end|><|assistant|>",
        "<|user|>Hello<|end|><|assistant|>",
    ]
    sizes = [len(pipe.tokenizer(prompt)["input_ids"]) for prompt in prompts]
    result = llm.generate(prompts)
    for (generation,), size in zip(result.generations, sizes, strict=True):
        info = generation.generation_info
        assert info["finish_reason"] in ("stop", "length", "trimmed")
        assert info["usage_metadata"]["input_tokens"] == size
        assert 0 < info["usage_metadata"]["output_tokens"] <= 24
    usage = result.llm_output["token_usage"]
    assert usage["prompt_tokens"] == sum(sizes)
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    ends = Ends()
    text = "".join(llm.stream(prompts[0], {"callbacks": [ends]}))
    assert text == result.generations[0][0].text
    assert ends.results[0].generations[0][0].generation_info == result.generations[0][0].generation_info
    stopped = llm.generate(prompts[:1], stop=[text[4:8]]).generations[0][0]
    assert stopped.generation_info["finish_reason"] == "stop"
    several = GuardedPipeline(
        pipeline=pipe, guard=policy, pipeline_kwargs={"num_return_sequences": 2, "do_sample": True}
    ).generate(prompts)
    assert [len(row) for row in several.generations] == [2, 2]
    assert all(
        one.generation_info["usage_metadata"]["output_tokens"] for row in several.generations for one in row
    )


@pytest.mark.parametrize(
    ("said", "label"),
    [
        ("stop", "stop"),
        *((word, word) for word in sorted(OUTCOMES)),
        ("MAX_TOKENS", "max_tokens"),
        ("RECITATION", "content_filter"),
        ("maria.lopez", "other"),
        ("312-555-0155", "other"),
        (["stop"], "other"),
        (None, "answered"),
    ],
)
def test_finish_reasons_in_the_record_are_of_a_fixed_set(policy: Policy, said: Any, label: str) -> None:
    sink = MemorySink()
    handler = NCOGuardAuditHandler(policy, sink)
    run = uuid4()
    handler.on_chat_model_start({}, [[]], run_id=run)
    message = AIMessage("fine", response_metadata={} if said is None else {"finish_reason": said})
    handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run)
    assert sink.events[-1].outcomes == (label,)


@pytest.mark.parametrize("name", ["stop_reason", "stopReason", "done_reason"])
def test_finish_reasons_are_found_by_the_names_that_providers_give_them(policy: Policy, name: str) -> None:
    sink, run = MemorySink(), uuid4()
    handler = NCOGuardAuditHandler(policy, sink)
    handler.on_chat_model_start({}, [[]], run_id=run)
    message = AIMessage("fine", response_metadata={name: "max_tokens", "status": "done"})
    handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run)
    assert sink.events[-1].outcomes == ("max_tokens",)


def test_the_record_counts_what_stands_beside_the_text(policy: Policy) -> None:
    for message in (
        AIMessage(
            [{"type": "reasoning", "reasoning": "maria@example.com"}, {"type": "text", "text": "fine"}]
        ),
        AIMessage("fine", additional_kwargs={"refusal": "maria@example.com"}),
    ):
        run, sink = uuid4(), MemorySink()
        handler = NCOGuardAuditHandler(policy, sink)
        handler.on_chat_model_start({}, [[]], run_id=run)
        handler.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run)
        found = [
            span.rule_id for event in sink.events if event.kind == "verification" for span in event.findings
        ]
        assert found == ["email"]
    run, sink = uuid4(), MemorySink()
    handler = NCOGuardAuditHandler(policy, sink)
    handler.on_tool_start({}, "", run_id=run, inputs={"to": {"maria@example.com"}})
    handler.on_tool_end({"a": b"maria@example.com"}, run_id=run)
    assert [event.ok for event in sink.events if event.kind == "verification"] == [False, False]


def test_arguments_that_cannot_be_meant_are_named_with_the_mend(local: Any, pipe: Any) -> None:
    for options, says in (
        ({"max_token": 3}, "max_token: ChatNCOGuard has no such argument, did you mean 'max_tokens'"),
        ({"gard": "pii"}, "gard: .* did you mean 'guard'"),
        ({"zzz": 3}, "zzz: .* no such argument; leave it out"),
        ({"temperature": "hot"}, "temperature: .* valid number"),
        ({"stop": 3}, "stop: .* valid list"),
    ):
        with pytest.raises(ArgumentError, match=says):
            local(**options)
    with pytest.raises(
        ArgumentError, match="gard: GuardedPipeline has no such argument, did you mean 'guard'"
    ):
        GuardedPipeline(pipeline=pipe, gard="pii")
    guarded = GuardedPipeline(pipeline=pipe, guard="pii")
    for options, says in (
        ({"stop": 3}, "stop: give a string or a list of strings"),
        ({"stop": [""]}, "stop: give a string or a list of strings"),
        ({"temperature": "hot"}, "temperature: (a number|it is pipeline_kwargs)"),
        ({"timeout": "x"}, "timeout: "),
        ({"max_tokens": "x"}, "max_tokens: (a whole number|it is pipeline_kwargs)"),
    ):
        for llm in (local(), guarded):
            with pytest.raises(UnsupportedError, match=says):
                llm.invoke("x", **options)
            with pytest.raises(UnsupportedError, match=says):
                list(llm.stream("x", **options))
