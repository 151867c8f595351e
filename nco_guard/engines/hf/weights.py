"""How a model's weights are loaded: onto which devices, as which numbers. Refused by name before a file is read."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from inspect import signature
from typing import Any, TypedDict

import torch
from transformers import BitsAndBytesConfig
from transformers.quantizers import AutoQuantizationConfig
from transformers.utils.quantization_config import QuantizationConfigMixin

from nco_guard.arguments import as_whole, meant, near
from nco_guard.errors import MissingExtraError, UnsupportedError

__all__ = ["WEIGHT_OPTIONS", "WeightOptions", "as_loaded", "first_line", "loading_options", "options_for"]

_STRATEGIES = ("auto", "balanced", "balanced_low_0", "sequential")
_DEVICES = "give 'cpu', the number of an accelerator, a name as 'cuda:0', or a torch.device"
# Options of a quantisation that transformers has no more beside the others.
_OF_QUANTISATION = ("load_in_4bit", "load_in_8bit")


class WeightOptions(TypedDict, total=False):
    """How weights are loaded; None counts as not given."""

    device: int | str | torch.device | None
    device_map: Any
    dtype: Any
    torch_dtype: Any
    quantization_config: Any


WEIGHT_OPTIONS = tuple(WeightOptions.__annotations__)


def loading_options(
    given: WeightOptions | Mapping[str, Any], model_kwargs: Any = None
) -> tuple[dict[str, Any], torch.device | None]:
    """Options of loading as keywords for `from_pretrained`, and the device that the loaded model is moved to, if any.

    given: options of `WeightOptions`. model_kwargs: anything else for `from_pretrained`; options of `given` may stand
    here too, but not in both.

    * `device`: -1 or "cpu", the number of an accelerator, "cuda:1", a `torch.device`. Without `device_map`.
    * `device_map`: "auto", "balanced", "balanced_low_0", "sequential", a device, or devices (and "disk") by module.
      Needs accelerate.
    * `dtype`, or `torch_dtype`, its old name: "auto", a floating type of torch, or its name.
    * `quantization_config`: an object of transformers (`BitsAndBytesConfig`, `GPTQConfig`, `AwqConfig`, ...), or its
      fields as a dictionary with "quant_method", or with "load_in_4bit" or "load_in_8bit".

    Errors: `UnsupportedError` that names the option, for a value that it cannot have and a device that is not there;
    `MissingExtraError` where accelerate or bitsandbytes is needed and not installed. Nothing is read.

    Examples:
        >>> loading_options({"torch_dtype": "bfloat16", "device": -1})
        ({'dtype': torch.bfloat16}, device(type='cpu'))
    """
    options = _joined(given, options_for("model_kwargs", model_kwargs))
    device, device_map = options.pop("device", None), options.get("device_map")
    if device is not None:
        if device_map is not None:
            raise UnsupportedError("device, device_map: each says where the weights go; give one of them")
        device = _device("device", device, -1)
    if device_map is not None:
        options["device_map"] = _device_map(device_map)
    if (dtype := options.get("dtype")) is not None:
        options["dtype"] = _dtype("dtype", dtype)
    if (quantization := options.get("quantization_config")) is not None:
        options["quantization_config"] = _quantization(quantization)
        if device is not None:  # packed weights are put where they stay
            options["device_map"], device = _device_map({"": device}), None
    return options, device


def options_for(name: str, given: Any) -> dict[str, Any]:
    """Keywords for `from_pretrained`, as a dictionary of their own; `UnsupportedError` for what is none."""
    if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
        raise UnsupportedError(
            f"{name}: a dictionary of options by name is needed, not {type(given).__name__}"
        )
    return dict(given or {})


def _joined(given: WeightOptions | Mapping[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    for name in _OF_QUANTISATION:
        if name in others:
            raise UnsupportedError(
                f"model_kwargs[{name!r}]: it is quantization_config={{{name!r}: True}}, which takes the further fields"
            )
    options: dict[str, Any] = {}
    for place, source in (("model_kwargs", others), ("", given)):
        for name, value in source.items():
            if value is None:
                continue
            known = "dtype" if name == "torch_dtype" else name
            if known in options:
                where = f", and {place}" if place else ", here and in model_kwargs or by another name"
                raise UnsupportedError(f"{name}: it is given twice{where}; give it once")
            options[known] = value
    return options


def _device(name: str, value: Any, least: int = 0, wanted: str = _DEVICES) -> torch.device:
    """A device of this machine; numbers from `least` on."""
    number = as_whole(value)
    if number is not None:
        if number < least:
            raise UnsupportedError(f"{name}: {number} is no device; {wanted}")
        kind = _accelerator()
        value = "cpu" if number < 0 else f"{kind or 'cuda'}:{number}"
    if not isinstance(value, str | torch.device):
        raise UnsupportedError(f"{name}: {type(value).__name__} is no device; {wanted}")
    try:
        found = torch.device(value)
    except RuntimeError:
        raise UnsupportedError(f"{name}: {value!r} is no device; {wanted}") from None
    wrapped = (
        isinstance(value, str) and ":" in value and str(found) != value
    )  # torch takes cuda:256 for cuda:0
    if wrapped or (
        found.type != "cpu" and (found.type != _accelerator() or (found.index or 0) >= _accelerators())
    ):
        there = ", ".join(["'cpu'", *(f"'{_accelerator()}:{i}'" for i in range(_accelerators()))])
        raise UnsupportedError(f"{name}: there is no device '{value}' on this machine; it has {there}")
    return found


def _accelerator() -> str | None:
    """What kind of accelerator torch finds here."""
    if hasattr(torch, "accelerator"):  # from 2.6 on
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return None if found is None else str(found.type)
    return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else None


def _accelerators() -> int:
    if hasattr(torch, "accelerator"):
        return torch.accelerator.device_count()
    return torch.cuda.device_count() or int(torch.backends.mps.is_available())


def _device_map(value: Any) -> Any:
    if isinstance(value, Mapping):
        if not value or not all(isinstance(key, str) for key in value):
            raise UnsupportedError("device_map: names of modules with the device of each are needed")
        for module, device in value.items():
            if device != "disk":
                _device(f"device_map[{module!r}]", device)
        value = dict(value)
    elif not (isinstance(value, str) and value in _STRATEGIES):
        strategies = f"give one of {', '.join(map(repr, _STRATEGIES))}, or {_DEVICES[5:]}"
        if isinstance(value, str) and (name := near(value, _STRATEGIES)):
            raise UnsupportedError(f"device_map: {value!r} is no strategy{meant(name)}")
        _device("device_map", value, wanted=strategies)
    _needs("accelerate", "device_map")
    return value


def _dtype(name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {part: _dtype(f"{name}[{part!r}]", one) for part, one in value.items()}
    if isinstance(value, str) and value == "auto":
        return value
    found = getattr(torch, value.removeprefix("torch."), None) if isinstance(value, str) else value
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        said = repr(value) if isinstance(value, str | torch.dtype) else type(value).__name__
        raise UnsupportedError(
            f"{name}: {said} is none that weights can have; give 'auto', or a floating type of torch as "
            "torch.bfloat16 or 'bfloat16'"
        )
    return found


def _quantization(given: Any) -> QuantizationConfigMixin:
    name, found = "quantization_config", given
    if isinstance(given, Mapping):
        _refuse_unread(given)
        try:
            found = AutoQuantizationConfig.from_dict(dict(given))
        except Exception as error:  # a constructor's own, of a dozen packages
            raise UnsupportedError(f"{name}: {first_line(error)}") from error
    if not isinstance(found, QuantizationConfigMixin):
        raise UnsupportedError(
            f"{name}: {type(given).__name__} is none; give an object of transformers, as "
            "BitsAndBytesConfig(load_in_4bit=True), or its fields as a dictionary"
        )
    if isinstance(found, BitsAndBytesConfig):
        if not (found.load_in_4bit or found.load_in_8bit):
            raise UnsupportedError(f"{name}: neither load_in_4bit nor load_in_8bit is set; set one of them")
        _needs("accelerate", f"{name} of bitsandbytes", "bitsandbytes")
        _needs("bitsandbytes", f"{name} of bitsandbytes")
    return found


def _refuse_unread(given: Mapping[str, Any]) -> None:
    """`BitsAndBytesConfig` drops names that it does not know; other methods have fields that only checkpoints hold."""
    ours = given.get("quant_method") in (None, "bitsandbytes")
    known = [*signature(BitsAndBytesConfig).parameters, "quant_method"]
    # Written down with a configuration, beside what its constructor takes.
    known += [key for key in BitsAndBytesConfig().to_dict() if key not in known]
    for key in given:
        if ours and key not in known:
            name = near(str(key), known)
            raise UnsupportedError(
                f"quantization_config[{key!r}]: no field of BitsAndBytesConfig{meant(name, '; leave it out')}; "
                "other methods say theirs as 'quant_method'"
            )


def _needs(package: str, what: str, extra: str | None = None) -> None:
    if find_spec(package) is None:
        raise MissingExtraError(what, extra or package)


def first_line(error: Exception) -> str:
    """What a library says is wrong, without the rest of its page."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def as_loaded(model: Any) -> dict[str, Any]:
    """What of a model's loading changes its answers: the type of its weights, and how they are quantised.

    For keys of caches: the same checkpoint answers otherwise in four bits.
    """
    found = getattr(getattr(model, "config", None), "quantization_config", None)
    fields = dict(found or {}) if isinstance(found, Mapping | None) else found.to_dict()
    said = {"dtype": str(getattr(model, "dtype", None))}
    return said if not fields else {**said, "quantization": repr(sorted(fields.items(), key=repr))}
