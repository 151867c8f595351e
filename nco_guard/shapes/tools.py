"""Free text or calls of tools, in the format that a family of models writes them in, as a shape.

What is enforced is what the family's entry says (`nco_guard.replies.formats`): its calls are written with the marks by
which it writes them, and free text holds nothing that it would read as a call's beginning. Reasoning in marks may come
within free text; what stands in it is free.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from nco_guard.automata.call_text import CallTextAutomaton
from nco_guard.errors import ArgumentError, ShapeError
from nco_guard.shapes.branches import argument_types
from nco_guard.shapes.call_parts import CallPart, Net, PartPlaces
from nco_guard.shapes.library import in_lark
from nco_guard.shapes.marked import marked_text
from nco_guard.shapes.nested_notations import MarkedStrings, TagsInTags
from nco_guard.shapes.nested_values import Notation, nested_arguments
from nco_guard.shapes.part_leaves import JsonLeaf, TextLeaf
from nco_guard.shapes.python_calls import python_arguments
from nco_guard.shapes.tagged import literal_runs, tag_marks, tagged_arguments

__all__ = ["CallFormat", "CallGrammar", "Tool", "call_grammar", "calls_refusal", "tools_of"]

_ANY = "(?s:.*)"
_OPTIONS = {"whitespace_pattern": "[ ]?"}
# What a call begins with, where the entry does not say.
_FIRST_MARK = re.compile(r"<[^>=\s]*[>=]|\[[A-Z_]+\]")
_NUMBER = re.compile(r"\{(?:index|number)\}")
_BAR = re.compile(r"(?<!\\)\|")
_AHEAD = re.compile(r"(.*)\|\(\?=([^()]*)\)", re.DOTALL)
_NAMED = re.compile(r"\(\?P<\w+>")


class CallFormat(Protocol):
    """What is asked of `nco_guard.replies.ReplyFormat`; its module says what each means."""

    @property
    def name(self) -> str:
        """What users pass."""

    @property
    def response_template(self) -> dict[str, Any]:
        """How replies are read."""

    @property
    def arguments(self) -> str:
        """What stands in a call."""

    @property
    def call(self) -> Any:
        """How calls are written."""

    @property
    def reasoning(self) -> Any:
        """How reasoning is written."""

    @property
    def answer(self) -> str:
        """What text begins with."""


@dataclass(frozen=True)
class Tool:
    """A tool whose calls are enforced: its name, the schema of its arguments, the one by which they are read, what the
    library is given of it, and as what arguments are read that are written as text."""

    name: str
    schema: dict[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    enforced: Mapping[str, Any] | None = None
    types: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class CallGrammar:
    """What `call_grammar` makes: a grammar, places beside it, and what holds within arguments that are JSON."""

    grammar: str
    places: PartPlaces
    plain: CallTextAutomaton | None


def tools_of(tools: Sequence[Mapping[str, Any]]) -> tuple[Tool, ...]:
    """Names and schemas of tools, as OpenAI's APIs have them.

    Where some say `strict: true`, arguments of others are any object. A tool without a schema has none.
    Errors: `ArgumentError`, naming the tool by its place.
    """
    if isinstance(tools, Mapping | str) or not isinstance(tools, Sequence) or not tools:
        raise ArgumentError("tools: give a list of descriptions of functions, at least one")
    functions = [tool.get("function", tool) if isinstance(tool, Mapping) else None for tool in tools]
    found: dict[str, Tool] = {}
    some = any(isinstance(one, Mapping) and one.get("strict") is True for one in functions)
    for number, function in enumerate(functions):
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name or not name.isprintable():
            raise ArgumentError(f"tools[{number}]: it needs a function with a name")
        if name in found:
            raise ArgumentError(f"tools[{number}]: there is another tool of its name")
        parameters = function.get("parameters") or {}
        if not isinstance(parameters, Mapping):
            raise ArgumentError(f"tools[{number}].parameters: a JSON Schema is needed, as a mapping")
        types = parameters.get("type", "object")
        if types != "object" and not (isinstance(types, list | tuple) and "object" in types):
            raise ArgumentError(
                f"tools[{number}].parameters.type: arguments are an object; say 'object', or leave it out"
            )
        strict = function.get("strict")
        free = strict is False or (some and strict is not True)
        schema = {"type": "object"} if free else _arguments_schema(parameters)
        found[name] = Tool(name, schema, parameters, types=argument_types(parameters))
    return tuple(found.values())


def _arguments_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    schema = {**parameters, "type": "object"}
    says = ("properties", "additionalProperties", "patternProperties", "$ref", "anyOf", "oneOf", "allOf")
    return schema if any(name in schema for name in says) else {**schema, "properties": {}}


def calls_refusal(form: CallFormat) -> str | None:
    """Why calls in a format cannot be enforced; None if they can be."""
    if form.call is None:
        return f"the format {form.name} does not say how calls are written"
    fields = form.response_template["fields"]
    reasons = _reasoning(fields)
    options = {**(fields["tool_calls"].get("content_args") or {})}
    marked = options.get("string_delims") and {*options} <= {"string_delims", "unquoted_keys"}
    otherwise = form.arguments == "json" and options and not marked
    if otherwise or (reasons is not None and "(?=" in reasons[1] + reasons[2]):
        return f"calls in the format {form.name} are not enforced while they are written"
    return None


def call_grammar(
    tools: Sequence[Tool],
    form: CallFormat,
    *,
    required: bool,
    parallel: bool,
    begun: str = "",
    reasoning: bool = False,
) -> CallGrammar:
    """The grammar of replies that call tools, or need not.

    begun: how much of the text before a call the prompt ends with. reasoning: whether it ends within reasoning.
    Errors: `ShapeError` for a format whose calls cannot be enforced.
    """
    return _Builder(tools, form, parallel=parallel, begun=begun).made(required=required, reasoning=reasoning)


class _Builder:
    """Rules, terminals and parts of one grammar."""

    def __init__(self, tools: Sequence[Tool], form: CallFormat, *, parallel: bool, begun: str) -> None:
        if (reason := calls_refusal(form)) is not None:
            raise ShapeError(reason)
        self._form, self._marks = form, form.call
        self._tools = tools
        self._several = parallel and form.call.several
        self._begun = begun
        self._lines: list[str] = []
        self._parts: dict[str, CallPart] = {}
        calls = form.response_template["fields"]["tool_calls"]
        self._tags = None
        self._notation = _notation(form)
        self._at_start, self._never = _unread(calls)
        if form.arguments == "xml":
            if self._notation is None:
                self._tags = tag_marks(form.call.argument, calls, _patterns(calls, "close"))
            # What begins so is a call to some readers, whatever follows.
            self._never = [_literal_head(one) for one in self._never]
        if self._begun and not form.answer:
            raise ShapeError(
                f"the prompt has begun a call already, and the format {form.name} says not what text is"
            )
        self._reasons = _reasoning(form.response_template["fields"])

    # -- calls -------------------------------------------------------------------------------------------------

    def _call(self, tool: Tool, open_: str) -> CallPart:
        """A call of a tool behind what precedes its name."""
        marks = self._marks
        name = json.dumps(tool.name)[1:-1] if marks.name_in_json else tool.name
        head = _numbered(open_ + name + marks.after_name)
        return CallPart.row(*head, self._arguments(tool), *_numbered(marks.close))

    def _arguments(self, tool: Tool) -> CallPart:
        name = f"args{self._tools.index(tool)}"
        if self._form.arguments != "json" or self._notation is not None:
            return self._listed(name, tool)
        line = f"{name}: %json {json.dumps({**(tool.enforced or tool.schema), 'x-guidance': _OPTIONS})}"
        if line not in self._lines:
            self._lines.append(line)
        return CallPart.leaf(name, JsonLeaf(tool.schema))

    def _listed(self, name: str, tool: Tool) -> CallPart:
        """Arguments in tags, in Python, or within each other in a way of the family's own."""
        schemas = tool.schema, tool.enforced or tool.schema
        if name not in self._parts:
            try:
                if self._notation is not None:
                    self._check_name(tool)
                    part, lines = nested_arguments(name, tool.schema, tool.parameters, self._notation)
                elif self._tags is None:
                    part, lines = python_arguments(name, tool.name, *schemas, [*tool.types])
                else:
                    self._check_name(tool)
                    part, lines = tagged_arguments(name, *schemas, tool.types, self._tags)
            except ShapeError as error:
                raise ShapeError(f"tool {tool.name!r}: {error.message}", place=error.place) from None
            self._lines += lines
            self._parts[name] = part
        return self._parts[name]

    def _check_name(self, tool: Tool) -> None:
        """Refuse a tool whose name is not read as it is written."""
        from regex import match

        marks = self._marks
        name = json.dumps(tool.name)[1:-1] if marks.name_in_json else tool.name
        text = _NUMBER.sub("0", marks.open + name + marks.after_name) + marks.close
        pattern = self._form.response_template["fields"]["tool_calls"].get("open_pattern", "")
        found = match(str(pattern), text)
        if found is None or found["name"] != tool.name:
            raise ShapeError(f"the format {self._form.name} cannot write its name")

    def _calls(self, before: str) -> CallPart:
        """All calls of a reply. before: what precedes the first one's name."""
        marks = self._marks
        first = self._rule("first", CallPart.choice(*(self._call(tool, before) for tool in self._tools)))
        if self._several:
            again = [self._call(tool, marks.between + marks.open) for tool in self._tools]
            first = CallPart.more(first, self._rule("again", CallPart.choice(*again)))
        return CallPart.row(first, CallPart.text(marks.after))

    def _rule(self, name: str, part: CallPart) -> CallPart:
        line = f"{name}: {part.lark}"
        if line not in self._lines:
            self._lines.append(line)
        return CallPart(part.kind, name, part.value, part.inner)

    # -- text --------------------------------------------------------------------------------------------------

    def made(self, *, required: bool, reasoning: bool) -> CallGrammar:
        marks = self._marks
        opening = marks.before + marks.open
        text = opening.lstrip()
        begins = "" if self._at_start else self._begins(text)
        net = Net()
        start = net.new()
        thinks = self._thought(net) if reasoning or (self._reasons and not required) else None
        trimmed = opening if not self._begun else opening[len(self._begun) :]
        if required:
            lark = self._required(net, start, trimmed, thinks)
        elif self._at_start:
            lark = self._at_the_start(net, start, trimmed)
        else:
            lark = self._anywhere(net, start, text, begins, thinks, reasoning=reasoning)
        head = '%llguidance {"no_forcing": true}\nstart: ' + lark
        said = _ends(self._form.response_template["fields"]["tool_calls"])
        kept = f"// {json.dumps([said, reasoning])}"
        grammar = "\n".join([head, *self._lines, kept]) + "\n"
        plain = None
        if self._tags is None and self._notation is None:
            plain = self._plain(begins, said, required=required, reasoning=reasoning)
        return CallGrammar(grammar, PartPlaces(net, start), plain)

    def _plain(
        self, begins: str, said: Sequence[str], *, required: bool, reasoning: bool
    ) -> CallTextAutomaton:
        """What holds within arguments, beside the grammar."""
        commits = [re.escape(begins)] if begins else [rf"\A{one}" for one in self._at_start]
        if self._begun:
            names = "|".join(re.escape(tool.name + self._marks.after_name) for tool in self._tools)
            commits.append(rf"\A(?:{names})")
        opens, close, _ = self._reasons or (None, None, None)
        text = None if required else marked_text("|".join(commits), *([opens] if opens else []))
        marks = marked_text("|".join(map(re.escape, said))) if said else None
        return CallTextAutomaton(
            None if text is None else text.table,
            None if close is None else marked_text(close).table,
            None if marks is None else marks.table,
            reasoning=reasoning,
            before=b" \n:,[=" if self._form.arguments == "pythonic" else b" \n:,[",
        )

    def _begins(self, text: str) -> str:
        """The mark that a call begins with, which free text does not hold."""
        if self._marks.begins:
            return str(self._marks.begins)
        found = _FIRST_MARK.match(text)
        if found is None:
            raise ShapeError(f"call.begins: the format {self._form.name} does not say by what a call begins")
        return found.group()

    def _thought(self, net: Net) -> tuple[int, int]:
        """Reasoning up to its close: where it begins and ends in the net."""
        assert self._reasons is not None
        _, close, before = self._reasons
        self._lines.append(f"THOUGHT: {_up_to(close)}" + _without(before))
        here, end = net.new(), net.new()
        net.leaves[here] = TextLeaf(marked_text(close, *([before] if before else [])), 1), (end,)
        return here, end

    def _required(self, net: Net, start: int, opening: str, thinks: tuple[int, int] | None) -> str:
        calls, lark = self._calls(opening), ""
        if thinks is not None:
            net.empty[start].append(thinks[0])
            rest = self._behind_reasoning()
            gap = CallPart.choice(CallPart.text(""), CallPart.text(rest)) if rest else CallPart.text("")
            start = gap.net(net, thinks[1])
            lark = f"THOUGHT {gap.lark if rest else ''} "
        net.final.add(calls.net(net, start))
        return lark + calls.lark

    def _behind_reasoning(self) -> str:
        """What the family writes between the mark that closes reasoning and what follows."""
        written, close = self._form.reasoning, None if self._reasons is None else self._reasons[1]
        if written is None or close is None:
            return ""
        found = re.search(close, written.close)
        return "" if found is None else str(written.close[found.end() :])

    def _at_the_start(self, net: Net, start: int, opening: str) -> str:
        """Calls at the beginning of a reply, or text that does not begin like one."""
        never = "|".join([*(rf"\A{one}" for one in self._at_start), *self._never])
        plain = f"PLAIN: /{_ANY}/" + "".join(f" & ~/{_slashed(one)}{_ANY}/" for one in self._at_start)
        self._lines.append(plain + _without("|".join(self._never)))
        text = net.new()
        net.empty[start].append(text)
        net.leaves[text] = TextLeaf(marked_text(never), 0), ()
        calls = self._calls(opening)
        net.final.add(calls.net(net, start))
        return f"PLAIN | {calls.lark}"

    def _anywhere(
        self,
        net: Net,
        start: int,
        opening: str,
        begins: str,
        thinks: tuple[int, int] | None,
        *,
        reasoning: bool,
    ) -> str:
        """Text, then calls or nothing; reasoning in between."""
        mark = re.escape(begins)
        never = self._never
        opens = [] if self._reasons is None else [self._reasons[0]]
        either = "|".join(dict.fromkeys([mark, *opens, *never]))
        self._lines.append(f"PLAIN: /{_ANY}/" + _without(either))
        self._lines.append(f"OPENED: {_up_to(mark, either)}")
        text, called = net.new(), net.new()
        ends: tuple[int, ...] = (called,)
        lark = ""
        if thinks is not None and self._reasons is not None:
            self._lines.append(f"REASONS: {_up_to(opens[0], either)}")
            ends = (called, thinks[0])
            net.empty[thinks[1]].append(text)
            lark = ("THOUGHT " if reasoning else "") + "(REASONS THOUGHT)* "
        patterns = [mark, *opens, *(["|".join(never)] if never else [])]
        net.leaves[text] = TextLeaf(marked_text(*patterns), len(ends)), ends
        begin, start = start, net.new()
        if not self._begun:
            net.empty[begin].append(start)
        net.empty[start].append(thinks[0] if reasoning and thinks is not None else text)
        calls = self._calls(opening[len(begins) :])
        net.final.add(calls.net(net, called))
        lark += f"(PLAIN | OPENED {calls.lark})"
        if not self._begun:
            return lark
        # The prompt has begun a call: text says that it is none.
        text_first = CallPart.text(self._form.answer)
        net.empty[text_first.net(net, begin)].append(text)
        direct = self._calls(opening[len(self._begun) :])
        net.final.add(direct.net(net, begin))
        return f"{text_first.lark} {lark} | {direct.lark}"


