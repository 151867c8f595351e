"""Guarded pipelines behave like pipelines."""

import copy
from typing import Any

import pytest
import torch
from transformers import TextIteratorStreamer, pipeline

from nco_guard.engines.hf import GuardedPipeline, wrap
from nco_guard.errors import UnsupportedError


@pytest.fixture
def pipe(byte_level: Any, model_of: Any) -> Any:
    torch.manual_seed(0)
    return pipeline("text-generation", model=model_of(byte_level), tokenizer=byte_level, device="cpu")


@pytest.fixture
def guarded(pipe: Any, guard: Any) -> GuardedPipeline:
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
    assert guarded.model is pipe.model
    torch.manual_seed(0)
    texts = [
        pipe("what the", max_new_tokens=60, return_full_text=False)[0]["generated_text"] for _ in range(5)
    ]
    assert not all(guard.clean(text) for text in texts)


def test_streamers_work_through_the_pipeline(guarded: Any, guard: Any) -> None:
    streamer = TextIteratorStreamer(guarded.tokenizer, skip_prompt=True, skip_special_tokens=True, timeout=10)
    output = guarded("what the", max_new_tokens=30, streamer=streamer, return_full_text=False)
    assert "".join(streamer) == output[0]["generated_text"]


def test_other_tasks_and_texts_rewritten_otherwise_are_refused(guarded: Any, guard: Any) -> None:
    with pytest.raises(UnsupportedError, match="task"):
        wrap(guard, object())
    with pytest.raises(UnsupportedError, match="clean_up"):
        guarded("what", clean_up_tokenization_spaces=True)
    cleaning = copy.copy(guarded.tokenizer)
    cleaning.clean_up_tokenization_spaces = True
    pipe = pipeline("text-generation", model=guarded.model, tokenizer=cleaning)
    with pytest.raises(UnsupportedError, match="clean_up"):
        wrap(guard, pipe)("what", clean_up_tokenization_spaces=False)
    with pytest.raises(UnsupportedError, match="forced_eos"):
        guarded("what", forced_eos_token_id=2)
