"""Parts that the text of a reply is put together of: as a grammar of the library's, and as places beside it.

Both are made from the same parts, so what a grammar lets come always has a place.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from nco_guard.shapes.marked import MarkedText, TokenBytes
from nco_guard.shapes.places import JsonPlaces

_FAR = 1 << 30
_LEAF = 8

__all__ = ["CallPart", "JsonLeaf", "Net", "PartPlaces", "TextLeaf"]


class PartLeaf(Protocol):
    """What knows where a text stands within a part that is no literal."""

    start: Any

    def feed(self, place: Any, byte: int) -> tuple[Any, int] | None:
        """The place after a byte and which end it is (-1: none yet); None: it may not come."""

    def key(self, place: Any) -> Hashable:
        """Equal for places that can be continued by the same texts."""

    def kind(self, place: Any) -> Hashable:
        """As of `Places`."""


class TextLeaf:
    """Text up to the first of some marks; what is in none of `ends` may not come. kept: the text itself matters."""

    def __init__(self, text: MarkedText, ends: int, *, kept: bool = False) -> None:
        self.text, self.ends, self.kept = text, ends, kept
        self.start = (0, b"")

    def feed(self, place: tuple[int, bytes], byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        state, said = place
        after = self.text.step(state, byte)
        if after >= 0:
            return (after, said + bytes([byte]) if self.kept else b""), -1
        return (None, ~after) if ~after < self.ends else None

    def key(self, place: tuple[int, bytes]) -> Hashable:
        """See `PartLeaf`."""
        return place

    kind = key


class JsonLeaf:
    """An object or an array of a schema."""

    def __init__(self, schema: Any) -> None:
        self.places = JsonPlaces(schema)
        self.start = self.places.start

    def feed(self, place: Any, byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        after = self.places.feed(place, bytes([byte]))
        if after is None:
            return None
        return after, 0 if not after.frames and after.mode == "after" else -1

    def key(self, place: Any) -> Hashable:
        """See `PartLeaf`."""
        return self.places.key(place)

    def kind(self, place: Any) -> Hashable:
        """See `PartLeaf`."""
        return self.places.kind(place)


class Net:
    """Bytes that lead from one number to others, and leaves between. `final`: where a text ends."""

    def __init__(self) -> None:
        self.edges: list[dict[int, list[int]]] = []
        self.empty: list[list[int]] = []
        self.leaves: dict[int, tuple[PartLeaf, tuple[int, ...]]] = {}
        self.final: set[int] = set()

    def new(self) -> int:
        """A further number."""
        self.edges.append({})
        self.empty.append([])
        return len(self.edges) - 1

    def distances(self) -> list[int]:
        """How many bytes an end is away from each number, a leaf counted as a few."""
        found = [_FAR] * len(self.edges)
        for state in self.final:
            found[state] = 0
        changed = True
        while changed:
            changed = False
            for state in range(len(found) - 1, -1, -1):
                after = [found[one] + 1 for ones in self.edges[state].values() for one in ones]
                after += [found[one] for one in self.empty[state]]
                if state in self.leaves:
                    after += [found[one] + _LEAF for one in self.leaves[state][1]]
                best = min(after, default=_FAR)
                if best < found[state]:
                    found[state], changed = best, True
        return found

    def closure(self, states: Sequence[int]) -> list[int]:
        """These and what is reached without a byte."""
        found = dict.fromkeys(states)
        waiting = list(states)
        for state in waiting:
            for after in self.empty[state]:
                if after not in found:
                    found[after] = None
                    waiting.append(after)
        return list(found)


@dataclass(frozen=True)
class CallPart:
    """A part by its grammar and what it adds to a net. kind says what `value` and `inner` are:

    "text": a literal. "digits": a number below 100. "leaf": `value` is the leaf, with one end. "row": one behind the
    other. "choice": one of these. "more": the first, then any number of times the second.
    """

    kind: str
    lark: str
    value: Any = None
    inner: tuple[CallPart, ...] = ()

    @classmethod
    def text(cls, text: str) -> CallPart:
        """A literal."""
        return cls("text", json.dumps(text, ensure_ascii=False) if text else "", text.encode())

    @classmethod
    def digits(cls) -> CallPart:
        """The number of a call."""
        return cls("digits", "/[0-9]|[1-9][0-9]/")

    @classmethod
    def leaf(cls, lark: str, leaf: PartLeaf) -> CallPart:
        """What a rule or terminal of the grammar says, and where texts stand in it."""
        return cls("leaf", lark, leaf)

    @classmethod
    def row(cls, *inner: CallPart) -> CallPart:
        """One behind the other."""
        kept = tuple(one for one in inner if one.kind != "text" or one.value)
        return cls("row", " ".join(one.lark for one in kept if one.lark), None, kept)

    @classmethod
    def choice(cls, *inner: CallPart) -> CallPart:
        """One of these."""
        return cls("choice", "(" + " | ".join(one.lark or '""' for one in inner) + ")", None, inner)

    @classmethod
    def more(cls, first: CallPart, again: CallPart) -> CallPart:
        """The first, then the second any number of times."""
        return cls("more", f"{first.lark} ({again.lark})*", None, (first, again))

    def net(self, net: Net, start: int) -> int:
        """Put it into a net, from a number on; the number where it ends."""
        if self.kind == "text":
            for byte in self.value:
                after = net.new()
                net.edges[start].setdefault(byte, []).append(after)
                start = after
            return start
        if self.kind == "digits":
            return _digits(net, start)
        if self.kind == "leaf":
            here, end = net.new(), net.new()
            net.empty[start].append(here)
            net.leaves[here] = self.value, (end,)
            return end
        if self.kind == "row":
            for one in self.inner:
                start = one.net(net, start)
            return start
        end = net.new()
        if self.kind == "choice":
            for one in self.inner:
                net.empty[one.net(net, start)].append(end)
            return end
        net.empty[self.inner[0].net(net, start)].append(end)
        net.empty[self.inner[1].net(net, end)].append(end)
        return end


def _digits(net: Net, start: int) -> int:
    zero, one, two = net.new(), net.new(), net.new()
    for digit in range(0x30, 0x3A):
        net.edges[start].setdefault(digit, []).append(zero if digit == 0x30 else one)
        net.edges[one].setdefault(digit, []).append(two)
    for each in (zero, one):
        net.empty[each].append(two)
    return two


_Config = tuple[int, Any]


class PartPlaces:
    """`shapes.places.Places` of a net: all numbers at which a text may stand, with the places in leaves."""

    def __init__(self, net: Net, start: int) -> None:
        self._net = net
        self.start = self._entered([start])
        self._tokens: dict[int, tuple[object, TokenBytes]] = {}

    def _entered(self, states: Sequence[int]) -> frozenset[_Config]:
        leaves = self._net.leaves
        return frozenset(
            (state, leaves[state][0].start if state in leaves else None)
            for state in self._net.closure(states)
            if state in leaves or self._net.edges[state] or state in self._net.final
        )

    def feed(self, place: frozenset[_Config], data: bytes) -> frozenset[_Config] | None:
        """See `Places`."""
        for byte in data:
            found: set[_Config] = set()
            entered: list[int] = []
            for state, within in place:
                if within is None:
                    entered += self._net.edges[state].get(byte, ())
                    continue
                leaf, ends = self._net.leaves[state]
                after = leaf.feed(within, byte)
                if after is not None:
                    if after[1] < 0:
                        found.add((state, after[0]))
                    else:
                        entered.append(ends[after[1]])
            place = frozenset(found) | self._entered(entered) if entered else frozenset(found)
            if not place:
                return None
        return place

    def key(self, place: frozenset[_Config]) -> Hashable:
        """See `Places`."""
        leaves = self._net.leaves
        return frozenset(
            (state, None if within is None else leaves[state][0].key(within)) for state, within in place
        )

    def kind(self, place: frozenset[_Config]) -> Hashable:
        """See `Places`."""
        leaves = self._net.leaves
        return frozenset(
            (state, None if within is None else leaves[state][0].kind(within)) for state, within in place
        )

    def plain(self, place: frozenset[_Config], way: bytes) -> bool:
        """See `Places`."""
        one = self._leaf(place)
        if one is None or not isinstance(one[1], JsonLeaf):
            return True
        within, size = one[2], 0
        for byte in way:
            after = one[1].feed(within, byte)
            if after is None:
                return False
            within, size = after[0], size + 1
            if after[1] >= 0:
                break
        return one[1].places.plain(one[2], way[:size])

    def after_others(self, place: frozenset[_Config]) -> tuple[Hashable, list[bytes]] | None:
        """See `Places`."""
        one = self._leaf(place)
        if one is None or not isinstance(one[1], JsonLeaf):
            return None
        found = one[1].places.after_others(one[2])
        return None if found is None else (frozenset([(one[0], found[0])]), found[1])

    def _leaf(self, place: frozenset[_Config]) -> tuple[int, PartLeaf, Any] | None:
        """The one leaf that a text stands in, if it does in nothing else."""
        if len(place) != 1:
            return None
        ((state, within),) = place
        return None if within is None else (state, self._net.leaves[state][0], within)

    def after_characters(self, place: frozenset[_Config], count: int) -> frozenset[_Config] | None:
        """See `Places`."""
        one = self._leaf(place)
        if one is None or not isinstance(one[1], JsonLeaf):
            return None
        after = one[1].places.after_characters(one[2], count)
        return None if after is None else frozenset([(one[0], after)])

    def closing(self, place: frozenset[_Config]) -> bytes:
        """What brings a text nearer to its end, as far as that is known: of a mark, or a byte; nothing in JSON."""
        one = self._leaf(place)
        if one is not None:
            text = one[1] if isinstance(one[1], TextLeaf) and not one[1].kept else None
            return b"" if text is None else text.text.ways[one[2][0]]
        known = self._nearest
        ways = [
            (known[after], byte)
            for state, within in place
            if within is None
            for byte, reached in self._net.edges[state].items()
            for after in reached
        ]
        return bytes([min(ways)[1]]) if ways and not any(within is not None for _, within in place) else b""

    @cached_property
    def _nearest(self) -> list[int]:
        return self._net.distances()

    def keys(
        self, place: frozenset[_Config], tokens: Sequence[bytes], ids: Sequence[int]
    ) -> Iterator[Hashable] | None:
        """The kinds of the places after tokens, found at once within text; None elsewhere."""
        texts = [(state, self._net.leaves[state][0], within) for state, within in place if within is not None]
        if len(texts) != 1 or not isinstance(texts[0][1], TextLeaf) or texts[0][1].kept:
            return None
        return self._text_keys(place, *texts[0], tokens, ids)  # type: ignore[arg-type]

    def _text_keys(
        self,
        place: frozenset[_Config],
        state: int,
        leaf: TextLeaf,
        within: tuple[int, bytes],
        tokens: Sequence[bytes],
        ids: Sequence[int],
    ) -> Iterator[Hashable]:
        owner, data = self._tokens.get(id(tokens), (None, None))
        if data is None or owner is not tokens:
            data = TokenBytes(tokens)
            self._tokens = {id(tokens): (tokens, data)}
        after = leaf.text.after_tokens(within[0], data).tolist()
        others = {byte for number, inner in place if inner is None for byte in self._net.edges[number]}
        first = data.first.tolist()
        known: dict[int, Hashable] = {}
        for token in ids:
            reached = after[token]
            if reached < 0 or first[token] in others:
                fed = self.feed(place, tokens[token])
                yield None if fed is None else self.kind(fed)
                continue
            if reached not in known:
                known[reached] = frozenset([(state, leaf.key((reached, b"")))])
            yield known[reached]
