"""What tests of all families share: replies that are read, cut anywhere, and calls drawn that a family can say."""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

from nco_guard import Guard, Policy, StringRule
from nco_guard.replies import InvalidCall, Reasoning, ReplyReader, Text, ToolCall, shipped_formats
from nco_guard.replies.formats import ReplyFormat

__all__ = [
    "CALLING",
    "FORMATS",
    "PARSED",
    "Call",
    "Read",
    "at_start",
    "calls_of",
    "cut_at_random",
    "read",
    "tools_for",
]

GUARD = Guard(Policy(name="p", rules=[StringRule(id="word", strings=["canary"])]))
FORMATS = list(shipped_formats().values())
# Those whose calls transformers parses; lists of Python, and objects of our own, it does not.
PARSED = [
    form
    for form in FORMATS
    if form.response_template["fields"]["tool_calls"].get("transform")
    and not (form.call is not None and form.call.argument is not None and form.call.argument.nested)
]
CALLING = [form for form in FORMATS if form.call is not None]

Call = tuple[str, dict[str, Any]]


class Read(NamedTuple):
    """What is read of a reply."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    invalid: tuple[str, ...] = ()


def read(form: ReplyFormat, pieces: Sequence[str], **options: Any) -> Read:
    """A reply that comes in these pieces."""
    reader = ReplyReader(GUARD, form=form, **{"tools": [], **options})
    events = [event for piece in pieces for event in reader.feed(piece)] + reader.finish()
    return Read(
        "".join(event.text for event in events if isinstance(event, Text)),
        "".join(event.text for event in events if isinstance(event, Reasoning)),
        tuple((event.name, event.arguments) for event in events if isinstance(event, ToolCall)),
        tuple(event.text for event in events if isinstance(event, InvalidCall)),
    )


def cut_at_random(text: str, random: Random) -> list[str]:
    """The text in pieces: single characters, or a few long ones."""
    if random.random() < 0.2:
        return [*text]
    ends = sorted(random.sample(range(len(text) + 1), min(len(text) + 1, random.randint(0, 9))))
    return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]


def at_start(form: ReplyFormat) -> bool:
    """Whether calls stand at the beginning of a reply, and behind text are text."""
    return "\\A" in str(form.response_template["fields"]["tool_calls"].get("open_pattern"))


# Every kind of character that a notation may stumble on. No control characters: JSON escapes them, tags do not.
_HARD = [
    "a",
    "Zz",
    " ",
    "\n",
    '"',
    "'",
    "\\",
    "\\n",
    "\\u0041",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "=",
    "é",
    "漢",
    "😀",
    "</",
    "<",
    ">",
]
_KEYS = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(lambda key: not keyword.iskeyword(key))
_NUMBERS = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False, width=32)
_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
    list: "array",
    dict: "object",
}


def _unsaid(form: ReplyFormat) -> list[str]:
    """What a string cannot hold: the end of a value that has no escapes."""
    field = form.response_template["fields"]["tool_calls"]
    delimiters = [mark for pair in field.get("content_args", {}).get("string_delims", ()) for mark in pair]
    if delimiters:
        return [*delimiters, field["close"]]
    argument = form.call.argument if form.call is not None else None
    if form.call is None or argument is None:
        return []
    if argument.nested:
        return [argument.nested]
    return [argument.close.strip(), *form.call.close.split()]


def calls_of(form: ReplyFormat) -> st.SearchStrategy[list[Call]]:
    """Calls that a family can say; where it has escapes, its own marks are among the strings."""
    assert form.call is not None
    own = [mark for mark in (form.call.open, form.call.close, form.call.before, form.call.after) if mark]
    own += [*form.special, *(example.text for example in form.examples[:2])]
    texts = st.lists(st.sampled_from([*_HARD, *own]), max_size=6).map("".join)
    texts |= st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8)
    unsaid, argument = _unsaid(form), form.call.argument
    texts = texts.filter(lambda text: not any(mark in text for mark in unsaid))
    values = st.recursive(
        texts | _NUMBERS | st.booleans() | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
        max_leaves=8,
    )
    if (
        form.arguments == "xml"
    ):  # within lists and objects it is JSON, which does not escape the end of a value
        values = values.filter(lambda value: not any(mark in _flat(value) for mark in unsaid))
    if argument is not None and argument.nested:
        values = _values_in_tags(texts)
    calls = st.tuples(
        st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,9}", fullmatch=True),
        st.dictionaries(_KEYS, values, max_size=4),
    )
    calls = calls.filter(lambda call: not keyword.iskeyword(call[0]) and call[0] != "all")
    return st.lists(calls, min_size=1, max_size=3 if form.call.several else 1)


def _values_in_tags(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """No None, and lists of one kind, so that a schema says what each text in them is."""
    single = texts | _NUMBERS | st.booleans()
    objects = st.dictionaries(_KEYS, single, max_size=3)
    lists = (st.lists(kind, max_size=3) for kind in (texts, st.integers(), st.booleans()))
    pairs = objects.map(lambda one: [one, one]) | st.tuples(
        *[st.lists(texts, min_size=1, max_size=2)] * 2
    ).map(list)
    return single | objects | st.one_of(*lists) | pairs | st.dictionaries(_KEYS, objects, max_size=2)


def _flat(value: Any) -> str:
    if isinstance(value, dict):
        return "".join(map(_flat, value.values()))
    return "".join(map(_flat, value)) if isinstance(value, list) else str(value)


def _schema(value: Any) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[type(value)]}
    if isinstance(value, dict):
        schema["properties"] = {key: _schema(one) for key, one in value.items()}
    elif isinstance(value, list):
        schema["items"] = {"anyOf": [_schema(one) for one in value]}
    return schema


def tools_for(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Tools whose schemas have these arguments, the last call of a name first; for values that have no types."""
    named: dict[str, dict[str, Any]] = {}
    for name, arguments in calls:
        properties = named.setdefault(name, {})
        properties.update({key: _schema(value) for key, value in arguments.items()})
    return [
        {
            "type": "function",
            "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
        }
        for name, properties in named.items()
    ]
