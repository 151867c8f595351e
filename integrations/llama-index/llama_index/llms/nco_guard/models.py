"""What an LLM is made of: the model, its tokenizer, its guards; what does not fit together is refused here."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from llama_index.core.llms.llm import LLM
from transformers import AutoModelForCausalLM, AutoTokenizer

from nco_guard import Guard, Policy
from nco_guard.audit import Sink
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.copies import Shared
from nco_guard.errors import TokenizerError, UnsupportedError

__all__ = ["Guards", "compiled_policy", "context_window_of", "guard_of", "load"]

_KEPT_GUARDS = 16


class Guards(Shared):
    """The guard of an LLM, and those of policies given with calls, the last few of them kept."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._others: OrderedDict[str, Guard] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Guards, (self._guard,)

    def of(self, policy: Policy | Guard | None) -> Guard:
        """The guard for a policy; None: the LLM's own. Raises `UnsupportedError` for anything else."""
        if policy is None:
            return self._guard
        if isinstance(policy, Guard):
            return policy
        if not isinstance(policy, Policy):
            raise _not_a_policy(policy)
        if policy.digest == self._guard.policy.digest:
            return self._guard
        with self._lock:
            guard = self._others.pop(policy.digest, None) or self._guard.with_policy(policy)
            self._others[policy.digest] = guard
            while len(self._others) > _KEPT_GUARDS:
                self._others.popitem(last=False)
        return guard


def guard_of(policy: Policy | Guard, audit: Sink | None) -> Guard:
    """A guard of a policy, or the guard itself, which brings its own audit sink."""
    if isinstance(policy, Guard):
        if audit is not None:
            raise UnsupportedError("audit: a Guard brings its own; give it Guard(policy, audit=...)")
        return policy
    if not isinstance(policy, Policy):
        raise _not_a_policy(policy)
    return Guard(policy, audit=audit)


def compiled_policy(policy: Policy | Guard) -> CompiledPolicy:
    """A policy, compiled once. Raises `UnsupportedError` for anything but a `Policy` or a `Guard`."""
    if isinstance(policy, Guard):
        return policy.verifier.compiled
    if not isinstance(policy, Policy):
        raise _not_a_policy(policy)
    return compile_policy(policy)


def _not_a_policy(given: object) -> UnsupportedError:
    """The error that says what to give as `policy=`."""
    return UnsupportedError(
        f"policy: a Policy or a Guard is needed, got {type(given).__name__}; see Policy.from_file and "
        f"Policy.from_presets"
    )


def load(
    model: Any,
    tokenizer: Any,
    model_kwargs: Mapping[str, Any] | None,
    tokenizer_kwargs: Mapping[str, Any] | None,
) -> tuple[Any, Any]:
    """Model and tokenizer, loaded where paths are given, refused where nothing can be guarded."""
    if not isinstance(model, str | os.PathLike):
        _refuse(model)
    if tokenizer is None and not isinstance(model, str | os.PathLike):
        raise TokenizerError("give the model's tokenizer too: NCOGuardLLM(model, tokenizer, policy=...)")
    for name, given, used in (
        ("model_kwargs", model_kwargs, isinstance(model, str | os.PathLike)),
        ("tokenizer_kwargs", tokenizer_kwargs, tokenizer is None or isinstance(tokenizer, str | os.PathLike)),
    ):
        if given and not used:
            raise UnsupportedError(f"{name}: they are for loading from a path, and an object is given")
    if tokenizer is None or isinstance(tokenizer, str | os.PathLike):
        tokenizer = AutoTokenizer.from_pretrained(tokenizer or model, **(tokenizer_kwargs or {}))
    if isinstance(model, str | os.PathLike):
        model = AutoModelForCausalLM.from_pretrained(model, **(model_kwargs or {}))
        _refuse(model)
    return model, tokenizer


def _refuse(model: Any) -> None:
    if isinstance(model, LLM):
        raise UnsupportedError(
            f"{type(model).__name__} is an LLM of LlamaIndex: use NCOGuardLLM.from_huggingface_llm for a "
            f"HuggingFaceLLM; others write their text elsewhere, where it can only be verified (VerifiedLLM)"
        )
    if not (
        hasattr(model, "generate") and hasattr(model, "get_output_embeddings") and hasattr(model, "config")
    ):
        raise UnsupportedError(f"{type(model).__name__} is no language model of transformers")
    if getattr(model.config, "is_encoder_decoder", False):
        raise UnsupportedError("encoder-decoder models are not supported here; use nco_guard.Guard.generate")
    if not model.can_generate():
        raise UnsupportedError(
            f"{type(model).__name__} does not generate text; load it by AutoModelForCausalLM"
        )


def context_window_of(model: Any, wanted: int | None) -> int:
    """Tokens of a prompt and its reply. Raises `UnsupportedError` for more than the model has positions."""
    if wanted is not None and (type(wanted) is not int or wanted < 1):
        raise UnsupportedError("context_window: a whole number of tokens from 1 on is needed")
    positions = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    if positions is None:
        return wanted or 4096
    if wanted is not None and wanted > positions:
        raise UnsupportedError(f"context_window: {wanted} is more than the model's {positions} positions")
    return int(wanted or positions)
