"""The two automata of the paper over bytes: an Aho-Corasick automaton, and DFAs compiled by interegular.

The paper's alphabet is that of the tokenizer's characters. Here it is bytes, which is the same for ASCII. For strings
bytes are exact for every text, since UTF-8 is. interegular reads code points, so a byte above 127 is one unknown
character to a pattern: exact for ASCII texts only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import interegular
import numpy as np
from interegular.fsm import anything_else
from numpy.typing import NDArray

from nco_guard.errors import PatternError

__all__ = ["DFAs", "aho_corasick", "compile_dfas"]


def aho_corasick(strings: Sequence[str]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Appendix B, algorithm 1, lines 1-5: trie, failure links, forbidden marks propagated along them.

    Failure links are folded into the transitions ("Preliminaries": the structure is then a DFA), so a step is one
    look-up. Returns transitions int32 [states, 256] and forbidden bool [states]; state 0 is the root.
    Linear in the total length of the strings.
    """
    children: list[dict[int, int]] = [{}]
    complete = [False]
    for string in strings:
        node = 0
        for byte in string.encode():
            following = children[node].get(byte)
            if following is None:
                following = children[node][byte] = len(children)
                children.append({})
                complete.append(False)
            node = following
        complete[node] = True
    table = np.zeros((len(children), 256), np.int32)
    failure = [0] * len(children)
    queue = deque([0])
    while queue:
        node = queue.popleft()
        fallback = table[failure[node]]
        if node:
            table[node] = fallback
            complete[node] |= complete[failure[node]]
        for byte, child in children[node].items():
            failure[child] = int(fallback[byte]) if node else 0
            table[node, byte] = child
            queue.append(child)
    return table, np.array(complete)


@dataclass(frozen=True)
class DFAs:
    """All patterns' DFAs side by side (the paper's Q_all, "MatMul Trick"), and one common sink, the last state.

    table: int32 [states + 1, 256]; the sink is the paper's omitted state, from which no match is possible.
    accepting: bool [states + 1]. starts: int32 [patterns]. owner: int32 [states], the pattern of a state.
    """

    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    starts: NDArray[np.int32]
    owner: NDArray[np.int32]

    @property
    def sink(self) -> int:
        """The state of runs that cannot match any more; also the number of the others."""
        return len(self.owner)


def compile_dfas(patterns: Sequence[str]) -> DFAs:
    """Each pattern by interegular, as in the paper's experiments, minimised, states that cannot match dropped.

    Raises `PatternError` for what interegular refuses, and for patterns that match the empty text (they would forbid
    every text; the paper leaves them out).
    """
    moves: list[tuple[int, list[int], int]] = []
    accepting: list[bool] = []
    starts: list[int] = []
    owner: list[int] = []
    for index, pattern in enumerate(patterns):
        try:
            fsm = interegular.parse_pattern(pattern).to_fsm().reduce()
        except (interegular.InvalidSyntax, interegular.Unsupported) as error:
            raise PatternError(
                "interegular, the paper's compiler, does not accept it", construct=f"pattern {index}"
            ) from error
        if fsm.initial in fsm.finals:
            raise PatternError(
                "it matches the empty text, and so every text; leave it out", construct=f"pattern {index}"
            )
        numbers = {state: len(owner) + i for i, state in enumerate(s for s in fsm.states if fsm.islive(s))}
        if fsm.initial not in numbers:
            raise PatternError("it can never match; leave it out", construct=f"pattern {index}")
        reading: dict[object, list[int]] = {}
        for byte in range(256):
            symbol = chr(byte) if byte < 128 and chr(byte) in fsm.alphabet else anything_else
            if symbol in fsm.alphabet:
                reading.setdefault(fsm.alphabet[symbol], []).append(byte)
        for state, number in numbers.items():
            for key, target in fsm.map.get(state, {}).items():
                if target in numbers and key in reading:
                    moves.append((number, reading[key], numbers[target]))
            accepting.append(state in fsm.finals)
            owner.append(index)
        starts.append(numbers[fsm.initial])
    sink = len(owner)
    table = np.full((sink + 1, 256), sink, np.int32)
    for number, read, target in moves:
        table[number, read] = target
    return DFAs(table, np.array([*accepting, False]), np.array(starts, np.int32), np.array(owner, np.int32))
