"""Local models: paths, names and objects, with options for loading; what cannot be guarded is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from nco_guard import demo
from nco_guard.engines.hf.loading import load_local, positions_of
from nco_guard.errors import TokenizerError, UnsupportedError
from nco_guard.testing import random_model, tiny_tokenizer


class Named(os.PathLike[str]):
    """A path that is no `pathlib.Path`."""

    def __fspath__(self) -> str:
        return str(demo.model_path())


def test_paths_of_every_kind_give_the_same_model() -> None:
    expected, own = demo.load()
    for given in (demo.model_path(), str(demo.model_path()), Named()):
        model, tokenizer = load_local(given)
        assert not model.training
        assert positions_of(model) == 1024
        assert tokenizer.get_vocab() == own.get_vocab()
        assert torch.equal(model.get_output_embeddings().weight, expected.get_output_embeddings().weight)


def test_options_reach_what_is_loaded_and_nothing_else() -> None:
    path, (model, tokenizer) = demo.model_path(), demo.load()
    half, padded = load_local(
        path, model_kwargs={"dtype": torch.bfloat16}, tokenizer_kwargs={"padding_side": "left"}
    )
    assert half.dtype == torch.bfloat16
    assert padded.padding_side == "left"
    assert load_local(model, path, tokenizer_kwargs={"padding_side": "left"})[0] is model
    assert load_local(path, tokenizer, model_kwargs={"dtype": torch.bfloat16})[1] is tokenizer
    with pytest.raises(UnsupportedError, match=r"model_kwargs: .* an object is given"):
        load_local(model, path, model_kwargs={"dtype": torch.bfloat16})
    with pytest.raises(UnsupportedError, match=r"tokenizer_kwargs: .* an object is given"):
        load_local(path, tokenizer, tokenizer_kwargs={"padding_side": "left"})


def test_what_cannot_be_guarded_is_refused(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer()
    model = random_model(tokenizer)
    assert load_local(model, tokenizer) == (model, tokenizer)
    silent = random_model(tokenizer)
    silent.can_generate = lambda: False
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    (tmp_path / "tokenizer_config.json").write_text("{}")
    refused: list[tuple[tuple[Any, ...], type[Exception], str]] = [
        ((model,), TokenizerError, "give the model's tokenizer"),
        ((object(),), UnsupportedError, "give a loaded transformers model"),
        ((tokenizer, model), UnsupportedError, "wrong order"),
        ((model, object()), UnsupportedError, "give a loaded transformers tokenizer"),
        ((random_model(tokenizer, seq2seq=True), tokenizer), UnsupportedError, "encoder-decoder"),
        ((silent, tokenizer), UnsupportedError, "does not generate text"),
        ((tmp_path,), UnsupportedError, "tokenizer: cannot be loaded from"),
        ((tmp_path, tokenizer), UnsupportedError, "model: cannot be loaded from"),
    ]
    for given, error, says in refused:
        with pytest.raises(error, match=says):
            load_local(*given)
