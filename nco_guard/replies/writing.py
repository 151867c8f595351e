"""Replies in a family's format, written: whole ones for examples and tests, the beginning of a call to force one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nco_guard.errors import UnsupportedError
from nco_guard.replies.formats import ArgumentMarks, CallMarks, ReplyFormat
from nco_guard.replies.nested_tags import value_in_tags
from nco_guard.replies.parser import REASONING, region_at_end

__all__ = ["begun_answer", "begun_call", "begun_name", "function_of", "written_calls", "written_reply"]


def function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Name, description and parameters of a tool, as OpenAI's APIs have it or without what is around them."""
    function: Mapping[str, Any] = tool.get("function", tool)
    return function


def written_reply(
    form: ReplyFormat,
    content: str = "",
    *,
    reasoning: str = "",
    calls: Sequence[tuple[str, Mapping[str, Any]]] = (),
) -> str:
    """A reply as the family writes it: reasoning, text, then calls (name and arguments each).

    Errors: `UnsupportedError` for reasoning or calls in a format without.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> written_reply(shipped_formats()["hermes"], "Hi.", reasoning="A greeting.")
        '<think>\\nA greeting.\\n</think>\\n\\nHi.'
    """
    if reasoning and form.reasoning is None:
        raise UnsupportedError(f"reasoning: the format {form.name} has no marks for it")
    before = form.reasoning.open + reasoning + form.reasoning.close if reasoning and form.reasoning else ""
    text = form.answer + content if content else ""
    return before + text + (written_calls(form, calls) if calls else "")


def written_calls(form: ReplyFormat, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> str:
    """Calls as the family writes them. Errors: `UnsupportedError` for a format without calls, or with one at most."""
    marks = _marks(form)
    if len(calls) > 1 and not marks.several:
        raise UnsupportedError(f"calls: a reply in the format {form.name} holds one at most")
    written = [
        _named(marks, name, number) + _arguments(form, arguments) + _numbered(marks.close, number)
        for number, (name, arguments) in enumerate(calls)
    ]
    return marks.before + marks.between.join(written) + marks.after


def begun_name(form: ReplyFormat, name: str, prompt: str = "") -> str:
    """The beginning of a call behind a prompt, up to and with the tool's name. `prompt`, errors: as `begun_call`."""
    marks = _marks(form)
    return _behind(form, prompt, marks.before + _numbered(marks.open, 0) + _name(marks, name))


def begun_call(form: ReplyFormat, tool: Mapping[str, Any], prompt: str = "", *, whole: bool = True) -> str:
    """How a call of a tool begins: up to the value of the first argument that is required.

    Of a tool without arguments it is the whole call, or all but its end where it need not be `whole`. prompt: what it
    follows; where the template opened the reasoning there, it is closed first, and what it has begun itself is not said
    again. Errors: as `written_calls`.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> tool = {"name": "find", "parameters": {"properties": {"q": {"type": "string"}}}}
        >>> begun_call(shipped_formats()["hermes"], tool)
        '<tool_call>\\n{"name": "find", "arguments": {"q": "'
    """
    marks, function = _marks(form), function_of(tool)
    schema = function.get("parameters") or {}
    properties = schema.get("properties") or {}
    opening = marks.before + _named(marks, function["name"], 0)
    if not properties:
        end = _numbered(marks.close, 0) + marks.after if whole else ""
        return _behind(form, prompt, opening + _arguments(form, {}) + end)
    key = str(next(iter([*(schema.get("required") or ()), *properties])))
    described = properties.get(key)
    kind = described.get("type") if isinstance(described, Mapping) else None
    kind = "number" if kind == "integer" else kind if kind in [name for _, name in _TYPES] else None
    return _behind(form, prompt, opening + _begun_arguments(form, key, kind))


def _begun_arguments(form: ReplyFormat, key: str, kind: str | None) -> str:
    """Arguments up to the value of the first, of a JSON type; None where it may be anything."""
    marks, text = _marks(form).argument, kind == "string"
    quote = '"' if text else ""
    if marks is not None:
        return _tag(marks, key, kind)
    if form.arguments == "pythonic":
        return f"{key}={quote}"
    if (dialect := _dialect(form)) is not None:
        opening = (dialect.opening or '"') if text else ""
        return "{" + (key if dialect.bare_keys else json.dumps(key)) + ":" + opening
    return f"{{{json.dumps(key)}: {quote}"


def _behind(form: ReplyFormat, prompt: str, calls: str) -> str:
    """Calls as they go on after a prompt."""
    if closed := closed_reasoning(form, prompt):
        return closed + calls
    before = _marks(form).before
    return calls[next((size for size in range(len(before), 0, -1) if prompt.endswith(before[:size])), 0) :]


def begun_answer(form: ReplyFormat | None, prompt: str) -> str:
    """What a prompt has to go on with so that the model can only write text: reasoning closed, the text's mark.

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> begun_answer(shipped_formats()["hermes"], "<|im_start|>assistant\\n<think>\\n")
        '\\n</think>\\n\\n'
        >>> begun_answer(shipped_formats()["gpt-oss"], "<|start|>assistant")
        '<|channel|>final<|message|>'
    """
    if form is None:
        return ""
    return closed_reasoning(form, prompt) + ("" if prompt.endswith(form.answer) else form.answer)


def closed_reasoning(form: ReplyFormat, prompt: str) -> str:
    """What a call has to be preceded by after a prompt whose template opens the reasoning; else nothing."""
    if form.reasoning is None or not prompt or region_at_end(form, prompt) != REASONING:
        return ""
    return form.reasoning.close


def _marks(form: ReplyFormat) -> CallMarks:
    if form.call is None:
        raise UnsupportedError(
            f"the format {form.name} does not say how calls are written; give its entry a `call` to force one"
        )
    return form.call


def _numbered(text: str, number: int) -> str:
    return text.replace("{index}", str(number)).replace("{number}", str(number + 1))


def _named(marks: CallMarks, name: str, number: int) -> str:
    return _numbered(marks.open, number) + _name(marks, name) + _numbered(marks.after_name, number)


def _name(marks: CallMarks, name: str) -> str:
    return json.dumps(name)[1:-1] if marks.name_in_json else name


def _arguments(form: ReplyFormat, arguments: Mapping[str, Any]) -> str:
    marks = _marks(form).argument
    if marks is not None:
        return marks.between.join(
            _tag(marks, key, _type_of(value)) + _in_tags(value, marks) + marks.close.replace("{key}", key)
            for key, value in arguments.items()
            if value is not None or not marks.nested
        )
    if form.arguments == "pythonic":
        return _escaped(form, ", ".join(f"{key}={_in_python(value)}" for key, value in arguments.items()))
    if (dialect := _dialect(form)) is not None:
        return _in_dialect(arguments, dialect)
    return _escaped(form, json.dumps(dict(arguments), ensure_ascii=False))


_OF_TYPE = re.compile(r"\{(?:string|type)\}")


def _in_python(value: Any) -> str:
    """A value as it stands in a call in Python: strings between double quotes, lists and objects as JSON."""
    return repr(value) if value is None or isinstance(value, bool) else json.dumps(value, ensure_ascii=False)


# A bool is an int for Python, so it comes first.
_TYPES = (
    (str, "string"),
    (bool, "boolean"),
    (int | float, "number"),
    (list, "array"),
    (Mapping, "object"),
    (object, "null"),
)


class _Dialect(NamedTuple):
    """JSON with bare keys, or with marks of its own around strings, for which it has no escapes."""

    bare_keys: bool
    opening: str
    closing: str


def _dialect(form: ReplyFormat) -> _Dialect | None:
    options = form.response_template["fields"]["tool_calls"].get("content_args") or {}
    bare, marks = bool(options.get("unquoted_keys")), options.get("string_delims") or [("", "")]
    return _Dialect(bare, *marks[0]) if bare or marks[0][0] else None


def _in_dialect(value: Any, dialect: _Dialect) -> str:
    if isinstance(value, Mapping):
        pairs = (
            f"{key if dialect.bare_keys else json.dumps(key)}:{_in_dialect(one, dialect)}"
            for key, one in value.items()
        )
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_in_dialect(one, dialect) for one in value) + "]"
    if isinstance(value, str) and dialect.opening:
        return dialect.opening + value + dialect.closing
    return json.dumps(value, ensure_ascii=False)


