"""What is wrong with an entry that a user gives, beyond the types of its fields: found before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nco_guard.replies.formats import REASONING_FIELDS, ReplyFormat

__all__ = ["template_fault", "written_fault"]

_PROBE = ("probe_tool", {"key": "probed"})
_TOOL = {"name": _PROBE[0], "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}
_THOUGHT = "probed"
_TOLD = ("content", "tool_calls", *REASONING_FIELDS)
_PATTERNS = ("open_pattern", "close_pattern")
# What looks at what stands before; and signs that stand for themselves.
_BEFORE = re.compile(r"\(\?<[=!]|\\[bBmMGK]|(?<!\[)\^")
_LITERAL = re.compile(r"\\[^\w]")
_CONTENT_ARGS = {
    "allow_non_json",
    "kv_sep",
    "line_sep",
    "merge_duplicates",
    "string_delims",
    "strip",
    "tag_pattern",
    "unquoted_keys",
    "value_parser",
}
_FAULTS = (ValueError, TypeError, LookupError, AttributeError, RecursionError)


def template_fault(form: ReplyFormat) -> str | None:
    """What transformers, or this library, cannot read by an entry's template; None if there is nothing."""
    from transformers.utils.chat_parsing import ResponseParser

    template = form.response_template
    if (fault := _pattern_fault("response_template", template, ("start_anchor_pattern",))) is not None:
        return fault
    for name, field in template["fields"].items():
        where = f"response_template.fields.{name}"
        if not isinstance(name, str) or not isinstance(field, Mapping):
            return f"{where}: a field has a name, and is an object"
        if (fault := _pattern_fault(where, field, _PATTERNS) or _arguments_fault(where, field)) is not None:
            return fault
    try:
        ResponseParser(template, prefix="")
    except _FAULTS as error:
        return f"response_template: {error}"
    for name, field in template["fields"].items():
        if name not in _TOLD and "open" not in field and "open_pattern" not in field:
            return (
                f"response_template.fields.{name}: it has no beginning, so all text outside of marks would stand in it "
                "and be shown to nobody; call it content"
            )
    return None


def _pattern_fault(where: str, holder: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    from regex import DOTALL, compile, error

    for name in names:
        if name not in holder:
            continue
        if not isinstance(holder[name], str):
            return f"{where}.{name}: a pattern in a string is needed, not {type(holder[name]).__name__}"
        try:
            pattern = compile(holder[name], DOTALL)
        except error as problem:
            return f"{where}.{name}: it is no pattern: {problem}"
        if pattern.match("") is not None:
            return f"{where}.{name}: it matches where there is nothing, so everywhere; let it match a mark"
    return None


def _arguments_fault(where: str, field: Mapping[str, Any]) -> str | None:
    from regex import compile, error

    given = field.get("content_args", {})
    if not isinstance(given, Mapping):
        return f"{where}.content_args: an object is needed, not {type(given).__name__}"
    if unknown := sorted(map(str, {*given} - _CONTENT_ARGS)):
        return f"{where}.content_args: {unknown[0]} is none of {', '.join(sorted(_CONTENT_ARGS))}"
    marks = given.get("string_delims", [])
    if not isinstance(marks, list | tuple) or not all(
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(isinstance(mark, str) and mark for mark in pair)
        for pair in marks
    ):
        return f"{where}.content_args.string_delims: a list of pairs of marks is needed"
    if field.get("content") == "xml-inline":
        try:
            groups = compile(given["tag_pattern"]).groupindex
        except KeyError:
            return f"{where}.content_args.tag_pattern: it is needed, with the groups key and value"
        except (error, TypeError) as problem:
            return f"{where}.content_args.tag_pattern: it is no pattern: {problem}"
        if not {"key", "value"} <= {*groups}:
            return f"{where}.content_args.tag_pattern: it needs the groups key and value"
    return None


def written_fault(form: ReplyFormat) -> str | None:
    """What an entry writes and does not read again; None if there is nothing, or it depends on the prompt."""
    from nco_guard.replies.parser import REASONING, Regions, calls_in
    from nco_guard.replies.writing import written_calls

    fields = form.response_template["fields"].values()
    opening = [_LITERAL.sub("_", str(field.get("open_pattern", ""))) for field in fields]
    if any(map(_BEFORE.search, opening)):
        return None
    try:
        if form.reasoning is not None:
            text = form.reasoning.open + _THOUGHT + form.reasoning.close
            pieces = [*(regions := Regions(form)).feed(text), *regions.finish()]
            thought = "".join(one.text for one in pieces if one.region == REASONING and one.kind == "text")
            if thought.strip() != _THOUGHT:
                return "reasoning: what it writes is not read as reasoning by response_template.fields; let both agree"
        if form.call is not None and calls_in(form, written_calls(form, [_PROBE]), [_TOOL]) != [_PROBE]:
            return (
                "call: a call that is written by it is not read by response_template.fields.tool_calls, its content "
                "and transform; let both agree"
            )
    except _FAULTS as error:
        return f"response_template.fields.tool_calls: {type(error).__name__}: {error}"
    return None
