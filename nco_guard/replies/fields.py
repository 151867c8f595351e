"""How the replies of a format are cut into the fields that are shown, read as `ReplyReader` reads them.

Masks and verifier follow what is cut out of a reply by this: content, reasoning, each call. Regions are found by the
parser that `Regions` reads with; byte by byte they are followed by `replies.cutter`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nco_guard.automata import Cut, Cutter, Cutting, ValuesIn
from nco_guard.automata import Region as FieldRegion
from nco_guard.automata.combine.cutting import WHOLE, JsonField, StringMarks
from nco_guard.replies.cutter import FormatCutter, marks_of, shared_cutter
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.hidden import first_whole
from nco_guard.replies.marks import UnfollowedPattern
from nco_guard.replies.parser import CALLS, CONTENT, REASONING, RegionPiece, Regions
from nco_guard.replies.value_fields import values_in_tags
from nco_guard.replies.writing import written_calls

__all__ = ["FormatFields"]

_FIELDS = (CONTENT, REASONING, CALLS)


class FormatFields(Cutting):
    """How the replies of a format are cut. Reasoning and content are each joined of all regions, each call is its own.

    Args:
        form: the format. calls: whether regions of calls are looked for. hidden: what is left out wherever it stands.
        begun: what the prompt ends with, from its last anchor on. free: fields that no rule looks at.

    The reply as it is written is a text, too. Guarantee: what `ReplyReader` gives of a reply as content and reasoning,
    joined, and what it reads calls in, are texts of this. Errors, when made: `ValueError` for a format whose patterns
    look at more than is followed (`followed`).

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
            raise ValueError(f"the patterns of {form.name} look behind, or at more than is followed")
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
        try:
            marks_of(form, calls=True)
        except UnfollowedPattern:
            return False
        return True

    @property
    def together(self) -> tuple[str, ...]:
        """Content and reasoning."""
        return (CONTENT, REASONING)

    @property
    def names(self) -> tuple[str, ...]:
        """The fields that the format has."""
        reasoning = (REASONING,) if self.form.reasons else ()
        return (CONTENT, *reasoning, *((CALLS,) if self.calls and self.form.reads_calls else ()))

    def values(self, types: Mapping[str, Sequence[str]]) -> tuple[ValuesIn, ...]:
        """See `Cutting.values`."""
        if CALLS not in self.names:
            return ()
        if self.form.arguments == "xml":
            return values_in_tags(self.form, self.only([CALLS]), self.hidden, types)
        if self.form.arguments == "pythonic":
            return (ValuesIn("python", self.only([CALLS]), "=()"),)
        options = self.form.response_template["fields"].get("tool_calls", {}).get("content_args") or {}
        if self.form.call is None:
            return ()
        if {"unquoted_keys", "string_delims"} & {*options}:
            # Strings of several kinds, one within the other, could not be told apart.
            marks = [StringMarks(*each) for each in options.get("string_delims", ())]
            calls = self.only([CALLS])
            return (ValuesIn("dialect", calls, call=marks[0]),) if len(marks) == 1 else ()
        return (ValuesIn("call", self.only([CALLS]), call=_json_of(self.form)),)

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
        late = self.whole and not {*self.free}.isdisjoint(self.names)
        # Where the whole is no text, or all of it one, it makes no difference what is free.
        free = self.free if late else ()
        return shared_cutter(
            (self.form.digest, self.calls, self.hidden, free),
            lambda: FormatCutter(self.form, calls=self.calls, hidden=self.hidden, free=free, late=late),
        )

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
