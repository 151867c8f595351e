"""From a value with matches to one without: part by part, then where parts make a match together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from nco_guard.errors import RedactionError, ViolationError
from nco_guard.values.finding import Finder
from nco_guard.values.identifiers import new_identifier
from nco_guard.values.jsontext import dumped
from nco_guard.values.parts import Branch, Leaf, Opaque
from nco_guard.values.printing import FORMS, segments, wholes
from nco_guard.values.readings import readings
from nco_guard.values.roles import Role
from nco_guard.values.texts import SEPARATORS, joined, texts_of, texts_of_tree
from nco_guard.values.trees import Group, Node, Tree, piecemeal, text_in

__all__ = ["Searched", "cleaned", "cleaned_pieces"]

_ROUNDS = 8
# For policies under which one of them matches there is the next.
_NUMBERINGS: tuple[Callable[[str, int], str], ...] = (
    lambda text, number: f"{text} ({number})",
    lambda text, number: text + "+" * (number - 1),
    lambda text, number: text + "_" * (number - 1),
    lambda text, number: text + "." * (number - 1),
)


def cleaned(value: Any, finder: Finder, role: Role = Role.VALUE, known: Searched | None = None) -> Any:
    """The value without matches; the same object if there are none. Definition: `texts.texts_of`.

    `known`: the value taken apart and searched, where that is done. Errors: `ViolationError` for a tool's name that
    matches; `RedactionError` where nothing that could be replaced makes the match.
    """
    rules: tuple[str, ...] = ()
    for _ in range(_ROUNDS):
        now = known if known is not None else Searched(Tree(value, role), finder)
        if now.is_clean:
            return value
        tree, rules = now.tree, now.rules
        new = _Round(now, finder).parts() if rules or tree.opaque else value
        if new is value and tree.dropped:
            new = _Round(now, finder).without_dropped()
        if new is value and rules:
            new = _Round(now, finder).together()
        if new is value:
            break
        value, known = new, None
    raise RedactionError(rules)


class Searched:
    """A value that is taken apart, and those of its texts that hold a match, with the rules that do.

    `own`: the rules that match beside a provider's metadata. `length`: of a value, the sum of its texts' lengths.
    """

    def __init__(self, tree: Tree, finder: Finder) -> None:
        self.tree, self._finder = tree, finder
        own = list(texts_of_tree(tree, meta=False))
        others = list(texts_of_tree(tree, meta=True)) if tree.has_meta else []
        self.dirty = finder.dirty([*own, *others])
        self.own = finder.compiled.in_order(
            rule for text in {*own} & {*self.dirty} for rule in self.dirty[text]
        )
        self.length = sum(map(len, own)) + sum(map(len, others))

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that match anywhere."""
        return self._finder.compiled.in_order(rule for found in self.dirty.values() for rule in found)

    @property
    def is_clean(self) -> bool:
        """Whether all of it may stay as it is."""
        return not (self.dirty or self.tree.dropped or self.tree.opaque)


def placeholder(name: str, finder: Finder) -> str:
    """What stands for an object that cannot be looked into."""
    text = f"[{name} withheld]"
    return finder.instead() if finder.rules([text]) else text


def cleaned_pieces(pieces: Sequence[str], finder: Finder) -> list[str]:
    """Pieces that a reader sees joined, as many as before, without a match however they are joined."""
    now = list(pieces)
    for _ in range(_ROUNDS):
        before = list(now)
        for separator in SEPARATORS:
            now = _replaced_across(now, separator, finder)
        now = [_redacted(piece, finder) for piece in now]
        if now == before:
            return now
    rules = finder.rules([SEPARATORS[0].join(pieces)])
    return [finder.instead(rules), *([""] * (len(now) - 1))]


def _replaced_across(pieces: list[str], separator: str, finder: Finder) -> list[str]:
    report = finder.report(separator.join(pieces))
    if report.ok:
        return pieces
    new: list[str] = []
    first = 0
    spans = finder.replacer.stretches(report.violations)
    for piece in pieces:
        last = first + len(piece)
        shown: list[str] = []
        place = first
        for start, end, text in spans:
            if end <= first or start >= last:
                continue
            shown.append(separator.join(pieces)[place : max(place, start)])
            # A match is shown where it begins, or in the first piece that holds some of it.
            if start >= first or not _held_before(pieces, separator, start, first):
                shown.append(text)
            place = min(end, last)
        shown.append(piece[place - first :])
        new.append("".join(shown))
        first = last + len(separator)
    return new


