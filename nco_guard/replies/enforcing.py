"""Calls of tools enforced as a family writes them: the shape of a reply behind a prompt, and how that goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nco_guard.errors import UnsupportedError
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.parser import REASONING, region_at_end
from nco_guard.replies.writing import begun_call, begun_name, closed_reasoning, function_of
from nco_guard.shapes import Shape
from nco_guard.shapes.tools import calls_refusal

__all__ = ["calls_shape", "opening_of_calls", "required_calls"]


# What the schema of a function without arguments says beside them.
_OF_NO_ARGUMENTS = {"type", "properties", "required", "title", "description"}


def calls_shape(
    form: ReplyFormat,
    tools: Sequence[Mapping[str, Any]],
    *,
    choice: str | None = None,
    parallel: bool = True,
    prompt: str = "",
) -> Shape:
    """The shape of a reply to a prompt: free text or calls of these tools, as `Shape.tools` has it.

    choice: None or "auto" as the model likes, "any" or "required" for calls, or a tool's name. prompt: what the reply
    follows, special tokens as their text. What its template has begun there is not said again; where it ends within
    reasoning, the reply goes on with it, as far as it likes, before it calls.

    Guarantee: what is of the shape is read by `ReplyReader` as text and calls of these tools, each valid by its schema.
    Errors: as `Shape.tools`; `UnsupportedError` for a format of one's own whose calls cannot be enforced.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> calls_shape(shipped_formats()["hermes"], [{"name": "find"}], choice="any").kind
        'tools'
    """
    if (reason := calls_refusal(form)) is not None:
        raise UnsupportedError(f"tools: {reason}; leave the choice among them out, and `strict`")
    marks, begun = form.call, ""
    if marks is not None:
        before = marks.before
        begun = next(
            (before[:size] for size in range(len(before), 0, -1) if prompt.endswith(before[:size])), ""
        )
    reasoning = bool(prompt) and form.reasons and region_at_end(form, prompt) == REASONING
    return Shape.tools(
        tools,
        form,
        choice={None: "auto", "any": "required"}.get(choice, choice or "auto"),
        parallel=parallel,
        begun="" if reasoning else begun,
        reasoning=reasoning,
    )


def required_calls(
    form: ReplyFormat,
    prompt: str,
    tools: Sequence[Mapping[str, Any]],
    choice: str,
    *,
    parallel: bool = True,
) -> tuple[str, Shape]:
    """How a model is made to call a tool: what the prompt goes on with, and the shape of the reply behind that.

    choice: a tool's name, else "any". The shape enforces names and arguments; the prompt goes on with how calls begin,
    as the model was taught to write it, for what a shape leads to token by token may be written in odd ones.

    Errors: as `calls_shape`.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> begun, shape = required_calls(shipped_formats()["gemma-4"], "", [{"name": "find"}], "any")
        >>> begun
        '<|tool_call>call:find'
    """
    shape = calls_shape(form, tools, choice=choice, parallel=parallel, prompt=prompt)
    begun = opening_of_calls(form, tools, choice, prompt)
    return begun, shape.behind(begun)


def opening_of_calls(
    form: ReplyFormat, tools: Sequence[Mapping[str, Any]], choice: str, prompt: str = ""
) -> str:
    """With what a prompt may go on so that the calls that are asked for begin as the model was taught to write them.

    choice: as of `calls_shape`, one by which calls are required. Of a named tool it is the beginning up to its first
    argument, where that is required, or with all of them, where there are none; of several up to the name. Nothing
    where the prompt ends within reasoning.
    """
    if closed_reasoning(form, prompt):
        return ""
    functions = {str(function_of(tool)["name"]): function_of(tool) for tool in tools}
    if choice not in functions and len(functions) > 1:
        return begun_name(form, "", prompt)
    name, function = choice if choice in functions else next(iter(functions)), functions.get(choice)
    parameters = (function or next(iter(functions.values()))).get("parameters") or {}
    properties, required = parameters.get("properties") or {}, parameters.get("required") or ()
    if "properties" in parameters and not properties and {*parameters} <= _OF_NO_ARGUMENTS:
        return begun_call(form, {"name": name}, prompt, whole=False)
    if next(iter(properties), None) not in required:
        return begun_name(form, name, prompt)
    described = {**parameters, "required": [next(iter(properties))]}
    return begun_call(form, {"name": name, "parameters": described}, prompt)
