"""How a model was loaded is written down with its LLM, and it is loaded that way again; or the option is named."""

from __future__ import annotations

import json
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from llama_index.llms.nco_guard import NCOGuardLLM
from llama_index.llms.nco_guard.written import NOT_WRITTEN, written_loading
from transformers import AwqConfig, BitsAndBytesConfig, GPTQConfig

from nco_guard import Policy, StringRule, demo
from nco_guard.engines.hf.weights import loading_options
from nco_guard.errors import UnsupportedError

POLICY = Policy(name="word", rules=(StringRule(id="word", strings=["no such word"]),))
PATH = str(demo.model_path())
OPTIONS: list[dict[str, Any]] = [
    {},
    {"dtype": torch.bfloat16},
    {"torch_dtype": "torch.float16", "device": torch.device("cpu")},
    {"dtype": "bfloat16", "device_map": {"": torch.device("cpu")}},
    {"device": -1, "model_kwargs": {"attn_implementation": "eager", "local_files_only": True}},
    {"model_kwargs": {"dtype": torch.bfloat16, "device_map": "cpu"}},
    {"model_name": "ours", "dtype": "bfloat16"},
]


def twins(options: dict[str, Any]) -> list[NCOGuardLLM]:
    return [
        NCOGuardLLM(PATH, guard=POLICY, **options),
        NCOGuardLLM.from_model_id(PATH, guard=POLICY, **options),
    ]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "none")
def test_a_model_is_loaded_again_as_it_was(options: dict[str, Any]) -> None:
    for llm in twins(options):
        text = llm.to_json()
        again = NCOGuardLLM.from_json(text, guard=POLICY)
        assert again.to_json() == text
        assert again.model_name == llm.model_name
        for said in (
            lambda one: one.dtype,
            lambda one: one.device,
            lambda one: one.config._attn_implementation,
        ):
            assert said(again._model) == said(llm._model)
        assert again.complete("Hello").text == llm.complete("Hello").text


def test_a_tokenizer_of_another_path_is_written_too(tmp_path: Path) -> None:
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (found := Path(PATH) / file).exists():
            shutil.copy(found, tmp_path / file)
    llm = NCOGuardLLM(Path(PATH), tmp_path, guard=POLICY, tokenizer_kwargs={"padding_side": "left"})
    again = NCOGuardLLM.from_json(llm.to_json(), guard=POLICY)
    assert again._tokenizer.name_or_path == str(tmp_path)
    assert again._tokenizer.padding_side == "left"


def test_a_model_object_takes_the_place_of_what_was_loaded(pair: tuple[Any, Any]) -> None:
    data = NCOGuardLLM(PATH, guard=POLICY, dtype="bfloat16", model_kwargs={"use_cache": False}).to_dict()
    again = NCOGuardLLM.from_dict(data, guard=POLICY, model=pair[0], tokenizer=pair[1])
    assert again._model is pair[0]
    assert not {"dtype", "model_kwargs"} & set(again.to_dict())
    assert str(NCOGuardLLM.from_dict(data, guard=POLICY, dtype="float32")._model.dtype) == "torch.float32"


def test_what_is_not_written_is_asked_for_by_name() -> None:
    """What logs in somewhere, and objects that JSON does not hold."""
    secret = "hf_abc"
    options: dict[str, Any] = {
        "token": secret,
        "config": demo.load()[0].config,
        "attn_implementation": "eager",
    }
    for llm in twins({"model_kwargs": options}):
        data = json.loads(llm.to_json())
        assert secret not in str(data)
        assert data["model_kwargs"] == {"attn_implementation": "eager"}
        names = ["model_kwargs['token']", "model_kwargs['config']"]
        assert data[NOT_WRITTEN][:2] == names
        rest: dict[str, Any] = {"tokenizer_kwargs": {"token": secret}} if len(data[NOT_WRITTEN]) > 2 else {}
        for given in (
            {},
            {"model_kwargs": {"token": secret}},
            {"model_kwargs": {"config": options["config"]}},
        ):
            with pytest.raises(
                UnsupportedError, match=r"^model_kwargs\['(token|config)'\]: it is not written down"
            ):
                NCOGuardLLM.from_dict(data, guard=POLICY, **given, **rest)
        own = {name: options[name] for name in ("token", "config")}
        again = NCOGuardLLM.from_dict(data, guard=POLICY, model_kwargs=own, **rest)
        assert again._loading["model_kwargs"] == {"attn_implementation": "eager"}
    held = NCOGuardLLM(
        PATH, guard=POLICY, model_kwargs={"max_memory": {0: "1GB"}, "device_map": "cpu"}
    ).to_dict()
    assert held[NOT_WRITTEN] == ["model_kwargs['max_memory']"]  # JSON has no numbers for keys


@pytest.mark.parametrize(
    "config",
    [
        BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16),
        BitsAndBytesConfig(load_in_8bit=True),
        GPTQConfig(bits=4),
        AwqConfig(),
    ],
    ids=["4bit", "8bit", "gptq", "awq"],
)
def test_quantisation_is_written_by_its_fields(config: Any) -> None:
    if isinstance(config, BitsAndBytesConfig) and find_spec("bitsandbytes") is None:
        pytest.skip("bitsandbytes is not installed: pip install 'nco-guard[bitsandbytes]'")
    written = written_loading("path", None, "path", {"quantization_config": config})
    again, _ = loading_options(json.loads(json.dumps(written)))
    assert type(again["quantization_config"]) is type(config)
    assert again["quantization_config"].to_dict() == config.to_dict()


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed")
def test_quantised_weights_are_loaded_again() -> None:
    for llm in twins({"quantization_config": BitsAndBytesConfig(load_in_8bit=True)}):
        again = NCOGuardLLM.from_json(llm.to_json(), guard=POLICY)
        assert again._model.config.quantization_config.load_in_8bit
        assert again.complete("Hello").text == llm.complete("Hello").text