def _held_before(pieces: Sequence[str], separator: str, start: int, first: int) -> bool:
    """Whether a piece that ends before `first` holds some of what begins at `start`."""
    place = 0
    for piece in pieces:
        if place >= first:
            break
        if max(start, place) < place + len(piece):
            return True
        place += len(piece) + len(separator)
    return False


def _redacted(text: str, finder: Finder) -> str:
    """A text without matches; where no part of it can stay, the replacement."""
    report = finder.report(text)
    if report.ok:
        return text
    try:
        return finder.without(text, report)
    except RedactionError as error:
        return finder.instead(error.rule_ids)


class _Round:
    """One pass over a value that is taken apart."""

    def __init__(self, searched: Searched, finder: Finder) -> None:
        self._tree = searched.tree
        self._dirty = searched.dirty
        self._finder = finder
        self._joined: dict[int, str] = {}

    def parts(self) -> Any:
        """Every part cleaned by itself, after texts that are read together were."""
        for group in self._tree.groups:
            self._clean_group(group)
        for node in self._tree.nodes:
            self._clean(node)
        return self._tree.root.new

    def without_dropped(self) -> Any:
        """The value without what is left out."""
        for node in self._tree.nodes:
            if node.role is Role.DROP:
                self._clean(node)
            elif isinstance(node.shape, Branch):
                self._rebuild(node, node.shape)
        return self._tree.root.new

    def together(self) -> Any:
        """Matches that several parts make together: what they touch is replaced."""
        touched: dict[int, str] = {}
        for node in wholes(self._tree.nodes):
            for form in FORMS:
                touched.update(self._touched(node, form))
        for node in self._tree.nodes:
            if id(node) in touched:
                node.new = self._put(node, touched[id(node)])
            elif node.inner:
                old = text_in(node)
                if (text := self._parsed(node, old)) != old:
                    node.new = self._put(node, text)
            elif isinstance(node.shape, Branch):
                if node.shape.extra and (rules := self._finder.rules(node.shape.extra)):
                    node.new = self._finder.instead(rules)
                else:
                    self._rebuild(node, node.shape)
        return self._tree.root.new

    def _touched(self, whole: Node, form: Any) -> dict[int, str]:
        """The values that matches in a printed form touch; keys only where no value is touched."""
        printed = segments(whole, form)
        report = self._finder.verifier.verify("".join(text for text, _ in printed))
        values: dict[int, str] = {}
        for start, end, text in self._finder.replacer.stretches(report.violations):
            place, hit = 0, []
            for piece, node in printed:
                if node is not None and place < end and start < place + len(piece):
                    hit.append(node)
                place += len(piece)
            chosen = [node for node in hit if not node.is_key] or hit
            values.update((id(node), text) for node in chosen)
        return values

    # -- one part ----------------------------------------------------------------------------------------------

    def _clean_group(self, group: Group) -> None:
        if not any(text in self._dirty for text in joined(group)):
            return
        pieces = group.pieces
        new = cleaned_pieces(pieces, self._finder)
        for node, old, now in zip(group.nodes, pieces, new, strict=True):
            if now != old:
                self._joined[id(node)] = now

    def _clean(self, node: Node) -> None:
        shape = node.shape
        if node.role is Role.DROP:
            if not isinstance(node.value, bool) and node.value:
                node.new = _nothing(node.value)
        elif isinstance(shape, Opaque):
            node.new = placeholder(shape.name, self._finder)
        elif isinstance(shape, Branch):
            self._rebuild(node, shape)
        elif isinstance(shape, Leaf):
            self._clean_leaf(node, shape)

    def _clean_leaf(self, node: Node, shape: Leaf) -> None:
        old = shape.texts[0] if shape.texts else ""
        text = self._joined.get(id(node), old)
        if node.inner and text == old:
            text = self._parsed(node, text)
        if text == old and not self._is_dirty(shape):
            return
        if not shape.is_text:
            node.new = self._put(node, self._whole(node, shape.texts, self._finder.rules(shape.texts)))
            return
        if not self._finder.report(text).ok:
            text = self._replaced(node, text)
        if text != old:
            node.new = self._put(node, text)

    def _is_dirty(self, shape: Leaf) -> bool:
        return any(reading.text in self._dirty for text in shape.texts for reading in readings(text))

    def _replaced(self, node: Node, text: str) -> str:
        if node.role in (Role.NAME, Role.IDENTIFIER):
            rules = self._finder.verifier.broken(self._finder.report(text).findings)
            return self._whole(node, (text,), rules)
        return _redacted(text, self._finder)

    def _whole(self, node: Node, texts: Sequence[str], rules: tuple[str, ...]) -> str:
        if node.role is Role.NAME and not node.meta:
            raise ViolationError(rules, "name of a tool")  # without it there is nothing to call
        if node.role is Role.IDENTIFIER:
            return new_identifier(texts[0], lambda text: self._finder.rules([text]))
        return self._finder.instead(rules)

    def _parsed(self, node: Node, text: str) -> str:
        """A JSON text with the values in it cleaned."""
        pieces: list[str] = []
        place = 0
        for (start, end), child in zip(node.inner, node.below, strict=True):
            if child.new is not child.value:
                pieces += text[place:start], dumped(child.new)
                place = end
        return "".join((*pieces, text[place:]))

    def _put(self, node: Node, text: str) -> Any:
        shape = node.shape
        put = shape.put if isinstance(shape, Leaf) else None
        return text if put is None else put(text)

    # -- containers --------------------------------------------------------------------------------------------

    def _rebuild(self, node: Node, shape: Branch) -> None:
        for child, text in piecemeal(node):
            if child.new is child.value and text in self._dirty:
                child.new = self._finder.instead(self._dirty[text])
        knotted = id(node) in self._tree.knots
        new = [self._beside(node, child) if knotted else child.new for child in node.below]
        if all(now is child.value for now, child in zip(new, node.below, strict=True)):
            return
        if shape.follows:
            *own, last = node.below
            if all(now is child.value for now, child in zip(new, own, strict=False)):
                node.new = self._finder.instead(self._finder.rules(texts_of(last.value)))
                return
        if shape.style == "dict":
            keys = self._told_apart(new[::2], [child.value for child in node.below[::2]])
            new[::2] = keys
        elif shape.style == "set":
            new = self._told_apart(new, [child.value for child in node.below])
        try:
            node.new = shape.rebuild(new)
        except (
            Exception
        ):  # what cannot be made anew, such as an object that cannot be copied, may not stay either
            node.new = placeholder(type(node.value).__name__, self._finder)

    def _beside(self, node: Node, child: Node) -> Any:
        """A part of a container that holds itself: what would lead back to the old one is not kept."""
        unfinished = self._places[id(child)] >= self._places[id(node)]
        if isinstance(child.shape, Branch) and child.new is child.value and unfinished:
            return placeholder(type(child.value).__name__, self._finder)
        return child.new

    @cached_property
    def _places(self) -> dict[int, int]:
        """Of each node its place in the order in which they are cleaned."""
        return {id(node): place for place, node in enumerate(self._tree.nodes)}

    def _told_apart(self, new: list[Any], old: Sequence[Any]) -> list[Any]:
        """Keys, numbered where they became equal to others; those that nothing was found in stay."""
        kept = {now for now, before in zip(new, old, strict=True) if now is before}
        taken = set(kept)
        numbers: dict[tuple[str, int], int] = {}
        found: list[Any] = []
        for now, before in zip(new, old, strict=True):
            if now is not before:
                now = unlike(now, taken, self._finder, numbers)
                taken.add(now)
            found.append(now)
        return found


def unlike(key: Any, taken: set[Any], finder: Finder, numbers: dict[tuple[str, int], int]) -> Any:
    """A key that is not taken: this one, or it with a number. Errors: `RedactionError`.

    numbers: the first one that may be free, for each text and way of numbering; `taken` only grows between calls.
    """
    if key not in taken:
        return key
    text = str(key)
    for way, told_apart in enumerate(_NUMBERINGS):
        for number in range(numbers.get((text, way), 2), 3 + len(taken)):
            numbers[text, way] = number
            if (other := told_apart(text, number)) not in taken:
                if not finder.rules([other]):
                    return other
                break  # another number would hardly do better
    raise RedactionError(finder.rules([_NUMBERINGS[0](text, 2)]))


def _nothing(value: Any) -> Any:
    """What stands for something that is left out of an object."""
    for kind in (dict, list, tuple, str):
        if isinstance(value, kind):
            return kind()
    return None