def _notation(form: CallFormat) -> Notation | None:
    """How values are written within each other, where that is not JSON's way or Python's."""
    calls, marks = form.response_template["fields"]["tool_calls"], form.call.argument
    if marks is not None:
        return TagsInTags(marks.nested, form.call.close) if marks.nested else None
    options = calls.get("content_args") or {}
    if form.arguments != "json" or not options.get("string_delims"):
        return None
    bare, never = bool(options.get("unquoted_keys")), _patterns(calls, "close")
    return MarkedStrings(tuple(options["string_delims"][0]), bare=bare, never=never)


def _numbered(text: str) -> list[CallPart]:
    """A literal in which the number of a call may stand."""
    first, *others = _NUMBER.split(text)
    found = [CallPart.text(first)]
    for other in others:
        found += [CallPart.digits(), CallPart.text(other)]
    return found


def _slashed(pattern: str) -> str:
    """A regular expression as it stands between slashes."""
    return in_lark(pattern)


def _up_to(pattern: str, either: str = "") -> str:
    """A terminal: text up to the first match of a pattern, which ends it, or of any that could come before it."""
    return f"/{_ANY}({_slashed(pattern)})/" + _without(either or pattern, ".+")


def _without(pattern: str, behind: str = ".*") -> str:
    """What a terminal does not hold, with so much behind it."""
    return f" & ~/{_ANY}({_slashed(pattern)})(?s:{behind})/" if pattern else ""


