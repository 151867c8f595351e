r"""Strings with upper and lower case alike, or as whole words: Aho-Corasick over characters, read byte by byte.

`re.IGNORECASE` sorts characters into disjoint sets, so strings and text are sequences of such sets (`tries` finds the
former in the latter), and the bytes of a character lead through a small UTF-8 trie to its set.

Whole words: both strings and text get a mark at the beginning and after every character outside `\w`. A string begins
with the mark, so it is found only where a mark stands: where no `\w` comes before. And it is complete only when the
next character, or the end of the text, shows that no `\w` follows.

A state is a node of the automaton and a place within a character; such pairs are numbered as they are met. Cost: as
`tries`, per character instead of per byte, and for every state met some 150 bytes; of the first thousands, the steps
that were taken are kept too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import SINK, UNKNOWN, Automaton
from nco_guard.automata.charsets import CharClasses, CharSet, both, complement, same_letter, word
from nco_guard.automata.strings.tries import ROOT, SymbolTrie
from nco_guard.automata.utf8 import ILL_FORMED, byte_classes_of, utf8_table
from nco_guard.errors import StateLimitError

__all__ = ["FoldedAhoCorasick", "folds_evenly"]

_KEY_LIMIT = 1 << 62
_KEPT_STATES = 1 << 20
_ROWS = 1 << 13  # states whose steps are kept, by class of bytes
_NAMED = 1 << 16  # nodes, up to which those that are as good as others are told from them
_FEW = 24  # steps that are taken one by one rather than together
_SYMBOL_LIMIT = 0xD000  # symbols are sorted as characters; beyond lie the surrogates


def _alike(character: str, caseless: bool) -> CharSet:
    return same_letter(character) if caseless else ((ord(character), ord(character)),)


def folds_evenly(strings: Sequence[str], *, caseless: bool, whole_word: bool) -> bool:
    r"""Whether `FoldedAhoCorasick` takes these strings.

    Not where some character that is outside `\w` is the same letter as one within: U+0345, which is an iota, is the
    only one. Nor where there are too many different characters.
    """
    characters = set().union(*strings)
    if len(characters) > _SYMBOL_LIMIT - 4:
        return False
    if not (caseless and whole_word):
        return True
    return all(map(_folds_evenly, characters))


@lru_cache(maxsize=1 << 16)
def _folds_evenly(character: str) -> bool:
    alike = same_letter(character)
    return len(both(alike, word())) in (0, len(alike))


class FoldedAhoCorasick(Automaton):
    r"""Finds every occurrence of any of the strings, in any case (`caseless`) or as whole words, or both.

    See `automaton.Automaton`; a whole word completes with the character after it, which is not `\w`, or with the bytes
    by which such a character must begin.

    `names_hits`: the state that a match leads to then tells which strings completed (`patterns_ending`), at the cost
    of a state for each place where one did. `fresh()`: the same automaton, no state met yet.

    Errors: `ValueError` for no strings, an empty one, or such as `folds_evenly` refuses; `StateLimitError` for
    more strings than can be numbered.
    """

    def __init__(
        self, strings: Sequence[str], *, caseless: bool, whole_word: bool, names_hits: bool = False
    ) -> None:
        if not strings or not all(strings):
            raise ValueError("patterns must be one or more non-empty texts")
        if not folds_evenly(strings, caseless=caseless, whole_word=whole_word):
            raise ValueError("some character of these strings is sometimes part of a word and sometimes not")
        self.whole_word = whole_word
        self.names_hits = names_hits and whole_word
        characters = sorted(set().union(*strings))
        sets: list[CharSet] = list(dict.fromkeys(_alike(c, caseless) for c in characters))
        number = {s: i for i, s in enumerate(sets, start=1)}
        self._mark = len(sets) + 2
        words = word()
        if whole_word:  # all other characters of words are one more symbol
            known = tuple(sorted(r for s in sets for r in s))
            classes = CharClasses.of_disjoint([*sets, both(words, complement(known))])
        else:
            classes = CharClasses.of_disjoint(sets)
        self._between: NDArray[np.bool_] = np.ones(self._mark + 1, np.bool_)  # symbols outside \w
        self._between[len(sets) + 1] = False
        for members, symbol in number.items():
            self._between[symbol] = not both(members, words)
        spelled: dict[int, str] = {}
        for character in characters:
            symbol = number[_alike(character, caseless)]
            spelled[ord(character)] = chr(symbol) + (
                chr(self._mark) if whole_word and self._between[symbol] else ""
            )
        weights = np.ones(self._mark + 1, np.uint8)
        weights[self._mark] = 0
        for members, symbol in number.items():
            weights[symbol] = len(chr(members[0][0]).encode("utf-8", "surrogatepass"))
        self._trie = self._build([s.translate(spelled) for s in strings], weights)
        self._utf8: NDArray[np.int32] = utf8_table(classes)
        self._breaks: NDArray[np.bool_] = np.array([self._only_between(i) for i in range(len(self._utf8))])
        self._number(len(strings))

    def _ends_of(self, place: int) -> set[int]:
        """The symbols of all characters that begin with the bytes that lead to a place."""
        targets = set(self._utf8[place].tolist()) - {ILL_FORMED}
        return {t for t in targets if t >= 0}.union(*(self._ends_of(-2 - t) for t in targets if t < 0))

    def _number(self, strings: int) -> None:
        self._nodes = self._trie.node_count
        self._utf8_rows: list[list[int]] = self._utf8.tolist()
        places = len(self._utf8)
        # The nodes that stand for each node at each place within characters, filled by place; see `_name`.
        self._names: NDArray[np.int32] = np.zeros(
            (places, self._nodes if self._nodes <= _NAMED else 0), np.int32
        )
        self._named = [False] * places
        self._bytes_at: dict[int, dict[int, bytes]] = {}
        self._blank: NDArray[np.bool_] = np.array([bool(i) and self._is_blank(i) for i in range(places)])
        self._span = self._nodes * len(self._utf8)
        self._prompt = self._span * (self._nodes + 1)
        if self._prompt + self._span >= _KEY_LIMIT:
            raise StateLimitError(f"these {strings:,} strings need too many states; split the list")
        self._root = self._marked(ROOT) if self.whole_word else ROOT
        self._forget()

    def _forget(self) -> None:
        # The key of a state: its node, plus nodes times its place; plus `span` times (1 + the node in which strings
        # completed), if some did and are to be named; plus `prompt` where no string that ends here counts.
        self._keys: NDArray[np.int64] = np.array([SINK, self._root, self._root, *[0] * 61], np.int64)
        self._ids: dict[int, int] = {SINK: 0, self._root: 1}
        self._of_node: NDArray[np.int32] = np.full(self._nodes, -1, np.int32)
        self._of_node[[SINK, self._root]] = [0, 1]
        self._count = 3
        self._distances: NDArray[np.uint8] = np.zeros(64, np.uint8)
        self._measured = 0
        self._rows: NDArray[np.int32] = np.full((16, int(self.byte_classes.max()) + 1), UNKNOWN, np.int32)
        self.start = 1
        self.spaceless_start = 2

    def _is_blank(self, place: int) -> bool:
        """Whether a place is within characters none of which is in any string."""
        return self._ends_of(place) <= ({0, self._mark - 1} if self.whole_word else {0})

    def _name(self, place: int) -> None:
        """Within a character, a node is as good as the longest shorter one from which some end of it leads on.

        Or in which a whole word waits for what follows. For most nodes and characters that is the root. Of very large
        tries, whose table would be larger still, only characters that are in no string are seen to lead to the root.
        """
        trie, ends = self._trie, sorted(self._ends_of(place))
        parents = np.repeat(np.arange(self._nodes), np.diff(trie.first_child))
        leads = trie.outputs.copy() if self.whole_word else np.zeros(self._nodes, np.bool_)
        leads[parents[np.isin(trie.edges[trie.first_child[0] :], ends)]] = True
        leads[[SINK, ROOT]] = True
        names = np.arange(self._nodes, dtype=np.int32)
        while len(waiting := np.flatnonzero(~leads[names])):
            names[waiting] = trie.fail[names[waiting]]
        self._names[place] = names
        self._named[place] = True

    def _named_at(self, place: int, node: int) -> int:
        if not self._names.shape[1]:
            waits = self.whole_word and bool(self._trie.outputs[node])
            return node if node == SINK or waits or not self._blank[place] else ROOT
        if not self._named[place]:
            self._name(place)
        return int(self._names[place, node])

    def _named_at_many(self, places: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self._names.shape[1]:
            kept = ~self._blank[places] | (nodes == SINK)
            if self.whole_word:
                kept |= self._trie.outputs[nodes]
            return np.where(kept, nodes, ROOT)
        for place in set(places.tolist()):
            if not self._named[place]:
                self._name(place)
        return self._names[places, nodes].astype(np.int64)

    @property
    def idle(self) -> int | None:
        """Within a word that no string begins with."""
        return self._state(ROOT) if self.whole_word else None

    def apart(self, state: int, other: int) -> bytes | None:
        """See `Automaton.apart`: those by which the text of a state goes on, if it ends with the other's text."""
        place, node = divmod(int(self._keys[state]), self._nodes)
        stop = ROOT
        if other >= 0:
            its_place, stop = divmod(int(self._keys[other]), self._nodes)
            if its_place != place or other == self.spaceless_start:
                return None
        # Keys beyond the span say more than a place and a node.
        if place >= len(self._utf8) or state == self.spaceless_start or SINK in (node, stop):
            return None
        trie, by_symbol = self._trie, self._bytes_by_symbol(place)
        outputs, fail = trie.outputs.data, trie.fail.data
        found: list[bytes] = []
        while node > stop:
            if self.whole_word and outputs[node]:
                return None
            found += [by_symbol[symbol] for symbol in trie.symbols(node) if symbol in by_symbol]
            node = fail[node]
        if node != stop:
            return None
        return found[0] if len(found) == 1 else bytes(set(b"".join(found)))

    def _bytes_by_symbol(self, place: int) -> dict[int, bytes]:
        """The bytes by which characters of each symbol begin, or go on at a place."""
        known = self._bytes_at.get(place)
        if known is None:
            known = {}
            for byte, target in enumerate(self._utf8_rows[place]):
                ends = {target} if target >= 0 else self._ends_of(-2 - target) if target < ILL_FORMED else ()
                for symbol in ends:
                    known[symbol] = known.get(symbol, b"") + bytes([byte])
            self._bytes_at[place] = known
        return known

    def fresh(self) -> FoldedAhoCorasick:
        """This automaton with states to be met anew, sharing everything else."""
        other = copy(self)
        other._forget()
        return other

    def _build(self, spelled: list[str], weights: NDArray[np.uint8]) -> SymbolTrie:
        if self.whole_word:
            mark = chr(self._mark)
            spelled = [mark + s for s in spelled]
        order = sorted(range(len(spelled)), key=spelled.__getitem__)
        ordered = [spelled[i] for i in order]
        lengths = np.fromiter(map(len, ordered), np.int64, len(ordered))
        narrow = self._mark < 256
        data = "".join(ordered).encode("latin-1" if narrow else "utf-16-le")
        buffer = np.frombuffer(data, np.uint8) if narrow else np.frombuffer(data, "<u2").astype(np.uint16)
        return SymbolTrie.build(buffer, lengths, np.array(order, np.int64), self._mark + 1, weights=weights)

    def _marked(self, node: int) -> int:
        reached = self._trie.step(node, self._mark)
        return reached ^ (reached >> 31)

    def _only_between(self, place: int) -> bool:
        r"""Whether every character that begins with the bytes that lead to a place is outside `\w`."""
        return all(bool(self._between[symbol]) for symbol in self._ends_of(place))

    # -- steps -------------------------------------------------------------------------------------------------

    def _state(self, key: int) -> int:
        state = self._ids.get(key)
        if state is None:
            state = self._count
            if state == len(self._keys):
                self._keys = np.concatenate([self._keys, np.zeros_like(self._keys)])
            self._keys[state] = key
            self._count = state + 1
            if key < self._nodes:
                self._of_node[key] = state
            self._ids[key] = state
        return state

    def step(self, state: int, byte: int) -> int:
        """The next state, or `~next` if a match completes with this byte."""
        if state == self.spaceless_start and byte == 0x20:
            return self.start
        before = int(self._keys[state])
        place, node = divmod(before % self._span, self._nodes)
        target = self._utf8_rows[place][byte]
        if target == ILL_FORMED:
            return SINK
        matched = False
        if target < 0:
            key = self._named_at(-2 - target, node) + self._nodes * (-2 - target)
            broken = bool(self._breaks[-2 - target])
        else:
            key = self._trie.step(node, target)
            if key < 0:
                key, matched = ~key, True
            broken = bool(self._between[target])
        if self.whole_word:
            if broken and target >= 0:
                key = self._marked(key)
            prompted = before >= self._prompt
            matched = broken and not prompted and bool(self._trie.outputs[node])
            if matched and self.names_hits:
                key += self._span * (node + 1)
            elif prompted and target < 0:
                key += self._prompt
        reached = self._state(key)
        return ~reached if matched else reached

    def step_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        """`step` for arrays of equal length. int32. States met for the first time cost some Python each."""
        if self._count > len(self._rows) and len(self._rows) < _ROWS:
            grown = np.full((min(2 * self._count, _ROWS), self._rows.shape[1]), UNKNOWN, np.int32)
            grown[: len(self._rows)] = self._rows
            self._rows = grown
        classes = self.byte_classes[symbols]
        if len(states) and int(states.max()) >= len(self._rows):
            kept = states < len(self._rows)
            reached = np.full(len(states), UNKNOWN, np.int32)
            reached[kept] = self._rows[states[kept], classes[kept]]
        else:
            reached = self._rows[states, classes]
        if len(reached) and reached.min() == UNKNOWN:
            missing = np.flatnonzero(reached == UNKNOWN)
            pairs = states[missing].astype(np.int64) << 8 | classes[missing]
            _, first, of = np.unique(pairs, return_index=True, return_inverse=True)
            some = missing[first]
            if len(some) > _FEW:
                found = self._find_many(states[some], symbols[some])
            else:
                steps = zip(states[some].tolist(), symbols[some].tolist(), strict=True)
                found = np.array([self.step(state, byte) for state, byte in steps], np.int32)
            reached[missing] = found[of.ravel()]
            some, found = some[states[some] < len(self._rows)], found[states[some] < len(self._rows)]
            self._rows[states[some], classes[some]] = found
        return reached

    def _find_many(self, states: NDArray[np.int32], symbols: NDArray[np.uint8]) -> NDArray[np.int32]:
        before = self._keys[states]
        places, nodes = np.divmod(before % self._span, self._nodes)
        targets = self._utf8[places, symbols]
        whole = targets >= 0
        inside = np.where(whole, 0, -2 - targets)
        keys = np.zeros(len(nodes), np.int64)
        within = np.flatnonzero(targets < ILL_FORMED)
        if len(within):
            at = inside[within]
            keys[within] = self._named_at_many(at, nodes[within]) + self._nodes * at
        read = np.flatnonzero(whole)
        kinds = targets[read].astype(self._trie.edges.dtype)
        reached = self._trie.step_many(nodes[read].astype(np.int32), kinds)
        matched = np.zeros(len(keys), np.bool_)
        if self.whole_word:
            np.bitwise_xor(reached, reached >> 31, out=reached)
            after = np.flatnonzero(self._between[kinds])
            marked = self._trie.step_many(reached[after], np.full(len(after), self._mark, kinds.dtype))
            reached[after] = marked ^ (marked >> 31)
            broken = self._breaks[inside]
            broken[read] = self._between[kinds]
            prompted = before >= self._prompt
            matched = broken & self._trie.outputs[nodes] & ~prompted
            keys[prompted & ~whole] += self._prompt
        else:
            matched[read] = reached < 0
            np.bitwise_xor(reached, reached >> 31, out=reached)
        keys[read] = reached
        if self.names_hits:
            keys[matched] += self._span * (nodes[matched] + 1)
        lost = targets == ILL_FORMED
        keys[lost], matched[lost] = SINK, False
        # Between characters, with nothing to name, the key is the node; nearly all are such, and most were met before.
        plain = np.flatnonzero(keys < self._nodes)
        found = np.full(len(keys), -1, np.int32)
        found[plain] = self._of_node[keys[plain]]
        rest = np.flatnonzero(found < 0)
        if len(rest):
            distinct, of = np.unique(keys[rest], return_inverse=True)
            found[rest] = np.array([self._state(key) for key in distinct.tolist()], np.int32)[of.ravel()]
        stripped = (states == self.spaceless_start) & (symbols == 0x20)
        return np.where(stripped, self.start, np.where(matched, ~found, found)).astype(np.int32)

    def distances(self, states: NDArray[np.int32]) -> NDArray[np.uint8]:
        """How many more bytes each state needs, at least, for a match to complete or to wait for the text's end."""
        if self._measured < self._count:
            if len(self._distances) < self._count:
                self._distances = np.resize(self._distances, len(self._keys))
            fresh = slice(self._measured, self._count)
            self._distances[fresh] = self._distances_of(self._keys[fresh])
            self._measured = self._count
        return self._distances[states]

    def distance(self, state: int) -> int:
        """See `Automaton.distance`."""
        return int(self._distances[state]) if state < self._measured else super().distance(state)

    def _distances_of(self, keys: NDArray[np.int64]) -> NDArray[np.uint8]:
        places, nodes = np.divmod(keys % self._span, self._nodes)
        found = self._trie.distances[nodes]
        # Within a character, up to three of its bytes have been read.
        np.subtract(found, np.minimum(found, 3), out=found, where=(places > 0) & (found < 255))
        if self.whole_word:
            found[self._trie.outputs[nodes]] = 0
        return found

    @cached_property
    def byte_classes(self) -> NDArray[np.uint8]:
        """uint8 [256]: bytes of one class begin, continue and end characters that the strings do not tell apart.

        The space, which `spaceless_start` tells from all others, has a class of its own.
        """
        return byte_classes_of(self._utf8)

    # -- ends --------------------------------------------------------------------------------------------------

    def past_prompt(self, state: int) -> int:
        """The state after a prompt: words that end with it do not count, whatever follows."""
        key = int(self._keys[state])
        return self._state(self._prompt + key % self._span) if self.whole_word and key else state

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state: not after a whole word. Within a character, UTF-8 forbids it."""
        return not self._waiting(state)

    def _waiting(self, state: int) -> bool:
        key = int(self._keys[state])
        return (
            self.whole_word
            and key < self._prompt
            and key % self._span < self._nodes
            and bool(self._trie.outputs[key % self._span])
        )

    def may_end_many(self, states: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`may_end` for an array."""
        if not self.whole_word:
            return np.ones(len(states), np.bool_)
        keys = self._keys[states]
        places, nodes = np.divmod(keys % self._span, self._nodes)
        verdicts: NDArray[np.bool_] = (keys >= self._prompt) | (places > 0) | ~self._trie.outputs[nodes]
        return verdicts

    def patterns_ending(self, state: int) -> list[int]:
        """Indices of the strings that completed with the step into this state, longest first.

        For whole words only with `names_hits`; a state that no match led to gives none.
        """
        key = int(self._keys[state])
        if self.whole_word:
            return self._trie.ending(key // self._span - 1) if self._span <= key < self._prompt else []
        return [] if key >= self._nodes else self._trie.ending(key)

    def patterns_ending_with_text(self, state: int) -> list[int]:
        """Indices of the whole words that the end of the text in this state completes."""
        return (
            self._trie.ending(int(self._keys[state]) % self._span % self._nodes)
            if self._waiting(state)
            else []
        )

    @property
    def state_count(self) -> int:
        """States met so far."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes held by the arrays and by what names states (estimated)."""
        return (
            self._trie.nbytes
            + 9 * self._utf8.size
            + self._keys.nbytes
            + self._of_node.nbytes
            + self._rows.nbytes
            + sum(self._named) * 4 * len(self._names[0])
            + 140 * self._count
        )

    def found(self) -> dict[str, NDArray[Any]] | None:
        """The states met; None for more than a million."""
        return {"keys": self._keys[: self._count].copy()} if self._count <= _KEPT_STATES else None

    def recall(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Take up what `found` gave."""
        keys = arrays["keys"]
        span, nodes = divmod(int(keys.max()), self._span)
        if self._count > 3 or int(keys.min()) < 0 or span > self._nodes or nodes >= self._span:
            return False
        self._count = len(keys)
        self._keys = np.concatenate([keys, np.zeros_like(keys)])
        self._ids = {key: state for state, key in enumerate(keys.tolist())}
        self._ids[self._root] = self.start
        self._of_node[:] = -1
        plain = np.flatnonzero(keys < self._nodes)
        self._of_node[keys[plain]] = plain
        self._of_node[self._root] = self.start
        self._rows = np.full((16, self._rows.shape[1]), UNKNOWN, np.int32)
        self._measured = 0
        return True

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Everything but the states met, for a cache on disk; `from_arrays` reads it back. Shared, read-only."""
        flags = np.array([self.whole_word, self.names_hits])
        return {
            **self._trie.to_arrays(),
            "utf8": self._utf8,
            "between": self._between,
            "breaks": self._breaks,
            "flags": flags,
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> FoldedAhoCorasick:
        """The automaton of these arrays, which it goes on using (they may be memory-mapped).

        Errors: `ValueError` for arrays by which a step could leave them. What passes is safe to run; that it is the
        automaton of the right strings is for the caller's checksum to tell.
        """
        for name, dtype, axes in (
            ("utf8", np.int32, 2),
            ("between", bool, 1),
            ("breaks", bool, 1),
            ("flags", bool, 1),
        ):
            array = arrays.get(name)
            if array is None or array.dtype != dtype or array.ndim != axes:
                raise ValueError(
                    f"array {name!r} is missing, or not what an automaton for strings is made of"
                )
        trie = SymbolTrie(arrays)
        utf8, between, breaks, flags = (arrays[name] for name in ("utf8", "between", "breaks", "flags"))
        if (
            utf8.shape != (len(breaks), 256)
            or not len(utf8)
            or int(utf8.min()) < -1 - len(utf8)
            or not int(utf8.max()) < len(between) == trie.symbol_count
            or len(flags) != 2
        ):
            raise ValueError("these arrays do not belong to one automaton for strings")
        automaton = cls.__new__(cls)
        automaton._trie, automaton._utf8, automaton._between, automaton._breaks = trie, utf8, between, breaks
        automaton.whole_word, automaton.names_hits = map(bool, flags.tolist())
        automaton._mark = trie.symbol_count - 1
        automaton._number(len(arrays["end_nodes"]))
        return automaton
