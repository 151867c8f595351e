"""What cannot be guarded is refused when the object is built."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.llms import ChatMessage, MockLLM
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import (
    NCOGuardAuditHandler,
    NCOGuardLLM,
    NCOGuardOutputParser,
    NCOGuardPostprocessor,
    VerifiedLLM,
    verified_tool,
)
from llama_index.llms.nco_guard.testing import ScriptedLLM

from nco_guard import Guard, Policy, StringRule, demo
from nco_guard.audit import MemorySink
from nco_guard.errors import (
    ArgumentError,
    ArgumentValueError,
    NCOGuardError,
    PolicyError,
    PresetError,
    TokenizerError,
    UnsupportedError,
)
from nco_guard.replies import shipped_formats
from nco_guard.testing import random_model, tiny_tokenizer

HELLO = [ChatMessage(role="user", content="Hello")]
POLICY = Policy(name="words", rules=[StringRule(id="words", strings=["forbidden", "[redacted]"])])
UNWRITABLE = Policy(name="f", rules=POLICY.rules, on_dead_end="fallback", fallback="no single token")


def test_a_path_is_enough() -> None:
    llm = NCOGuardLLM(demo.model_path(), guard=POLICY)
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
        ({"guard": b"pii"}, ArgumentError, "guard: a Guard, .*Policy.from_presets"),
        ({"guard": "pi"}, PresetError, "no preset 'pi'"),
        ({"policy": "pii"}, UnsupportedError, "policy: .*use guard="),
        ({"guard": Guard(POLICY, audit=MemorySink()), "audit": MemorySink()}, UnsupportedError, "audit"),
        (
            {"guard": Policy(name="f", rules=POLICY.rules, on_dead_end="fallback", fallback="no token")},
            PolicyError,
            "f",
        ),
    ],
)
def test_bad_options_are_refused(
    pair: tuple[Any, Any], options: dict[str, Any], error: type, says: str
) -> None:
    with pytest.raises(error, match=says):
        NCOGuardLLM(*pair, **{"guard": POLICY, **options})


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    small = random_model(tiny_tokenizer())
    with pytest.raises(TokenizerError, match="own tokenizer"):
        NCOGuardLLM(small, tokenizer, guard=POLICY)
    with pytest.raises(TokenizerError, match="give the model's tokenizer"):
        NCOGuardLLM(model, guard=POLICY)


def test_a_tokenizer_that_cannot_be_modelled_is_refused(pair: tuple[Any, Any]) -> None:
    class Slow:
        chat_template = None

        def __call__(self, text: str) -> dict[str, list[int]]:
            return {"input_ids": [0] * len(text)}

    with pytest.raises(TokenizerError, match="fast version"):
        NCOGuardLLM(pair[0], Slow(), guard=POLICY)


@pytest.mark.parametrize("model", [MockLLM(), object(), lambda prompt: prompt])
def test_what_is_no_local_model_is_refused(pair: tuple[Any, Any], model: Any) -> None:
    with pytest.raises(UnsupportedError, match=r"LLM of LlamaIndex|give a loaded transformers model"):
        NCOGuardLLM(model, pair[1], guard=POLICY)


def test_an_encoder_decoder_model_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    with pytest.raises(UnsupportedError, match="encoder-decoder"):
        NCOGuardLLM(random_model(tokenizer, seq2seq=True), tokenizer, guard=POLICY)


def test_a_chat_model_without_a_template_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(UnsupportedError, match="chat template"):
        NCOGuardLLM(random_model(tokenizer), tokenizer, guard=POLICY, is_chat_model=True)


def test_tools_are_offered_only_where_the_template_can_show_them(tools: list[Any]) -> None:
    """The template of this tokenizer drops them without a word, so the LLM says that it cannot call functions."""
    tokenizer = tiny_tokenizer()
    llm = NCOGuardLLM(random_model(tokenizer), tokenizer, guard=POLICY)
    assert llm.metadata.is_chat_model
    assert not llm.metadata.is_function_calling_model
    with pytest.raises(UnsupportedError, match="tools"):
        llm.chat_with_tools(tools, user_msg="Hello")


def test_a_format_may_be_given_in_place_of_the_one_that_is_found(pair: tuple[Any, Any]) -> None:
    entry = shipped_formats()["hermes-line"].model_dump(mode="json")
    del entry["call"], entry["response_template"]["fields"]["tool_calls"]
    for given, calls in ((None, True), ("hermes", True), ({**entry, "name": "own"}, False)):
        llm = NCOGuardLLM(*pair, guard=POLICY, reply_format=given)
        assert llm.metadata.is_function_calling_model == calls
        twin = NCOGuardLLM.from_dict(llm.to_dict(), model=pair[0], tokenizer=pair[1], guard=POLICY)
        assert twin._form == llm._form
    with pytest.raises(ArgumentValueError, match="reply_format: 'hermse' is not known"):
        NCOGuardLLM(*pair, guard=POLICY, reply_format="hermse")


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
    with pytest.raises(ArgumentError, match="guard: a Guard, a Policy"):
        build(b"pii")
    with pytest.raises(ValueError, match="action"):
        build(POLICY, action="ignore", replacement="")
    with pytest.raises(ArgumentError, match="guard: a Guard, a Policy"):
        NCOGuardAuditHandler({"pii"}, MemorySink())  # type: ignore[arg-type]


def test_a_guard_is_given_in_one_way_everywhere(pair: tuple[Any, Any], tmp_path: Path) -> None:
    pii, written = Policy.from_presets("pii"), tmp_path / "written.json"
    written.write_text(pii.model_dump_json())
    llm, hosted = NCOGuardLLM(*pair, guard="secrets"), ScriptedLLM(script=[])
    verified = VerifiedLLM(hosted, guard="secrets")
    tool = FunctionTool.from_defaults(lambda: "", name="t")
    takes: dict[str, Callable[[Any], Policy]] = {
        "LLM": lambda it: NCOGuardLLM(*pair, guard=it).guard.policy,
        "LLM, with": lambda it: llm.with_guard(it).guard.policy,
        "LLM, in a call": lambda it: llm._chat(HELLO, {"guard": it}).call.guard.policy,
        "verified": lambda it: VerifiedLLM(hosted, guard=it).guard.policy,
        "verified, with": lambda it: verified.with_guard(it).guard.policy,
        "verified, in a call": lambda it: verified._cleaner({"guard": it}).guard.policy,
        "nodes": lambda it: NCOGuardPostprocessor(it)._guard.policy,
        "parser": lambda it: NCOGuardOutputParser(it)._guard.policy,
        "tool": lambda it: verified_tool(tool, it)._nco_guard_cleaner.guard.policy,  # type: ignore[attr-defined]
        "audit": lambda it: NCOGuardAuditHandler(it, MemorySink())._guard.policy,
    }
    for name, take in takes.items():
        for given in (pii, Guard(pii), "pii", ["pii"], written, str(written)):
            assert take(given).rules == pii.rules, name
        with pytest.raises(PresetError, match="no preset"):
            take("written")
        with pytest.raises(ArgumentError, match="guard: a Guard, a Policy, the path"):
            take(b"pii")


def test_errors_are_typed_and_hold_no_text(pair: tuple[Any, Any]) -> None:
    llm = NCOGuardLLM(*pair, guard=POLICY)
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
        guard=policy,
        max_new_tokens=9,
        generate_kwargs={"num_beams": 2},
        stopping_ids=[5],
        system_prompt="Be kind.",
    )
    written = json.loads(llm.to_json())
    for made in (
        NCOGuardLLM.from_dict(written, guard=policy),  # from the path that the model came from
        NCOGuardLLM.from_dict(written, guard=policy, model=pair[0], tokenizer=pair[1]),
        NCOGuardLLM.from_json(llm.to_json(), guard=policy),
    ):
        assert made.to_dict() == llm.to_dict()
        assert made.complete("Hello").text == llm.complete("Hello").text
    with pytest.raises(UnsupportedError, match="guard"):
        NCOGuardLLM.from_dict(written)
    verified = VerifiedLLM(MockLLM(system_prompt="Be kind."), guard=policy, action="redact")
    again = VerifiedLLM.from_dict(json.loads(verified.to_json()), guard=policy)
    assert again.to_dict() == verified.to_dict()
    assert again.complete("To a@example.com.", formatted=True).text == "To [redacted]."
    hosted = VerifiedLLM(ScriptedLLM(script=["Hi."]), guard=policy)
    with pytest.raises(UnsupportedError, match="llm="):
        VerifiedLLM.from_dict(hosted.to_dict(), guard=policy)
    assert VerifiedLLM.from_dict(hosted.to_dict(), guard=policy, llm=hosted.inner).complete("x").text == "Hi."
    assert copy.deepcopy(verified).complete("To a@example.com.").text == "To [redacted]."
