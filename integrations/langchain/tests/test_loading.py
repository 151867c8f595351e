"""Models by path: where their weights go and as what, in the words of `HuggingFacePipeline.from_model_id`."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest
from checks import check_text
from langchain_core.language_models import BaseLanguageModel
from langchain_huggingface import HuggingFacePipeline

from langchain_nco_guard import ChatNCOGuard, GuardedPipeline
from nco_guard import Policy
from nco_guard.demo import model_path
from nco_guard.errors import ArgumentError, UnsupportedError

ASK = "How can I reach Daniel Cohen?"
BITS = ("load_in_8bit", "load_in_4bit")
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'nco-guard[bitsandbytes]'",
)


def loaded_as(model: BaseLanguageModel[Any]) -> Any:
    """The model of transformers that answers."""
    return model.pipeline.model if isinstance(model, GuardedPipeline) else model.model  # type: ignore[attr-defined]


def by_path(policy: Policy, **options: Any) -> list[BaseLanguageModel[Any]]:
    path = str(model_path())
    limit = {"max_new_tokens": 16, "do_sample": False}
    return [
        ChatNCOGuard(model=path, guard=policy, max_tokens=16, temperature=0, **options),
        ChatNCOGuard.from_model_id(path, guard=policy, pipeline_kwargs=limit, **options),
        GuardedPipeline.from_model_id(path, guard=policy, pipeline_kwargs=limit, **options),
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "bfloat16"},
        {"torch_dtype": "bfloat16", "device": -1},
        {"dtype": "bfloat16", "device_map": "cpu"},
        {"model_kwargs": {"torch_dtype": "bfloat16", "device_map": {"": "cpu"}}},
    ],
)
def test_weights_are_loaded_as_they_are_asked_for(policy: Policy, options: dict[str, Any]) -> None:
    for model in by_path(policy, **options):
        assert str(loaded_as(model).dtype) == "torch.bfloat16"
        answer = model.invoke(ASK)
        check_text(policy, answer if isinstance(answer, str) else answer.text)


@needs_bitsandbytes
@pytest.mark.parametrize("bits", BITS)
def test_quantised_weights_keep_the_policy(policy: Policy, bits: str) -> None:
    chat, again, llm = by_path(policy, quantization_config={bits: True})
    for model in (chat, again, llm):
        assert getattr(loaded_as(model).config.quantization_config, bits)
        streamed = [piece if isinstance(piece, str) else piece.text for piece in model.stream("Write to")]
        assert check_text(policy, "".join(streamed))
    assert chat.invoke(ASK).text == again.invoke(ASK).text


@needs_bitsandbytes
def test_caches_tell_weights_apart(policy: Policy) -> None:
    forms: list[dict[str, Any]] = [
        {},
        {"dtype": "bfloat16"},
        *({"quantization_config": {bits: True}} for bits in BITS),
    ]
    made = [by_path(policy, **form) for form in forms]
    for same in zip(*made, strict=True):
        keys = {
            str(model._get_llm_string() if isinstance(model, ChatNCOGuard) else model.asdict())
            for model in same
        }  # type: ignore[attr-defined]
        assert len(keys) == len(forms)


def test_a_pipelines_options_become_fields(policy: Policy) -> None:
    def made(**options: Any) -> ChatNCOGuard:
        return ChatNCOGuard.from_model_id(str(model_path()), "text-generation", guard=policy, **options)

    told = {
        "max_new_tokens": 9,
        "do_sample": True,
        "top_k": 5,
        "top_p": 0.5,
        "max_time": 30.0,
        "stop_strings": ["z"],
    }
    chat = made(pipeline_kwargs={**told, "repetition_penalty": 1.5, "return_full_text": False}, batch_size=2)
    assert (chat.max_tokens, chat.top_k, chat.top_p, chat.timeout, chat.stop) == (9, 5, 0.5, 30.0, ["z"])
    assert chat.temperature == (chat.model.generation_config.temperature or 1.0)
    assert chat.generation_kwargs == {"repetition_penalty": 1.5}
    assert chat.model_name == str(model_path())
    assert made(pipeline_kwargs={"do_sample": False, "temperature": 0.5}).temperature == 0
    assert made(pipeline_kwargs={"temperature": 0.5}, model_name="small").model_name == "small"
    with pytest.raises(UnsupportedError, match="max_tokens: pipeline_kwargs says it too"):
        made(pipeline_kwargs={"max_new_tokens": 9}, max_tokens=9)
    with pytest.raises(UnsupportedError, match="return_full_text"):
        made(pipeline_kwargs={"return_full_text": True})


@pytest.mark.parametrize("given", [[1], 5, "ab", {1: 2}])
@pytest.mark.parametrize("made", [ChatNCOGuard, GuardedPipeline])
def test_options_of_a_pipeline_that_are_none_are_refused_by_name(
    made: Any, given: Any, policy: Policy
) -> None:
    with pytest.raises(UnsupportedError, match="pipeline_kwargs: a dictionary of options by name"):
        made.from_model_id(str(model_path()), guard=policy, pipeline_kwargs=given)


@pytest.mark.parametrize("given", [[1], 5, "ab", {1: 2}])
def test_options_of_a_call_that_are_none_are_refused_by_name(given: Any, policy: Policy) -> None:
    llm = GuardedPipeline.from_model_id(str(model_path()), guard=policy)
    for ask in (llm.invoke, lambda text, **options: list(llm.stream(text, **options))):
        with pytest.raises(UnsupportedError, match="pipeline_kwargs: a dictionary of options by name"):
            ask(ASK, pipeline_kwargs=given)
    theirs = HuggingFacePipeline.from_model_id(str(model_path()), "text-generation")
    with pytest.raises(UnsupportedError, match="pipeline_kwargs: a dictionary of options by name"):
        GuardedPipeline(pipeline=theirs, guard=policy, pipeline_kwargs=given)


@pytest.mark.parametrize("name", ["batch_size", "config", "pipeline_class", "revision", "task", "token"])
@pytest.mark.parametrize("made", [ChatNCOGuard, GuardedPipeline])
def test_what_makes_a_pipeline_is_no_option_of_its_calls(made: Any, name: str, policy: Policy) -> None:
    with pytest.raises(UnsupportedError, match=rf"pipeline_kwargs\['{name}'\]: "):
        made.from_model_id(str(model_path()), guard=policy, pipeline_kwargs={name: 2})


def test_the_same_prompt_gives_what_langchains_own_loader_gives(policy: Policy) -> None:
    limit = {"max_new_tokens": 16, "do_sample": False}
    theirs = HuggingFacePipeline.from_model_id(str(model_path()), "text-generation", pipeline_kwargs=limit)
    ours = GuardedPipeline.from_model_id(str(model_path()), guard=policy, pipeline_kwargs=limit, batch_size=2)
    wrapped = GuardedPipeline(pipeline=theirs, guard=policy)
    prompts = [ASK, "Write to", "Mail"]
    assert ours.batch(prompts) == wrapped.batch(prompts)
    assert ours.batch_size == 2


def test_fields_are_given_as_to_langchains_own_loader(policy: Policy) -> None:
    path, fields = str(model_path()), {"tags": ["t"], "callbacks": [], "verbose": True, "cache": False}
    theirs = HuggingFacePipeline.from_model_id(path, "text-generation", **fields)
    ours = GuardedPipeline.from_model_id(path, guard=policy, **fields)
    chat = ChatNCOGuard.from_model_id(path, guard=policy, **fields)
    for name, value in fields.items():
        assert getattr(ours, name) == getattr(theirs, name) == getattr(chat, name) == value
    for kind in (GuardedPipeline, ChatNCOGuard):
        with pytest.raises(ValueError, match="tgas"):
            kind.from_model_id(path, guard=policy, tgas=["t"])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"task": "summarization"}, "task 'summarization'"),
        ({"backend": "openvino"}, "backend: 'openvino'"),
        ({"batch_size": 0}, "batch_size"),
        ({"device": -2}, "device: -2"),
        ({"device": 0, "device_map": "auto"}, "device, device_map"),
        ({"dtype": "bfloat61"}, "dtype: 'bfloat61'"),
        ({"dtype": "half", "torch_dtype": "half"}, "torch_dtype: it is given twice"),
        ({"device_map": "atuo"}, "did you mean 'auto'"),
        ({"quantization_config": {"load_in_4bits": True}}, "did you mean 'load_in_4bit'"),
        (
            {"pipeline_kwargs": {"dtype": "half"}},
            r"pipeline_kwargs\['dtype'\]: it is dtype=... of from_model_id",
        ),
        ({"pipeline_kwargs": {"use_fast": True}}, r"pipeline_kwargs\['use_fast'\]: give it in model_kwargs"),
        ({"pipeline_kwargs": {"guards": []}}, r"pipeline_kwargs\['guards'\]: it is no option"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(
    policy: Policy, options: dict[str, Any], says: str
) -> None:
    for kind in (ChatNCOGuard, GuardedPipeline):
        with pytest.raises(UnsupportedError, match=says):
            kind.from_model_id("there is no such folder", guard=policy, **options)


def test_bad_fields_of_a_chat_model_are_refused(policy: Policy, loaded: tuple[Any, Any]) -> None:
    for options, says in (
        ({"model": "nowhere", "device": "gpu"}, "device: 'gpu' is no device"),
        ({"model": "nowhere", "dtype": "half", "torch_dtype": "half"}, "torch_dtype: it is given twice"),
        ({"model": loaded[0], "tokenizer": loaded[1], "dtype": "half"}, "dtype: for loading from a path"),
        ({"model": loaded[0], "tokenizer": loaded[1], "device_map": "auto"}, "device_map: for loading"),
    ):
        with pytest.raises(UnsupportedError, match=says):
            ChatNCOGuard(guard=policy, **options)
    with pytest.raises(ArgumentError, match="device_maps"):
        ChatNCOGuard(model="nowhere", guard=policy, device_maps="auto")  # type: ignore[call-arg]
