"""How the replies of a format are cut into the fields that are shown, read as `ReplyReader` reads them.

Masks and verifier follow what is cut out of a reply by this: content, reasoning, each call. Regions are found by the
parser that `Regions` reads with, character by character; where it stands after one is kept, so each is asked once.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from nco_guard.automata import Cut, Cutter, Cutting
from nco_guard.automata import Region as FieldRegion
from nco_guard.automata.charsets import CharClasses
from nco_guard.automata.combine.cutting import NOWHERE, WHOLE, JsonField
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.hidden import Beginnings, HiddenTexts, first_whole
from nco_guard.replies.parser import CALLS, CONTENT, REASONING, RegionPiece, Regions
from nco_guard.replies.writing import written_calls

__all__ = ["FormatFields"]

_FIELDS = (CONTENT, REASONING, CALLS)
_OTHER = "other"  # what nobody is shown
_DELIMITERS = ("open_pattern", "close_pattern", "open", "close")
_LEADS = {**dict.fromkeys(range(0xC2, 0xE0), 2), **dict.fromkeys(range(0xE0, 0xF0), 3)}
_LEADS.update(dict.fromkeys(range(0xF0, 0xF5), 4))
# Of characters that no pattern names, these stand for all others of their kind.
_WORD, _SIGN = "一", "“"
# Blanks beyond ASCII, which patterns mean by `\\s`.
_SPACES = {chr(code) for code in range(0x80, 0x3100) if chr(code).isspace()}
# Bytes that may stand in the same places of characters.
_BYTES = ((0x80, 0x90), (0x90, 0xA0), (0xA0, 0xC0), (0xC2, 0xE0), (0xE1, 0xED), (0xEE, 0xF0), (0xF1, 0xF4))


class FormatFields(Cutting):
    """How the replies of a format are cut. Reasoning and content are each joined of all regions, each call is its own.

    Args:
        form: the format. calls: whether regions of calls are looked for. hidden: what is left out wherever it stands.
        begun: what the prompt ends with, from its last anchor on. free: fields that no rule looks at.

    The reply as it is written is a text, too. Guarantee: what `ReplyReader` gives of a reply as content and reasoning,
    joined, and what it reads calls in, are texts of this. Errors, when made: `ValueError` for a format whose patterns
    look at what stands before them in a way that is not followed (`followed`).

    Examples:
        >>> from nco_guard.replies import shipped_formats
        >>> fields = FormatFields(shipped_formats()["hermes"])
        >>> [[(one.name, one.text) for one in each] for each in fields.texts("<think>Well.</think>Yes.")][1:3]
        [[('reasoning', 'Well.')], [('content', 'Yes.')]]
    """

    whole: bool = True
    reads_special = False  # whether they are is known to whoever names the format

    def __init__(
        self,
        form: ReplyFormat,
        *,
        calls: bool = True,
        hidden: Sequence[str] = (),
        begun: str = "",
        free: Sequence[str] = (),
    ) -> None:
        if not self.followed(form):
            raise ValueError(f"the patterns of {form.name} look behind")
        self.form, self.calls = form, calls
        self.hidden = first_whole(hidden)
        self.begun = begun
        self.free = tuple(sorted({*free}))
        self._key = (form.digest, calls, self.hidden, begun, self.free)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FormatFields) and self._every == other._every

    def __hash__(self) -> int:
        return hash(self._every)

    def __repr__(self) -> str:
        return f"FormatFields{self._every!r}"

    @property
    def _every(self) -> tuple[object, ...]:
        return self._key if self.whole else (*self._key, "alone")

    @staticmethod
    def followed(form: ReplyFormat) -> bool:
        """Whether all that the format's patterns look at can be followed: of what is behind, literal texts alone."""
        return _looks_behind(_patterns(form)) is not None

    @staticmethod
    def bounded_calls(form: ReplyFormat) -> bool:
        """Whether the marks of the format's calls have bounded length, but for blanks: they hold no names.

        Behind others there is a place for each name that is begun, without end.
        """
        field = form.response_template["fields"].get("tool_calls", {})
        return not any(_LONG.search(_PLAIN.sub("x", _RUNS.sub("", each))) for each in _patterns_of(field))

    @property
    def together(self) -> tuple[str, ...]:
        """Content and reasoning."""
        return (CONTENT, REASONING)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that the format has."""
        reasoning = (REASONING,) if self.form.reasons else ()
        return (CONTENT, *reasoning, *((CALLS,) if self.calls and self.form.reads_calls else ()))

    @property
    def json_field(self) -> JsonField | None:
        """See `Cutting.json_field`."""
        options = self.form.response_template["fields"].get("tool_calls", {}).get("content_args") or {}
        plain = self.form.arguments == "json" and not {"unquoted_keys", "string_delims"} & {*options}
        return _json_of(self.form) if plain and self.form.call is not None and CALLS in self.names else None

    def _with(self, **changed: Any) -> FormatFields:
        own = {"calls": self.calls, "hidden": self.hidden, "begun": self.begun, "free": self.free}
        found = FormatFields(self.form, **{**own, **changed})
        found.whole = self.whole
        return found

    def freed(self, *names: str) -> FormatFields:
        """See `Cutting.freed`."""
        return self._with(free=(*self.free, *names)) if {*names} - {*self.free} else self

    def begun_by(self, text: str) -> FormatFields:
        """See `Cutting.begun_by`."""
        return self if text == self.begun else self._with(begun=text)

    def cutter(self) -> Cutter:
        """See `Cutting.cutter`; it reads replies that nothing was begun of."""
        return _cutter_of(FormatFields(self.form, calls=self.calls, hidden=self.hidden))

    def texts(self, text: str) -> list[list[FieldRegion]]:
        """See `Cutting.texts`."""
        places, shown = list[int](), ""
        at = 0
        pattern = "|".join(map(re.escape, self.hidden)) if self.hidden else r"(?!)"
        for found in [*re.finditer(pattern, text), None]:
            end = len(text) if found is None else found.start()
            places += range(at, end)
            shown += text[at:end]
            at = len(text) if found is None else found.end()
        regions = Regions(self.form, calls=self.calls, begun=self.begun)
        prompted = [*_cuts(regions.prompted, CONTENT)]
        name = _last_field(prompted, CONTENT)
        joined: dict[str, list[FieldRegion]] = {field: [] for field in self.together}
        found_texts, whole = list[list[FieldRegion]](), list[FieldRegion]()
        begun = b"".join(cut.data for cut in prompted if cut.kind == "text").decode() if name == CALLS else ""
        own = [FieldRegion(CALLS, begun, -len(begun))] if begun else []

        def ended(field: str) -> None:
            if field not in self.free and field in _FIELDS:
                found_texts.append([*joined.get(field, own)] or [FieldRegion(field, "", 0)])

        for cut, start in _placed_cuts([*regions.feed(shown), *regions.finish()], name):
            free = cut.field in self.free
            pieces = [*_spans(cut.field, cut.data.decode(), start, places)]
            if not free and cut.kind in ("text", "mark"):
                whole += [FieldRegion(WHOLE, one.text, one.start) for one in pieces]
            if cut.kind == "begin":
                own, name = [], cut.field
            elif cut.kind == "text":
                joined.get(cut.field, own).extend(pieces)
            elif cut.kind == "end":
                ended(cut.field)
        ended(name)
        late = not {*self.free}.isdisjoint(self.names)
        return [*found_texts, whole or [FieldRegion(WHOLE, "", 0)] if late else [FieldRegion(WHOLE, text, 0)]]


def _spans(name: str, text: str, start: int, places: Sequence[int]) -> Iterator[FieldRegion]:
    """A piece of what is left where hidden texts were taken out, as pieces of the reply."""
    begin = max(0, -start)
    if begin:
        yield FieldRegion(name, text[:begin], start)
    for end in range(begin + 1, len(text) + 1):
        if end == len(text) or places[start + end] != places[start + end - 1] + 1:
            yield FieldRegion(name, text[begin:end], places[start + begin])
            begin = end


def _last_field(cuts: Sequence[Cut], name: str) -> str:
    return next((cut.field for cut in reversed(cuts) if cut.kind == "begin"), name)


def _cuts(pieces: Iterable[RegionPiece], name: str) -> Iterator[Cut]:
    for cut, _ in _placed_cuts(pieces, name):
        yield cut


def _placed_cuts(pieces: Iterable[RegionPiece], name: str) -> Iterator[tuple[Cut, int]]:
    """What pieces say, from a field on, and where each stands. What has no mark of its own is content."""
    for piece in pieces:
        field, mark = piece.region, piece.text[max(0, -piece.start) :].encode()
        opens = piece.kind == "open" and (field != CONTENT or name != CONTENT)
        closes = piece.kind in ("close", "end") and field != CONTENT
        if opens or (piece.kind == "text" and field != name):
            yield Cut("end", name), piece.start
            if piece.kind == "open" and mark:
                yield Cut("mark", field, mark), max(0, piece.start)
            yield Cut("begin", field), piece.start
            name = field
        elif piece.kind != "text" and mark:
            yield Cut("mark", field, mark), max(0, piece.start)
        if piece.kind == "text":
            yield Cut("text", field, piece.text.encode()), piece.start
        if closes:
            yield Cut("end", field), piece.start
            yield Cut("begin", CONTENT), piece.start
            name = CONTENT


class _Stand(NamedTuple):
    """A place: what parsing stands at, its field, what patterns see behind, and what is held before the parser.

    left: bytes that are missing of a character which is text already.
    """

    parsed: Any
    field: str
    behind: str
    hidden: str
    partial: bytes
    left: int


class _FormatCutter(Cutter):
    """Reads replies of a format, each character from each place once. Safe to share between threads."""

    def __init__(self, fields: FormatFields) -> None:
        self._fields = fields
        patterns = _patterns(fields.form)
        self._behind = _looks_behind(patterns) or ()
        self._behind_beginnings = Beginnings([f"{each}." for each in self._behind])
        self._kinds = _Kinds([*patterns, *map(re.escape, fields.hidden)])
        self.classes, self.kinds = self._kinds.classes, self._kinds.kinds
        self._lock = threading.RLock()
        self._stands: list[_Stand | None] = [None]
        self._regions: list[Regions | None] = [None]
        self._ids: dict[_Stand, int] = {}
        self._known: dict[tuple[int, int], tuple[int, tuple[Cut, ...]]] = {}
        self._ends: dict[int, tuple[Cut, ...]] = {}
        self._settled: dict[int, tuple[tuple[Cut, ...], str]] = {}
        self._certainly: dict[int, bool] = {}
        self._prompts: dict[str, tuple[int, tuple[Cut, ...]]] = {}
        self._chars: dict[tuple[int, str], tuple[int, tuple[Cut, ...]]] = {}
        self.start = self.begun("")[0]

    def begun(self, text: str) -> tuple[int, tuple[Cut, ...]]:
        """See `Cutter.begun`."""
        with self._lock:
            found = self._prompts.get(text)
            if found is None:
                regions = Regions(self._fields.form, calls=self._fields.calls, begun=text)
                cuts = (*_cuts(regions.prompted, CONTENT),)
                place = self._place(regions, _last_field(cuts, CONTENT), "", b"")
                found = self._prompts[text] = place, cuts
            return found

    def _place(self, regions: Regions, field: str, hidden: str, partial: bytes, left: int = 0) -> int:
        behind = ""
        if self._behind:
            decided = regions.decided
            behind = decided[len(decided) - self._behind_beginnings.at_end(decided) :]
        stand = _Stand(regions.standing, field, behind, hidden, partial, left)
        found = self._ids.get(stand)
        if found is None:
            self._stands.append(stand)
            self._regions.append(regions)
            found = self._ids[stand] = len(self._stands) - 1
        return found

    def _stand(self, place: int) -> tuple[_Stand, Regions]:
        stand, regions = self._stands[place], self._regions[place]
        assert stand is not None
        assert regions is not None
        return stand, regions

    def field(self, place: int) -> str:
        """See `Cutter.field`."""
        return "" if place == NOWHERE else self._stand(place)[0].field

    def held(self, place: int) -> bytes:
        """See `Cutter.held`."""
        if place == NOWHERE:
            return b""
        stand, regions = self._stand(place)
        return regions.unread.encode() + stand.hidden.encode() + stand.partial

    def settled(self, place: int) -> tuple[tuple[Cut, ...], str]:
        """See `Cutter.settled`; where a mark is complete and may grow, it is settled."""
        found = self._settled.get(place)
        if found is None:
            with self._lock:
                found = self._settled[place] = self._settle(place)
        return found

    def certain(self, place: int) -> bool:
        """See `Cutter.certain`: where a complete mark may grow, and does nothing else."""
        found = self._certainly.get(place)
        if found is None:
            with self._lock:
                found = self._certainly[place] = self._is_certain(place)
        return found

    def _is_certain(self, place: int) -> bool:
        said = _shape(self.settled(place)[0])
        if place == NOWHERE or not any(kind != "text" for kind, _, _ in said):
            return False
        for character in {self._kinds.standing_for(chr(code)) for code in range(128)}:
            after, cuts = self._read(place, character)
            waits = not cuts and _shape(self.settled(after)[0]) == said
            if not waits and _shape(cuts)[: len(said)] != said:
                return False
        return True

    def _settle(self, place: int) -> tuple[tuple[Cut, ...], str]:
        plain = super().settled(place)
        if place == NOWHERE or self._stand(place)[0].partial or self._stand(place)[0].left:
            return plain
        after, cuts = self._read(place, _WORD)
        if self.held(after) or not cuts or cuts[-1].kind != "text":
            return plain
        *before, last = cuts
        left = last.data.removesuffix(_WORD.encode())
        return (*before, *((last._replace(data=left),) if left else ())), last.field

    def end(self, place: int) -> tuple[Cut, ...]:
        """See `Cutter.end`."""
        if place == NOWHERE:
            return ()
        found = self._ends.get(place)
        if found is None:
            found = self._ends[place] = self._end(place)
        return found

    def _end(self, place: int) -> tuple[Cut, ...]:
        with self._lock:
            stand, regions = self._stand(place)
            twin = regions.copied()
            pieces = [*twin.feed(stand.hidden), *twin.finish()]
            cuts = [*_cuts(pieces, stand.field)]
            # That everything is over then is no border between two texts.
            while cuts and cuts[-1].kind in ("begin", "end"):
                cuts.pop()
            return tuple(cuts)

    def step(self, place: int, byte: int) -> tuple[int, tuple[Cut, ...]]:
        """See `Cutter.step`."""
        if place == NOWHERE:
            return NOWHERE, ()
        found = self._known.get((place, byte))
        if found is None:
            with self._lock:
                found = self._known[place, byte] = self._find(place, byte)
        return found

    def _find(self, place: int, byte: int) -> tuple[int, tuple[Cut, ...]]:
        stand, regions = self._stand(place)
        if stand.left:
            if byte & 0xC0 != 0x80:
                return NOWHERE, ()
            after = self._place(regions, stand.field, stand.hidden, b"", stand.left - 1)
            return after, (Cut("text", stand.field, bytes([byte])),)
        data = stand.partial + bytes([byte])
        missing = _LEADS.get(data[0], 1) - len(data)
        if missing > 0 and (len(data) == 1 or byte & 0xC0 == 0x80):
            if self._kinds.ordinary(data) and (found := self._certain(place)) is not None:
                after, cuts, field = found
                stand, regions = self._stand(after)
                return self._place(regions, field, "", b"", missing), (*cuts, Cut("text", field, data))
            return self._place(regions, stand.field, stand.hidden, data), ()
        try:
            character = data.decode()
        except UnicodeDecodeError:
            return NOWHERE, ()
        whole = self._place(regions, stand.field, stand.hidden, b"") if stand.partial else place
        return self._read(whole, character)

    def _certain(self, place: int) -> tuple[int, tuple[Cut, ...], str] | None:
        """Where any ordinary character leads, what is certain before it, and its field; None if that depends on it."""
        stand, regions = self._stand(place)
        whole = self._place(regions, stand.field, stand.hidden, b"") if stand.partial else place
        cuts, field = self.settled(whole)
        found = {self._read(whole, rep)[0] for rep in (_WORD, _SIGN)}
        after = found.pop()
        said = (*cuts, Cut("text", field, _SIGN.encode()))
        if found or self.held(after) or _joined(self._read(whole, _SIGN)[1]) != _joined(said):
            return None
        return after, cuts, field

    def _read(self, place: int, character: str) -> tuple[int, tuple[Cut, ...]]:
        """A character from a place between two, by another of its kind if that makes no difference."""
        found = self._chars.get((place, character))
        if found is not None:
            return found
        alike = self._kinds.standing_for(character)
        if alike != character:
            after, cuts = self._read(place, alike)
            tail = alike.encode()
            if cuts and cuts[-1].kind == "text" and cuts[-1].data.endswith(tail) and not self.held(after):
                last = cuts[-1]._replace(data=cuts[-1].data.removesuffix(tail) + character.encode())
                return after, (*cuts[:-1], last)
        stand, regions = self._stand(place)
        twin, taken = regions.copied(), list[Cut]()
        hidden = HiddenTexts(self._fields.hidden) if self._fields.hidden else None
        shown = character
        if hidden is not None:
            hidden.held = stand.hidden
            shown = hidden.feed(character)
            if (stand.hidden + character).removesuffix(hidden.held).removeprefix(shown):
                taken.append(Cut("mark", stand.field))  # nothing of it counts, in whichever field it stands
        cuts = tuple(cut for cut in _cuts(twin.feed(shown), stand.field) if cut.kind != "text" or cut.data)
        after = self._place(twin, _last_field(cuts, stand.field), "" if hidden is None else hidden.held, b"")
        result = after, (*cuts, *taken)
        if alike == character:
            self._chars[place, character] = result
        return result


def _shape(cuts: Iterable[Cut]) -> list[tuple[str, str, bytes]]:
    """What cuts say, but for what marks are."""
    return [(cut.kind, cut.field, b"" if cut.kind == "mark" else cut.data) for cut in cuts]


def _joined(cuts: Iterable[Cut]) -> list[Cut]:
    """Texts of one field that follow each other as one."""
    found = list[Cut]()
    for cut in cuts:
        if found and cut.kind == found[-1].kind == "text" and cut.field == found[-1].field:
            cut = cut._replace(data=found.pop().data + cut.data)
        found.append(cut)
    return found


def _json_of(form: ReplyFormat) -> JsonField:
    """What around the arguments of a call is shown: by a call that is written and read again."""
    name, key = "xname", "xkey"
    regions = Regions(form)
    pieces = [*regions.feed(written_calls(form, [(name, {key: 0})])), *regions.finish()]
    body = "".join(one.text for one in pieces if one.region == CALLS and one.kind == "text")
    around = body[: max(0, body.rfind("{", 0, body.rfind(f'"{key}"')))]
    bare = re.sub(r'"(?:\\.|[^"\\])*"', "", around)
    depth = sum(bare.count(sign) for sign in "{[") - sum(bare.count(sign) for sign in "}]")
    if re.search(rf'"{name}"\s*:', around):
        return JsonField(CALLS, depth - 1)  # the name is a key
    found = re.search(rf'"([^"\\]*)"\s*:\s*"{name}"', around)
    return JsonField(CALLS, depth, found[1] if found else "")


@lru_cache(maxsize=64)
def _cutter_of(fields: FormatFields) -> _FormatCutter:
    return _FormatCutter(fields)


def _patterns(form: ReplyFormat) -> list[str]:
    """All that the format looks for, as patterns."""
    found = list[str]()
    for field in form.response_template["fields"].values():
        found += _patterns_of(field)
    return found


def _patterns_of(field: Mapping[str, Any]) -> list[str]:
    found = list[str]()
    for name in _DELIMITERS:
        given = field.get(name, [])
        texts = [given] if isinstance(given, str) else given
        found += texts if name.endswith("_pattern") else [re.escape(text) for text in texts]
    return found


# Runs of blanks; then classes and escapes, each a character; then what may come any number of times.
_RUNS = re.compile(r"\\s[*+]")
_PLAIN = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\\.", re.DOTALL)
_LONG = re.compile(r"[*+]|\{\d+,\}")


# A class, a look behind, an escape, or a sign.
_PARTS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?<[=!](?:\\.|[^()\\])*\)|\\.|.", re.DOTALL)


def _looks_behind(patterns: Iterable[str]) -> tuple[str, ...] | None:
    """The literal texts that patterns look at behind them; None if they look at more than that."""
    found = list[str]()
    for part in itertools.chain.from_iterable(map(_PARTS.findall, patterns)):
        if part in (r"\b", r"\B", r"\G", r"\m", r"\M", r"\K", r"\X", "^"):
            return None
        if part.startswith(("(?<=", "(?<!")):
            for text in _PARTS.findall(part[4:-1] + "|"):
                if len(text) > 1 and text[0] == "\\" and text[1].isalnum() and text[1] not in "nrt":
                    return None
            body = part[4:-1]
            if re.search(r"(?<!\\)[\[(.*+?{$]", body):
                return None
            literal = re.sub(
                r"\\(.)", lambda one: {"n": "\n", "r": "\r", "t": "\t"}.get(one[1], one[1]), body
            )
            found += literal.split("|") if r"\|" not in body else _alternatives(body)
    return tuple(found)


def _alternatives(body: str) -> list[str]:
    """The texts of `a|b`, in which signs are escaped."""
    found = [""]
    for part in re.findall(r"\\.|.", body, re.DOTALL):
        if part == "|":
            found.append("")
        else:
            found[-1] += {r"\n": "\n", r"\r": "\r", r"\t": "\t"}.get(part, part[-1])
    return found


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
