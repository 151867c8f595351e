"""`verified_tool`: what a tool returns, verified before a model, an event stream or a user sees it."""

from __future__ import annotations

import copy
from typing import Any, Literal

from llama_index.core.tools.types import AsyncBaseTool, BaseTool, ToolOutput, adapt_to_async_tool
from llama_index.llms.nco_guard.cleaning import ResponseCleaner
from llama_index.llms.nco_guard.models import guard_of
from llama_index.llms.nco_guard.values import rules_in

from nco_guard import Guard, Policy
from nco_guard.audit import Sink
from nco_guard.redaction import REDACTED, Replacement, cleaned_error

__all__ = ["verified_tool"]


def verified_tool(
    tool: BaseTool,
    policy: Policy | Guard,
    *,
    action: Literal["raise", "redact"] = "redact",
    replacement: Replacement = REDACTED,
    audit: Sink | None = None,
) -> AsyncBaseTool:
    """The same tool, its results verified: agents show them in their event streams, and hosted models read them.

        agent = FunctionAgent(tools=[verified_tool(tool, policy) for tool in tools], llm=llm)

    Guarantee: no match of a hard rule in a result's text, blocks or raw output, nor in an error that the tool raises.
    A raw output that holds one gives way to the clean text. Arguments are passed on as they came: the LLM's are for
    `NCOGuardLLM` and `VerifiedLLM` to keep clean. `tool` itself is not changed.

    Args:
        action: "redact" replaces matches; "raise" raises `ViolationError`, which an agent tells its model as the
            tool's error.
        replacement: what stands where a match was, a text or a function from a rule's id to one.
        audit: receives a verification event for each text, never text.

    Errors: `PolicyError` at once for a replacement that is itself forbidden; at a call `RedactionError`, and
    `UnsupportedError` for images, sound, video and documents, which cannot be verified.
    """
    if action not in ("raise", "redact"):
        raise ValueError(f"action {action!r}: one of 'raise', 'redact'")
    guard = guard_of(policy, audit)
    guard.stream_verifier(replacement=replacement)  # a forbidden replacement is refused here
    cleaner = ResponseCleaner(guard, action, replacement, where="tool result")
    verified = copy.copy(adapt_to_async_tool(tool))
    call, acall = verified.call, verified.acall

    def clean_call(*args: Any, **kwargs: Any) -> ToolOutput:
        try:
            output = call(*args, **kwargs)
        except Exception as error:
            if (clean := _clean_error(error, cleaner)) is error:
                raise
        else:
            return _clean_output(output, cleaner)
        raise clean  # here, so that it does not carry the other one as its context

    async def clean_acall(*args: Any, **kwargs: Any) -> ToolOutput:
        try:
            output = await acall(*args, **kwargs)
        except Exception as error:
            if (clean := _clean_error(error, cleaner)) is error:
                raise
        else:
            return _clean_output(output, cleaner)
        raise clean

    # A copy and not a class of its own: agents look at what kind of tool they have.
    object.__setattr__(verified, "call", clean_call)
    object.__setattr__(verified, "acall", clean_acall)
    return verified


def _clean_output(output: ToolOutput, cleaner: ResponseCleaner) -> ToolOutput:
    blocks = cleaner.blocks(output.blocks)
    raw: Any = output.raw_output
    if rules_in(cleaner.guard.compiled, [raw, str(raw)]):
        raw = cleaner.text(str(raw))
    error = output.exception
    return ToolOutput(
        tool_name=output.tool_name,
        blocks=blocks,
        raw_input=output.raw_input,
        raw_output=raw,
        is_error=output.is_error,
        exception=None if error is None else _clean_error(error, cleaner),
    )


def _clean_error(error: Exception, cleaner: ResponseCleaner) -> Exception:
    """The error of a tool as it may be shown: agents tell it to the model."""
    return cleaned_error(error, cleaner.guard.compiled, cleaner.text, RuntimeError)
