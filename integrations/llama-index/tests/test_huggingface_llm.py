"""An existing `HuggingFaceLLM`, guarded: the same answers but for what the policy forbids."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.llms.nco_guard import NCOGuardLLM

from nco_guard import Policy, StringRule
from nco_guard.errors import UnsupportedError

huggingface = pytest.importorskip("llama_index.llms.huggingface")
NOTHING = Policy(name="nothing", rules=[StringRule(id="nothing", strings=["no such word"])])
CHAT = [ChatMessage(role="user", content="What contact details do we have for Maria Lopez?")]
TEXT = "Dear team,\n\nI am writing about order"


def existing(pair: tuple[Any, Any], **options: Any) -> Any:
    given = {"context_window": 1024, "max_new_tokens": 48, **options}
    return huggingface.HuggingFaceLLM(model=pair[0], tokenizer=pair[1], **given)


@pytest.mark.parametrize("options", [{}, {"is_chat_model": True}])
def test_with_nothing_forbidden_the_answers_are_the_same(
    pair: tuple[Any, Any], options: dict[str, Any]
) -> None:
    bare = existing(pair, **options)
    guarded = NCOGuardLLM.from_huggingface_llm(bare, guard=NOTHING)
    assert guarded.complete(TEXT, formatted=True).text == bare.complete(TEXT, formatted=True).text
    assert guarded.chat(CHAT).message.content == bare.chat(CHAT).message.content
    streamed = "".join(chunk.delta for chunk in guarded.stream_chat(CHAT))
    assert streamed == "".join(chunk.delta for chunk in bare.stream_chat(CHAT))


def test_with_a_policy_only_the_guarded_one_keeps_it(
    pair: tuple[Any, Any], policy: Policy, keeps: Any, verify: Any
) -> None:
    bare = existing(pair, is_chat_model=True)
    guarded = NCOGuardLLM.from_huggingface_llm(bare, guard=policy)
    assert not verify(policy, bare.chat(CHAT).message.content).ok
    assert keeps(chunk.delta for chunk in guarded.stream_chat(CHAT)) == guarded.chat(CHAT).message.content


def test_its_settings_are_kept(pair: tuple[Any, Any]) -> None:
    bare = existing(
        pair,
        system_prompt="Be brief.",
        completion_to_prompt=lambda prompt: f"Q: {prompt} A:",
        messages_to_prompt=lambda messages: "M: " + str(messages[-1].content),
        generate_kwargs={"repetition_penalty": 1.3},
        tokenizer_outputs_to_remove=["token_type_ids"],
    )
    guarded = NCOGuardLLM.from_huggingface_llm(bare, guard=NOTHING)
    assert guarded.max_new_tokens == 48
    assert guarded.generate_kwargs == {"repetition_penalty": 1.3}
    prompts = [guarded._completion("Hi", False, {}), guarded._chat(CHAT, {})]
    decoded = [pair[1].decode(request.call.inputs["input_ids"][0]) for request in prompts]
    assert decoded == ["Q: Hi A:", f"M: {CHAT[0].content}"]
    assert not guarded.metadata.is_function_calling_model


def test_stopping_ids_stop_and_stay_in_the_text(pair: tuple[Any, Any]) -> None:
    (comma,) = pair[1](",", add_special_tokens=False)["input_ids"]
    bare = existing(pair, stopping_ids=[comma])
    guarded = NCOGuardLLM.from_huggingface_llm(bare, guard=NOTHING)
    answer = guarded.complete("Dear team", formatted=True).text
    assert answer == bare.complete("Dear team", formatted=True).text
    assert answer.endswith(",")


def test_a_subclass_is_refused_and_a_prompt_maker_of_any_kind_is_kept(pair: tuple[Any, Any]) -> None:
    class Own(huggingface.HuggingFaceLLM):
        pass

    with pytest.raises(UnsupportedError, match="subclass"):
        NCOGuardLLM.from_huggingface_llm(Own(model=pair[0], tokenizer=pair[1]), guard=NOTHING)

    class Maker:
        def make(self, messages: Any) -> str:
            return "made"

    bare = existing(pair, messages_to_prompt=Maker().make)
    request = NCOGuardLLM.from_huggingface_llm(bare, guard=NOTHING)._chat(CHAT, {})
    assert pair[1].decode(request.call.inputs["input_ids"][0]) == "made"


@pytest.mark.parametrize("llm", [MockLLM(), object()])
def test_any_other_llm_is_refused(llm: Any) -> None:
    with pytest.raises(UnsupportedError, match="only a HuggingFaceLLM"):
        NCOGuardLLM.from_huggingface_llm(llm, guard=NOTHING)
