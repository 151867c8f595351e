"""What cannot be guarded is refused when the object is built."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
    VerifiedLLM,
)
from llama_index.llms.nco_guard.testing import ScriptedLLM

from nco_guard import Guard, Policy, StringRule, demo
from nco_guard.audit import MemorySink
from nco_guard.errors import NCOGuardError, PolicyError, TokenizerError, UnsupportedError
from nco_guard.testing import random_model, tiny_tokenizer

POLICY = Policy(name="words", rules=[StringRule(id="words", strings=["forbidden", "[redacted]"])])
UNWRITABLE = Policy(name="f", rules=POLICY.rules, on_dead_end="fallback", fallback="no single token")


def test_a_path_is_enough() -> None:
    llm = NCOGuardLLM(demo.model_path(), policy=POLICY)
    assert llm.metadata.is_chat_model
    assert llm.metadata.is_function_calling_model
    assert llm.metadata.context_window == 1024
    assert llm.metadata.num_output == 128  # what the model's own configuration says


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"generate_kwargs": {"no_such": 1}}, UnsupportedError, "no_such"),
        ({"generate_kwargs": {"penalty_alpha": 0.5}}, UnsupportedError, "penalty_alpha"),
        ({"generate_kwargs": {"num_return_sequences": 2}}, UnsupportedError, "num_return_sequences"),
        ({"generate_kwargs": {"forced_bos_token_id": 2}}, UnsupportedError, "forced_bos_token_id"),
        ({"no_such_option": 1}, UnsupportedError, "no_such_option"),
        ({"context_window": 5000}, UnsupportedError, "1024 positions"),
        ({"model_kwargs": {"dtype": "float32"}}, UnsupportedError, "model_kwargs"),
        ({"policy": "pii"}, UnsupportedError, "Policy.from_presets"),
        ({"policy": Guard(POLICY), "audit": MemorySink()}, UnsupportedError, "audit"),
        (
            {"policy": Policy(name="f", rules=POLICY.rules, on_dead_end="fallback", fallback="no token")},
            PolicyError,
            "f",
        ),
    ],
)
def test_bad_options_are_refused(
    pair: tuple[Any, Any], options: dict[str, Any], error: type, says: str
) -> None:
    with pytest.raises(error, match=says):
        NCOGuardLLM(*pair, **{"policy": POLICY, **options})


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    small = random_model(tiny_tokenizer())
    with pytest.raises(TokenizerError, match="own tokenizer"):
        NCOGuardLLM(small, tokenizer, policy=POLICY)
    with pytest.raises(TokenizerError, match="give the model's tokenizer"):
        NCOGuardLLM(model, policy=POLICY)


def test_a_tokenizer_that_cannot_be_modelled_is_refused(pair: tuple[Any, Any]) -> None:
    class Slow:
        chat_template = None

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [0] * len(text)}

    with pytest.raises(TokenizerError, match="fast version"):
        NCOGuardLLM(pair[0], Slow(), policy=POLICY)


@pytest.mark.parametrize("model", [MockLLM(), object(), lambda prompt: prompt])
def test_what_is_no_local_model_is_refused(pair: tuple[Any, Any], model: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"LLM of LlamaIndex|no language model"):
        NCOGuardLLM(model, pair[1], policy=POLICY)


def test_an_encoder_decoder_model_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        NCOGuardLLM(random_model(tokenizer, seq2seq=True), tokenizer, policy=POLICY)


def test_a_chat_model_without_a_template_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UnsupportedError, match="chat template"):
        NCOGuardLLM(random_model(tokenizer), tokenizer, policy=POLICY, is_chat_model=True)


def test_tools_are_offered_only_where_the_template_can_show_them(tools: list[Any]) -> None:
    """The template of this tokenizer drops them without a word, so the LLM says that it cannot call functions."""
    tokenizer = tiny_tokenizer()
    llm = NCOGuardLLM(random_model(tokenizer), tokenizer, policy=POLICY)
    assert llm.metadata.is_chat_model
    assert not llm.metadata.is_function_calling_model
    with pytest.raises(UnsupportedError, match="tools"):
        llm.chat_with_tools(tools, user_msg="Hello")


def test_marks_that_decoding_drops_are_no_marks(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    assert not NCOGuardLLM(
        model, tokenizer, policy=POLICY, tool_call_marks=("<|tool|>", "<|end|>")
    ).metadata.is_function_calling_model
    assert not NCOGuardLLM(
        model, tokenizer, policy=POLICY, tool_call_marks=None
    ).metadata.is_function_calling_model


def test_copies_share_the_model(llm: NCOGuardLLM) -> None:
    twin = copy.deepcopy(llm)
    assert twin._model is llm._model
    assert twin.guard is llm.guard


@pytest.mark.parametrize("build", [NCOGuardPostprocessor, NCOGuardOutputParser])
def test_a_replacement_that_is_itself_forbidden_is_refused(build: Any) -> None:
    assert build(POLICY)  # which forbids the usual one, so another is taken
    with pytest.raises(PolicyError, match="replacement"):
        build(POLICY, replacement="[redacted]")
    with pytest.raises(PolicyError, match="replacement"):
        build(POLICY, replacement=lambda rule_id: "forbidden")


@pytest.mark.parametrize("build", [NCOGuardPostprocessor, NCOGuardOutputParser])
def test_checks_need_a_policy_and_a_known_action(build: Any) -> None:
    with pytest.raises(UnsupportedError, match="Policy"):
        build("pii")
    with pytest.raises(ValueError, match="action"):
        build(POLICY, action="ignore", replacement="")
    with pytest.raises(UnsupportedError, match="Policy"):
        NCOGuardAuditHandler("pii", MemorySink())


def test_errors_are_typed_and_hold_no_text(pair: tuple[Any, Any]) -> None:
    llm = NCOGuardLLM(*pair, policy=POLICY)
    with pytest.raises(NCOGuardError) as caught:
        llm.complete("a secret prompt", no_such=1)
    assert "secret" not in str(caught.value)


def test_the_package_is_typed_and_shares_its_namespace() -> None:
    import llama_index
    import llama_index.llms
    import llama_index.llms.nco_guard as package

    assert getattr(llama_index, "__file__", None) is None
    assert getattr(llama_index.llms, "__file__", None) is None
    assert (Path(package.__file__).parent / "py.typed").exists()


def test_llms_are_written_down_and_made_anew(pair: tuple[Any, Any], policy: Policy) -> None:
    llm = NCOGuardLLM(
        *pair,
        policy=policy,
        max_new_tokens=9,
        generate_kwargs={"num_beams": 2},
        stopping_ids=[5],
        system_prompt="Be kind.",
    )
    written = json.loads(llm.to_json())
    for made in (
        NCOGuardLLM.from_dict(written, policy=policy),  # from the path that the model came from
        NCOGuardLLM.from_dict(written, policy=policy, model=pair[0], tokenizer=pair[1]),
        NCOGuardLLM.from_json(llm.to_json(), policy=policy),
    ):
        assert made.to_dict() == llm.to_dict()
        assert made.complete("Hello").text == llm.complete("Hello").text
    with pytest.raises(UnsupportedError, match="policy"):
        NCOGuardLLM.from_dict(written)
    verified = VerifiedLLM(MockLLM(system_prompt="Be kind."), policy=policy, action="redact")
    again = VerifiedLLM.from_dict(json.loads(verified.to_json()), policy=policy)
    assert again.to_dict() == verified.to_dict()
    assert again.complete("To a@example.com.", formatted=True).text == "To [redacted]."
    hosted = VerifiedLLM(ScriptedLLM(script=["Hi."]), policy=policy)
    with pytest.raises(UnsupportedError, match="llm="):
        VerifiedLLM.from_dict(hosted.to_dict(), policy=policy)
    assert (
        VerifiedLLM.from_dict(hosted.to_dict(), policy=policy, llm=hosted.inner).complete("x").text == "Hi."
    )
    assert copy.deepcopy(verified).complete("To a@example.com.").text == "To [redacted]."
