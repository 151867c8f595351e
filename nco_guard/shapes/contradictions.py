"""What a JSON Schema asks for and a policy forbids: found before anything is written.

A place of a schema is a contradiction where each value that it lets through holds a match of a hard rule. What must be
there then makes the whole schema one, and is refused; what may be there is taken out of the schema, so that nobody
walks into it.

Pruning takes nothing from what can be written: a value without a match is valid under the pruned schema if and only if
it is under the whole one, in every branch of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nco_guard.compiler import CompiledPolicy
from nco_guard.compiler.compiled_policy import compiled_of
from nco_guard.errors import ContradictionError, ShapeError
from nco_guard.policy import Policy
from nco_guard.policy.twins import JSON_SUFFIX
from nco_guard.shapes.allowed import HardRules, Verdict, hard_rules
from nco_guard.shapes.dialect import searched_pattern

__all__ = ["Contradiction", "Pruned", "prune"]

Path = tuple[str, ...]
Kind = Literal["property", "value", "type", "branch", "items"]
Causes = tuple["Contradiction", ...]

_TYPES = ("string", "number", "integer", "boolean", "null", "array", "object")
_DEEP = 60
_ROUNDS = 20
# So many whole numbers are looked at one by one.
_RANGE = 2000
_DEFINED = ("$defs", "definitions")
_NAMED = ("properties", "patternProperties", *_DEFINED)  # below which names of the user's stand


@dataclass(frozen=True)
class Contradiction:
    """A place of which the policy leaves nothing.

    place: a JSON Pointer into the schema as it was given; a name in it that is forbidden itself is its number there, in
    angle brackets. kind: what stands there. rule_ids: the rules that forbid it, in the policy's order.
    """

    place: str
    kind: Kind
    rule_ids: tuple[str, ...]


@dataclass(frozen=True)
class Pruned:
    """What was taken out of a schema, and at how many places no answer was found within bounds.

    A place without an answer is left as it is: what it asks for is decided while it is written.
    """

    removed: tuple[Contradiction, ...] = ()
    undecided: int = 0


def prune(schema: Any, compiled: CompiledPolicy | Policy) -> tuple[Any, Pruned]:
    """A JSON Schema without what a policy forbids anyway, and what was taken out.

    compiled: the policy, compiled or not, or a guard.

    Looked at: `const` and `enum`; `pattern`, `format`, `minLength` and `maxLength` of strings; whole numbers between
    two bounds, numbers at all, true, false and null; names of properties; and from these `properties`, `required`,
    `additionalProperties`, `items`, `prefixItems`, `minItems`, `anyOf`, `oneOf`, `allOf` and local `$ref`s, recursive
    ones too. Formats count as enforced, and numbers as written the way they print. Of `allOf`, and of keywords beside
    one another, each is looked at by itself: what only all of them together contradict is not found. `not`, `if`,
    `contains`, `propertyNames` and `patternProperties` are left alone.

    Guarantee: what is refused or taken out can only hold matches, in every value and wherever the text around it ends.
    `schema` itself is not changed.

    Cost: some tenths of a second for a policy that was not asked before (its automata are filled); then some
    milliseconds for a place with a pattern, up to a second or two for one where a bound is met, microseconds for
    others. Places that are alike are asked about once.

    Errors: `ContradictionError`, with the places and the rules, where nothing is left that the schema would take.

    Examples:
        >>> from nco_guard import Policy, StringRule
        >>> from nco_guard.compiler import compile_policy
        >>> compiled = compile_policy(Policy(name="p", rules=(StringRule(id="cats", strings=("cat",)),)))
        >>> schema, pruned = prune({"enum": ["cat", "dog"]}, compiled)
        >>> schema, [(each.place, each.rule_ids) for each in pruned.removed]
        ({'enum': ['dog']}, [('#/enum/0', ('cats',))])
        >>> needed = {"type": "object", "properties": {"pet": {"const": "cat"}}, "required": ["pet"]}
        >>> try:
        ...     prune(needed, compiled)
        ... except ContradictionError as error:
        ...     print(error.place, error.rule_ids)
        #/properties/pet ('cats',)
    """
    rules = hard_rules(compiled_of(compiled))
    with rules.lock:
        return _pruned(schema, rules)


def _pruned(schema: Any, rules: HardRules) -> tuple[Any, Pruned]:
    known: dict[Path, Causes] = {}
    # What a reference leads to is known once that has been walked; so walks are repeated until nothing new is found.
    for _ in range(_ROUNDS):
        walk = _Walk(schema, rules, known)
        found, causes = walk.node(schema, ())
        if causes:
            raise ContradictionError([(each.place, each.rule_ids) for each in causes])
        if walk.contradictions.keys() <= known.keys():
            break
        known = {**known, **walk.contradictions}
    return found, Pruned(tuple(walk.removed), walk.undecided)


@dataclass
class _Walk:
    """One walk through a schema; `known`: places that an earlier one found nothing left of."""

    root: Any
    rules: HardRules
    known: Mapping[Path, Causes]
    removed: list[Contradiction] = field(default_factory=list)
    undecided: int = 0
    contradictions: dict[Path, Causes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._targets = [*_targets(self.root)]
        said = self.root.get("$schema") if isinstance(self.root, Mapping) else None
        # Before 2019 what stands beside a reference had no meaning.
        self._refers_alone = "/draft-0" in str(said)

    # -- nodes -------------------------------------------------------------------------------------------------

    def node(self, schema: Any, path: Path) -> tuple[Any, Causes]:
        """A schema without what is forbidden, and why nothing is left of it; no causes where something may be."""
        if not isinstance(schema, Mapping):
            return schema, ()
        if len(path) > _DEEP:
            self.undecided += 1
            return schema, ()
        node, before = dict(schema), len(self.removed)
        for name in _DEFINED:
            if isinstance(schema.get(name), Mapping):
                node[name] = {
                    key: self.node(each, (*path, name, key))[0] for key, each in schema[name].items()
                }
        causes = self._parts(node, path)
        if not causes:
            return node, ()
        del self.removed[before:]  # the whole of it goes
        self.contradictions[path] = causes
        return schema, causes

    def _parts(self, node: dict[str, Any], path: Path) -> Causes:
        """Why nothing is left of a node; what is forbidden in it is taken out of it."""
        if "$ref" in node and self._refers_alone:
            return self._reference(node)
        return (
            self._reference(node)
            or self._values(node, path)
            or self._types(node, path)
            or self._branches(node, "anyOf", path)
            or self._branches(node, "oneOf", path)
            or self._all_of(node, path)
        )

    def _reference(self, node: dict[str, Any]) -> Causes:
        target = _pointer(node.get("$ref"))
        return () if target is None else self.known.get(target, ())

    def _all_of(self, node: dict[str, Any], path: Path) -> Causes:
        branches = node.get("allOf")
        if not isinstance(branches, list):
            return ()
        found = [self.node(branch, (*path, "allOf", str(place))) for place, branch in enumerate(branches)]
        node["allOf"] = [branch for branch, _ in found]
        return next((causes for _, causes in found if causes), ())

    def _branches(self, node: dict[str, Any], name: str, path: Path) -> Causes:
        branches = node.get(name)
        if not isinstance(branches, list) or not branches:
            return ()
        found = [self.node(branch, (*path, name, str(place))) for place, branch in enumerate(branches)]
        if all(causes for _, causes in found):
            return tuple(each for _, causes in found for each in causes)
        node[name] = [
            branch
            for place, (branch, causes) in enumerate(found)
            if not (causes and self._taken((*path, name, str(place)), "branch", causes, listed=True))
        ]
        return ()

    # -- values ------------------------------------------------------------------------------------------------

    def _values(self, node: dict[str, Any], path: Path) -> Causes:
        if "const" in node:
            ids = self.rules.of_value(node["const"])
            return (self._at(path, "value", ids),) if ids else ()
        values = node.get("enum")
        if not isinstance(values, list) or not values:
            return ()
        verdicts = [self.rules.of_value(value) for value in values]
        if all(verdicts):
            return (self._at(path, "value", tuple(each for ids in verdicts for each in ids)),)
        found: list[Any] = []
        for place, (value, ids) in enumerate(zip(values, verdicts, strict=True)):
            at = (*path, "enum", str(place))
            if not (ids and self._taken(at, "value", (self._at(at, "value", ids),), listed=True)):
                found.append(value)
        node["enum"] = found
        return ()

    def _types(self, node: dict[str, Any], path: Path) -> Causes:
        said = node.get("type", _TYPES)
        types = [said] if isinstance(said, str) else [*said] if isinstance(said, list | tuple) else [*_TYPES]
        inner = {"object": self._object(node, path), "array": self._array(node, path)}
        if "type" not in node or "enum" in node or "const" in node or not types:
            return ()  # any other type will do, or the values have been looked at
        found = {kind: inner.get(kind) or self._plain(kind, node, path) for kind in types}
        if all(found.values()):
            return tuple(dict.fromkeys(each for causes in found.values() for each in causes))
        kept = [
            kind
            for place, kind in enumerate(types)
            if not (
                found[kind] and self._taken((*path, "type", str(place)), "type", found[kind], listed=True)
            )
        ]
        if len(kept) < len(types):
            node["type"] = kept if len(kept) > 1 else kept[0]
        return ()

    def _plain(self, kind: str, node: Mapping[str, Any], path: Path) -> Causes:
        """Why there is no string, number, true, false or null; nothing where there is one, or may be."""
        verdict = Verdict()
        if kind == "string":
            low, high = _whole(node.get("minLength")) or 0, _whole(node.get("maxLength"))
            pattern, form = node.get("pattern"), node.get("format")
            verdict = self.rules.of_strings(
                _as_enforced(pattern) if isinstance(pattern, str) else None,
                form if isinstance(form, str) else None,
                low,
                high,
            )
        elif kind in ("integer", "number"):
            verdict = self._number(kind, node)
        elif kind in ("boolean", "null"):
            written = ("true", "false") if kind == "boolean" else ("null",)
            ids = [self.rules.of_literal(each) for each in written]
            verdict = Verdict(tuple(each for one in ids for each in one) if all(ids) else ())
        self.undecided += not verdict.decided
        return (self._at(path, "value", verdict.rule_ids),) if verdict.rule_ids else ()

    def _number(self, kind: str, node: Mapping[str, Any]) -> Verdict:
        low, high = _between(node)
        step = _whole(node.get("multipleOf")) or 1
        if kind == "integer" and low is not None and high is not None and 0 <= high - low < _RANGE:
            found: list[str] = []
            for number in (each for each in range(low, high + 1) if each % step == 0):
                ids = self.rules.of_literal(str(number))
                if not ids:
                    return Verdict(text=str(number))
                found += ids
            return Verdict(tuple(found))
        return self.rules.of_numbers(kind)

    # -- objects and arrays ------------------------------------------------------------------------------------

    def _object(self, node: dict[str, Any], path: Path) -> Causes:
        """Why there is no object; properties that may be left out are taken out."""
        properties, needed = node.get("properties"), node.get("required")
        properties = dict(properties) if isinstance(properties, Mapping) else {}
        needed = [name for name in needed if isinstance(name, str)] if isinstance(needed, list) else []
        failing: list[Contradiction] = []
        for name, each in [*properties.items()]:
            at = (*path, "properties", name)
            ids = self.rules.of_string(name)
            found, causes = (each, (self._at(at, "property", ids),)) if ids else self.node(each, at)
            properties[name] = found
            if causes and name in needed:
                failing += causes
            elif causes and each is not False and self._taken(at, "property", causes):
                if node.get("additionalProperties") is False and not node.get("patternProperties"):
                    del properties[name]
                else:
                    properties[name] = False  # or it would be a further property
        further, patterns = node.get("additionalProperties"), node.get("patternProperties")
        at = (*path, "additionalProperties")
        rest, causes = self.node(further, at)
        for name in needed:
            if name not in properties:
                ids = self.rules.of_string(name)
                named = self._at((*path, "required", str(node["required"].index(name))), "property", ids)
                failing += (named,) if ids else () if patterns else causes
        if failing:
            return tuple(dict.fromkeys(failing))
        if isinstance(node.get("properties"), Mapping):
            node["properties"] = properties
        if isinstance(further, Mapping):
            node["additionalProperties"] = False if causes and self._taken(at, "property", causes) else rest
        return ()

    def _array(self, node: dict[str, Any], path: Path) -> Causes:
        """Why there is no array; items of which nothing is left make it shorter."""
        first = node.get("prefixItems")
        first = first if isinstance(first, list) else []
        least = _whole(node.get("minItems")) or 0
        found: list[Any] = []
        for place, each in enumerate(first):
            item, causes = self.node(each, (*path, "prefixItems", str(place)))
            if causes:
                node["prefixItems"] = [*found, *first[place:]]
                return self._shorter(node, place, least, (*path, "prefixItems", str(place)), causes)
            found.append(item)
        if found:
            node["prefixItems"] = found
        if isinstance(node.get("items"), Mapping):
            node["items"], causes = self.node(node["items"], (*path, "items"))
            if causes:
                return self._shorter(node, len(first), least, (*path, "items"), causes)
        return ()

    def _shorter(self, node: dict[str, Any], length: int, least: int, path: Path, causes: Causes) -> Causes:
        if least > length:
            return causes
        if self._taken(path, "items", causes, listed=path[-1] != "items"):
            most = _whole(node.get("maxItems"))
            node["maxItems"] = length if most is None else min(most, length)
            node.pop("items", None)
            if length:
                node["prefixItems"] = node["prefixItems"][:length]
            else:
                node.pop("prefixItems", None)
        return ()

    # -- reports -----------------------------------------------------------------------------------------------

    def _taken(self, path: Path, kind: Kind, causes: Causes, *, listed: bool = False) -> bool:
        """Whether a place may be taken out: nothing refers to what is in it, or beside it in a list. It is reported."""
        held = path[:-1] if listed else path
        if any(target[: len(held)] == held for target in self._targets):
            self.undecided += 1
            return False
        ids = tuple(each for one in causes for each in one.rule_ids)
        self.removed.append(self._at(path, kind, ids))
        return True

    def _at(self, path: Path, kind: Kind, rule_ids: tuple[str, ...]) -> Contradiction:
        named = self.rules.in_order(rule_ids)
        # A twin that sees through JSON is the rule that it is of.
        own = dict.fromkeys(each.removesuffix(JSON_SUFFIX) for each in named)
        return Contradiction(self._shown(path), kind, tuple(own))

    def _shown(self, path: Path) -> str:
        """A JSON Pointer, without the names that may not be said."""
        shown, node, named = ["#"], self.root, False
        for token in path:
            names = [*node] if isinstance(node, Mapping) else []
            # Keywords and numbers are nobody's secret.
            forbidden = named and bool(self.rules.of_string(token))
            named = not named and token in _NAMED
            place = names.index(token) if token in names else 0
            shown.append(f"<{place}>" if forbidden else token.replace("~", "~0").replace("/", "~1"))
            node = _inside(node, token)
        return "/".join(shown)


# -- schemas -----------------------------------------------------------------------------------------------------------


def _whole(value: Any) -> int | None:
    """A whole number of a schema, 2.0 among them; None for anything else."""
    return int(value) if _is_finite(value) and value == int(value) else None


def _as_enforced(pattern: str) -> str:
    """A pattern in the reading that is enforced; one that cannot be, as it is."""
    try:
        return rf"\A(?:{searched_pattern(pattern)})\Z"
    except ShapeError:
        return pattern


def _between(node: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """The least and the greatest whole number within the bounds of a node; None where there is no bound."""
    named = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")
    given = {name: node[name] for name in named if _is_finite(node.get(name))}
    lows = [math.ceil(given[name]) for name in ("minimum",) if name in given]
    lows += [math.floor(given[name]) + 1 for name in ("exclusiveMinimum",) if name in given]
    highs = [math.floor(given[name]) for name in ("maximum",) if name in given]
    highs += [math.ceil(given[name]) - 1 for name in ("exclusiveMaximum",) if name in given]
    return max(lows, default=None), min(highs, default=None)


def _is_finite(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isinstance(value, int) or math.isfinite(value)


def _pointer(reference: Any) -> Path | None:
    """The place that a local reference names; None for any other."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return tuple(token.replace("~1", "/").replace("~0", "~") for token in reference.split("/")[1:])


def _inside(node: Any, token: str) -> Any:
    if isinstance(node, Mapping):
        return node.get(token)
    return (
        node[int(token)] if isinstance(node, list) and token.isdecimal() and int(token) < len(node) else None
    )


def _targets(schema: Any) -> Iterator[Path]:
    """The places that references within a schema name, besides itself."""
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            target = _pointer(node.get("$ref"))
            if target:
                yield target
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
