"""A reply's regions, as transformers' `ResponseParser` finds them while it grows, with every character accounted for.

The parser finds where regions begin and end. What stands in them is taken as it is written, so that pieces joined equal
the whole; a region of calls is read once it is over, by transformers' own content parsers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import StringIO
from tokenize import COMMENT, OP, generate_tokens
from typing import Any, Literal

from nco_guard.replies.call_values import is_json_value, keys_said_once, loaded_once, objects_once
from nco_guard.replies.formats import REASONING_FIELDS, ReplyFormat
from nco_guard.replies.nested_tags import arguments_in_tags
from nco_guard.shapes.branches import argument_types

__all__ = [
    "CALLS",
    "CONTENT",
    "REASONING",
    "CallReader",
    "Region",
    "RegionPiece",
    "Regions",
    "begun_in",
    "calls_in",
    "region_at_end",
    "region_of",
    "template_as_written",
]

Region = Literal["content", "reasoning", "calls", "other"]
Kind = Literal["open", "text", "close", "end"]
CONTENT: Region = "content"
REASONING: Region = "reasoning"
CALLS: Region = "calls"

_REGIONS: dict[str, Region] = {
    "content": CONTENT,
    "tool_calls": CALLS,
    **dict.fromkeys(REASONING_FIELDS, REASONING),
}
_DELIMITERS = ("open", "open_pattern", "close", "close_pattern")
# For templates whose every field has a beginning: what stands in none of them is text, what begins a message is not.
_REST, _ANCHOR = "nco_guard_rest", "nco_guard_anchor"
# Marks with blanks before them are looked for from each blank of a run on: not again for each blank that follows.
_MANY = 32
_PYTHON_STRING = re.compile(
    r"""(?P<prefix>\b[a-zA-Z]{1,2}(?=['"]))?(?:(?P<long>\'{3}|\"{3})(?:\\.|[^\\])*?(?P=long)|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")""",
    re.DOTALL,
)
_ARGUMENTS = ("arguments", "parameters")
# What may stand beside the name of a call without arguments.
_ABOUT_A_CALL = frozenset({"name", "function", "type", "id", "index", "tool_call_id", "call_id"})
_PYTHON_NAMES = {"true": True, "false": False, "null": None}


@dataclass(frozen=True, slots=True)
class RegionPiece:
    """A further piece of a reply.

    kind: "text" within a region, or the mark that it was opened or closed by. "end": it is over without such a mark, by
    another's beginning or by the end of the reply. start: where it stands in what was fed, before 0 in the prompt.
    """

    region: Region
    kind: Kind
    text: str = ""
    start: int = 0


class Regions:
    """Takes a reply apart as it grows.

    Args:
        entry: the format. calls: whether regions of calls are looked for; else what stands in them is text.
        prefix: the prompt, special tokens as their text. What stands in it after the last anchor says in which region
            the reply begins; where there is no anchor it says nothing.
        begun: what the prompt ends with that belongs to the reply, for a prompt without an anchor.

    Guarantee: the texts of all pieces, joined, are what was fed, behind what was read of the prompt. Cost: that of
    transformers' parser, linear in the text but for runs of blanks. Errors: `ValueError` for a template that
    transformers refuses.
    """

    def __init__(self, entry: ReplyFormat, *, calls: bool = True, prefix: str = "", begun: str = "") -> None:
        from transformers.utils.chat_parsing import ResponseParser

        self._spec = template_as_written(entry, calls=calls)
        self._parser = ResponseParser(self._spec, prefix="")
        self._raw, self._at, self._begins = "", 0, 0
        self._blanks, self._run = "", 0  # held back; at the end of what the parser has
        self._started = self._fed(_behind_anchor(self._spec, prefix, begun))
        self._begins = len(self._raw)

    @property
    def prompted(self) -> list[RegionPiece]:
        """What the prompt ends with."""
        return self._started

    def turns(self, text: str) -> list[str]:
        """What a turn of a conversation may be: all of a text, and what follows the mark that begins it."""
        anchor = self._spec.start_anchor_re.search(text)
        return [text] if anchor is None else [text, text[anchor.end() :]]

    def feed(self, text: str) -> list[RegionPiece]:
        """Take a further piece. Of many blanks, those at the end are given with what follows them."""
        text, self._blanks = self._blanks + text, ""
        end = len(text.rstrip())
        run = len(text) - end + (0 if end else self._run)
        if run > _MANY:
            text, self._blanks = text[:end], text[end:]
        else:
            self._run = run
        return self._fed(text)

    def _fed(self, text: str) -> list[RegionPiece]:
        if not text:
            return []
        self._raw += text
        return [*self._pieces(self._parser.feed(text))]

    def finish(self) -> list[RegionPiece]:
        """The reply is over."""
        pieces = self._fed(self._blanks)
        events = self._parser.finalize()[1]
        pieces += self._pieces(events)
        while mark := self._silent():  # an end of the text that nothing stood before
            pieces.append(self._piece(self._spec.implicit, "close", mark))
        return pieces

    def _pieces(self, events: Sequence[Mapping[str, Any]]) -> Iterator[RegionPiece]:
        """The parser says which regions follow each other; where they stand follows from what was fed."""
        implicit = self._spec.implicit
        for event in events:
            name, kind = event["field"], event["type"]
            field = self._spec.fields[name]
            if kind == "region_chunk":
                yield self._piece(name, "text", event["text"])
            elif kind == "region_close":
                mark = None if name == implicit else self._match(field.close_re)
                yield self._piece(name, "end" if mark is None else "close", mark or "")
            else:
                while mark := self._silent(name):
                    yield self._piece(implicit, "close", mark)
                if name != implicit:
                    yield self._piece(name, "open", self._match(field.open_re) or "")

    def _silent(self, opened: str | None = None) -> str | None:
        """The mark by which text without a beginning ends here; none if another region is opened by a longer one."""
        implicit = self._spec.implicit
        mark = None if implicit is None else self._match(self._spec.fields[implicit].close_re)
        if mark is None or opened in (None, implicit):
            return mark
        return mark if len(mark) > len(self._match(self._spec.fields[opened].open_re) or "") else None

    def _match(self, pattern: Any) -> str | None:
        found = None if pattern is None else pattern.match(self._raw, self._at)
        return None if found is None else str(found.group())

    def _piece(self, name: str | None, kind: Kind, text: str) -> RegionPiece:
        start, self._at = self._at, self._at + len(text)
        region = region_of(str(name))
        if kind == "text" and region != CALLS:
            # Held back at the end of the prompt, it is no part of the reply.
            cut = max(0, self._begins - start)
            start, text = start + cut, text[cut:]
        return RegionPiece(region, kind, text, start - self._begins)


def region_of(name: str) -> Region:
    """What a field of a template is."""
    return CONTENT if name == _REST else _REGIONS.get(name, "other")


def template_as_written(entry: ReplyFormat, *, calls: bool) -> Any:
    """The template of a format, as transformers loads it, with every region read as it is written.

    Errors: `ValueError` for one that transformers refuses.
    """
    from transformers.utils.chat_parsing.response_templates import load_response_template

    return load_response_template(_as_written(entry.response_template, calls))


def begun_in(entry: ReplyFormat, prefix: str, begun: str = "") -> str:
    """What of a reply a prompt has begun: what stands behind its last anchor, else `begun`."""
    return _behind_anchor(template_as_written(entry, calls=True), prefix, begun)


def _behind_anchor(spec: Any, prefix: str, begun: str) -> str:
    anchors = [*spec.start_anchor_re.finditer(prefix)]
    return prefix[anchors[-1].end() :] if anchors else begun


def region_at_end(entry: ReplyFormat, prompt: str) -> Region:
    """The region in which a reply to a prompt begins."""
    region = CONTENT
    for piece in Regions(entry, prefix=prompt + _PROBE).prompted:
        region = CONTENT if piece.kind in ("close", "end") else piece.region
    return region


# A mark with blanks around it is known for one by what follows.
_PROBE = "."


def _as_written(template: Mapping[str, Any], calls: bool) -> dict[str, Any]:
    """The template with every region read as it is written."""
    fields = {}
    for name, field in template["fields"].items():
        if _REGIONS.get(name) == CALLS and not calls:
            continue
        kept = {key: field[key] for key in _DELIMITERS if key in field}
        fields[name] = {
            **kept,
            "content": "text",
            "content_args": {"strip": False},
            "repeats": True,
            "join": "",
            "transform": "{content}",
        }
    anchor = {key: template[key] for key in ("start_anchor", "start_anchor_pattern") if key in template}
    if all("open" in field or "open_pattern" in field for field in fields.values()):
        fields[_REST] = {"content_args": {"strip": False}, "repeats": True}
        opens = {key.replace("start_anchor", "open"): value for key, value in anchor.items()}
        fields[_ANCHOR] = {**opens, "close_pattern": "", "repeats": True, "transform": "{content}"}
    return {**anchor, "fields": fields}


class CallReader:
    """Reads the calls in a region that is over.

    tools: those on offer, by whose schemas arguments in tags are cast.
    """

    def __init__(self, entry: ReplyFormat, tools: Sequence[Mapping[str, Any]] = ()) -> None:
        template = entry.response_template
        anchor = {key: value for key, value in template.items() if key.startswith("start_anchor")}
        self._entry = entry
        self._template = {**anchor, "fields": {"tool_calls": template["fields"]["tool_calls"]}}
        self._options = template["fields"]["tool_calls"].get("content_args") or {}
        self._tools = [dict(tool) for tool in tools]
        marks = None if entry.call is None else entry.call.argument
        self._nested = "" if marks is None else marks.nested
        if not self._nested:
            self._tools = [_with_types(tool, written=entry.arguments == "json") for tool in self._tools]
        functions = [tool.get("function", tool) for tool in self._tools] if self._nested else []
        self._schemas = {one.get("name"): one.get("parameters") or {} for one in functions}
        self.kind = {"json": "JSON", "xml": "tags", "pythonic": "Python"}[entry.arguments]

    def read(self, opened: str, body: str, *, closed: bool) -> list[tuple[str, dict[str, Any]]] | None:
        """Names and arguments of the calls in a region; None if anything in it is none, or nothing is.

        What is read is all that was said: of a key or argument that is said twice one would be lost, and a number or
        character that JSON has not could not be told. Of JSON and Python the closing mark may be missing: some models
        end right after the last bracket.
        """
        if self._entry.arguments == "xml" and not (closed and (self._nested or self._all_in_tags(body))):
            return None
        try:
            calls = self._read(opened, body)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return None
        return (
            calls if calls and all(name and is_json_value([name, given]) for name, given in calls) else None
        )

    def _read(self, opened: str, body: str) -> list[tuple[str, dict[str, Any]]] | None:
        if self._entry.arguments == "pythonic":
            return pythonic_calls(body)
        if self._nested:
            name = self._name(opened)
            return [(name, arguments_in_tags(body, self._nested, self._schemas.get(name, {})))]
        if self._entry.objects == "lines":
            return [_call_of(value) for value in objects_once(body)]
        if self._entry.objects == "names":
            return [_call_of({"name": name, "arguments": given}) for name, given in _named(loaded_once(body))]
        return self._parsed(opened, body)

    def _name(self, opened: str) -> str:
        """Errors: `TypeError`, `IndexError` where what opens a call does not name it."""
        from regex import match

        return str(match(self._template["fields"]["tool_calls"]["open_pattern"], opened)["name"])

    def _parsed(self, opened: str, body: str) -> list[tuple[str, dict[str, Any]]] | None:
        """By transformers. Errors: those of its parsers, and of a call that is none."""
        from transformers.utils.chat_parsing import parse_response

        message = parse_response(opened + body, self._template, prefix="", tools=self._tools)
        calls = [_call_of(value) for value in _flat(message["tool_calls"])]
        return calls if all(self._said_once(body, given) for _, given in calls) else None

    def _said_once(self, body: str, given: dict[str, Any]) -> bool:
        """Whether no key is said twice. Errors: `ValueError` for JSON with one that is."""
        if self._entry.arguments == "xml":
            said = [(found["key"], found["value"]) for found in self._tags(body)]
            for key, value in said:
                if isinstance(given.get(key), dict | list):
                    loaded_once(value)
            return len({key for key, _ in said}) == len(said)
        if self._options.get("unquoted_keys") or self._options.get("string_delims"):
            return keys_said_once(body, given, self._options.get("string_delims", ()))
        loaded_once(body)
        return True

    def _all_in_tags(self, body: str) -> bool:
        """Whether nothing but blanks stands between the arguments."""
        between, at = "", 0
        for found in self._tags(body):
            between, at = between + body[at : found.start()], found.end()
        return not (between + body[at:]).strip()

    def _tags(self, body: str) -> Iterator[Any]:
        from regex import DOTALL, finditer

        yield from finditer(self._options["tag_pattern"], body, flags=DOTALL)


def _with_types(tool: Mapping[str, Any], *, written: bool) -> dict[str, Any]:
    """A tool of which each argument says as what text is read, also where its schema does so by way of others.

    written: whether calls say themselves what is text: it stays text where it may be that.
    """
    function = tool.get("function", tool)
    types = argument_types(function.get("parameters") or {})
    types = {key: kinds for key, kinds in types.items() if kinds and not (written and "string" in kinds)}
    properties = {key: {"type": [*kinds]} for key, kinds in types.items()}
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": function.get("name"), "parameters": parameters}}


def calls_in(
    entry: ReplyFormat, text: str, tools: Sequence[Mapping[str, Any]] = ()
) -> list[tuple[str, dict[str, Any]]]:
    """Names and arguments of the calls in a turn of a rendered conversation, which is not guarded."""
    turns = Regions(entry).turns(text)
    return [call for turn in turns for call in _calls_of(Regions(entry), CallReader(entry, tools), turn)]


def _calls_of(regions: Regions, reader: CallReader, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    opened = body = ""
    for piece in [*regions.feed(text), *regions.finish()]:
        if piece.region != CALLS:
            continue
        if piece.kind == "open":
            opened, body = piece.text, ""
        elif piece.kind == "text":
            body += piece.text
        else:
            yield from reader.read(opened, body, closed=piece.kind == "close") or []


def _flat(values: Any) -> Iterator[Any]:
    """Errors: `ValueError` for an empty list in it, which would be lost."""
    if values == []:
        raise ValueError("a list without calls")
    for value in values if isinstance(values, list) else [values]:
        yield from _flat(value) if isinstance(value, list) else [value]


def _named(values: Any) -> Iterator[tuple[str, Any]]:
    """Errors: `ValueError`, `AttributeError` for anything but a list of objects with one key each."""
    if not isinstance(values, list) or not values:
        raise ValueError("a list of calls")
    for value in values:
        [(name, given)] = value.items()
        yield name, given


def _call_of(value: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Errors: `ValueError`, `KeyError`, `AttributeError` for what is no call."""
    function = value.get("function", value)
    name = function["name"]
    given = [function[key] for key in _ARGUMENTS if key in function]
    # Under another key, arguments would be lost.
    if len(given) > 1 or not (given or {*value, *function} <= _ABOUT_A_CALL):
        raise ValueError("a call has arguments under a key that is known")
    arguments = given[0] if given else {}
    if isinstance(arguments, str):
        arguments = loaded_once(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("a call has a name and arguments")
    return name, arguments


def pythonic_calls(body: str) -> list[tuple[str, dict[str, Any]]] | None:
    """The calls in `[f(a=1), g(b="x")]`, with or without its brackets, or each on a line of its own, values literals.

    None if it is no such, and where something stands in it that would be lost: a comment, no call at all.
    """
    # Breaks of lines by a carriage return are read by Python as others.
    ways: tuple[Callable[[str], str], ...] = (str.strip, _on_one_line)
    for written in ways[bool("\r" in body) :]:
        with suppress(SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            read, calls = _listed(written(body.strip()))
            if calls and not _signs(read) & {"#", ";"}:
                return [_python_call(call) for call in calls]
    return None


def _on_one_line(text: str) -> str:
    """With the breaks of lines in strings escaped, for templates write them as they are.

    Errors: `ValueError` for a carriage return in a string without escapes, which Python would lose.
    """

    def written(found: re.Match[str]) -> str:
        if "r" in (found["prefix"] or "").lower():
            if "\r" in found[0]:
                raise ValueError("a carriage return in a string without escapes")
            return found[0]
        broken = "\r" if found["long"] else "\r\n"
        escaped = {"\r": "\\r", "\n": "\\n"}
        return re.sub(rf"(?s)(\\.)|([{broken}])", lambda one: one[1] or escaped[one[2]], found[0])

    return _PYTHON_STRING.sub(written, text)


def _listed(text: str) -> tuple[str, list[ast.expr]]:
    """Text as Python reads it, and what it lists. Errors: those of Python's parser."""
    listed = text if text.startswith("[") else f"[{text}]"
    with suppress(SyntaxError):
        tree = ast.parse(listed, mode="eval").body
        return listed, tree.elts if isinstance(tree, ast.List) else []
    lines = ast.parse(text).body
    return text, [line.value if isinstance(line, ast.Expr) else _NO_CALL for line in lines]


_NO_CALL = ast.Constant(None)


def _signs(text: str) -> set[str]:
    """The signs by which statements end and comments begin, outside of strings, in text that Python has parsed."""
    tokens = generate_tokens(StringIO(text).readline)
    return {one.string[:1] for one in tokens if one.type in (COMMENT, OP)}


def _python_call(node: ast.expr) -> tuple[str, dict[str, Any]]:
    if not isinstance(node, ast.Call) or node.args or not _is_name(node.func):
        raise ValueError("a call by a name, with named arguments")
    arguments = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError("each argument has a name of its own")
        arguments[keyword.arg] = _literal(keyword.value)
    return ast.unparse(node.func), arguments


def _is_name(node: ast.expr) -> bool:
    """`find`, or `tools.find`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and _is_name(node.value))


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id in _PYTHON_NAMES:
        return _PYTHON_NAMES[node.id]
    if isinstance(node, ast.List):
        return [_literal(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        pairs = [*zip(node.keys, node.values, strict=True)]
        made = {None if key is None else ast.literal_eval(key): _literal(value) for key, value in pairs}
        if len(made) == len(pairs) and all(isinstance(key, str) for key in made):
            return made
        raise ValueError("each key is a string of its own")
    value = ast.literal_eval(node)
    if isinstance(value, str | int | float | bool | None):
        return value
    raise ValueError("a value that JSON has")
