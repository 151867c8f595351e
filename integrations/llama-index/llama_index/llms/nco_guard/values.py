"""Structured data (metadata, parsed output): its parts searched and redacted as the text that they are shown as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from llama_index.core.bridge.pydantic import BaseModel
from llama_index.llms.nco_guard.models import not_a_policy

from nco_guard import Guard, Policy
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.redaction import Replacement, redact
from nco_guard.verify import verify

__all__ = ["compiled_policy", "redacted", "rules_in", "texts_in"]


def compiled_policy(policy: Policy | Guard) -> CompiledPolicy:
    """A policy, compiled once. Raises `UnsupportedError` for anything but a `Policy` or a `Guard`."""
    if isinstance(policy, Guard):
        return policy.compiled
    if not isinstance(policy, Policy):
        raise not_a_policy(policy)
    return compile_policy(policy)


def texts_in(value: Any) -> Iterator[str]:
    """All parts of a value as text, keys included: what somebody who prints it part by part reads."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, BaseModel):
        yield from texts_in(dict(value))
    elif is_dataclass(value) and not isinstance(value, type):
        yield from texts_in({field.name: getattr(value, field.name) for field in fields(value)})
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield str(key)
            yield from texts_in(part)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in value:
            yield from texts_in(part)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def rules_in(policy: CompiledPolicy, value: Any) -> tuple[str, ...]:
    """Ids of the hard rules that match in any part of a value, in the policy's order."""
    found = {hit.rule_id for text in texts_in(value) for hit in verify(policy, text).violations}
    return tuple(rule.id for rule in policy.rules if rule.id in found)


def redacted(policy: CompiledPolicy, value: Any, replacement: Replacement) -> Any:
    """The value with every part that matches a hard rule redacted; parts without a match stay the objects they are."""
    if isinstance(value, str):
        return redact(policy, value, replacement=replacement).text
    if isinstance(value, Mapping):
        return {
            redacted(policy, key, replacement): redacted(policy, part, replacement)
            for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(policy, part, replacement) for part in value]
    if not rules_in(policy, value):
        return value
    return redact(policy, str(value), replacement=replacement).text
