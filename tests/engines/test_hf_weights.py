"""Options of loading: what each may be, what of it reaches the model, and that quantised weights are guarded too."""

from __future__ import annotations

import json
import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AwqConfig, BitsAndBytesConfig, GPTQConfig

from nco_guard import Guard, Policy, RegexRule, demo
from nco_guard.engines.hf.inputs import logits_width
from nco_guard.engines.hf.loading import load_local, load_model_id
from nco_guard.engines.hf.weights import as_loaded, loading_options
from nco_guard.errors import MissingExtraError, UnsupportedError

EMAIL = r"[\w.]+@\w+\.[a-z]{2,}"
GUARD = Guard(Policy(name="mail", rules=(RegexRule(id="email", regex=EMAIL),)))
BITS = {"load_in_8bit": "Linear8bitLt", "load_in_4bit": "Linear4bit"}
needs_bitsandbytes = pytest.mark.skipif(
    find_spec("bitsandbytes") is None, reason="bitsandbytes is not installed: pip install 'nco-guard[dev]'"
)
needs_accelerate = pytest.mark.skipif(
    find_spec("accelerate") is None, reason="accelerate is not installed: pip install 'nco-guard[dev]'"
)


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shipped model with a head of its own, which can be packed and laid elsewhere."""
    path = tmp_path_factory.mktemp("untied")
    _, tokenizer = demo.load()
    model = AutoModelForCausalLM.from_pretrained(str(demo.model_path()), tie_word_embeddings=False)
    model.lm_head.weight = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"device": -2}, "device: -2 is no device; give"),
        ({"device": True}, "device: bool is no device"),
        ({"device": "gpu-one"}, "device: 'gpu-one' is no device"),
        ({"device": 4096}, "device: there is no device .* on this machine; it has 'cpu'"),
        ({"device": "meta"}, "device: there is no device 'meta'"),
        ({"device": "cpu", "device_map": "auto"}, "device, device_map: each says"),
        ({"device_map": "atuo"}, "device_map: 'atuo' is no strategy, did you mean 'auto'"),
        ({"device_map": "nowhere"}, "device_map: 'nowhere' is no device; give one of 'auto'"),
        ({"device_map": -1}, "device_map: -1 is no device"),
        ({"device_map": {}}, "device_map: names of modules"),
        ({"device_map": {0: "cpu"}}, "device_map: names of modules"),
        ({"device_map": {"model": "dsik"}}, r"device_map\['model'\]: 'dsik' is no device"),
        ({"device_map": ["cpu"]}, "device_map: list is no device"),
        ({"dtype": "bfloat61"}, "dtype: 'bfloat61' is none that weights can have"),
        ({"dtype": "int8"}, "dtype: 'int8' is none"),
        ({"dtype": torch.int64}, "dtype: torch.int64 is none"),
        ({"dtype": 16}, "dtype: int is none"),
        ({"torch_dtype": "nn"}, "dtype: 'nn' is none"),
        ({"dtype": {"text": "half", "": "no"}}, r"dtype\[''\]: 'no' is none"),
        ({"dtype": "half", "torch_dtype": "half"}, "torch_dtype: it is given twice"),
        ({"quantization_config": True}, "quantization_config: bool is none; give an object"),
        ({"quantization_config": {}}, "quantization_config: .*quant_method"),
        ({"quantization_config": {"quant_method": "magic"}}, "quantization_config: Unknown quantization"),
        ({"quantization_config": {"load_in_4bits": True}}, "did you mean 'load_in_4bit'"),
        (
            {"quantization_config": {"load_in_4bit": True, "load_in_8bit": True}},
            "quantization_config: load_in_4bit and load_in_8bit are both True",
        ),
        (
            {"quantization_config": {"load_in_4bit": True, "bnb_4bit_quant_tipe": "nf4"}},
            "did you mean 'bnb_4bit_quant_type'",
        ),
        ({"quantization_config": BitsAndBytesConfig()}, "neither load_in_4bit nor load_in_8bit"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 5}}, "quantization_config: .*bits"),
    ],
)
def test_values_that_cannot_be_meant_are_refused_before_anything_is_read(
    options: dict[str, Any], says: str
) -> None:
    for given in ((options, None), ({}, options)):  # as an argument, and in model_kwargs
        with pytest.raises(UnsupportedError, match=says):
            loading_options(*given)
    with pytest.raises(UnsupportedError, match=says):
        load_local("there is no such folder", **options)


def test_what_is_said_twice_or_in_the_wrong_place_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="dtype: it is given twice, here and in model_kwargs"):
        loading_options({"dtype": "half"}, {"torch_dtype": "half"})
    with pytest.raises(UnsupportedError, match=r"model_kwargs\['load_in_4bit'\]: it is quantization_config="):
        loading_options({}, {"load_in_4bit": True})
    for odd in ("dtype=half", ["dtype"], {1: 2}):
        with pytest.raises(UnsupportedError, match="model_kwargs: a dictionary of options by name"):
            loading_options({}, odd)
        with pytest.raises(UnsupportedError, match="tokenizer_kwargs: a dictionary of options by name"):
            load_local(demo.model_path(), tokenizer_kwargs=odd)
    model, tokenizer = demo.load()
    for name, value in (("device", 0), ("device_map", "auto"), ("dtype", "half"), ("torch_dtype", "half")):
        with pytest.raises(
            UnsupportedError, match=f"{name}: for loading from a path, and an object is given"
        ):
            load_local(model, tokenizer, **{name: value})


@pytest.mark.parametrize("missing", ["accelerate", "bitsandbytes"])
def test_a_package_that_is_missing_is_named_with_its_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)  # as Python says that there is none
    quantised = {"quantization_config": {"load_in_4bit": True}}
    with pytest.raises(MissingExtraError, match=r"nco-guard\[bitsandbytes\]"):
        load_local(demo.model_path(), **quantised)  # type: ignore[arg-type]
    if missing == "accelerate":
        with pytest.raises(MissingExtraError, match=r"device_map needs .* 'nco-guard\[accelerate\]'"):
            load_local(demo.model_path(), device_map="auto")
    assert load_local(demo.model_path(), device="cpu", dtype="bfloat16")[0].dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", ["bfloat16", "torch.bfloat16", torch.bfloat16, {"": "bfloat16"}])
def test_types_of_weights_by_either_name(name: str, value: Any) -> None:
    for given in ({name: value}, {"model_kwargs": {name: value}}):
        model, _ = load_local(demo.model_path(), **given)
        assert model.dtype == torch.bfloat16
        assert as_loaded(model) == {"dtype": "torch.bfloat16"}


@needs_accelerate
@pytest.mark.parametrize(
    "placed", [{"device_map": "auto"}, {"device_map": {"": "cpu"}}, {"device_map": torch.device("cpu")}]
)
def test_placed_models_write_what_the_model_writes(placed: dict[str, Any]) -> None:
    model, tokenizer = load_local(demo.model_path(), **placed)
    expected = GUARD.generate(*demo.load(), "Write to", max_new_tokens=16, do_sample=False).texts
    found = GUARD.generate(model, tokenizer, "Write to", max_new_tokens=16, do_sample=False).texts
    assert found == expected or torch.cuda.is_available()  # other devices add in another order


@needs_accelerate
def test_weights_on_the_disk(untied: Path, tmp_path: Path) -> None:
    places = {"model.embed_tokens": "disk", "model.layers": "disk", "model.norm": "cpu"}
    places |= {"model.rotary_emb": "cpu", "lm_head": "cpu"}
    model, tokenizer = load_local(
        untied, device_map=places, dtype="float32", model_kwargs={"offload_folder": str(tmp_path)}
    )
    assert model.device.type == "meta"  # what the model says of itself, though it is worked with on the CPU
    whole = load_local(untied, dtype="float32")
    for prompt, first in (("Write to", None), ("", 5)):
        options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "bos_token_id": first}
        found = GUARD.generate(model, tokenizer, prompt, **options).texts
        assert found == GUARD.generate(*whole, prompt, **options).texts


@needs_bitsandbytes
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("form", ["object", "dictionary", "model_kwargs", "device"])
def test_quantised_weights_are_guarded(bits: str, form: str) -> None:
    config = BitsAndBytesConfig(**{bits: True})
    given: dict[str, dict[str, Any]] = {
        "object": {"quantization_config": config},
        "dictionary": {"quantization_config": {bits: True}},
        "model_kwargs": {"model_kwargs": {"quantization_config": config.to_dict()}},
        "device": {"quantization_config": config, "device": -1},
    }
    model, tokenizer = load_local(demo.model_path(), **given[form])
    kinds = {type(module).__name__ for module in model.modules()}
    assert BITS[bits] in kinds
    assert bits in as_loaded(model)["quantization"]
    written = tokenizer.decode(
        model.generate(**tokenizer("Write to", return_tensors="pt"), max_new_tokens=24, do_sample=False)[0]
    )
    assert re.search(EMAIL, written)  # what it writes when left alone
    result = GUARD.generate(model, tokenizer, ["Write to", "Mail"], max_new_tokens=24, do_sample=False)
    assert not any(re.search(EMAIL, text) for text in result.texts)
    assert result.texts[0]


@needs_bitsandbytes
@pytest.mark.parametrize("bits", BITS)
def test_a_packed_head_has_as_many_columns_as_it_writes(bits: str, untied: Path) -> None:
    config = BitsAndBytesConfig(**{bits: True}, llm_int8_skip_modules=["none"])
    model, _ = load_local(untied, quantization_config=config)
    head = model.get_output_embeddings()
    assert type(head).__name__ == BITS[bits]
    assert (bits == "load_in_4bit") == (head.weight.shape[0] != model.config.vocab_size)
    assert logits_width(model) == model.config.vocab_size


@pytest.mark.parametrize(
    ("config", "fields", "package"),
    [
        (GPTQConfig(bits=4, group_size=64, desc_act=True), {"group_size": 64, "desc_act": True}, "gptqmodel"),
        (
            AwqConfig(bits=4, group_size=64, zero_point=False),
            {"group_size": 64, "zero_point": False},
            "gptqmodel",
        ),
    ],
)
def test_other_methods_are_passed_on(config: Any, fields: dict[str, Any], package: str) -> None:
    said = {"quant_method": config.quant_method.value, "bits": 4, **fields}
    for given in (config, said, config.to_dict()):
        options, _ = loading_options({"quantization_config": given})
        found = options["quantization_config"]
        assert type(found) is type(config)
        assert {**fields, "bits": 4}.items() <= vars(found).items()
    if find_spec(package) is None:  # transformers says what its quantiser is missing
        with pytest.raises(UnsupportedError, match=r"(?i)model: cannot be loaded .*(gptq|awq|accelerate)"):
            load_local(demo.model_path(), quantization_config=config)


PACKED = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "gptqmodel", "GPTQ"),
    ({"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, "gptqmodel", "gptqmodel"),
    ({"quant_method": "compressed-tensors", "config_groups": {}}, "compressed_tensors", "compressed-tensors"),
    ({"quant_method": "hqq"}, "hqq", "HQQ"),
]


@pytest.mark.parametrize(("config", "package", "named"), PACKED, ids=lambda each: str(each)[:30])
def test_a_quantised_checkpoint_says_which_package_it_needs(
    config: dict[str, Any], package: str, named: str, tmp_path: Path
) -> None:
    """As its files say that they are packed, without an argument."""
    if find_spec(package) is not None:
        pytest.skip(f"{package} is installed, and such a checkpoint is more than its configuration")
    packed = tmp_path / "packed"
    shutil.copytree(demo.model_path(), packed)
    said = json.loads((packed / "config.json").read_text())
    (packed / "config.json").write_text(json.dumps({**said, "quantization_config": config}))
    for options in ({}, {"device": "cpu"}, {"dtype": "float16"}):
        with pytest.raises(UnsupportedError, match=f"model: cannot be loaded .*{named}"):
            load_local(packed, **options)  # type: ignore[arg-type]
    if config["quant_method"] != "gptq":
        with pytest.raises(UnsupportedError, match="model: cannot be loaded"):
            load_local(packed, quantization_config=GPTQConfig(bits=4))


def test_what_a_pipeline_is_loaded_by() -> None:
    model, tokenizer = load_model_id(
        str(demo.model_path()), "text-generation", "default", batch_size=2, model_kwargs={"dtype": "bfloat16"}
    )
    assert model.dtype == torch.bfloat16
    assert tokenizer.pad_token_id is not None
    for task, backend, size, says in (
        ("summarization", "default", 1, "task 'summarization'"),
        ("text-generation", "openvino", 1, "backend: 'openvino' is not guarded"),
        ("text-generation", "default", 0, "batch_size: a whole number of at least 1"),
    ):
        with pytest.raises(UnsupportedError, match=says):
            load_model_id("nowhere", task, backend, batch_size=size)
    with pytest.raises(UnsupportedError, match="model_id: a path or a name is needed, not LlamaForCausalLM"):
        load_model_id(model, "text-generation", "default", batch_size=1)
