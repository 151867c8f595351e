"""How families of models write replies: one declarative entry each, and which of them a tokenizer belongs to.

An entry is a JSON file in `families/`, named like its `name`. A family is read and written by the same entry:

* `name`, `title`: what users pass, and what people call it.
* `model_types`: values of `config.model_type`, all of whose chat models write so whatever their template says; a family
  is found by them only where no entry's `known_by` fits. Most entries have none.
* `known_by`, `known_not_by`: all of the first stand in the family's chat template, and none of the second. Of several
  entries that fit, the one with the most characters in `known_by` is taken, so a variant says more than its family.
* `response_template`: the reading, in transformers' own declarative form (`start_anchor`, `fields`: `content`,
  `reasoning_content`, `tool_calls`). Calls come out of it as {"type": "function", "function": {"name": ...,
  "arguments": {...}}}, by `transform`; a region may hold several. A field with another name is neither text nor
  reasoning and is not shown: separators and tokens between messages.
* `objects`: what a region of JSON holds. "calls": what the template's `transform` makes calls of. "lines": the object
  of a call, with name and arguments, and that of the next one behind it. "names": a list of objects, each with the
  name of a tool as its one key, and the arguments as its value. The field of the latter two has `content` "text" and
  no `transform`, for they are read here.
* `arguments`: what stands in a call. "json": an object. "xml": a tag for each argument, read by the template's
  "xml-inline", cast by the tool's schema. "pythonic": the region is a list of calls, `[f(a=1), g(b="x")]`, or has
  one on each line; its field's `content` is "text" and it has no `transform`, for these calls are read here.
* `call`: the writing, None for families without tools. The text of calls is `before`, then for each call `open`, its
  name, `after_name`, its arguments, `close`, with `between` between two calls, then `after`. Where the name stands in
  a JSON string (`name_in_json`, as it does where `open` ends with a quotation mark) it is escaped. `{index}` in
  `open`, `after_name` and `close` is the number of the call, from 0, `{number}` that from 1. For "xml", `argument`
  has what stands around one argument: `open`, the key, `after_key`, the value, `close`, with `between` between two;
  `{string}` in `after_key` is "true" for a value that is a string, and "false" for others; `{type}` is its JSON type,
  and `{key}` in `close` the key again. `nested`: what stands before each tag, of families that write lists and objects
  as tags within tags; their field's `content` is "text", with a group `name` in what opens it.
  `begins` is the mark by which a call begins, where that is not the first tag (`<...>`, `[...]`) of `before` and
  `open`. `several` is false where a reply holds one call at most.
* `reasoning`: `open` and `close`, None for families that do not reason in marks.
* `answer`: what text begins with, of families that mark it too.
* `offering`: how tools are put to a model whose chat template has no place for them, where the model was taught it:
  `system`, what is said to it, with `{tools}` for their JSON and, if wanted, `{call}` for a call as an example;
  `result`, what it is told, with `{result}` for what a tool gave. None for words that hold for any format.
* `limits`: what the format cannot express, or what of it is not read, in words for users.
* `special`: those of the marks that are special tokens in the published tokenizer. It says what the tests expect; at
  run time the tokenizer is asked.
* `examples`: replies of the family: `prefix` (the end of the prompt, from the last anchor on), `text` (special tokens
  as their text, no end-of-sequence token), and what is read from it: `content`, `reasoning`, `calls`, and `invalid`,
  the texts of regions that are no call. `tools` are those on offer (for casting), by default tools without parameters;
  `source` says which published template or model card it is from.
* `source`: which published template the facts are from.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from nco_guard.errors import ArgumentValueError

__all__ = [
    "REASONING_FIELDS",
    "ReplyFormat",
    "chat_template_of",
    "made_of",
    "read_entry",
    "shipped_formats",
]

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""What templates call reasoning."""

_FAMILIES = Path(__file__).resolve().parent / "families"


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ArgumentMarks(_Entry):
    """What stands around one argument in a call with tags."""

    open: str = Field(min_length=1)
    after_key: str = Field(min_length=1)
    close: str = Field(min_length=1)
    between: str = ""
    nested: str = ""


class CallMarks(_Entry):
    """What stands around calls, their names and their arguments."""

    before: str = ""
    open: str = ""
    after_name: str
    close: str = ""
    between: str = ""
    after: str = ""
    begins: str = ""
    name_in_json: bool = False
    several: bool = True
    argument: ArgumentMarks | None = None

    @model_validator(mode="before")
    @classmethod
    def _quoted(cls, values: Any) -> Any:
        if isinstance(values, dict) and "name_in_json" not in values:
            return {**values, "name_in_json": str(values.get("open", "")).endswith('"')}
        return values


class ReasoningMarks(_Entry):
    """What stands around reasoning."""

    open: str = Field(min_length=1)
    close: str = Field(min_length=1)


class OfferingTexts(_Entry):
    """What a model is told of tools where its chat template has no place for them."""

    system: str
    result: str

    @model_validator(mode="after")
    def _with_places(self) -> Self:
        for field, place in (("system", "{tools}"), ("result", "{result}")):
            if place not in getattr(self, field):
                raise ValueError(f"{field}: it says nowhere {place}")
        return self


class ExampleCall(_Entry):
    """A call as it is read."""

    name: str
    arguments: dict[str, Any]


class ReplyExample(_Entry):
    """A reply of the family, and what is read from it."""

    text: str
    prefix: str = ""
    content: str = ""
    reasoning: str = ""
    calls: tuple[ExampleCall, ...] = Field(default=(), strict=False)
    invalid: tuple[str, ...] = Field(default=(), strict=False)
    tools: tuple[dict[str, Any], ...] = Field(default=(), strict=False)
    source: str