def _plain(pattern: str) -> str:
    """A pattern without names of groups and blanks in front, and with what it looks ahead to."""
    return _NAMED.sub("(?:", pattern).removeprefix(r"\s*").replace("(?=", "(?:")


def _patterns(field: Mapping[str, Any], name: str) -> list[str]:
    if f"{name}_pattern" in field:
        return [str(field[f"{name}_pattern"])]
    literals = field.get(name, ())
    return [re.escape(one) for one in ([literals] if isinstance(literals, str) else literals)]


def _unread(field: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What free text does not begin with, and does not hold, lest it be read as a call."""
    starts: list[str] = []
    never: list[str] = []
    for pattern in _patterns(field, "open"):
        found = re.match(r"\(\?:\\A\|(.*?)\)(?=\\s\*|\(\?)", pattern, re.DOTALL)
        if found is None:
            never.append(_plain(pattern))
            continue
        rest = pattern[found.end() :]
        if rest.startswith((r"\s*", "(?=")):
            starts.append(_plain(rest))
        # What looks behind is the end of a prompt.
        behind = re.sub(r"\(\?<=(?:[^()]|\([^()]*\))*\)\|?", "", found[1])
        never += [one for one in _BAR.split(behind) if one]
    return starts, never


def _reasoning(fields: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """What opens and closes reasoning, and before what it is over without a mark, as patterns; None: there is none."""
    for name in ("reasoning_content", "thinking", "reasoning"):
        if name in fields:
            opens, closes = _patterns(fields[name], "open"), _patterns(fields[name], "close")
            if opens and closes:
                ends = [_AHEAD.fullmatch(one) for one in closes]
                closes = [one if end is None else end[1] for one, end in zip(closes, ends, strict=True)]
                before = "|".join(end[2] for end in ends if end is not None)
                return "|".join(map(_bare, opens)), "|".join(map(_bare, closes)), before
    return None


def _bare(pattern: str) -> str:
    """A pattern without the blanks that may stand around a mark."""
    found = _NAMED.sub("(?:", pattern)
    for blank in (r"\s*", r"\n?"):
        found = found.removeprefix(blank)
    return found.removesuffix(r"\s*")


def _ends(field: Mapping[str, Any]) -> tuple[str, ...]:
    """Literals of which every end of a call holds one."""
    found = [run for pattern in _patterns(field, "close") for run in _longest_runs(pattern)]
    return tuple(dict.fromkeys(run for run in found if run))


def _longest_runs(pattern: str) -> list[str]:
    """Of each way to match a pattern the longest literal in it."""
    return [max(way, key=len) for way in literal_runs(pattern)]


def _literal_head(pattern: str) -> str:
    """The literal that all matches of a pattern begin with, as a pattern; all of it if there is none."""
    heads = {way[0] for way in literal_runs(pattern)}
    return re.escape(heads.pop()) if len(heads) == 1 and "" not in heads else pattern
