"""A model on this machine and its tokenizer: loaded where paths are given; refused where it cannot be guarded."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, Unpack

from transformers import AutoModelForCausalLM, AutoTokenizer

from nco_guard.engines.hf.inputs import check_loaded, check_model
from nco_guard.engines.hf.kinds import count
from nco_guard.engines.hf.weights import WeightOptions, first_line, loading_options, options_for
from nco_guard.errors import TokenizerError, UnsupportedError

__all__ = ["load_local", "load_model_id", "positions_of", "shared_options"]

_PATH = (str, os.PathLike)
# What `from_pretrained` of a tokenizer needs as well to find the same files.
_OF_BOTH = ("cache_dir", "force_download", "local_files_only", "revision", "token", "trust_remote_code")


def load_local(
    model: Any,
    tokenizer: Any = None,
    *,
    model_kwargs: Mapping[str, Any] | None = None,
    tokenizer_kwargs: Mapping[str, Any] | None = None,
    **weights: Unpack[WeightOptions],
) -> tuple[Any, Any]:
    """A causal language model and its tokenizer, each as an object, a path, or a name for `from_pretrained`.

    weights: `device`, `device_map`, `dtype` (`torch_dtype`), `quantization_config`, as `loading_options` has them.
    model_kwargs, tokenizer_kwargs: for `from_pretrained`. All of these only for what is loaded. A model's path is the
    tokenizer's too, where none is given.

    Errors: `UnsupportedError` for what cannot be loaded, is no model, is an encoder-decoder model or does not generate,
    and for options that cannot be meant, before anything is loaded; `MissingExtraError` where one needs a package;
    `TokenizerError` for a model object without its tokenizer.

    Examples:
        >>> from nco_guard import demo
        >>> model, tokenizer = load_local(demo.model_path(), dtype="float32")
        >>> model.dtype, positions_of(model)
        (torch.float32, 1024)
    """
    if tokenizer is None and not isinstance(model, _PATH):
        check_model(model)
        raise TokenizerError("tokenizer: a model object comes without one; give the model's tokenizer")
    source = model if tokenizer is None else tokenizer
    for name, given, loaded in (
        ("model_kwargs", model_kwargs, model),
        ("tokenizer_kwargs", tokenizer_kwargs, source),
        *((name, option is not None, model) for name, option in weights.items()),
    ):
        if given and not isinstance(loaded, _PATH):
            raise UnsupportedError(f"{name}: for loading from a path, and an object is given")
    options, device = loading_options(weights, model_kwargs)
    of_tokenizer = options_for("tokenizer_kwargs", tokenizer_kwargs)
    if isinstance(source, _PATH):
        tokenizer = _loaded("tokenizer", AutoTokenizer.from_pretrained, source, of_tokenizer)
    if isinstance(model, _PATH):
        model = _loaded("model", AutoModelForCausalLM.from_pretrained, model, options)
        if device is not None:
            model = _moved(model, device)
    check_loaded(model, tokenizer)
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedError(
            "model: an encoder-decoder model has no chat template and does not go on with a prompt; use guard.generate"
        )
    if not model.can_generate():
        raise UnsupportedError(
            f"model: {type(model).__name__} does not generate text; load it by AutoModelForCausalLM"
        )
    return model, tokenizer


def load_model_id(
    model_id: Any,
    task: str,
    backend: str,
    *,
    batch_size: Any,
    model_kwargs: Mapping[str, Any] | None = None,
    **weights: Unpack[WeightOptions],
) -> tuple[Any, Any]:
    """A model and its tokenizer by what LangChain's `HuggingFacePipeline.from_model_id` takes, as `load_local` loads.

    The tokenizer gets those of `model_kwargs` that say where the files are, and a pad token where it has none: the
    model's, or that of the end.

    Errors: as `load_local`; `UnsupportedError` for another task or backend, and for a `batch_size` below 1.
    """
    if task != "text-generation":
        raise UnsupportedError(f"task {task!r} is not supported; use 'text-generation'")
    if backend != "default":
        raise UnsupportedError(
            f"backend: {backend!r} is not guarded; leave it out, which is a model of transformers on torch"
        )
    if not isinstance(model_id, _PATH):
        raise UnsupportedError(f"model_id: a path or a name is needed, not {type(model_id).__name__}")
    count("batch_size", batch_size)
    shared = shared_options(model_kwargs)
    model, tokenizer = load_local(model_id, model_kwargs=model_kwargs, tokenizer_kwargs=shared, **weights)
    if tokenizer.pad_token_id is None:
        ends = (model.config.pad_token_id, model.config.eos_token_id, tokenizer.eos_token_id)
        tokenizer.pad_token_id = next((each for each in ends if isinstance(each, int)), None)
    return model, tokenizer


def shared_options(model_kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Those of a model's options by which its tokenizer is found as well."""
    given = options_for("model_kwargs", model_kwargs)
    return {name: value for name, value in given.items() if name in _OF_BOTH}


def _loaded(name: str, load: Callable[..., Any], source: Any, options: Mapping[str, Any]) -> Any:
    path = os.fspath(source)  # transformers takes an os.PathLike of another class for a name
    try:
        return load(path, **options)
    except Exception as error:  # the tokenizers package raises plain Exception for a broken file
        raise UnsupportedError(f"{name}: cannot be loaded from {path!r}: {first_line(error)}") from error


def _moved(model: Any, device: Any) -> Any:
    try:
        return model.to(device)
    except (RuntimeError, ValueError) as error:  # packed weights, too little memory
        raise UnsupportedError(
            f"device: the loaded model cannot be moved there: {first_line(error)}"
        ) from error


def positions_of(model: Any) -> int | None:
    """How many tokens a prompt and its reply may have together; None where the model's configuration does not say."""
    config = model.config.get_text_config()
    found = getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)
    return found if isinstance(found, int) else None
