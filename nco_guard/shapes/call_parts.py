"""Parts that the text of a reply is put together of: as a grammar of the library's, and as places beside it.

Both are made from the same parts, so what a grammar lets come always has a place.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from nco_guard.shapes.marked import TokenBytes
from nco_guard.shapes.part_leaves import (
    ClosedKeyLeaf,
    JsonLeaf,
    KeyLeaf,
    NumberLeaf,
    PartLeaf,
    TextLeaf,
    ValueLeaf,
)
from nco_guard.shapes.places import JsonPlaces
from nco_guard.shapes.plain_values import PlainLeaf

_FAR = 1 << 30
_LEAF = 8
# Parts within each other, at most: one level less than readers go.
_DEEPEST = 90

__all__ = ["CallPart", "Net", "PartPlaces", "WithinLeaf"]


class Net:
    """Bytes that lead from one number to others, and leaves between. `final`: where a text ends.

    keys: there are leaves that say what must not be said twice.
    """

    def __init__(self) -> None:
        self.edges: list[dict[int, list[int]]] = []
        self.empty: list[list[int]] = []
        self.leaves: dict[int, tuple[PartLeaf, tuple[int, ...]]] = {}
        self.final: set[int] = set()
        #: Where keys that were written do not matter any more.
        self.forgets: set[int] = set()

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
    other. "choice": one of these. "more": the first, then any number of times the second. "list": some of these, in
    their order; `value` is what stands between two, and which of them must be there. "whole": behind it, keys that
    were written in it do not matter.
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

    @classmethod
    def whole(cls, inner: CallPart) -> CallPart:
        """All arguments of a call, in which keys are written that others may have, too."""
        return cls("whole", inner.lark, None, (inner,))

    @classmethod
    def listed(cls, lark: str, between: str, inner: Sequence[CallPart], needed: Sequence[bool]) -> CallPart:
        """Some parts in their order, of which some must be there; `lark`: a rule that says so."""
        return cls("list", lark, (CallPart.text(between), tuple(needed)), tuple(inner))

    @classmethod
    def items(cls, lark: str, between: str, inner: Sequence[CallPart], least: int, *, more: bool) -> CallPart:
        """The first of some parts, at least so many, and the last any number of times more; `lark` as of `listed`."""
        return cls("items", lark, (CallPart.text(between), least, more), tuple(inner))

    def net(self, net: Net, start: int) -> int:
        """Put it into a net, from a number on; the number where it ends."""
        if self.kind == "list":
            return _listed(net, start, self.inner, *self.value)
        if self.kind == "items":
            return _in_a_row(net, start, self.inner, *self.value)
        if self.kind == "whole":
            end = self.inner[0].net(net, start)
            net.forgets.add(end)
            return end
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


def _listed(
    net: Net, start: int, inner: Sequence[CallPart], between: CallPart, needed: Sequence[bool]
) -> int:
    """Parts in their order: `start` has none of them before it, `more` has some."""
    more: int | None = None
    for part, must in zip(inner, needed, strict=True):
        begin = net.new()
        net.empty[start].append(begin)
        if more is not None:
            net.empty[between.net(net, more)].append(begin)
        after, none = net.new(), net.new()
        net.empty[part.net(net, begin)].append(after)
        if not must:
            net.empty[start].append(none)
            if more is not None:
                net.empty[more].append(after)
        start, more = none, after
    end = net.new()
    net.empty[start].append(end)
    if more is not None:
        net.empty[more].append(end)
    return end


def _in_a_row(
    net: Net, start: int, inner: Sequence[CallPart], between: CallPart, least: int, more: bool
) -> int:
    """The first of some parts, at least so many."""
    end, begin = net.new(), start
    if not least:
        net.empty[start].append(end)
    for number, part in enumerate(inner):
        begin = net.new()
        net.empty[between.net(net, start) if number else start].append(begin)
        start = part.net(net, begin)
        if number + 1 >= least:
            net.empty[start].append(end)
    if more and inner:
        net.empty[between.net(net, start)].append(begin)
    return end


def _digits(net: Net, start: int) -> int:
    zero, one, two = net.new(), net.new(), net.new()
    for digit in range(0x30, 0x3A):
        net.edges[start].setdefault(digit, []).append(zero if digit == 0x30 else one)
        net.edges[one].setdefault(digit, []).append(two)
    for each in (zero, one):
        net.empty[each].append(two)
    return two


_Config = tuple[int, Any, frozenset[bytes]]
_NO_KEYS = frozenset[bytes]()


class WithinLeaf:
    """A part that may hold itself, up to where it ends, which is after a byte of its own: a list, an object.

    A place: how deep it is, and where the text stands in it. `part`: set once it is known.
    """

    start = None
    part: CallPart

    def __init__(self) -> None:
        self._deep: dict[int, PartPlaces] = {}

    def at(self, depth: int) -> PartPlaces:
        """The places within it so deep."""
        if depth not in self._deep:
            other = next(iter(self._deep.values()), None)
            if other is None:
                net = Net()
                start = net.new()
                net.final.add(self.part.net(net, start))
            else:
                net, start = other.net, other.begin
            self._deep[depth] = PartPlaces(net, start, depth)
        return self._deep[depth]

    def feed(self, place: tuple[int, Any], byte: int) -> tuple[Any, int] | None:
        """See `PartLeaf`."""
        depth, inner = place
        places = self.at(depth)
        after = places.feed(inner, bytes([byte]))
        if after is None:
            return None
        over = any(state in places.net.final for state, _, _ in after)
        return (None, 0) if over else ((depth, after), -1)

    def key(self, place: tuple[int, Any]) -> Hashable:
        """See `PartLeaf`."""
        return place[0], self.at(place[0]).key(place[1])

    def kind(self, place: tuple[int, Any]) -> Hashable:
        """See `PartLeaf`."""
        return place[0], self.at(place[0]).kind(place[1])


class PartPlaces:
    """`shapes.places.Places` of a net: all numbers at which a text may stand, with the places in leaves.

    exact: what leaves do not let come is all that the library lets come in them, but for JSON's keys. depth: how many
    such parts it is within.
    """

    def __init__(self, net: Net, begin: int, depth: int = 0) -> None:
        self.net, self.begin, self._depth = net, begin, depth
        beside = PlainLeaf | KeyLeaf | WithinLeaf | NumberLeaf
        self.exact = not any(isinstance(leaf, beside) for leaf, _ in net.leaves.values())
        self.start = self._entered([begin], _NO_KEYS)
        self._tokens: dict[int, tuple[object, TokenBytes]] = {}

    def _entered(self, states: Sequence[int], keys: frozenset[bytes]) -> frozenset[_Config]:
        net, found = self.net, set[_Config]()
        for state in net.closure(states):
            if state not in net.leaves:
                if net.edges[state] or state in net.final:
                    found.add((state, None, _NO_KEYS if state in net.forgets else keys))
                continue
            leaf = net.leaves[state][0]
            if not isinstance(leaf, WithinLeaf):
                found.add((state, leaf.begun(keys) if isinstance(leaf, ClosedKeyLeaf) else leaf.start, keys))
            elif self._depth < _DEEPEST:
                found.add((state, (self._depth + 1, leaf.at(self._depth + 1).start), keys))
        return frozenset(found)

    def feed(self, place: frozenset[_Config], data: bytes) -> frozenset[_Config] | None:
        """See `Places`."""
        for byte in data:
            found: set[_Config] = set()
            for state, within, keys in place:
                if within is None:
                    entered = self.net.edges[state].get(byte, ())
                    if entered:
                        found |= self._entered(entered, keys)
                    continue
                leaf, ends = self.net.leaves[state]
                after = leaf.feed(within, byte)
                if after is None:
                    continue
                if after[1] < 0:
                    found.add((state, after[0], keys))
                    if isinstance(leaf, ValueLeaf | NumberLeaf) and leaf.may_end(after[0]):
                        found |= self._entered([ends[0]], keys)
                elif isinstance(leaf, KeyLeaf):
                    if after[0] not in keys:
                        written = leaf.opened(keys, after[0])
                        found |= self._entered([ends[after[1]]], written)
                else:
                    keys = leaf.closed(keys) if isinstance(leaf, ClosedKeyLeaf) else keys
                    found |= self._entered([ends[after[1]]], keys)
            if not found:
                return None
            place = frozenset(found)
        return place

    def key(self, place: frozenset[_Config]) -> Hashable:
        """See `Places`."""
        leaves = self.net.leaves
        return frozenset(
            (state, None if within is None else leaves[state][0].key(within), keys)
            for state, within, keys in place
        )

    def kind(self, place: frozenset[_Config]) -> Hashable:
        """See `Places`."""
        leaves = self.net.leaves
        return frozenset(
            (state, None if within is None else leaves[state][0].kind(within), keys)
            for state, within, keys in place
        )

    def _json(self, place: frozenset[_Config]) -> tuple[_Config, JsonPlaces, Any] | None:
        """Where a text stands in JSON, if it does in nothing else."""
        one = self._leaf(place)
        if one is None:
            return None
        config, leaf = one
        if isinstance(leaf, JsonLeaf):
            return config, leaf.places, config[1]
        if isinstance(leaf, PlainLeaf) and leaf.json is not None and config[1].json not in (None, "over"):
            return config, leaf.json, config[1].json
        return None

    def alike(self, place: frozenset[_Config]) -> Hashable:
        """See `Places`."""
        found = self._json(place)
        alike = None if found is None else found[1].alike(found[2])
        if found is None or alike == found[1].kind(found[2]):
            return self.kind(place)
        return found[0][0], found[0][2], alike

    def akin(self, place: frozenset[_Config]) -> Hashable:
        """See `Places`."""
        found = self._json(place)
        if found is None:
            return self.kind(place)
        return found[0][0], found[0][2], found[1].akin(found[2])

    def plain(self, place: frozenset[_Config], way: bytes) -> bool:
        """See `Places`."""
        found = self._json(place)
        if found is None:
            return True
        _, places, within = found
        inner, size = within, 0
        for byte in way:
            inner = places.feed(inner, bytes([byte]))
            if inner is None:
                return False
            size += 1
            if not inner.frames and inner.mode == "after":
                break
        return places.plain(within, way[:size])

    def may_end(self, place: frozenset[_Config]) -> bool:
        """See `Places`: no call ends with a number."""
        return True

    @property
    def watches(self) -> bool:
        """See `Places`."""
        return any(isinstance(one, JsonLeaf) and one.places.watches for one, _ in self.net.leaves.values())

    def toward(self, place: frozenset[_Config]) -> Iterable[bytes]:
        """See `Places`."""
        found = self._json(place)
        return () if found is None else found[1].toward(found[2])

    def after_others(self, place: frozenset[_Config]) -> tuple[Hashable, list[bytes]] | None:
        """See `Places`."""
        one = self._leaf(place)
        if one is None or not isinstance(one[1], JsonLeaf):
            return None
        (state, within, keys), places = one[0], one[1].places
        found = places.after_others(within)
        return None if found is None else (frozenset([(state, found[0], keys)]), found[1])

    def _leaf(self, place: frozenset[_Config]) -> tuple[_Config, PartLeaf] | None:
        """The one leaf that a text stands in, if it does in nothing else."""
        if len(place) != 1:
            return None
        (config,) = place
        return None if config[1] is None else (config, self.net.leaves[config[0]][0])

    def after_characters(self, place: frozenset[_Config], count: int) -> frozenset[_Config] | None:
        """See `Places`."""
        one = self._leaf(place)
        if one is None or not isinstance(one[1], JsonLeaf):
            return None
        (state, within, keys), places = one[0], one[1].places
        after = places.after_characters(within, count)
        return None if after is None else frozenset([(state, after, keys)])

    def closing(self, place: frozenset[_Config]) -> bytes:
        """What brings a text nearer to its end, as far as that is known: of a mark, or a byte; nothing in JSON."""
        one = self._leaf(place)
        if one is not None:
            (_, within, _), leaf = one
            if isinstance(leaf, PlainLeaf):
                return leaf.closing(within)
            if isinstance(leaf, WithinLeaf):
                return leaf.at(within[0]).closing(within[1])
            if isinstance(leaf, ClosedKeyLeaf):
                return bytes(within)
            text = leaf if isinstance(leaf, TextLeaf) and not leaf.kept else None
            return b"" if text is None else text.text.ways[within[0]]
        known = self._nearest
        ways = [
            (known[after], byte)
            for state, within, _ in place
            if within is None
            for byte, reached in self.net.edges[state].items()
            for after in reached
        ]
        inside = any(within is not None for _, within, _ in place)
        return bytes([min(ways)[1]]) if ways and not inside else b""

    @cached_property
    def _nearest(self) -> list[int]:
        return self.net.distances()

    def keys(
        self, place: frozenset[_Config], tokens: Sequence[bytes], ids: Sequence[int]
    ) -> Iterator[Hashable] | None:
        """The kinds of the places after tokens, found at once within text; None elsewhere."""
        found = self._found_keys(place, tokens, self._bytes_of(tokens), ids)
        return None if found is None else self._all_keys(place, found, tokens, ids)

    def _all_keys(
        self,
        place: frozenset[_Config],
        found: Iterator[Hashable | None],
        tokens: Sequence[bytes],
        ids: Sequence[int],
    ) -> Iterator[Hashable]:
        for token, known in zip(ids, found, strict=True):
            if known is not None:
                yield known
                continue
            fed = self.feed(place, tokens[token])
            yield None if fed is None else self.kind(fed)

    def _found_keys(
        self, place: frozenset[_Config], tokens: Sequence[bytes], data: TokenBytes, ids: Sequence[int]
    ) -> Iterator[Hashable | None] | None:
        """As `keys`, but None for tokens that have to be fed."""
        texts = [config for config in place if config[1] is not None]
        if len(texts) != 1:
            return None
        state, within, keys = texts[0]
        leaf = self.net.leaves[state][0]
        if isinstance(leaf, TextLeaf) and not leaf.kept:
            return self._text_keys(place, texts[0], leaf, data, ids)
        inner: Iterator[Any] | None = None
        if len(place) == 1 and isinstance(leaf, PlainLeaf):
            inner = leaf.kinds(within, tokens, data, ids)
        elif len(place) == 1 and isinstance(leaf, WithinLeaf):
            depth = within[0]
            deeper = leaf.at(depth)._found_keys(within[1], tokens, data, ids)
            if deeper is not None:
                inner = (None if one is None else (depth, one) for one in deeper)
        if inner is None:
            return None
        return (None if one is None else frozenset([(state, one, keys)]) for one in inner)

    def _bytes_of(self, tokens: Sequence[bytes]) -> TokenBytes:
        owner, data = self._tokens.get(id(tokens), (None, None))
        if data is None or owner is not tokens:
            data = TokenBytes(tokens)
            self._tokens = {id(tokens): (tokens, data)}
        return data

    def _text_keys(
        self,
        place: frozenset[_Config],
        config: _Config,
        leaf: TextLeaf,
        data: TokenBytes,
        ids: Sequence[int],
    ) -> Iterator[Hashable | None]:
        state, within, keys = config
        after = leaf.text.after_tokens(within[0], data).tolist()
        others = {byte for number, inner, _ in place if inner is None for byte in self.net.edges[number]}
        first = data.first.tolist()
        known: dict[int, Hashable] = {}
        for token in ids:
            reached = after[token]
            if reached < 0 or first[token] in others:
                yield None
                continue
            if reached not in known:
                known[reached] = frozenset([(state, leaf.key((reached, b"")), keys)])
            yield known[reached]
