"""Where a text may end that somebody may stop at any moment."""

from __future__ import annotations

from typing import Protocol
from weakref import WeakKeyDictionary

from nco_guard import arguments
from nco_guard.automata import SubstringSearcher
from nco_guard.automata.characters import CharMachine
from nco_guard.automata.patterns.searching import Machine
from nco_guard.automata.spans.follower import Searcher
from nco_guard.automata.spans.machines import Cursor
from nco_guard.compiler import CompiledPolicy, compiled_of
from nco_guard.errors import RedactionError
from nco_guard.policy import Policy

__all__ = ["SafeEnds"]

# By state and class: the state after it, whether the text may end there, whether a match completes.
_Known = dict[tuple[int, int], tuple[int, bool, bool]]
# By machine; shared by all streams, under the lock of the rule.
_steps: WeakKeyDictionary[CharMachine, _Known] = WeakKeyDictionary()


class SafeEnds:
    """Cuts text back to where it may end, piece by piece: for text that somebody may stop at any moment.

    `feed` returns what may be shown: all of the text so far up to the last place where it could end without completing
    a match of a hard rule. What it still holds at the end is to be thrown away. The text itself must hold no match that
    is complete before its end: `RedactionError` otherwise. Cost: two steps per rule and character.

    Examples:
        >>> ends = SafeEnds(Policy(name="p", rules=[StringRule(id="a", strings=["ass"], whole_word=True)]))
        >>> ends.feed("an ass"), ends.feed("et")
        ('an as', 'set')
    """

    def __init__(self, policy: Policy | CompiledPolicy, *, context: str = "") -> None:
        compiled = compiled_of(policy)
        self._rules = [rule for rule in compiled.rules if rule.rule.mode == "hard"]
        arguments.text("context", context)
        self._ends: list[_Ends] = []
        for rule in self._rules:
            with rule.lock:
                self._ends.append(_ends(rule.searcher, context if rule.rule.context == "prompt" else ""))
        self.held = ""

    def feed(self, text: str, *, final: bool = False) -> str:
        """Read on; what may be shown now. `final`: the text ends here and must be allowed to."""
        arguments.text("text", text)
        unfit: set[int] = set()
        for rule, ends in zip(self._rules, self._ends, strict=True):
            with rule.lock:
                completes = ends.read(text, unfit)
            if completes or (final and not ends.may_end):
                raise RedactionError((rule.id,))
        last = len(text)
        while not final and last and last - 1 in unfit:
            last -= 1
        shown, self.held = (self.held + text[:last], text[last:]) if last or final else ("", self.held + text)
        return shown


class _Ends(Protocol):
    """Where a text may end under one rule."""

    @property
    def may_end(self) -> bool:
        """Whether it may where it has got to."""

    def read(self, text: str, unfit: set[int]) -> bool:
        """Read on; whether a match completes. `unfit`: takes the places of characters after which none may end."""


class _PatternEnds:
    """Of a pattern or a ready-made automaton: what its machine says."""

    def __init__(self, machine: Machine, context: str) -> None:
        self._cursor = Cursor(machine, machine.start)
        for cls in machine.classes.of_text(context):
            self._cursor.read(cls)
        if context:
            self._cursor.pass_prompt()
        self._known = _steps.setdefault(self._cursor.machine, {})

    @property
    def may_end(self) -> bool:
        return self._cursor.machine.may_end(self._cursor.state)

    def read(self, text: str, unfit: set[int]) -> bool:
        cursor, known, state = self._cursor, self._known, self._cursor.state
        for index, cls in enumerate(cursor.machine.classes.of_text(text)):
            found = known.get((state, cls))
            if found is None:
                cursor.state = state
                cursor.make_room()
                known, before = _steps.setdefault(cursor.machine, {}), cursor.state
                completes = cursor.read(cls)
                found = known[before, cls] = cursor.state, cursor.machine.may_end(cursor.state), completes
            state, may_end, completes = found
            if completes:
                return True
            if not may_end:
                unfit.add(index)
        cursor.state, self._known = state, known
        return False


class _StringEnds:
    """Of a list of strings: by looking up what stands before each place."""

    def __init__(self, strings: SubstringSearcher, context: str) -> None:
        self._strings = strings
        self._text = context[-strings.longest - 1 :]
        self.may_end = True  # what ends in the prompt does not count

    def read(self, text: str, unfit: set[int]) -> bool:
        strings, before = self._strings, len(self._text)
        whole = self._text + text
        self._text = whole[-strings.longest - 1 :]
        if text and not self.may_end and strings.may_stop(whole, before):
            return True
        self.may_end = self.may_end or bool(text)
        for stop in strings.stops(whole, 0, before):
            at_end = stop == len(whole)
            if not strings.whole_word or (not at_end and strings.may_stop(whole, stop)):
                return True
            unfit.add(stop - before - 1)
            self.may_end = not at_end
        return False


def _ends(searcher: Searcher, context: str) -> _Ends:
    if isinstance(searcher, SubstringSearcher):
        return _StringEnds(searcher, context)
    return _PatternEnds(searcher, context)
