"""Guarded pipelines behave like pipelines."""

import copy
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TextIteratorStreamer, pipeline

from nco_guard.engines.hf import WrappedPipeline, wrap
from nco_guard.engines.hf.pipeline import unwrap
from nco_guard.errors import UnsupportedError


@pytest.fixture
def pipe(byte_level: Any, model_of: Any) -> Any:
    torch.manual_seed(0)
    return pipeline("text-generation", model=model_of(byte_level), tokenizer=byte_level, device="cpu")


@pytest.fixture
def guarded(pipe: Any, guard: Any) -> WrappedPipeline:
    return wrap(guard, pipe)


def test_calls_of_every_form_return_what_the_pipeline_returns(pipe: Any, guarded: Any, guard: Any) -> None:
    chat = [{"role": "user", "content": "hi"}]
    for inputs, options in [
        ("what the", {}),
        (["what the", "a class of", "f"], {"batch_size": 2}),
        (["what the", "a class of", "f"], {"num_return_sequences": 2, "do_sample": True}),
        (chat, {}),
        ([chat, chat], {"batch_size": 2}),
        ("what the", {"num_beams": 3}),
        ("what the", {"stop_sequence": " ass", "do_sample": True}),
    ]:
        for full in (True, False):
            given = {"max_new_tokens": 20, "return_full_text": full, **options}
            plain, safe = pipe(inputs, **given), guarded(inputs, **given)
            assert _shape(plain) == _shape(safe)
            for text, prompt in _texts(safe):
                assert guard.clean(text[len(prompt) :] if full and text.startswith(prompt) else text)


def _shape(value: Any) -> Any:
    if isinstance(value, list):
        return [_shape(item) for item in value]
    return {key: _shape(item) for key, item in value.items()} if isinstance(value, dict) else type(value)


def _texts(value: Any) -> list[tuple[str, str]]:
    if isinstance(value, list):
        return [pair for item in value for pair in _texts(item)]
    text = value["generated_text"]
    if isinstance(text, list):
        return [(text[-1]["content"], "")]
    return [(text, prompt) for prompt in ("what the", "a class of", "f") if text.startswith(prompt)] or [
        (text, "")
    ]


def test_the_pipeline_itself_stays_unguarded_and_reachable(pipe: Any, guarded: Any, guard: Any) -> None:
    assert guarded.task == "text-generation"
    assert guarded.tokenizer is pipe.tokenizer
    assert unwrap(guarded) is pipe
    torch.manual_seed(0)
    texts = [
        pipe("what the", max_new_tokens=60, return_full_text=False)[0]["generated_text"] for _ in range(5)
    ]
    assert not all(guard.clean(text) for text in texts)


def test_every_way_to_a_text_is_guarded_or_refused_by_name(pipe: Any, guarded: Any, guard: Any) -> None:
    """An allow list: whatever else the pipeline or its model has, here or in a later transformers, is refused."""
    for safe, bare, names in [
        (guarded, pipe, [*dir(pipe), *vars(pipe)]),
        (guarded.model, pipe.model, [*dir(pipe.model), *vars(pipe.model)]),
    ]:
        refused = 0
        for name in set(names):
            if name.startswith("__") or name in ("model", "predict", "transform", "generate"):
                continue
            if hasattr(safe, name):
                value = getattr(safe, name)
                assert value is not pipe
                assert value is not pipe.model
                assert not isinstance(value, torch.nn.Module)
                assert getattr(value, "__self__", None) not in (pipe, pipe.model), name
                continue
            refused += 1
            with pytest.raises(UnsupportedError, match=f"^{name}: not guarded"):
                getattr(safe, name)
        assert refused > 20, bare
        with pytest.raises(AttributeError, match="no_such_thing"):
            _ = safe.no_such_thing
        with pytest.raises(UnsupportedError, match="tokenizer: set it on"):
            safe.tokenizer = None
    for name in ("forward", "_forward", "run_single", "get_iterator", "postprocess"):
        with pytest.raises(UnsupportedError, match=name):
            getattr(guarded, name)
    with pytest.raises(UnsupportedError, match="not masked"):
        guarded.model(torch.tensor([[1]]))


