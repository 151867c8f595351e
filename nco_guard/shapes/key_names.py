"""The keys that a schema of objects names, as they stand in JSON."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Any


def key_in_json(name: str) -> bytes:
    """A key as `json` writes it, with its quotes."""
    return json.dumps(name, ensure_ascii=False).encode("utf-8", "surrogatepass")


class KeyNames:
    """The keys that a schema names, in the order in which they come: those of `properties`, then others required.

    Found by name, and by what was written of one, without a look at all of them: a schema may name thousands.

    Examples:
        >>> names = KeyNames({"properties": {"ab": {}, "b": {}}, "required": ["a"]})
        >>> [*names.position], names.begun(b'"a')
        (['ab', 'b', 'a'], ['ab', 'a'])
    """

    def __init__(self, node: Mapping[str, Any] | None) -> None:
        node = {} if node is None else node
        names = [*node.get("properties", {}), *node.get("required", ())]
        self.position = {name: at for at, name in enumerate(dict.fromkeys(names))}
        self._said = sorted((key_in_json(name), name) for name in self.position)
        self._required = sorted(self.position[name] for name in {*node.get("required", ())})
        self._in_order = [*self.position]

    def begun(self, tail: bytes) -> list[str]:
        """The keys, in their order, of which so much was written (with the first quote)."""
        found, at = [], bisect_left(self._said, (tail,))
        while at < len(self._said) and self._said[at][0].startswith(tail):
            found.append(self._said[at][1])
            at += 1
        return sorted(found, key=self.position.__getitem__)

    def required_after(self, last: str) -> str | None:
        """The next key that must come behind another, or behind none."""
        at = bisect_right(self._required, self.position.get(last, -1))
        return self._in_order[self._required[at]] if at < len(self._required) else None
