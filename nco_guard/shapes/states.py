"""A shape over a vocabulary: places as numbers, which tokens it lets come there, and ways to its end.

A state is a place (`places`), met with some text, which stands for all texts that come there; the library is asked
about that one. What it says is kept by state. The ways to an end are the library's too: at each place a text is
brought on by the bytes that it lets come, those first that close something.

Cost: of a state met before, look-ups; of a new one, a mask of the library, and a few microseconds for each way there is
to go on (in a string, all plain tokens are one).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.errors import ShapeError
from nco_guard.masking.idsets import Ids
from nco_guard.shapes.call_parts import PartPlaces
from nco_guard.shapes.library import GrammarReader, tokenizer_of
from nco_guard.shapes.marked import plain_lengths
from nco_guard.shapes.plain_places import Places, TextPlaces
from nco_guard.shapes.shape import Shape
from nco_guard.tokens import Vocabulary

__all__ = ["REFUSED", "Exits", "ShapeStates", "rest_of_character", "shape_states", "shapes_refusal"]

REFUSED = -1
#: Bytes of a way to the end, at most.
_LONGEST = 4096
# Ways that are tried for a token after they were found for others.
_TRIED = 12
# How often it goes back from where a key stands twice.
_BACK = 200
# Other bytes that are tried for a shorter one: of each place, and in all.
_KINDS = 12
_LOOKED = 150
_NEVER = 1 << 29
# Bytes after which other proposals are looked for.
_SOON = 8
# Bytes of a way that is made shorter.
_LONG = 300
# What is written first where there is a choice: what closes, then what may be the whole of a value.
_BRACKETS = b"}]"
_PAIRS = {b"{": 0x7D, b"[": 0x5D}
_FEW = 24
_ORDER = bytes(
    dict.fromkeys(
        b'}]",:0123456789ntfeabcdghijklmopqrsuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-_@/' + bytes(range(256))
    )
)
_LAST = b" \t\r\n\\"
_OF_NUMBERS = b"+-.eE0123456789"


@dataclass(frozen=True, slots=True)
class Exits:
    """The tokens with text that a shape lets come in a state, sorted, and where they lead.

    groups int32 [ids]: the number of each token's group; of one group are tokens that lead to one place.
    places: of each group, where. members: one of its tokens.
    """

    ids: Ids
    groups: NDArray[np.int32]
    places: list[Hashable]
    members: list[int]


def shapes_refusal(vocabulary: Vocabulary) -> str | None:
    """Why no shape can be enforced over a vocabulary; None if one can."""
    if vocabulary.rewriting is not None:
        return f"the tokenizer's decoder ({vocabulary.family}) rewrites text, so no shape can be enforced with it"
    if not vocabulary.eos_ids:
        return "the tokenizer has no end-of-sequence token, by which a text of a shape would end"
    return None


def shape_states(shape: Shape, vocabulary: Vocabulary, needed: Callable[[bytes], int]) -> ShapeStates:
    """The states of a shape over a vocabulary; `needed` as for `ShapeStates`.

    Errors: `ShapeError` for a vocabulary without an end of sequence, or whose decoder rewrites what tokens say, or
    shows what ends a text.
    """
    if (reason := shapes_refusal(vocabulary)) is not None:
        raise ShapeError(reason)
    if vocabulary.borders or (vocabulary.regions is not None and shape.kind != "tools"):
        raise ShapeError(
            "a shape is one of the whole text: leave borders out, and regions but for shapes of tools"
        )
    states = ShapeStates(shape, vocabulary, needed)
    ends = [vocabulary.tokens[token] for token in vocabulary.eos_ids]
    if shape.kind != "tools" and all(ends) and not (states.way(states.start) or b"").endswith(tuple(ends)):
        said = ", ".join(repr(end.decode("utf-8", "replace")) for end in ends)
        raise ShapeError(
            f"skip_special_tokens=False: what ends a text would be a part of it ({said}), and those of this shape do "
            "not end so; leave special tokens out, or let the shape end with it"
        )
    return states


class ShapeStates:
    """The states of a shape over a vocabulary. `start`: of the empty text.

    Not safe to share between threads by itself.
    """

    def __init__(self, shape: Shape, vocabulary: Vocabulary, needed: Callable[[bytes], int]) -> None:
        """`needed`: the fewest tokens that a text can be written in."""
        self.needed = needed
        self._vocabulary = vocabulary
        self._tokens = vocabulary.tokens
        self._places: Places = shape.places()
        exact = not isinstance(self._places, PartPlaces) or self._places.exact
        self._exact = exact and not self._places.watches
        self._end_is_silent = shape.kind == "tools"
        self._bytes = GrammarReader(shape.grammar, tokenizer_of(None))
        self._matcher = GrammarReader(shape.grammar, tokenizer_of(vocabulary))
        self._grammar = shape.grammar
        self._ids: dict[Hashable, int] = {}
        self._texts: list[bytes] = []
        self._at: list[Any] = []
        self._next: list[dict[int, int]] = []
        self._ends: dict[int, bool] = {}
        self._alike: dict[int, Hashable] = {}
        self._letters: dict[int, list[tuple[bytes, int]]] = {}
        self._exits: dict[int, Exits] = {}
        self._ways: dict[Hashable, bytes | None] = {}
        #: Of which what is left is noted too, byte by byte.
        self._noted: dict[Hashable, bytes] = {}
        #: Ways that were found, by the places that are akin.
        self._near: dict[Hashable, bytes] = {}
        self._dead = set[Hashable]()
        #: Grows where a shorter way is found from a place than was known.
        self.version = 0
        self._held = 0
        first = self._places.feed(self._places.start, shape.begun)
        self.start = self._intern(first, shape.begun, fresh=vocabulary.strips_first_space)

    def _intern(self, place: Any, text: bytes, *, fresh: bool = False) -> int:
        key = (self._places.key(place), fresh)
        found = self._ids.get(key)
        if found is None:
            found = len(self._texts)
            self._next[found:] = [{}]
            self._at[found:] = [place]
            self._texts.append(text)
            self._ids[key] = found
        return found

    @property
    def _fresh(self) -> int:
        return self.start if self._vocabulary.strips_first_space else REFUSED

    def data(self, state: int, token: int) -> bytes:
        """What a token adds to a text here."""
        data = self._tokens[token]
        return data[1:] if state == self._fresh and data[:1] == b" " else data

    @cached_property
    def silent_ids(self) -> frozenset[int]:
        """Tokens that add no text, and ends."""
        return frozenset(np.flatnonzero(self._silent).tolist())

    @cached_property
    def _silent(self) -> NDArray[np.bool_]:
        """Tokens that add no text, and ends, whose text is looked at by itself."""
        silent = np.array([not data for data in self._tokens], bool)
        silent[[*self._vocabulary.eos_ids, *self._vocabulary.unusable_ids]] = True
        return silent

    # -- steps -------------------------------------------------------------------------------------------------

    def after(self, state: int, token: int) -> int:
        """The state after a token; `REFUSED` where the shape does not let it come, or it adds no text."""
        known = self._next[state].get(token)
        if known is None:
            data = self.data(state, token)
            known = REFUSED if not data or self._silent[token] else self.read(state, data)
            self._next[state][token] = known
        return known

    def read(self, state: int, data: bytes) -> int:
        """The state after some bytes; `REFUSED` where the shape does not let them come."""
        if not data:
            return state
        text = self._texts[state]
        if not self._bytes.leads(self._bytes.at(text), data):
            return REFUSED
        place = self._places.feed(self._at[state], data)
        return REFUSED if place is None else self._intern(place, text + data)

    def may_end(self, state: int) -> bool:
        """Whether a text of the shape may end here."""
        known = self._ends.get(state)
        if known is None:
            accepting = self._bytes.at(self._texts[state]).is_accepting()
            known = self._ends[state] = bool(accepting) and self._places.may_end(self._at[state])
        return known

    def ends_with(self, state: int, data: bytes) -> bool:
        """Whether a text may end after some more bytes."""
        if not data:
            return self.may_end(state)
        found = self._bytes.at(self._texts[state])
        return self._leads(found, self._at[state], b"", data)

    def stops(self, state: int, token: int) -> bool:
        """Whether a text may end by a token that ends it: where calls are read, what such a token says is no part."""
        data = self._tokens[token]
        return self.ends_with(state, data) or (self._end_is_silent and self.may_end(state))

    def letters(self, state: int) -> list[tuple[bytes, int]]:
        """The bytes that the shape lets come here, and the states after them."""
        known = self._letters.get(state)
        if known is None:
            text, at = self._texts[state], self._at[state]
            mask = self._bytes.mask(self._bytes.at(text))
            found = [bytes([byte]) for byte in np.flatnonzero(mask[:256]).tolist()]
            places = [(data, self._places.feed(at, data)) for data in found]
            known = [(data, self._intern(to, text + data)) for data, to in places if to is not None]
            self._letters[state] = known
        return known

    # -- tokens ------------------------------------------------------------------------------------------------

    def exits(self, state: int) -> Exits:
        """The tokens with text that may come, and where they lead."""
        known = self._exits.get(state)
        if known is None:
            known = self._exits[state] = self._find_exits(state)
            self._held += known.groups.nbytes
        return known

    def tokens(self, state: int) -> Ids:
        """The tokens with text that may come, sorted."""
        return self.exits(state).ids

    def _allowed(self, state: int) -> Ids:
        matcher = self._matcher
        if state == self._fresh:
            matcher = GrammarReader(self._grammar, tokenizer_of(self._vocabulary, first=True))
        mask = matcher.mask(matcher.at(self._texts[state]))[: self._vocabulary.width]
        return np.flatnonzero(mask & ~self._silent)

    def _find_exits(self, state: int) -> Exits:
        ids = self._allowed(state)
        numbers: dict[Hashable, int] = {}
        groups = np.full(len(ids), REFUSED, np.int32)
        alone = self._group_alike(state, ids, groups, numbers)
        members = np.zeros(len(numbers), np.int64)
        grouped = np.flatnonzero(groups != REFUSED)[::-1]
        members[groups[grouped]] = ids[grouped]
        firsts = members.tolist()
        for place, key in zip(alone.tolist(), self._keys(state, ids[alone]), strict=True):
            if key is not None:
                number = numbers.setdefault(key, len(numbers))
                if number == len(firsts):
                    firsts.append(int(ids[place]))
                groups[place] = number
        taken = groups != REFUSED
        found = Exits(ids[taken], groups[taken], list(numbers), firsts)
        self._find_ways(state, found)
        return found

    def _group_alike(
        self, state: int, ids: Ids, groups: NDArray[np.int32], numbers: dict[Hashable, int]
    ) -> Ids:
        """Number tokens of plain characters at once, as only how many these are may matter; the places of others."""
        places, at = self._places, self._at[state]
        counted = places.after_characters(at, 0) is not None
        others = None if counted else places.after_others(at)
        if not counted and others is None:
            return np.arange(len(ids))
        counts = self._plain[ids]
        if others is not None:
            counts = np.minimum(counts, 0)
            counts[np.isin(ids, [*self._beginnings(others[1])])] = -1
        plain = np.flatnonzero(counts >= 0)
        number_of = np.full(int(counts.max(initial=0)) + 1, REFUSED, np.int32)
        for count in np.flatnonzero(np.bincount(counts[plain])).tolist():
            kind = places.kind(places.after_characters(at, count)) if others is None else others[0]
            number_of[count] = numbers.setdefault((kind, False), len(numbers))
        groups[plain] = number_of[counts[plain]]
        return np.flatnonzero(counts < 0)

    def _keys(self, state: int, ids: Ids) -> Iterator[Hashable]:
        """What tells apart where tokens lead to, as far as ways matter; None for tokens that must not come."""
        places, at = self._places, self._at[state]
        if isinstance(places, PartPlaces) and state != self._fresh:
            found = places.keys(at, self._tokens, ids.tolist())
            if found is not None:
                yield from (None if key is None else (key, False) for key in found)
                return
        for token in ids.tolist():
            place = places.feed(at, self.data(state, token))
            yield None if place is None else (places.kind(place), False)

    def _beginnings(self, texts: list[bytes]) -> set[int]:
        """The tokens that say a beginning of one of some texts."""
        heads = {each[:end] for each in texts for end in range(1, len(each) + 1)}
        return {token for head in heads for token in self._of_text.get(head, ())}

    @cached_property
    def _of_text(self) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for token, data in enumerate(self._tokens):
            found.setdefault(data, []).append(token)
        return found

    @cached_property
    def _plain(self) -> NDArray[np.int64]:
        """See `plain_lengths`."""
        return np.array(plain_lengths(self._tokens), np.int64)

    # -- ways --------------------------------------------------------------------------------------------------

    def _find_ways(self, state: int, exits: Exits) -> None:
        """Find a way to the end after each token. Nearly always one of those found before will do."""
        own = self.way(state)
        if own is not None:
            # What is left of a way is one too: whoever goes it never needs more tokens than were counted.
            self._note(self._at[state], own)
        found, tried = self._bytes.at(self._texts[state]), dict[bytes, None]()
        at = self._at[state]
        for token, key in zip(exits.members, exits.places, strict=True):
            data = self.data(state, token)
            if key not in self._ways:
                shortest = sorted(tried, key=self.needed)[:_TRIED]
                way = next((way for way in shortest if self._leads(found, at, data, way)), None)
                if way is None:
                    way = self._near_way(found, state, data)
                if way is None:
                    way = self._new_way(self._texts[state] + data, self._places.feed(at, data))
                self._ways[key] = way
            known = self._ways[key]
            if known is not None:
                # What will do for the next token is likely to do for others.
                tried.pop(known, None)
                tried[known] = None

    def _near_way(self, found: Any, state: int, data: bytes) -> bytes | None:
        """A way after some bytes like one that was found before: in a place akin, or once a character is complete."""
        at = self._at[state]
        rest = rest_of_character(data)
        near = self.way(state) if rest else self._near.get(self._places.akin(self._places.feed(at, data)))
        way = None if near is None else rest + near
        return (
            way
            if way is not None and self.needed(way) < _NEVER and self._leads(found, at, data, way)
            else None
        )

    def _leads(self, found: Any, at: Any, data: bytes, way: bytes) -> bool:
        """Whether the text may end after a way, behind some bytes that may come at a place."""
        if not self._bytes.leads(found, data + way, ends=True):
            return False
        # Where no key ends, none stands twice.
        if self._exact and b":" not in way:
            return True
        after = self._places.feed(at, data + way)
        return after is not None and self._places.may_end(after)

    def way_from(self, place: Hashable) -> bytes | None:
        """The way from a place of `Exits`."""
        return self._ways[place]

    def leads_nowhere(self, place: Hashable) -> bool:
        """Whether it is known that there is no way from a place, since all keys that may come stand already."""
        return place in self._dead

    def place(self, state: int) -> Hashable:
        """The place that a state is, as in `Exits`."""
        return self._places.kind(self._at[state]), False

    def alike(self, state: int) -> Hashable:
        """Equal for states of which one stands for all in a search, most likely."""
        known = self._alike.get(state)
        if known is None:
            known = self._alike[state] = self._places.alike(self._at[state])
        return known

    def one_of_its_kind(self, state: int) -> bool:
        """Whether that is no guess."""
        return self.alike(state) == self._places.kind(self._at[state])

    def plain(self, state: int, way: bytes) -> bool:
        """Whether a way will do in all states that are the same `place`."""
        return self._places.plain(self._at[state], way)

    def way(self, state: int) -> bytes | None:
        """A text of few tokens after which the shape may end; None where none was found."""
        key = self.place(state)
        if key not in self._ways:
            self._ways[key] = self._new_way(self._texts[state], self._at[state])
        return self._ways[key]

    def other_ways(self, state: int) -> Iterator[bytes]:
        """Other ways: those that begin with what else is proposed for what is being written, or soon after."""
        own, text, at = self.way(state) or b"", self._texts[state], self._at[state]
        for begin in range(min(_SOON, len(own)) + 1):
            rests = [own[:begin] + rest for rest in self._places.toward(at) if rest]
            if all(own.startswith(rest) for rest in rests):  # the way's own beginning, or nothing
                at = self._places.feed(at, own[begin : begin + 1])
                continue
            for rest in rests:
                after = self.read(state, rest) if self._bytes.leads(self._bytes.at(text), rest) else REFUSED
                way = None if after == REFUSED else self.way(after)
                if way is not None and rest + way != own:
                    yield rest + way
            return

    def note(self, state: int, way: bytes) -> None:
        """Remember a way, and what is left of it from place to place, where they are shorter than those known."""
        self._note(self._at[state], way)

    def _note(self, place: Any, way: bytes) -> None:
        for begin in range(len(way) + 1):
            key, rest = (self._places.kind(place), False), way[begin:]
            known = self._ways.get(key)
            if known is None or self.needed(rest) < self.needed(known):
                self.version += key in self._ways
                self._ways[key] = self._noted[key] = rest
            elif known == rest:
                if self._noted.get(key) == rest:
                    return  # so is what is left of it from there
                self._noted[key] = rest
            place = self._places.feed(place, way[begin : begin + 1])

    def _new_way(self, text: bytes, at: Any) -> bytes | None:
        way, proposed = self._close(text, at, _LONGEST)
        if way is None:
            return None
        found = self._near[self._places.akin(at)] = self._shortened(text, at, way, proposed)
        return found

    def _close(self, text: bytes, at: Any, longest: int) -> tuple[bytes | None, set[int]]:
        """A way to the end: what is proposed for what is being written, else the bytes that may come, those first that
        close something; and which places of it were proposed.
        """
        found, way, written = self._bytes.at(text), bytearray(), dict[int, int]()
        trail: list[tuple[Any, NDArray[np.bool_] | None]] = []
        proposed, plan, back = set[int](), b"", 0
        mask: NDArray[np.bool_] | None = None
        while not (found.is_accepting() and self._places.may_end(at)):
            plan = plan or (b"" if back else self._proposal(found, at))
            if plan and len(way) < longest:
                proposed.add(len(way))
                byte: int | None = plan[0]
            else:
                mask = self._bytes.mask(found) if mask is None else mask
                last = bytes(way[-1:]) or text[-1:]
                byte = self._toward_end(at, mask, written, last) if len(way) < longest else None
            if byte is None:
                if not trail and len(way) < longest:
                    self._dead.add((self._places.kind(at), False))
                if len(way) >= longest or not trail or back >= _BACK:
                    return None, proposed
                # Only a key that stands already leads to where nothing may come.
                at, mask = trail.pop()
                gone = way.pop()
                found, back = self._bytes.at(text + way), back + 1
                mask = self._bytes.mask(found) if mask is None else mask
                mask[gone] = False
                continue
            after = self._places.feed(at, bytes([byte]))
            if after is None and mask is not None:
                mask[byte] = False
                continue
            if after is None or not found.consume_tokens([byte]):
                return None, proposed
            trail.append((at, mask))
            at, mask, plan = after, None, plan[1:]
            way.append(byte)
            if byte == 0x22:
                written.clear()
            written[byte] = written.get(byte, 0) + 1
        return bytes(way), proposed

    def _proposal(self, found: Any, at: Any) -> bytes:
        """What brings what is being written to its end, if the library lets it come; nothing where it may be over."""
        for rest in self._places.toward(at):
            if not rest and self._is_over(found, at):
                return b""
            if (
                rest
                and self.needed(rest) < _NEVER
                and self._bytes.leads(found, rest)
                and self._places.feed(at, rest) is not None
            ):
                return rest
        return b""

    def _is_over(self, found: Any, at: Any) -> bool:
        """Whether something may follow that is no part of a number."""
        behind = [
            byte for byte in np.flatnonzero(self._bytes.mask(found)[:256]).tolist() if byte not in _OF_NUMBERS
        ]
        return any(self._places.feed(at, bytes([byte])) is not None for byte in behind)

    def _toward_end(
        self, at: Any, mask: NDArray[np.bool_], written: dict[int, int], last: bytes
    ) -> int | None:
        """The next byte of a way: of the mark that ends a text within the text, else as `_chosen` says."""
        closing = self._places.closing(at) if isinstance(self._places, PartPlaces) else b""
        return closing[0] if closing and mask[closing[0]] else _chosen(mask, written, last)

    def _shortened(self, text: bytes, at: Any, way: bytes, proposed: set[int]) -> bytes:
        """A way, with other bytes here and there after which it takes fewer tokens; as it is where it was proposed."""
        place, looked = 0, 0
        proposed = proposed if self.needed(way) < _NEVER else set()
        while place < len(way) - 1 and looked < _LOOKED and len(way) <= _LONG:
            head, best, fixed = way[:place], way, proposed
            for byte in () if place in proposed else self._distinct(text + head, at, head, way[place]):
                looked += 1
                begun = head + bytes([byte])
                after = self._places.feed(at, begun)
                if after is None:
                    continue
                rest, said = self._close(text + begun, after, len(way) - place)
                if rest is not None and self.needed(begun + rest) < self.needed(best):
                    best, fixed = begun + rest, {place + 1 + each for each in said}
            way, proposed, place = best, fixed, place + 1
        return way

    def _distinct(self, text: bytes, at: Any, head: bytes, taken: int) -> list[int]:
        """Bytes that may come after a text, one of each kind; those first after which other bytes may come.

        at: the place before `head`, which is the end of the text.
        """
        found, kinds = self._bytes.at(text), dict[Hashable, int]()
        mask = self._bytes.mask(found)
        mask[[byte for byte in _LAST if byte != taken]] = False
        few = np.count_nonzero(mask[:256])
        # Nothing is shorter than to close what is open; where a quotation mark opens something, little else may come.
        if few == 1 or taken in _BRACKETS or (taken == 0x22 and few >= _FEW):
            return []
        masks = dict[bytes, int]()
        for byte in (taken, *_ORDER):
            after = self._places.feed(at, head + bytes([byte])) if mask[byte] else None
            if after is not None:
                reached = found.deep_copy()
                reached.consume_tokens([byte])
                following = self._bytes.mask(reached).tobytes()
                masks.setdefault(following, byte)
                # Keys differ though the same letter may come next.
                known = following if isinstance(self._places, TextPlaces) else self._places.alike(after)
                kinds.setdefault((following, known), byte)
        return [byte for byte in dict.fromkeys([*masks.values(), *kinds.values()]) if byte != taken][:_KINDS]

    @property
    def nbytes(self) -> int:
        """Bytes held (those of dictionaries estimated)."""
        return self._held + 600 * (len(self._texts) + len(self._ways))

    def __len__(self) -> int:
        return len(self._texts)


def rest_of_character(data: bytes) -> bytes:
    """What completes the character that some bytes end within; nothing where they end between two."""
    for back in range(1, min(4, len(data) + 1)):
        lead = data[-back]
        if lead >= 0xC0:
            missing = (2 if lead < 0xE0 else 3 if lead < 0xF0 else 4) - back
            second = b"\xa0" if lead == 0xE0 else b"\x90" if lead == 0xF0 else b"\x80"
            return (second + b"\x80\x80")[:missing] if back == 1 else b"\x80" * missing
        if lead < 0x80:
            break
    return b""


def _chosen(mask: NDArray[np.bool_], written: dict[int, int], last: bytes) -> int | None:
    """The byte to be written: one that closes, else the one that was written least, lest a loop go on for ever."""
    closing = _PAIRS.get(last)
    if closing is not None and mask[closing]:
        return closing
    if mask[0x22]:
        return 0x22
    # Within a string, brackets close nothing; there most bytes may come.
    if np.count_nonzero(mask[:128]) < _FEW:
        for byte in _BRACKETS:
            if mask[byte]:
                return byte
    best, fewest = None, _LONGEST
    for byte in _ORDER:
        if mask[byte]:
            times = written.get(byte, 0) + 100 * (byte in _LAST)
            if times < fewest:
                best, fewest = byte, times
                if not times:
                    break
    return best
