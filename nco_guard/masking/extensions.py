"""What a state of an automaton for strings forbids beyond the state that remembers less.

A token completes a string after some text if the string is within the token, which the root's run tells, or if some
ending of the text is the beginning of the string and the token goes on with the rest. The endings of the text that are
beginnings of strings are the automaton's state and what its failure links lead to: so the mask of a state is the mask
of the next shorter one and what its own text adds. To find that, the tree of strings and that of tokens are
walked together, only where the rest of the string is no longer than the tokens are.

Cost: some microseconds for a state that few strings begin with, some dozen for each level otherwise; a million strings
or a thousand hardly differ.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata import AhoCorasick
from nco_guard.masking.idsets import NO_IDS, Ids
from nco_guard.tokens import PrefixTree

__all__ = ["added", "prepare"]

Found = tuple[Ids, Ids, NDArray[np.int32]]

_NOTHING: Found = (NO_IDS, NO_IDS, np.zeros(0, np.int32))
# Up to so many steps from node to node are taken one by one.
_FEW = 200


def prepare(tree: PrefixTree) -> None:
    """Make what `added` needs of a tree, so that no step has to. Cost: some milliseconds, once per tree."""
    _ = tree.heights, tree.edges


def added(automaton: AhoCorasick, tree: PrefixTree, state: int, reach: int) -> Found:
    """Nodes of the tree, not a quotient, that the text of a state goes on to within some string.

    First those at which the string is complete, none below another; then those after which at most `reach` bytes more
    can complete one and at which tokens end, and the states there.
    """
    completed: list[Ids] = []
    near: list[Ids] = []
    states: list[NDArray[np.int32]] = []
    nodes, current = np.zeros(1, np.int64), np.array([state], np.int32)
    while len(nodes) and automaton.ways(current) > _FEW:
        current, of, letters = automaton.longer_many(current)
        nodes = tree.child_many(nodes[of], letters)
        there = np.flatnonzero(nodes >= 0)
        nodes, current = nodes[there], current[there]
        ending = automaton.outputs[current]
        if ending.any():
            completed.append(nodes[ending])
            nodes, current = nodes[~ending], current[~ending]
        far = automaton.distances(current)
        on = np.flatnonzero(far <= tree.heights[nodes].astype(np.int16) + reach)
        nodes, current, far = nodes[on], current[on], far[on]
        close = np.flatnonzero(far <= reach)
        if len(close):
            close = close[tree.exact[nodes[close]] > 0]
            near.append(nodes[close])
            states.append(current[close])
    few = _one_by_one(automaton, tree, list(zip(nodes.tolist(), current.tolist(), strict=True)), reach)
    if not completed and not near:
        return few
    return (
        np.concatenate([*completed, few[0]]),
        np.concatenate([*near, few[1]]),
        np.concatenate([*states, few[2]]),
    )


def _one_by_one(automaton: AhoCorasick, tree: PrefixTree, stack: list[tuple[int, int]], reach: int) -> Found:
    outputs, distances = automaton.outputs.data, automaton.distance_of_all.data
    letters, firsts, counts = tree.byte.data, tree.first_child.data, tree.child_count.data
    heights, exact = tree.heights.data, tree.exact.data
    completed: list[int] = []
    near: list[int] = []
    states: list[int] = []
    while stack:
        node, before = stack.pop()
        reached, ways = automaton.longer(before)
        first = firsts[node]
        siblings = letters[first : first + counts[node]].tobytes()
        for byte in ways:
            place = siblings.find(byte)
            if place >= 0:
                child = first + place
                if outputs[reached]:
                    completed.append(child)
                else:
                    far = distances[reached]
                    if far <= heights[child] + reach:
                        stack.append((child, reached))
                        if far <= reach and exact[child]:
                            near.append(child)
                            states.append(reached)
            reached += 1
    if not completed and not near:
        return _NOTHING
    return np.array(completed, np.int64), np.array(near, np.int64), np.array(states, np.int32)
