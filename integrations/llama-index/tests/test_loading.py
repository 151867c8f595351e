"""Models by path: where their weights go and as what, and the words of `HuggingFacePipeline.from_model_id`."""

from __future__ import annotations

import re
from importlib.util import find_spec
from typing import Any

import pytest
from llama_index.llms.nco_guard import NCOGuardLLM

from nco_guard import Policy, RegexRule, demo
from nco_guard.errors import UnsupportedError

EMAIL = r"[\w.]+@\w+\.[a-z]{2,}"
POLICY = Policy(name="mail", rules=(RegexRule(id="email", regex=EMAIL),))
GREEDY = {"max_new_tokens": 16, "do_sample": False}
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed: pip install 'nco-guard[bitsandbytes]'",
)


def by_path(**options: Any) -> list[NCOGuardLLM]:
    path = str(demo.model_path())
    return [
        NCOGuardLLM(path, guard=POLICY, generate_kwargs=GREEDY, **options),
        NCOGuardLLM.from_model_id(path, "text-generation", guard=POLICY, pipeline_kwargs=GREEDY, **options),
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
def test_weights_are_loaded_as_they_are_asked_for(options: dict[str, Any]) -> None:
    answers = []
    for llm in by_path(**options):
        assert str(llm._model.dtype) == "torch.bfloat16"
        assert llm.max_new_tokens == 16
        answers.append(llm.complete("Write to", formatted=True).text)
    assert answers[0] == answers[1]
    assert not re.search(EMAIL, answers[0])


@needs_bitsandbytes
@pytest.mark.parametrize("bits", ["load_in_8bit", "load_in_4bit"])
def test_quantised_weights_keep_the_policy(bits: str) -> None:
    for llm in by_path(quantization_config={bits: True}):
        assert getattr(llm._model.config.quantization_config, bits)
        whole = llm.complete("Write to", formatted=True).text
        assert whole == [*llm.stream_complete("Write to", formatted=True)][-1].text
        assert whole
        assert not re.search(EMAIL, whole)


def test_arguments_of_both_kinds_are_taken_together() -> None:
    llm = NCOGuardLLM.from_model_id(
        str(demo.model_path()),
        guard=POLICY,
        pipeline_kwargs={"top_k": 5, "return_full_text": False},
        generate_kwargs={"do_sample": True},
        context_window=512,
        batch_size=2,
    )
    assert llm.generate_kwargs == {"top_k": 5, "do_sample": True}
    assert (llm.context_window, llm.model_name) == (512, str(demo.model_path()))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": -2}, "device: -2"),
        ({"device": "cpu", "device_map": "auto"}, "device, device_map"),
        ({"dtype": "bfloat61"}, "dtype: 'bfloat61'"),
        ({"dtype": "half", "torch_dtype": "half"}, "torch_dtype: it is given twice"),
        ({"device_map": "atuo"}, "did you mean 'auto'"),
        ({"quantization_config": {"load_in_4bits": True}}, "did you mean 'load_in_4bit'"),
        ({"model_kwargs": {"device": "cuda:4096"}}, "device: there is no device 'cuda:4096'"),
        ({"model_kwargs": "dtype"}, "model_kwargs: a dictionary of options"),
    ],
)
def test_bad_options_are_refused_before_anything_is_loaded(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        NCOGuardLLM("there is no such folder", guard=POLICY, **options)
    with pytest.raises(UnsupportedError, match=says):
        NCOGuardLLM.from_model_id("there is no such folder", guard=POLICY, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"task": "summarization"}, "task 'summarization'"),
        ({"backend": "openvino"}, "backend: 'openvino'"),
        ({"batch_size": 0}, "batch_size"),
        ({"pipeline_kwargs": ["top_k"]}, "pipeline_kwargs: a dictionary is needed"),
    ],
)
def test_bad_arguments_of_from_model_id_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UnsupportedError, match=says):
        NCOGuardLLM.from_model_id("there is no such folder", guard=POLICY, **options)


def test_options_of_loading_are_for_paths(pair: tuple[Any, Any]) -> None:
    for name, value in (
        ("device", "cpu"),
        ("device_map", "auto"),
        ("dtype", "half"),
        ("torch_dtype", "half"),
    ):
        with pytest.raises(UnsupportedError, match=f"{name}: for loading from a path"):
            NCOGuardLLM(*pair, guard=POLICY, **{name: value})