class ReplyFormat(_Entry):
    """How a family of models writes replies: text, reasoning and calls of tools. The module says what each field means.

    Made by `ReplyFormat(**entry)`, `as_reply_format` or `format_for`. Errors: `ArgumentError`, `ArgumentValueError`,
    which name the field; of the template and of what is written and read by it when it is handed to `as_reply_format`,
    as everything does that takes a format.

    Examples:
        >>> shipped_formats()["hermes"].call.after_name
        '", "arguments": '
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    title: str = Field(min_length=1)
    response_template: dict[str, Any]
    model_types: tuple[str, ...] = Field(default=(), strict=False)
    known_by: tuple[str, ...] = Field(default=(), strict=False)
    known_not_by: tuple[str, ...] = Field(default=(), strict=False)
    objects: Literal["calls", "lines", "names"] = "calls"
    arguments: Literal["json", "xml", "pythonic"] = "json"
    call: CallMarks | None = None
    reasoning: ReasoningMarks | None = None
    answer: str = ""
    special: tuple[str, ...] = Field(default=(), strict=False)
    offering: OfferingTexts | None = None
    limits: tuple[str, ...] = Field(default=(), strict=False)
    examples: tuple[ReplyExample, ...] = Field(default=(), strict=False)
    source: str = ""

    _accepted: bool = PrivateAttr(default=False)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            field, said = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
            refused = ArgumentValueError(f"reply_format: {field + ': ' if field else ''}{said}")
        else:
            return
        raise refused

    @model_validator(mode="after")
    def _whole(self) -> Self:
        fields = self.response_template.get("fields")
        if not isinstance(fields, dict) or not fields:
            raise ValueError(
                "response_template.fields: an object with content, reasoning_content, tool_calls"
            )
        if self.call is not None and (self.arguments == "xml") != (self.call.argument is not None):
            raise ValueError('call.argument: it is there for arguments = "xml", and for nothing else')
        if self.call is not None and "tool_calls" not in fields:
            raise ValueError("call: response_template.fields has no tool_calls to read them by")
        if self.objects != "calls" and self.arguments != "json":
            raise ValueError(f'objects: {self.objects!r} is for arguments = "json"')
        if "" in (*self.known_by, *self.known_not_by):
            raise ValueError("known_by, known_not_by: no empty strings, which stand in every template")
        return self

    @property
    def reads_calls(self) -> bool:
        """Whether calls are read."""
        return "tool_calls" in self.response_template["fields"]

    def fits(self, chat_template: str) -> bool:
        """Whether a chat template is one of this family's."""
        return (
            bool(self.known_by)
            and all(mark in chat_template for mark in self.known_by)
            and not any(mark in chat_template for mark in self.known_not_by)
        )

    @property
    def digest(self) -> str:
        """SHA-256 of what the entry says; examples say nothing."""
        said = self.model_dump(mode="json", exclude={"examples"})
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()

    @property
    def reasons(self) -> bool:
        """Whether reasoning is told apart from text."""
        return any(name in REASONING_FIELDS for name in self.response_template["fields"])

    def marks(self, *, calls: bool = True) -> str:
        """Everything in which a mark stands that has to be seen, patterns without their escapes.

        What text without a beginning ends at need not be: nothing follows it.
        """
        fields = [
            field
            for name, field in self.response_template["fields"].items()
            if ("open" in field or "open_pattern" in field) and (calls or name != "tool_calls")
        ]
        return "\n".join(text.replace("\\", "") for text in _texts_in(fields))

    def special_marks(self, tokens: Iterable[str], *, calls: bool = True) -> tuple[str, ...]:
        """Those of a tokenizer's special tokens that are marks of this format, so that replies are read with them."""
        marks = self.marks(calls=calls)
        return tuple(token for token in tokens if token and token in marks)


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    ):
        yield from _texts_in(one)


@cache
def shipped_formats() -> Mapping[str, ReplyFormat]:
    """The entries that come with the library, by name.

    Cost: at the first call some forty small files are read.

    Examples:
        >>> shipped_formats()["mistral"].special
        ('[TOOL_CALLS]',)
    """
    files = sorted(_FAMILIES.glob("*.json"))
    return {file.stem: made_of(read_entry(file), f"families/{file.name}", file.stem) for file in files}


def chat_template_of(tokenizer: Any) -> str | None:
    """The chat template that conversations with tools go through: the one for tools, else the default one."""
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, list):
        template = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
    if isinstance(template, dict):
        template = template.get("tool_use") or template.get("default")
    return template if isinstance(template, str) else None


def read_entry(path: Path) -> Any:
    """What a file says. Errors: `ArgumentValueError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentValueError(
            f"reply_format: {path.name} cannot be read as JSON ({type(error).__name__})"
        ) from error


def made_of(entry: Any, where: str, name: str | None = None) -> ReplyFormat:
    """An entry; `name`: that of its file, where it ships. Errors: `ArgumentValueError`, which says `where`."""
    if not isinstance(entry, Mapping) or not all(isinstance(key, str) for key in entry):
        raise ArgumentValueError(f"{where}: an object of named fields is needed, as {', '.join(_NEEDED)}")
    try:
        made = ReplyFormat(**entry)
    except ArgumentValueError as error:
        raise ArgumentValueError(str(error).replace("reply_format", where, 1)) from None
    if name is not None and made.name != name:
        raise ArgumentValueError(f"{where}: name: it is {made.name!r}, unlike the file's")
    made._accepted = name is not None  # tests see to those that ship
    return made


_NEEDED = ("name", "title", "response_template")
