"""Where matches are in a text that is still arriving: the spans of `search.find_spans`, each as soon as it is certain.

For every place at which a match may be under way the search follows a state of its own. Places whose states meet have a
common future and are followed as one. What lies before the first of them can be in no match any more (`safe`).

A machine that has found much is let go of: the search goes on with one that knows nothing but the states in use, so no
text is too long for a rule, and what others do with the machine changes nothing here.

Cost: per character one step for each distinct state under way, which is one or two where nothing is; around each match
the characters since its start are read again. Memory: the characters from `safe` on.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

from nco_guard.automata.folding import FoldSpec, read_escapes, settle_escapes
from nco_guard.automata.patterns.alternating import AlternatingMachine
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.fsm import FsmMachine

__all__ = ["SpanStream", "span_stream"]

Span = tuple[int, int]
_Begun = dict[tuple[int, int], tuple[tuple[int, bool] | None, bool]]
_Quiet = dict[tuple[int, int], int]
_STRETCH = 64  # characters, after which it is looked at how much the machine has found


def span_stream(machine: AlternatingMachine | FoldedMachine | FsmMachine, context: str = "") -> SpanStream:
    """A stream that finds what `find_spans` finds; `machine` reports every end of a match.

    `context`: text before the stream; matches that begin there count if they end in the stream.
    """
    beyond = len(context) if context else -1
    return SpanStream(
        _FoldedScanner(machine, beyond)
        if isinstance(machine, FoldedMachine)
        else _PlainScanner(machine, beyond),
        context,
    )


class SpanStream:
    """Text in, spans out; offsets count from the start of the stream, without the context."""

    def __init__(self, scanner: _PlainScanner | _FoldedScanner, context: str) -> None:
        self._scanner = scanner
        self._before = len(context)
        if context:
            scanner.feed(context)

    def feed(self, text: str) -> list[Span]:
        """The spans that are certain by the end of `text` and were not before, from left to right."""
        return [self._clip(span) for span in self._scanner.feed(text)]

    def finish(self) -> list[Span]:
        """The rest of the spans: the text ends here."""
        return [self._clip(span) for span in self._scanner.finish()]

    def _clip(self, span: Span) -> Span:
        return max(0, span[0] - self._before), span[1] - self._before

    @property
    def safe(self) -> int:
        """Every span that is yet to come starts here or later."""
        return max(0, self._scanner.safe - self._before)

    @property
    def matched(self) -> bool:
        """Whether a match is complete that no span was given for yet, as its end is not certain."""
        return self._scanner.matched


class _Found:
    """What is known of a machine, for all streams that use it; as they do, under the lock of its rule.

    begun: what becomes of a match that begins before a character: by state and class, (key while under way, whether it
    is complete at once). quiet: the state after a character that no match begins with, -1 for others.
    """

    __slots__ = ("begun", "quiet")

    def __init__(self) -> None:
        self.begun: _Begun = {}
        self.quiet: _Quiet = {}


_found: WeakKeyDictionary[AlternatingMachine | FsmMachine, _Found] = WeakKeyDictionary()


class _Search:
    """The search in classes of characters; positions count from the first one."""

    def __init__(self, machine: AlternatingMachine | FsmMachine, beyond: int) -> None:
        self.beyond = beyond
        self._machine = machine
        self._base = 0
        self._classes: list[int] = []
        # What precedes each position from `_base` on, as states in which no match is under way.
        self._states: list[int] = [machine.bare_start]
        self._cursor = 0
        # Under way: (state, whether a match is complete) -> the first of the places where they began. Later ones of
        # the same key complete exactly when it does, and lie within its match.
        self._live: dict[tuple[int, bool], int] = {}
        self._complete: list[int] = []
        self._begun, self._quiet = self._tables()
        self._stepped = True  # whether the machine may have found something since it was last looked at

    def _tables(self) -> tuple[_Begun, _Quiet]:
        found = _found.get(self._machine)
        if found is None:
            found = _found[self._machine] = _Found()
        return found.begun, found.quiet

    def _renew(self) -> None:
        """Go on with a machine that has found nothing yet but the states that are held."""
        stepped, self._stepped = self._stepped, False
        if not stepped or not self._machine.crowded:
            return
        live = list(self._live.items())
        self._machine, states = self._machine.carried([*self._states, *(key[0] for key, _ in live)])
        self._begun, self._quiet = self._tables()
        count = len(self._states)
        self._states = states[:count]
        self._live = {
            (state, matched): start for state, ((_, matched), start) in zip(states[count:], live, strict=True)
        }

    @property
    def safe(self) -> int:
        """Positions before this one are in no match that is yet to be found."""
        if not self._live and not self._complete:
            return self._cursor
        return min((*self._live.values(), *self._complete, self._cursor))

    @property
    def matched(self) -> bool:
        """Whether a match is complete that ends after `beyond`."""
        return self._cursor > self.beyond and (
            bool(self._complete) or any(matched for _, matched in self._live)
        )

    def feed(self, classes: Sequence[int]) -> list[Span]:
        if len(classes) <= _STRETCH:
            self._renew()
            return self._feed(classes)
        spans: list[Span] = []
        for low in range(0, len(classes), _STRETCH):
            self._renew()
            spans += self._feed(classes[low : low + _STRETCH])
        return spans

    def _feed(self, classes: Sequence[int]) -> list[Span]:
        machine = self._machine
        if self._cursor == self._base and not self._live and not self._complete:
            classes = classes[self._skip(classes) :]
            if not classes:
                return []
        self._stepped = True
        for cls in classes:
            reached = machine.step(self._states[-1], cls, seed=False)
            self._states.append(~reached if reached < 0 else reached)
            self._classes.append(cls)
        spans: list[Span] = []
        while self._cursor < self._base + len(self._classes):
            self._stepped = True
            self._renew()
            self._read(self._cursor - self._base)
            self._cursor += 1
            while self._complete:
                if not self._settle(spans):
                    break
        done = self.safe - self._base
        del self._classes[:done], self._states[:done]
        self._base += done
        return spans

    def _skip(self, classes: Sequence[int]) -> int:
        """How many characters, the first ones, no match begins with; for when nothing is held."""
        quiet, state = self._quiet, self._states[0]
        count = 0
        for cls in classes:
            following = quiet.get((state, cls))
            if following is None:
                following = quiet[state, cls] = self._passed(state, cls)
            if following < 0:
                break
            state = following
            count += 1
        self._states[0] = state
        self._base += count
        self._cursor = self._base
        return count

    def _passed(self, state: int, cls: int) -> int:
        """The state after a character that no match begins with; -1 if one does."""
        self._stepped = True
        if self._begin(state, cls) != (None, False):
            return -1
        reached = self._machine.step(state, cls, seed=False)
        return ~reached if reached < 0 else reached

    def _read(self, index: int) -> None:
        """All places under way go on by one character, and one more begins before it."""
        if self._base + index == self.beyond:
            self._pass_prompt(index)
        machine, cls = self._machine, self._classes[index]
        live: dict[tuple[int, bool], int] = {}
        for (state, matched), start in self._live.items():
            reached = machine.step(state, cls, seed=False)
            if reached < 0:
                reached, matched = ~reached, True
            if not machine.is_bare(reached):
                live[reached, matched] = min(start, live.get((reached, matched), start))
            elif matched:
                self._complete.append(start)
        key, done = self._begin(self._states[index], cls)
        if key is not None:
            live.setdefault(key, self._base + index)
        elif done:
            self._complete.append(self._base + index)
        self._live = live

    def _pass_prompt(self, index: int) -> None:
        """From here on what ends before this place does not count, whatever follows."""
        past = self._machine.past_prompt
        live: dict[tuple[int, bool], int] = {}
        for (state, _), start in self._live.items():
            key = past(state), False
            if not self._machine.is_bare(key[0]):
                live[key] = min(start, live.get(key, start))
        self._live, self._complete = live, []
        self._states[index] = past(self._states[index])

    def _begin(self, before: int, cls: int) -> tuple[tuple[int, bool] | None, bool]:
        known = self._begun.get((before, cls))
        if known is None:
            machine = self._machine
            reached = machine.step(machine.planted(before), cls, seed=False)
            done = reached < 0
            reached = ~reached if done else reached
            known = None if machine.is_bare(reached) else (reached, done), done
            self._begun[before, cls] = known
        return known

    def _settle(self, spans: list[Span]) -> bool:
        """Make a span of the first complete match, unless one that begins before it is under way."""
        first = min(self._complete)
        if any(start < first for start in self._live.values()):
            return False
        self._restart(self._span_at(first, spans))
        return True

    def _span_at(self, start: int, spans: list[Span]) -> int:
        """Look for the longest match at a position; where to go on."""
        index = start - self._base
        end = self._machine.longest_from(self._states[index], self._classes, index)
        if end is None or self._base + end <= self.beyond:
            return start + 1
        spans.append((start, self._base + end))
        return max(self._base + end, start + 1)

    def _restart(self, position: int) -> None:
        self._live, self._complete, self._cursor = {}, [], position

    def finish(self) -> list[Span]:
        spans: list[Span] = []
        length = self._base + len(self._classes)
        position = self.safe
        while position <= length:
            self._stepped = True
            self._renew()
            position = self._span_at(position, spans)
        self._restart(length)
        return spans


class _PlainScanner:
    """Characters in, spans out."""

    def __init__(self, machine: AlternatingMachine | FsmMachine, beyond: int) -> None:
        self._classes = machine.classes
        self._search = _Search(machine, beyond)

    @property
    def safe(self) -> int:
        return self._search.safe

    @property
    def matched(self) -> bool:
        return self._search.matched

    def feed(self, text: str) -> list[Span]:
        return self._search.feed(self._classes.of_text(text))

    def finish(self) -> list[Span]:
        return self._search.finish()


class _FoldedScanner:
    """Spans of a folded rule: the text is folded as it arrives, and spans are those of the original characters."""

    def __init__(self, machine: FoldedMachine, beyond: int) -> None:
        self._spec: FoldSpec = machine.spec
        self._images = machine.spec.images
        self._classes = machine.inner.classes
        self._search = _Search(machine.inner, min(beyond, 0))
        self._beyond = beyond
        self._pending = ""  # an escape under way
        self._settled = 0  # original characters whose folding is certain
        self._base = 0  # folded characters that were dropped from `_origin`
        self._origin: list[Span] = []
        self._waiting: Span | None = None

    @property
    def safe(self) -> int:
        if self._waiting is not None:
            return self._waiting[0]
        return self._start_of(self._search.safe)

    @property
    def matched(self) -> bool:
        return self._waiting is not None or self._search.matched

    def _start_of(self, folded: int) -> int:
        index = folded - self._base
        return self._origin[index][0] if index < len(self._origin) else self._settled

    def feed(self, text: str) -> list[Span]:
        if self._spec.json_escapes:
            spelled = self._pending + text
            _, self._pending = settle_escapes(spelled)
            spelled = spelled[: len(spelled) - len(self._pending)]
            found = self._fold(list(read_escapes(spelled)))
        else:
            spelled = text
            found = self._fold([(c, i, i + 1) for i, c in enumerate(text)])
        return self._ready(found, final=False)

    def finish(self) -> list[Span]:
        found = self._fold(list(read_escapes(self._pending)))
        self._pending = ""
        before, count = self._origin[:], self._base
        ends = self._search.finish()
        self._origin, self._base = before, count
        return self._ready(found + self._original(ends), final=True)

    def _fold(self, characters: list[tuple[str, int, int]]) -> list[Span]:
        """Feed characters, each with its place after `_settled`; original spans."""
        folded: list[str] = []
        first = self._settled
        for character, start, end in characters:
            image = self._images.get(character, character)
            folded.append(image)
            self._origin.extend([(first + start, first + end)] * len(image))
            if self._beyond >= 0 and first + end <= self._beyond:
                self._search.beyond += len(image)
        self._settled += characters[-1][2] if characters else 0
        return self._original(self._search.feed(self._classes.of_text("".join(folded))))

    def _original(self, spans: list[Span]) -> list[Span]:
        return [
            (
                self._start_of(first),
                self._origin[last - 1 - self._base][1] if last > first else self._start_of(first),
            )
            for first, last in spans
        ]

    def _ready(self, spans: list[Span], *, final: bool) -> list[Span]:
        """Join spans that meet in one original character, and give those that no later one can meet."""
        ready: list[Span] = []
        for start, end in spans:
            if self._waiting is not None and start < self._waiting[1]:
                self._waiting = self._waiting[0], max(self._waiting[1], end)
                continue
            if self._waiting is not None:
                ready.append(self._waiting)
            self._waiting = start, end
        if self._waiting is not None and (final or self._start_of(self._search.safe) >= self._waiting[1]):
            ready.append(self._waiting)
            self._waiting = None
        # An empty span needs no character, others end with the one before.
        done = self._search.safe - self._base - 1
        if done > 0:
            del self._origin[:done]
            self._base += done
        return ready
