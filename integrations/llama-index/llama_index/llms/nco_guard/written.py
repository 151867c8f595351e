"""How a model was loaded, as it is written down with an LLM, and as it is loaded again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from pydantic import JsonValue, TypeAdapter, ValidationError
from transformers.utils.quantization_config import QuantizationConfigMixin

from nco_guard.engines.hf.weights import WEIGHT_OPTIONS
from nco_guard.errors import UnsupportedError

__all__ = ["NOT_WRITTEN", "loading_of", "written_loading"]

#: Where `to_dict` names the options that it does not write down.
NOT_WRITTEN = "not_written"

_KWARGS = ("model_kwargs", "tokenizer_kwargs")
# They hold what logs in somewhere.
_CREDENTIALS = ("token", "use_auth_token", "proxies")
_ABSENT = object()
_JSON: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def written_loading(
    model: Any,
    tokenizer: Any,
    model_name: str,
    weights: Mapping[str, Any],
    **further: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Paths and options of loading as JSON has them; empty where a model object is given, which comes without.

    weights: of `WeightOptions`. further: `model_kwargs` and `tokenizer_kwargs`. Credentials, and objects that JSON does
    not hold, are not written; their names are.
    """
    if not isinstance(model, str | os.PathLike):
        return {}
    written: dict[str, Any] = {}
    missing: list[str] = []
    if (path := os.fspath(model)) != model_name:
        written["model"] = path
    if isinstance(tokenizer, str | os.PathLike):
        written["tokenizer"] = os.fspath(tokenizer)
    for name, value in weights.items():
        plain = _plain(value)
        if plain is _ABSENT:
            missing.append(name)
        elif plain is not None:
            written["dtype" if name == "torch_dtype" else name] = plain
    for name, options in further.items():
        known = {key: _credential(key, value) for key, value in dict(options or {}).items()}
        missing += [f"{name}[{key!r}]" for key, value in known.items() if value is _ABSENT]
        if kept := {key: value for key, value in known.items() if value is not _ABSENT}:
            written[name] = kept
    return {**written, NOT_WRITTEN: missing} if missing else written


def _credential(key: str, value: Any) -> Any:
    secret = key in _CREDENTIALS and value is not None and not isinstance(value, bool)
    return _ABSENT if secret else _plain(value)


def _plain(value: Any) -> Any:
    """A value as JSON gives it back, or `_ABSENT`."""
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, torch.device):
        return str(value)
    if isinstance(value, QuantizationConfigMixin):
        value = value.to_dict()
    elif isinstance(value, Mapping):
        value = {key: _plain(part) for key, part in value.items()}
        if any(part is _ABSENT for part in value.values()):
            return _ABSENT
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    try:
        return _JSON.validate_python(value)
    except ValidationError:
        return _ABSENT


def loading_of(settings: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without what is not loaded again.

    settings: what was written down, and what is given on top. data: what was written down; its `model_kwargs` and
    `tokenizer_kwargs` count beside those that are given. Of a model object that is given, nothing is loaded.

    Errors: `UnsupportedError` that names an option which was not written down and is not given either.
    """
    loading = {name: value for name, value in settings.items() if name != NOT_WRITTEN}
    if not isinstance(loading.get("model") or loading["model_name"], str | os.PathLike):
        return {name: value for name, value in loading.items() if name not in (*WEIGHT_OPTIONS, *_KWARGS)}
    for name in data.get(NOT_WRITTEN, ()):
        option, _, key = name.partition("[")
        found = loading.get(option)
        if found is None or (key and key[1:-2] not in found):
            raise UnsupportedError(
                f"{name}: it is not written down with an LLM; give it as from_dict(data, {option}=...), or the "
                f"loaded model as model= and tokenizer="
            )
    for name in _KWARGS:
        if isinstance(data.get(name), Mapping) and isinstance(loading[name], Mapping):
            loading[name] = {**data[name], **loading[name]}
    return loading
