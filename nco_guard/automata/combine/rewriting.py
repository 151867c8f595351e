"""Text that a decoder rewrites after its tokens were joined, and automata that watch what comes out.

`decode` may do more than join bytes: WordPiece pieces lose the space before the first word and the `##` of
continuations, `clean_up_tokenization_spaces` turns " ." into ".". So "john@enron .com" becomes an address although no
token ever wrote one. `Rewriting` is that step twice: `apply` is the definition, in terms of `bytes.replace`; `step` and
`flush` are the same as a byte transducer. `RewrittenAutomaton` puts it in front of any automaton.

Cost: a replacement holds back the beginning of what it looks for (a space, as a rule), so a state becomes a handful of
states. When not to use it: for decoders that only join bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from nco_guard.automata.automaton import SINK, Automaton, TableAutomaton

__all__ = ["BOUNDARY", "CONTINUATION", "Rewriting", "RewrittenAutomaton"]

# Bytes that no well-formed text has, as marks. Both may stand between characters only.
CONTINUATION = 0xFF  # before the bytes of a continuation piece
BOUNDARY = 0xFE  # instead of a token that adds nothing, where decoding begins anew after it
_FIRST = b"ea .0-\n"  # bytes that most likely lead to where the text may end

# Whether nothing was read yet; what may be a beginning that is dropped; what each stage of replacements holds back.
State = tuple[bool, bytes | None, tuple[bytes, ...]]


@dataclass(frozen=True)
class Rewriting:
    """What becomes of the joined bytes of all tokens, in this order.

    prefix: a `CONTINUATION` byte at the very start reads as this; elsewhere it reads as nothing. None: the byte has no
        such meaning.
    replacements: pairs (old, new), applied to the whole text one after another, each as `bytes.replace` does it.
        ASCII only, so that it cannot make or break a character.
    drops: after all that, a text that begins with one byte of each of these sets, in order, loses them. ASCII too.
    boundaries: `BOUNDARY` bytes read as nothing. False: the byte has no such meaning.
    strips_first_space: before all that, one leading space is dropped.
    """

    prefix: bytes | None = None
    replacements: tuple[tuple[bytes, bytes], ...] = ()
    drops: tuple[bytes, ...] = ()
    boundaries: bool = False
    strips_first_space: bool = False

    def __post_init__(self) -> None:
        if not all(old and old.isascii() and new.isascii() for old, new in self.replacements):
            raise ValueError("replacements must be pairs of ASCII strings, what is replaced not empty")
        if not all(places and places.isascii() for places in self.drops):
            raise ValueError("drops must be sets of ASCII bytes, none of them empty")

    @property
    def marks(self) -> bytes:
        """The bytes that have a meaning of their own here."""
        return bytes([CONTINUATION] * (self.prefix is not None) + [BOUNDARY] * self.boundaries)

    @cached_property
    def _stages(self) -> tuple[dict[bytes, bytes | None], ...]:
        """Replacements that can be done in one pass, as {beginning: None, whole: what replaces it}."""
        groups: list[list[tuple[bytes, bytes]]] = []
        for pair in self.replacements:
            if groups and all(_independent(pair, other) for other in groups[-1]):
                groups[-1].append(pair)
            else:
                groups.append([pair])
        return tuple(
            {**{old[:n]: None for old, _ in group for n in range(len(old))}, **dict(group)}
            for group in groups
        )

    @cached_property
    def _steps(self) -> dict[tuple[State, int], tuple[State, bytes]]:
        return {}  # some dozen states

    def apply(self, raw: bytes) -> bytes:
        """The definition: the bytes of the text that a reader gets. Linear."""
        if self.boundaries:
            raw = raw.replace(bytes([BOUNDARY]), b"")
        if self.strips_first_space and raw[:1] == b" ":
            raw = raw[1:]
        elif self.prefix is not None and raw[:1] == bytes([CONTINUATION]):
            raw = self.prefix + raw[1:]
        if self.prefix is not None:
            raw = raw.replace(bytes([CONTINUATION]), b"")
        for old, new in self.replacements:
            raw = raw.replace(old, new)
        if self.drops and all(raw[i : i + 1] and raw[i] in places for i, places in enumerate(self.drops)):
            raw = raw[len(self.drops) :]
        return raw

    def begin(self, *, fresh: bool) -> State:
        """The state before any byte. `fresh`: at the start of a text, rather than after a prompt."""
        return fresh, b"" if fresh and self.drops else None, (b"",) * len(self._stages)

    def step(self, state: State, byte: int) -> tuple[State, bytes]:
        """The next state, and the bytes of the text that are certain now."""
        known = self._steps.get((state, byte))
        if known is None:
            known = self._steps[state, byte] = self._find_step(state, byte)
        return known

    def _find_step(self, state: State, byte: int) -> tuple[State, bytes]:
        fresh, beginning, held = state
        if self.boundaries and byte == BOUNDARY:
            return state, b""
        out = bytes([byte])
        if self.prefix is not None and byte == CONTINUATION:
            out = self.prefix if fresh else b""
        elif fresh and self.strips_first_space and byte == 0x20:
            out = b""
        following = []
        for stage, waiting in zip(self._stages, held, strict=True):
            waiting, out = _pass(stage, waiting, out)
            following.append(waiting)
        beginning, out = self._drop(beginning, out)
        return (False, beginning, tuple(following)), out

    def flush(self, state: State) -> bytes:
        """The bytes that are still held back, at the end of the text."""
        out = b""
        for stage, waiting in zip(self._stages, state[2], strict=True):
            waiting, out = _pass(stage, waiting, out)
            out += waiting
        beginning, out = self._drop(state[1], out)
        return out + (beginning or b"")

    def _drop(self, beginning: bytes | None, data: bytes) -> tuple[bytes | None, bytes]:
        """What may still be a beginning to be dropped (None: no more), and what is let through."""
        for at, byte in enumerate(data):
            if beginning is None:
                return None, data[at:]
            if byte not in self.drops[len(beginning)]:
                return None, beginning + data[at:]
            beginning += bytes([byte])
            if len(beginning) == len(self.drops):
                beginning = None
        return beginning, b""


def _independent(one: tuple[bytes, bytes], other: tuple[bytes, bytes]) -> bool:
    """Whether both may be replaced in one pass instead of one after another.

    So it is where both take away one and the same byte, which they have nowhere else, before texts of which neither
    begins with the other: taking it away in one place makes no new match of the other, nor destroys one.
    """
    first = one[0][:1]
    return (
        all(old[:1] == first and first not in old[1:] and new == old[1:] for old, new in (one, other))
        and not one[0].startswith(other[0])
        and not other[0].startswith(one[0])
    )


def _pass(stage: dict[bytes, bytes | None], waiting: bytes, data: bytes) -> tuple[bytes, bytes]:
    """One stage: what it holds back after `data`, and what it lets through."""
    out = b""
    for byte in data:
        waiting += bytes([byte])
        while waiting not in stage:
            # No match begins with the first of these bytes.
            out, waiting = out + waiting[:1], waiting[1:]
        new = stage[waiting]
        if new is not None:
            out, waiting = out + new, b""
    return waiting, out


class RewrittenAutomaton(TableAutomaton):
    """Watches, byte by byte of the tokens, the text that `rewriting` makes of them.

    Exact at every byte and at the end of the text. `absorbing` (hard rules): a state from which no text can be
    completed without a match counts as a match, as for `ClassAutomaton`; only what is held back can make new ones.

    A state that a match leads to knows the states of the inner automaton in which it completed: `inner_hits(state)`,
    and for the end of the text `inner_end(state)`.
    """

    def __init__(self, inner: Automaton, rewriting: Rewriting, *, absorbing: bool) -> None:
        super().__init__()
        self.inner = inner
        self.rewriting = rewriting
        self.absorbing = absorbing
        self._keys: list[tuple[State, int, tuple[int, ...]]] = [((False, None, ()), SINK, ())]
        self._ids: dict[tuple[State, int, tuple[int, ...]], int] = {}
        self._ends: dict[int, tuple[bool, int]] = {}
        self._alive: dict[int, bool] = {}
        self.start = self._state((rewriting.begin(fresh=False), inner.start, ()))
        self.spaceless_start = self._state((rewriting.begin(fresh=True), inner.start, ()))

    def _state(self, key: tuple[State, int, tuple[int, ...]]) -> int:
        state = self._ids.get(key)
        if state is None:
            state = self._room()
            self._keys[state:] = [key]
            self._ids[key] = self._taken(state)
        return state

    def _find(self, state: int, byte: int) -> int:
        following, matched = self._follow(state, byte)
        if self.absorbing and not matched:
            matched = not self._can_end(following)
        return ~following if matched else following

    def _follow(self, state: int, byte: int) -> tuple[int, bool]:
        held, inner, _ = self._keys[state]
        held, out = self.rewriting.step(held, byte)
        hits: list[int] = []
        for written in out:
            inner = self.inner.step(inner, written)
            if inner < 0:
                inner = ~inner
                hits.append(inner)
        return self._state((held, inner, tuple(hits) if self.absorbing else ())), bool(hits)

    def _can_end(self, state: int) -> bool:
        """Whether some way on from here ends without a match; known for all states on the way."""
        seen, waiting = {state}, [state]
        while waiting:
            current = waiting.pop()
            if self._alive.get(current, self.may_end(current)):
                self._alive[state] = True
                return True
            if current in self._alive:
                continue
            for byte in (*_FIRST, *range(256)):
                following, matched = self._follow(current, byte)
                # Ill-formed text is no way out.
                if matched or following in seen or self._keys[following][1] == SINK:
                    continue
                if self.may_end(following):
                    self._alive[state] = True
                    return True
                seen.add(following)
                waiting.append(following)
        for each in seen:
            self._alive[each] = False
        return False

    def _end(self, state: int) -> tuple[bool, int]:
        known = self._ends.get(state)
        if known is None:
            held, inner, _ = self._keys[state]
            matched = False
            for written in self.rewriting.flush(held):
                inner = self.inner.step(inner, written)
                if inner < 0:
                    inner, matched = ~inner, True
                    break
            known = self._ends[state] = (not matched and self.inner.may_end(inner), inner)
        return known

    def past_prompt(self, state: int) -> int:
        """The state after a prompt; where some of it is still held back, there is no telling where it ends."""
        held, inner, hits = self._keys[state]
        return (
            state if self.rewriting.flush(held) else self._state((held, self.inner.past_prompt(inner), hits))
        )

    def may_end(self, state: int) -> bool:
        """Whether the text, with all that is held back, may end in this state."""
        return state == SINK or self._end(state)[0]

    def inner_hits(self, state: int) -> tuple[int, ...]:
        """The inner states in which matches completed with the step into this state; hard rules only."""
        return self._keys[state][2]

    def inner_end(self, state: int) -> int:
        """The inner state at the end of the text; that of the first match, if what is held back completes one."""
        return self._end(state)[1]

    @property
    def nbytes(self) -> int:
        """Bytes held by the transition tables, the inner automaton's included."""
        return super().nbytes + 400 * len(self._keys) + self.inner.nbytes