def test_the_other_names_of_a_call_are_guarded(pipe: Any, byte_level: Any, guard: Any) -> None:
    options = {"max_new_tokens": 60, "return_full_text": False}
    pipe = pipeline("text-generation", model=pipe.model, tokenizer=byte_level, device="cpu", **options)
    guarded = wrap(guard, pipe)
    torch.manual_seed(0)
    plain = [pipe.predict("what the")[0]["generated_text"] for _ in range(5)]
    assert not all(guard.clean(text) for text in plain)
    for call in (guarded, guarded.predict, guarded.transform):
        for _ in range(5):
            assert guard.clean(call("what the")[0]["generated_text"])


def test_the_model_of_a_guarded_pipeline_generates_guarded(pipe: Any, guarded: Any, guard: Any) -> None:
    """As frameworks use it that take the model out of a pipeline."""
    model, tokenizer = guarded.model, guarded.tokenizer
    assert model.config is pipe.model.config
    assert model.can_generate()
    inputs = tokenizer("what the", return_tensors="pt").to(model.device)
    size = inputs["input_ids"].shape[1]
    torch.manual_seed(0)
    options = {"max_new_tokens": 60, "do_sample": True}
    unguarded = [tokenizer.decode(pipe.model.generate(**inputs, **options)[0, size:]) for _ in range(5)]
    assert not all(guard.clean(text) for text in unguarded)
    for _ in range(5):
        ids = model.generate(inputs["input_ids"], **options)
        assert guard.clean(tokenizer.decode(ids[0, size:], skip_special_tokens=True))
    ids = model.generate(**inputs, generation_config=copy.deepcopy(pipe.model.generation_config), **options)
    assert guard.clean(tokenizer.decode(ids[0, size:], skip_special_tokens=True))


def test_generators_of_prompts_are_guarded(guarded: Any, guard: Any) -> None:
    answers = guarded((prompt for prompt in ["what the", "f"]), max_new_tokens=40, return_full_text=False)
    assert [guard.clean(answer[0]["generated_text"]) for answer in answers] == [True, True]


def test_copies_and_other_guards(pipe: Any, guarded: Any, guard: Any) -> None:
    for other in (copy.copy(guarded), guarded.with_guard(guard)):
        text = other("what the", max_new_tokens=40, return_full_text=False)[0]["generated_text"]
        assert guard.clean(text)
    assert "TextGenerationPipeline" in repr(guarded)
    assert "tokenizer" in dir(guarded)
    with pytest.raises(UnsupportedError, match="already"):
        wrap(guard, guarded)


def test_streamers_work_through_the_pipeline(guarded: Any, guard: Any) -> None:
    streamer = TextIteratorStreamer(guarded.tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=10)
    output = guarded("what the", max_new_tokens=30, streamer=streamer, return_full_text=False)
    assert "".join(streamer) == output[0]["generated_text"]


def test_other_tasks_and_texts_rewritten_otherwise_are_refused(guarded: Any, guard: Any) -> None:
    with pytest.raises(UnsupportedError, match="is no pipeline; give a pipeline"):
        wrap(guard, object())
    with pytest.raises(UnsupportedError, match="the task 'summarization' are not supported"):
        wrap(guard, SimpleNamespace(task="summarization"))
    with pytest.raises(UnsupportedError, match="clean_up"):
        guarded("what", clean_up_tokenization_spaces=True)
    cleaning = copy.copy(guarded.tokenizer)
    cleaning.clean_up_tokenization_spaces = True
    pipe = pipeline("text-generation", model=unwrap(guarded).model, tokenizer=cleaning)
    with pytest.raises(UnsupportedError, match="clean_up"):
        wrap(guard, pipe)("what", clean_up_tokenization_spaces=False)
    with pytest.raises(UnsupportedError, match="forced_eos"):
        guarded("what", forced_eos_token_id=2)
