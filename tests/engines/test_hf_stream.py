"""Guarded streams with real models: pieces that are never taken back, errors that arrive."""

import threading
from typing import Any

import pytest
import torch
from transformers import (
    LogitsProcessor,
    TextIteratorStreamer,
    TextStreamer,
)
from transformers.generation.streamers import BaseStreamer

from nco_guard.engines.hf import GenerationResult, TextStream, generate, stream
from nco_guard.errors import UnsupportedError


def test_streamed_pieces_are_the_text(tokenizer: Any, model_of: Any, guard: Any) -> None:
    options = {"max_new_tokens": 30}
    expected = generate(guard, model_of(tokenizer), tokenizer, "what the", **options).texts[0]
    pieces = list(stream(guard, model_of(tokenizer), tokenizer, "what the", **options))
    assert "".join(pieces) == expected
    assert len(pieces) > 5
    seen: list[str] = []
    vocabulary = guard.bind(tokenizer, eos_token_ids=[tokenizer.eos_token_id]).vocabulary
    generate(
        guard,
        model_of(tokenizer),
        tokenizer,
        "what the",
        streamer=TextStream(vocabulary, seen.append),
        **options,
    )
    assert "".join(seen) == expected


def test_what_was_shown_is_never_taken_back_and_the_result_is_that_of_generate(
    byte_level: Any, model_of: Any, guard: Any
) -> None:
    for seed in range(3):
        options: dict[str, Any] = {"max_new_tokens": 60, "do_sample": True, "stop_strings": [" ass", "pass"]}
        torch.manual_seed(seed)
        expected = generate(guard, model_of(byte_level), byte_level, "what the", **options)
        torch.manual_seed(seed)
        results: list[GenerationResult] = []
        pieces = stream(
            guard, model_of(byte_level), byte_level, "what the", on_result=results.append, **options
        )
        shown = ""
        for piece in pieces:
            shown += piece
            assert guard.clean(shown)
        assert shown == expected.texts[0]
        (result,) = results
        assert (result.token_ids, result.outcomes) == (expected.token_ids, expected.outcomes)


class Held(LogitsProcessor):  # type: ignore[misc]
    """Counts steps, and waits at one until it is let go."""

    def __init__(self, step: int) -> None:
        self.steps, self._step, self.go = 0, step, threading.Event()

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        self.steps += 1
        if self.steps == self._step:
            self.go.wait(60)
        return scores


def test_closing_a_stream_stops_the_generation(byte_level: Any, model_of: Any, guard: Any) -> None:
    before, held = set(threading.enumerate()), Held(200)
    options: dict[str, Any] = {"max_new_tokens": 1900, "logits_processor": [held]}
    pieces = stream(guard, model_of(byte_level), byte_level, "what the", **options)
    assert next(pieces)
    held.go.set()
    pieces.close()
    assert 0 < held.steps < 1900
    assert set(threading.enumerate()) <= before


def test_errors_reach_the_reader_of_a_stream(byte_level: Any, model_of: Any, guard: Any) -> None:
    with pytest.raises(UnsupportedError, match="forced_eos"):
        list(stream(guard, model_of(byte_level), byte_level, "what the", forced_eos_token_id=2))
    with pytest.raises(UnsupportedError, match="one prompt"):
        list(stream(guard, model_of(byte_level), byte_level, ["what", "the"]))


def test_streamers_of_transformers(byte_level: Any, model_of: Any, guard: Any) -> None:
    model = model_of(byte_level)
    streamer = TextIteratorStreamer(byte_level, skip_prompt=True, skip_special_tokens=True, timeout=10)
    result = generate(guard, model, byte_level, "what the", max_new_tokens=30, streamer=streamer)
    assert "".join(streamer) == result.texts[0]
    with pytest.raises(UnsupportedError, match="skip_special_tokens=True"):
        generate(guard, model, byte_level, "what the", streamer=TextStreamer(byte_level))
    with pytest.raises(UnsupportedError, match="one sequence"):
        generate(guard, model, byte_level, ["what the", "f"], streamer=streamer)


def test_line_by_line_streamers_are_refused_where_first_spaces_vanish(
    tokenizer: Any, model_of: Any, guard: Any
) -> None:
    streamer = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True)
    if not guard.bind(tokenizer).vocabulary.strips_first_space:
        return
    with pytest.raises(UnsupportedError, match="first space"):
        generate(guard, model_of(tokenizer), tokenizer, "what the", streamer=streamer)


def test_streamers_are_told_the_end_when_generation_fails(byte_level: Any, model_of: Any, guard: Any) -> None:
    class Recorder(BaseStreamer):
        ended = 0

        def put(self, value: torch.Tensor) -> None:
            pass

        def end(self) -> None:
            self.ended += 1

    class Broken(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            raise KeyError("mine")

    recorder = Recorder()
    with pytest.raises(KeyError):
        generate(
            guard, model_of(byte_level), byte_level, "what", streamer=recorder, logits_processor=[Broken()]
        )
    assert recorder.ended == 1


@pytest.mark.parametrize("name", ["guards", "streamer", "num_beams"])
def test_none_counts_as_not_given(byte_level: Any, model_of: Any, guard: Any, name: str) -> None:
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False}
    plain = "".join(stream(guard, model_of(byte_level), byte_level, "what the", **options))
    assert (
        "".join(stream(guard, model_of(byte_level), byte_level, "what the", **options, **{name: None}))
        == plain
    )
