"""Reads replies of a format byte by byte, each character from each place once; where they are cut says `mark_search`.

Characters that no pattern tells apart are read as one, and of those that none names the first byte is enough.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from nco_guard.automata import Cut, Cutter
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.combine.cutting import NOWHERE, Moves
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.hidden import Beginnings, HiddenTexts
from nco_guard.replies.mark_search import CHARACTER, Mark, Marks, MarkSearch, Reading, numbered
from nco_guard.replies.marks import Program, UnfollowedPattern, Where, program_of
from nco_guard.replies.parser import CALLS, CONTENT, REASONING, region_of, template_as_written
from nco_guard.replies.tag_patterns import CAST, EITHER, KEY, VALUE, TaggedValues

__all__ = ["FormatCutter", "marks_of", "shared_cutter"]

#: Places of a cutter, from which on whoever asks for one is given a fresh one.
_PLACES = 20_000
#: Cutters that are kept for whoever asks next.
_CUTTERS = 64
_PROMPTS = 256  # beginnings of replies of which it is kept where they lead

_LEADS = {**dict.fromkeys(range(0xC2, 0xE0), 2), **dict.fromkeys(range(0xE0, 0xF0), 3)}
_LEADS.update(dict.fromkeys(range(0xF0, 0xF5), 4))
# Of characters that no pattern names, these stand for all others of their kind.
_WORD, _SIGN = "一", "“"
# Blanks beyond ASCII, which patterns mean by `\\s`.
_SPACES = {chr(code) for code in range(0x80, 0x3100) if chr(code).isspace()}
# Bytes that may stand in the same places of characters.
_BYTES = ((0x80, 0x90), (0x90, 0xA0), (0xA0, 0xC0), (0xC2, 0xE0), (0xE1, 0xED), (0xEE, 0xF0), (0xF1, 0xF4))


class _Format(NamedTuple):
    """What is looked for in the replies of a format.

    watched: for each of the template's fields, which marks may come in it. first: the one that a reply begins in.
    shown: of each, the field that is shown. behind: the literal texts that patterns look at behind them. patterns: all
    of them.
    """

    watched: Mapping[str, Sequence[Mark]]
    first: str
    shown: Mapping[str, str]
    behind: tuple[str, ...]
    patterns: tuple[str, ...]


def marks_of(form: ReplyFormat, *, calls: bool, values: TaggedValues | None = None) -> _Format:
    """What is looked for in the replies of a format; with `values`, also in its calls.

    Errors: `UnfollowedPattern` where that is not followed.
    """
    spec = template_as_written(form, calls=calls)
    first = spec.implicit
    if first is None or region_of(first) != CONTENT:
        raise UnfollowedPattern("text without a mark is no content")
    shown: dict[str, str] = {name: region_of(name) for name in spec.fields}
    opening, watched = list[Mark](), dict[str, Sequence[Mark]]()
    patterns, behind = list[str](), list[str]()

    def program(pattern: str) -> Program:
        patterns.append(pattern)
        made = program_of(pattern)
        behind.extend(made.behind)
        return made

    for name, field in spec.fields.items():
        if field.open_re is not None:
            opening.append(Mark(program(field.open_re.pattern), True, name, CONTENT, shown[name], name))
        closing = []
        if field.close_re is not None:
            closing = [Mark(program(field.close_re.pattern), False, name, shown[name], CONTENT, first)]
        if name == first and closing and closing[0].program.may_be_empty():
            raise UnfollowedPattern("content ends at nothing")
        watched[name] = closing
    watched[first] = [*opening, *watched[first]]
    if values is not None:
        for name in [name for name, field in shown.items() if field == CALLS]:
            _watch_values(values, name, watched, shown, program)
    return _Format(watched, first, shown, tuple(dict.fromkeys(behind)), tuple(patterns))


def _watch_values(
    values: TaggedValues,
    calls: str,
    watched: dict[str, Sequence[Mark]],
    shown: dict[str, str],
    program: Callable[[str], Program],
) -> None:
    """Add the marks of tags within a call, and what is looked for between them: there a call may end, too."""
    patterns, ends = values.patterns, watched[calls]
    key = f"{calls}.{KEY}"
    watched[calls] = [Mark(program(patterns.opens), True, key, CALLS, KEY, key), *ends]
    shown[key], begins = KEY, list[Mark]()
    for number, kind in enumerate((EITHER, CAST, VALUE)):
        named = [name for name, own in values.kinds if own == kind]
        if kind != VALUE and not named:
            continue
        # Of what is told by the key the name comes first, so that mark is preferred.
        behind = "|".join(re.escape(f"{patterns.literal}{name}") for name in named)
        for way, (before, close) in enumerate(patterns.ways):
            field = f"{calls}.{number}{way}"
            pattern = f"(?<={behind})(?:{before})" if behind else before
            begins.append(Mark(program(pattern), True, field, KEY, kind, field))
            over = Mark(program(close), False, field, kind, CALLS, calls)
            watched[field] = [over, *(mark._replace(within=kind) for mark in ends)]
            shown[field] = kind
    watched[key] = [*begins, *(mark._replace(within=KEY) for mark in ends)]


class _Stand(NamedTuple):
    """A place: where the search is, what is held before it, and what follows of a character that is read already.

    found: number of the search. tails: for each reading, what the `left` bytes that are missing of it are, and what
    comes behind them.
    """

    found: int
    hidden: str = ""
    partial: bytes = b""
    tails: tuple[tuple[Cut | None, tuple[Cut, ...]], ...] = ()
    left: int = 0


class _At(NamedTuple):
    """Where the search is. now: its position. width: how many readings it has."""

    search: MarkSearch
    now: int
    where: Where
    width: int


class FormatCutter(Cutter):
    """Reads replies of a format. Safe to share between threads.

    hidden: texts that are left out wherever they stand. free: fields that no rule looks at. late: whether there are
    any. values: what calls are cut into, where they are.

    Cost: a character from a place that was met before is a look-up.
    """

    def __init__(
        self,
        form: ReplyFormat,
        *,
        calls: bool,
        hidden: Sequence[str],
        free: Sequence[str] = (),
        late: bool = False,
        values: TaggedValues | None = None,
    ) -> None:
        self._format = marks_of(form, calls=calls, values=values)
        self._marks = Marks(self._format.watched, self._format.shown, late=late, free=frozenset(free))
        self._hidden = tuple(hidden)
        self._beginnings = Beginnings([f"{each}." for each in self._format.behind])
        self._kinds = _Kinds([*self._format.patterns, *map(re.escape, hidden)])
        self.classes, self.kinds = self._kinds.classes, self._kinds.kinds
        self._lock = threading.RLock()
        self._found: list[_At] = []
        self._numbers: dict[tuple[MarkSearch, int, Where], int] = {}
        self._steps: dict[tuple[int, str], tuple[int, Moves]] = {}
        self._stands: list[_Stand] = [_Stand(-1)]
        self._ids: dict[_Stand, int] = {}
        self._known: dict[tuple[int, int], tuple[int, Moves]] = {}
        self._settled: dict[int, tuple[int, tuple[Cut, ...], str]] = {}
        self._ends: dict[int, tuple[int, tuple[Cut, ...], str]] = {}
        self._prompts: dict[str, tuple[int, tuple[tuple[str, bytes], ...]]] = {}
        where = Where(first=True)
        begun = self._marks.begun(self._format.first, (0, ()), 0, where)
        self._begins, self._beginning = self._number(begun, 0, where)
        self.start = self.begun("")[0]

    def _number(self, search: MarkSearch, now: int, where: Where) -> tuple[int, Moves]:
        """The number of a search, and its readings."""
        moved = numbered(search, now)
        key = moved.search, moved.now, where
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self._found)
            self._found.append(_At(*key, len(moved.readings)))
        return found, moved.readings

    def begun(self, text: str) -> tuple[int, tuple[tuple[str, bytes], ...]]:
        """See `Cutter.begun`."""
        with self._lock:
            found = self._prompts.get(text)
            if found is None:
                number, readings = self._begins, self._beginning
                for character in text:
                    number, more = self._character(number, character)
                    readings = _composed(readings, more)
                if len(self._prompts) >= _PROMPTS:
                    self._prompts.clear()
                begun = tuple(_begun(cuts) for _, cuts in readings)
                found = self._prompts[text] = self._place(_Stand(number)), begun
            return found

    def _place(self, stand: _Stand) -> int:
        found = self._ids.get(stand)
        if found is None:
            self._stands.append(stand)
            found = self._ids[stand] = len(self._stands) - 1
        return found

    @property
    def worn(self) -> bool:
        """Whether it has found so many places that it should not be given to others."""
        return len(self._stands) > _PLACES

    def held(self, place: int) -> bytes:
        """See `Cutter.held`."""
        stand = self._stands[place]
        return stand.hidden.encode() + stand.partial

    def waits(self, place: int) -> bool:
        """See `Cutter.waits`."""
        return bool(self.held(place)) or (
            place != NOWHERE and self._found[self._stands[place].found].width > 1
        )

    def settled(self, place: int) -> tuple[int, tuple[Cut, ...], str]:
        """See `Cutter.settled`."""
        found = self._settled.get(place)
        if found is None:
            if place == NOWHERE:
                return 0, (), ""
            (reading, _), field = self._marks.present(self._found[self._stands[place].found].search)
            held = self.held(place)
            cuts = (Cut("text", field, held),) if held else ()
            found = self._settled[place] = reading, cuts, field
        return found

    def end(self, place: int) -> tuple[int, tuple[Cut, ...], str]:
        """See `Cutter.end`."""
        found = self._ends.get(place)
        if found is None:
            if place == NOWHERE:
                return 0, (), ""
            with self._lock:
                found = self._ends[place] = self._end(self._stands[place])
        return found

    def _end(self, stand: _Stand) -> tuple[int, tuple[Cut, ...], str]:
        number, readings = stand.found, _same(self._found[stand.found].width)
        for character in stand.hidden:
            number, more = self._character(number, character)
            readings = _composed(readings, more)
        at = self._found[number]
        (reading, cuts), field = self._marks.ended(at.search, at.now, at.where._replace(over=True))
        return readings[reading][0], (*readings[reading][1], *cuts), field

    def step(self, place: int, byte: int) -> tuple[int, Moves]:
        """See `Cutter.step`."""
        if place == NOWHERE:
            return NOWHERE, ((0, ()),)
        found = self._known.get((place, byte))
        if found is None:
            with self._lock:
                found = self._known[place, byte] = self._find(self._stands[place], byte)
        return found

    def _find(self, stand: _Stand, byte: int) -> tuple[int, Moves]:
        nowhere = NOWHERE, ((0, ()),)
        if stand.left:
            return self._tail(stand, byte) if byte & 0xC0 == 0x80 else nowhere
        data = stand.partial + bytes([byte])
        missing = _LEADS.get(data[0], 1) - len(data)
        if missing > 0 and (len(data) == 1 or byte & 0xC0 == 0x80):
            if self._kinds.ordinary(data) and (found := self._whichever(stand, data, missing)) is not None:
                return found
            return self._place(stand._replace(partial=data)), _same(self._found[stand.found].width)
        try:
            character = data.decode()
        except UnicodeDecodeError:
            return nowhere
        return self._read(stand, character)

    def _whichever(self, stand: _Stand, data: bytes, missing: int) -> tuple[int, Moves] | None:
        """Behind the first bytes of a character, if all that may be meant lead to one place."""
        if stand.hidden:
            return None
        one, other = (self._character(stand.found, character) for character in (_WORD, _SIGN))
        if one[0] != other[0] or _said(one[1], _WORD.encode(), data) != _said(other[1], _SIGN.encode(), data):
            return None
        moves, tails = list[Reading](), list[tuple[Cut | None, tuple[Cut, ...]]]()
        for at, cuts in _said(other[1], _SIGN.encode(), data):
            # What comes behind the character waits for the rest of it.
            until = max((number + 1 for number, cut in enumerate(cuts) if cut.data), default=len(cuts))
            moves.append((at, cuts[:until]))
            tails.append((cuts[until - 1] if until and cuts[until - 1].data else None, cuts[until:]))
        (present, _), _ = self._marks.present(self._found[other[0]].search)
        if tails[present][1]:
            return None
        return self._place(_Stand(other[0], tails=tuple(tails), left=missing)), tuple(moves)

    def _tail(self, stand: _Stand, byte: int) -> tuple[int, Moves]:
        """Behind a further byte of a character that is read already."""
        data, last = bytes([byte]), stand.left == 1
        moves = tuple(
            (at, (*((cut._replace(data=data),) if cut else ()), *(behind if last else ())))
            for at, (cut, behind) in enumerate(stand.tails)
        )
        return self._place(_Stand(stand.found) if last else stand._replace(left=stand.left - 1)), moves

    def _read(self, stand: _Stand, character: str) -> tuple[int, Moves]:
        """A character, from a place between two."""
        shown, held, taken = character, "", False
        if self._hidden:
            hidden = HiddenTexts(self._hidden)
            hidden.held = stand.hidden
            shown, held = hidden.feed(character), hidden.held
            taken = bool((stand.hidden + character).removesuffix(held).removeprefix(shown))
        number, readings = stand.found, _same(self._found[stand.found].width)
        for each in shown:
            number, more = self._character(number, each)
            readings = _composed(readings, more)
        if taken:  # nothing of it counts, in whichever field it stands
            readings = tuple((at, (*cuts, Cut("mark", ""))) for at, cuts in readings)
        return self._place(_Stand(number, held)), readings

    def _character(self, number: int, character: str) -> tuple[int, Moves]:
        """What a search becomes with a character, found by another of its kind."""
        alike = self._kinds.standing_for(character)
        found = self._steps.get((number, alike))
        if found is None:
            at = self._found[number]
            behind = at.where.behind + alike
            where = Where(behind[len(behind) - self._beginnings.at_end(behind) :])
            search = self._marks.stepped(at.search, alike, at.now + 1, where)
            found = self._steps[number, alike] = self._number(search, at.now + 1, where)
        return found[0], _said(found[1], CHARACTER, character.encode())


_cutters: dict[Hashable, FormatCutter] = {}
_lock = threading.Lock()


def shared_cutter(made_of: Hashable, make: Callable[[], FormatCutter]) -> FormatCutter:
    """A cutter, one for all who ask for what it is made of; those asked for last are kept."""
    with _lock:
        found = _cutters.pop(made_of, None)
        if found is None or found.worn:
            found = make()
        _cutters[made_of] = found
        while len(_cutters) > _CUTTERS:
            del _cutters[next(iter(_cutters))]
        return found


def _said(moves: Moves, of: bytes, data: bytes) -> Moves:
    """What was found of one character, of another."""
    return tuple(
        (at, tuple(cut._replace(data=data) if cut.data == of else cut for cut in cuts)) for at, cuts in moves
    )


def _same(width: int) -> Moves:
    return tuple((at, ()) for at in range(width))


def _composed(first: Moves, second: Moves) -> Moves:
    return tuple((first[at][0], (*first[at][1], *cuts)) for at, cuts in second)


def _begun(cuts: Sequence[Cut]) -> tuple[str, bytes]:
    """The field that a prompt ends in, and what stands in a call, key or value that it has begun."""
    begins = max((at for at, cut in enumerate(cuts) if cut.kind == "begin"), default=-1)
    field = cuts[begins].field if begins >= 0 else CONTENT
    text = b"".join(cut.data for cut in cuts[begins + 1 :] if cut.kind == "text")
    return field, text if field not in (CONTENT, REASONING) else b""


class _Kinds:
    """Which characters patterns cannot tell apart.

    classes: of bytes. kinds: of characters; None where all of them may be told apart.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        text = "".join(patterns)
        ranges = {f"{low}{high}" for low, high in re.findall(r"(?<!\\)(\w)-(\w)", text)}
        self._alike = ranges <= {"az", "AZ", "09"} and not re.search(r"\(\?[a-zA-Z]*i|\\[pPN]|\[\[:", text)
        self._named = {*text}
        special = _SPACES | {one for one in self._named if not one.isascii()}
        self._special = [each.encode() for each in special]
        self.classes = np.arange(256, dtype=np.uint8)
        self.kinds: CharClasses | None = None
        if self._alike:
            groups: dict[str, int] = {}
            for code in range(128):
                stands = self.standing_for(chr(code))
                self.classes[code] = groups.setdefault(stands, code)
            own = {byte for each in self._special for byte in each}
            for bounds in _BYTES:
                alike = [byte for byte in range(*bounds) if byte not in own]
                self.classes[alike] = alike[0] if alike else 0
            self.kinds = _char_kinds(self._named)

    def ordinary(self, beginning: bytes) -> bool:
        """Whether no character that begins so is told apart from others."""
        return self._alike and not any(each.startswith(beginning) for each in self._special)

    def standing_for(self, character: str) -> str:
        """The character that stands for all of its kind."""
        if not self._alike or character in self._named or character.isspace():
            return character
        if not character.isascii():
            from regex import match

            return character if match(r"\s", character) else _WORD if match(r"\w", character) else _SIGN
        for first, last in ("az", "AZ", "09"):
            if first <= character <= last:
                return self._first_between(first, last)
        return character

    def _first_between(self, first: str, last: str) -> str:
        return next(chr(code) for code in range(ord(first), ord(last) + 1) if chr(code) not in self._named)


def _char_kinds(named: set[str]) -> CharClasses:
    alone = [ord(one) for one in named] + [code for code in range(128) if not chr(code).isalnum()]
    ranges = [((ord(first), ord(last)),) for first, last in ("az", "AZ", "09")]
    return CharClasses([*ranges, *(((code, code),) for code in sorted({*alone}))])
