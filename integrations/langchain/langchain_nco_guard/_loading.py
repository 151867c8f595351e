"""What `HuggingFacePipeline.from_model_id` takes, in the words of the models here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_nco_guard._options import refuse_arguments
from nco_guard.engines.hf.weights import options_for
from nco_guard.errors import UnsupportedError

__all__ = ["CONSTRUCTION", "FIELD_OF", "fields_of_pipeline", "options_of_pipeline"]

# What `pipeline(...)` takes and its calls do not.
CONSTRUCTION = (
    "trust_remote_code",
    "torch_dtype",
    "dtype",
    "framework",
    "use_fast",
    "device",
    "device_map",
    "model_kwargs",
    "task",
    "config",
    "pipeline_class",
    "revision",
    "token",
)
# Options of generation that a field or a call says in LangChain's word.
FIELD_OF = {
    "do_sample": "temperature",
    "max_new_tokens": "max_tokens",
    "max_time": "timeout",
    "stop_strings": "stop",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
}


def options_of_pipeline(given: Any) -> dict[str, Any]:
    """`pipeline_kwargs` of `from_model_id` as a dictionary of their own: options of calls alone.

    Errors: `UnsupportedError` for what is no dictionary, and for options of loading and arguments of the guard, which
    says where they belong.
    """
    options = options_for("pipeline_kwargs", given)
    refuse_arguments([name for name in options if name not in FIELD_OF], "pipeline_kwargs")
    for name in options:
        if name in CONSTRUCTION:
            own = name in ("torch_dtype", "dtype", "device", "device_map", "model_kwargs", "task")
            mend = f"it is {name}=... of from_model_id" if own else "give it in model_kwargs, or leave it out"
            raise UnsupportedError(f"pipeline_kwargs[{name!r}]: {mend}")
        if name == "batch_size":
            raise UnsupportedError("pipeline_kwargs['batch_size']: it is batch_size=... of from_model_id")
    return options


def fields_of_pipeline(options: Mapping[str, Any], model: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a chat model for the options of a pipeline's calls; `given` are those that are said as fields.

    Errors: `UnsupportedError` for what is said twice.
    """
    rest = {name: one for name, one in options.items() if one is not None and name not in FIELD_OF}
    if rest.get("return_full_text") is False:
        del rest["return_full_text"]
    for name in ("return_full_text", "return_tensors", "return_text"):
        if name in rest:
            raise UnsupportedError(f"pipeline_kwargs[{name!r}]: a reply is a message here; leave it out")
    said = {name: options[name] for name in FIELD_OF if options.get(name) is not None}
    sampled = said.pop("do_sample", None)
    if sampled is False:
        said["temperature"] = 0
    elif sampled and "temperature" not in said:
        said["temperature"] = getattr(model.generation_config, "temperature", None) or 1.0
    fields = {FIELD_OF[name]: one for name, one in said.items()}
    for name in fields:
        if given.get(name) is not None:
            raise UnsupportedError(f"{name}: pipeline_kwargs says it too; give it once")
    return {**fields, "generation_kwargs": {**rest, **(given.get("generation_kwargs") or {})}}
