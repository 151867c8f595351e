"""Blocks of content that arrive in pieces: their texts flow, each block as far as its own text is decided."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from nco_guard.arguments import OnMatch
from nco_guard.scan.replacing import Placed
from nco_guard.values.blocks import JOINED, is_block, kind_of_block, role_of_key
from nco_guard.values.finding import Finder
from nco_guard.values.flows import TextFlow
from nco_guard.values.roles import Role

__all__ = ["BlockFlow", "CleanerLike"]


class CleanerLike(Protocol):
    """What a stream needs of a cleaner."""

    finder: Finder
    action: OnMatch
    where: str

    def value(self, value: Any) -> Any:
        """A whole value."""

    def field(self, value: Any, role: Role) -> Any:
        """A whole value that is read as a field with this role."""

    def unrecorded(self) -> CleanerLike:
        """A cleaner like this one that records nothing: for parts of what is looked at as a whole."""

    def recorded(self, flow: TextFlow) -> None:
        """A text is over."""


class _Entry:
    """A block, or a text between blocks, on its way: what it shows, and where its text ends in the flow."""

    __slots__ = ("block", "end", "field", "flow", "parts", "shown")

    def __init__(self, block: Any, field: str | None, flow: TextFlow, end: int) -> None:
        self.block = block
        self.field = field
        self.flow = flow
        self.end = end
        self.parts: list[str] = []
        self.shown = False

    @property
    def is_decided(self) -> bool:
        return self.flow.decided >= self.end

    @property
    def text(self) -> str:
        return "".join(self.parts)


class BlockFlow:
    """Lists of blocks and texts in, lists of what may be shown out.

    Texts of one kind flow as one. What comes is joined to what came, as the content of messages is: texts and blocks
    with an `index` are shown piece by piece; what else blocks hold, and blocks without a text, is kept in `rest` until
    the end.
    """

    def __init__(self, cleaner: CleanerLike) -> None:
        self._cleaner = cleaner
        self._clean = cleaner.value
        self._flows: dict[tuple[str, str], TextFlow] = {}
        self._fed: dict[int, int] = {}
        self._queues: dict[int, list[_Entry]] = {}
        self._entries: list[_Entry] = []
        self._begun: set[str] = set()
        self._skeletons: dict[tuple[Any, ...], Any] = {}
        self.rest: list[Any] = []

    @property
    def flows(self) -> list[TextFlow]:
        """One for each kind of text that has come."""
        return list(self._flows.values())

    def feed(self, blocks: list[Any]) -> list[Any]:
        """Read on."""
        for block in blocks:
            self._take(block)
        return self._released()

    def finish(self) -> list[Any]:
        """No more blocks come."""
        for flow in self.flows:
            self._placed(flow, flow.finish())
        return self._released()

    def _take(self, block: Any) -> None:
        if isinstance(block, str):
            self._flow(block, None, block, ("", "text"))
        elif (field := text_field(block)) is not None:
            self._flow(block, field, block[field], (kind_of_block(block), field))
        else:
            self.rest.append(block)

    def _flow(self, block: Any, field: str | None, text: str, kind: tuple[str, str]) -> None:
        flow = self._flows.get(kind)
        if flow is None:
            flow = self._flows[kind] = TextFlow(
                self._cleaner.finder, self._cleaner.action, self._cleaner.where
            )
            self._fed[id(flow)], self._queues[id(flow)] = 0, []
        self._fed[id(flow)] += len(text)
        entry = _Entry(block, field, flow, self._fed[id(flow)])
        self._entries.append(entry)
        self._queues[id(flow)].append(entry)
        self._placed(flow, flow.feed(text))

    def _placed(self, flow: TextFlow, shown: list[Placed]) -> None:
        """Give pieces to the blocks that they come from; a replacement goes where its match began."""
        queue = self._queues[id(flow)]
        for piece in shown:
            while piece.text:
                while len(queue) > 1 and piece.place >= queue[0].end:
                    queue.pop(0)
                room = queue[0].end - piece.place
                if piece.replaces or len(queue) == 1 or len(piece.text) <= room:
                    queue[0].parts.append(piece.text)
                    break
                head, piece = piece.cut(room)
                queue[0].parts.append(head.text)

    def _released(self) -> list[Any]:
        """What may be shown now, in the order in which it came."""
        shown: list[Any] = []
        while self._entries:
            entry = self._entries[0]
            if entry.field is None or _has_index(entry.block):
                _add(shown, self._piece(entry))
            elif entry.is_decided:
                shown.append(self._whole(entry))
            if not entry.is_decided:
                break
            self._entries.pop(0)
        return shown

    def _piece(self, entry: _Entry) -> list[Any]:
        """What is new of a text, or of a block that is joined by its index; the rest of a block is kept."""
        text = entry.text
        entry.parts.clear()
        if entry.field is None:
            return [text] if text else []
        if not entry.shown:
            self._keep_rest(entry)
            entry.shown = True
        # A block without a text is there too, once.
        place = repr((entry.field, entry.block["index"]))
        if not text and (place in self._begun or not entry.is_decided):
            return []
        self._begun.add(place)
        return [{**self._skeleton(entry.block), entry.field: text}]

    def _keep_rest(self, entry: _Entry) -> None:
        assert entry.field is not None
        if set(entry.block) - {"type", "index", entry.field}:
            self.rest.append({**entry.block, entry.field: ""})

    def _whole(self, entry: _Entry) -> Any:
        """A block without an index, whose text is decided; the rest of it is kept."""
        assert entry.field is not None
        self._keep_rest(entry)
        return {**self._skeleton(entry.block), entry.field: entry.text}

    def _skeleton(self, block: Mapping[str, Any]) -> Mapping[str, Any]:
        """A block's type and index, in which a text may hide as well."""
        bare = {name: block[name] for name in ("type", "index") if name in block}
        key = tuple((name, type(value), value) for name, value in bare.items())
        try:
            if key not in self._skeletons:
                self._skeletons[key] = self._clean(bare)
        except TypeError:  # an index that cannot be hashed
            return self._clean(bare)  # type: ignore[no-any-return]
        return self._skeletons[key]  # type: ignore[no-any-return]


def _add(shown: list[Any], pieces: list[Any]) -> None:
    """One piece for each index: what comes together is joined already."""
    for piece in pieces:
        last = shown[-1] if shown else None
        if isinstance(piece, str) and isinstance(last, str):
            shown[-1] = last + piece
        elif isinstance(last, dict) and isinstance(piece, dict) and [*last] == [*piece]:
            field = [*piece][-1]
            if {**last, field: ""} == {**piece, field: ""}:
                shown[-1] = {**piece, field: last[field] + piece[field]}
                continue
            shown.append(piece)
        else:
            shown.append(piece)


def _has_index(block: Any) -> bool:
    return block.get("index") is not None


def text_field(block: Any) -> str | None:
    """The field of a block that holds the text which flows; None if it has none, or more than one."""
    if not is_block(block):
        return None
    found = [
        name
        for name, value in block.items()
        if name in JOINED and isinstance(value, str) and role_of_key(block, name, Role.VALUE) is Role.VALUE
    ]
    return found[0] if len(found) == 1 else None