_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_WRITTEN = re.compile(r"\\u[0-9a-fA-F]{4}|\\.|[^\\]", re.DOTALL)


def _escaped(form: ReplyFormat, written: str) -> str:
    """Arguments whose strings hold what would end the call: its first character escaped, as JSON and Python read it."""
    from regex import DOTALL, compile, escape

    field = form.response_template["fields"]["tool_calls"]
    literals = field.get("close", [])
    texts = [literals] if isinstance(literals, str) else literals
    if not (pattern := field.get("close_pattern") or "|".join(map(escape, texts))):
        return written
    end, past = compile(pattern, DOTALL), 0
    while (found := end.search(written, past)) is not None:
        character = _character_at(written, found.end() - len(found.group().lstrip()))
        past = found.end()
        if character is None:  # no string holds its beginning: whoever reads the call is told that it is none
            continue
        units = json.loads(f'"{character.group()}"').encode("utf-16-be")
        plain = "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
        past = character.start() + len(plain)
        written = written[: character.start()] + plain + written[character.end() :]
    return written


def _character_at(written: str, place: int) -> re.Match[str] | None:
    """The character of a string, as it is written, at a place; None for one that is escaped already, and elsewhere."""
    for string in _STRING.finditer(written):
        if string.start(1) <= place < string.end(1):
            characters = _WRITTEN.finditer(written, *string.span(1))
            found = next(one for one in characters if place < one.end())
            return None if found.group().startswith("\\u") else found
    return None


def _tag(marks: ArgumentMarks, key: str, kind: str | None) -> str:
    """What stands before a value of a JSON type; up to where it would be named, if it is not known."""
    if kind is None:
        return marks.open + key + _OF_TYPE.split(marks.after_key)[0]
    after = marks.after_key.replace("{string}", "true" if kind == "string" else "false")
    return marks.open + key + after.replace("{type}", kind)


def _type_of(value: Any) -> str:
    return next(name for kind, name in _TYPES if isinstance(value, kind))


def _in_tags(value: Any, marks: ArgumentMarks) -> str:
    if marks.nested:
        return value_in_tags(value, marks.nested)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
