"""Policy files: YAML and JSON to plain data, and back.

YAML is read by YAML 1.2's rules for plain words: only `true` and `false` are booleans, and dates, times
and numbers with underscores are text. So `languages: [no]` and `strings: [on, 12:30]` mean what they say.
Only plain data is read, never objects; a key given twice is refused. Errors name the line where known.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Hashable
from typing import Any, NamedTuple, NoReturn

import yaml
from yaml.constructor import ConstructorError
from yaml.error import MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from nco_guard.arguments import file_path
from nco_guard.errors import PolicyError
from nco_guard.policy._errors import FIELDS, located

__all__ = ["Written", "dump_yaml", "read_file", "read_json", "read_yaml"]

_TAG = "tag:yaml.org,2002:"
# YAML 1.2's core schema, without octal and hexadecimal numbers.
_PLAIN = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?[0-9]+[eE][-+]?[0-9]+", "-+0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
)
# Where each rule, and each of its fields, stands in a YAML text: (index, field or None) -> line.
_Lines = dict[tuple[int, str | None], int]


class Written(NamedTuple):
    """What a policy file says, as plain data. `lines`: where each rule, and each of its fields, stands if known."""

    data: Any
    source: str
    lines: _Lines


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with YAML 1.2's plain words, no merge keys, and no key twice."""

    yaml_implicit_resolvers: dict[str, Any] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        """A dict; a key that is there twice is an error with its line."""
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise ConstructorError(None, None, "a key must be a plain word", key_node.start_mark)
            if key in seen:
                raise ConstructorError(None, None, "this key is there twice; keep one", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Quotes whatever either YAML 1.1 or 1.2 would not read as text."""

    yaml_implicit_resolvers = {
        first: list(known) for first, known in yaml.SafeDumper.yaml_implicit_resolvers.items()
    }

    def ignore_aliases(self, data: Any) -> bool:
        """Anchors would make the file harder to read."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> ScalarNode:
    # PyYAML's other styles turn NEL and the Unicode line separators into plain line breaks.
    return dumper.represent_scalar(_TAG + "str", text, style=None if text.isprintable() else '"')


def _represent_list(dumper: yaml.SafeDumper, data: list[Any]) -> SequenceNode:
    # Weights and the numbers of an automaton: on one line they can be counted.
    numbers = any(isinstance(one, int) for one in data) and not any(
        isinstance(one, list | dict) for one in data
    )
    return dumper.represent_sequence(_TAG + "seq", data, flow_style=numbers)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)

for _name, _pattern, _first in _PLAIN:
    for _class in (_Loader, _Dumper):
        _class.add_implicit_resolver(_TAG + _name, re.compile(rf"(?:{_pattern})\Z"), list(_first))


def dump_yaml(data: dict[str, Any]) -> str:
    """Plain data as YAML that `read_yaml` reads back to the same data."""
    # No folding: a line break inside a forbidden string would be hard to see.
    text = yaml.dump(
        data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=math.inf
    )
    return str(text)


def _unquoted(problem: str) -> str:
    """What PyYAML says, up to where it quotes the text: names of tokens and single characters may stay."""
    told, quote, rest = problem.partition("'") if "'" in problem else problem.partition('"')
    if re.fullmatch(r"(?:<[a-z ]+>|\\\\?.|.)'(?:, but .*)?", rest):
        return problem
    return told.rstrip(" ,") if quote else problem


def _line_of(error: YAMLError) -> str:
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    return f", line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""


def _lines(root: Node | None) -> _Lines:
    lines: _Lines = {}
    if not isinstance(root, MappingNode):
        return lines
    for key, value in root.value:
        if isinstance(key, ScalarNode) and key.value == "rules" and isinstance(value, SequenceNode):
            for index, entry in enumerate(value.value):
                lines[index, None] = entry.start_mark.line + 1
                for name, _ in entry.value if isinstance(entry, MappingNode) else ():
                    if isinstance(name, ScalarNode):
                        lines[index, name.value] = name.start_mark.line + 1
    return lines


def read_yaml(text: str, source: str = "YAML") -> Written:
    """What a YAML text says; `source` names it in errors. Raises `PolicyError` with the line where it is known."""
    loader = None
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        data = loader.construct_document(root) if root is not None else None
    except YAMLError as error:
        problem = "a character that YAML does not allow"
        if isinstance(error, MarkedYAMLError):
            problem = _unquoted(error.problem or "it cannot be read")
            if "escape character" in problem or "escape sequence" in problem:
                problem += "; put the value between single quotes, where a backslash is only itself: '\\d'"
        raise PolicyError(f"not valid YAML: {problem} ({source}{_line_of(error)})") from None
    except (RecursionError, ValueError, AttributeError) as error:
        # PyYAML's constructors raise what they like for a text that is not what its tag says.
        known = {
            RecursionError: "it is nested too deeply",
            AttributeError: "a value is not what its tag says",
        }
        what = known.get(type(error), "a number is too long, or a value is not what its tag says")
        raise PolicyError(f"not a policy: {what} ({source})") from None
    finally:
        if loader is not None:
            loader.dispose()
    return Written(data, source, _lines(root))


def _no_twice(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in data if names.count(name) > 1)
        # Any other key may be what the policy forbids, indented wrongly.
        known = twice in FIELDS
        raise PolicyError("this key is there twice in one object; keep one", field=twice if known else None)
    return data


def _no_constant(name: str) -> NoReturn:
    raise PolicyError(f'{name} is not JSON; an infinite penalty is written "inf"')


def read_json(text: str, source: str = "JSON") -> Written:
    """What a JSON text says, in the shape that YAML has; `source` names it in errors. Raises `PolicyError`."""
    try:
        data = json.loads(text, object_pairs_hook=_no_twice, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise PolicyError(
            f"not valid JSON: {error.msg.partition(':')[0]} ({source}, line {error.lineno}, column {error.colno})"
        ) from None
    except PolicyError as error:
        raise located(error, source) from None
    except (RecursionError, ValueError) as error:
        what = "it is nested too deeply" if isinstance(error, RecursionError) else "a number is too long"
        raise PolicyError(f"not a policy: {what} ({source})") from None
    return Written(data, source, {})


def read_file(path: str | os.PathLike[str]) -> Written:
    """What a UTF-8 file says, read as its suffix says: `.yaml`, `.yml` or `.json`.

    Raises `PolicyError` for another suffix and for a file that cannot be read, besides what parsing raises.
    """
    file = file_path("path", path)
    parsers = {".yaml": read_yaml, ".yml": read_yaml, ".json": read_json}
    parse = parsers.get(file.suffix.lower())
    if parse is None:
        raise PolicyError(f"{file.name}: unknown kind of file; known suffixes: {', '.join(parsers)}")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PolicyError(f"{file}: cannot be read: {error.strerror or 'unknown reason'}") from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"{file}: not UTF-8 (byte {error.start}); save it as UTF-8") from None
    return parse(text, file.name)
