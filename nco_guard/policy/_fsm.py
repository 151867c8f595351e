"""`interegular.FSM` <-> plain data, in one stable form.

Two automata that differ only in how their states are named give the same form, so a policy's digest does not
depend on how its automaton was built in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interegular.fsm import FSM, Alphabet, anything_else

from nco_guard.errors import PolicyError
from nco_guard.policy._checks import check_text

__all__ = ["FSM_JSON_SCHEMA", "fsm_to_plain", "read_fsm"]

_KEYS = ("alphabet", "finals", "initial", "map", "states")
_INDEX = {"type": "integer", "minimum": 0}
FSM_JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An automaton over characters; any piece of the text that it accepts is a match.",
    "additionalProperties": False,
    "required": list(_KEYS),
    "properties": {
        "alphabet": {
            "type": "array",
            "description": "Groups of characters that all states treat alike.",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["anything_else", "symbols"],
                "properties": {
                    "symbols": {"type": "string"},
                    "anything_else": {
                        "type": "boolean",
                        "description": "Whether the group also holds every character that no group names.",
                    },
                },
            },
        },
        "states": {"type": "integer", "minimum": 1, "description": "How many; they are numbered from 0."},
        "initial": _INDEX,
        "finals": {"type": "array", "items": _INDEX},
        "map": {
            "type": "array",
            "description": "For each state, the next state for each group, or null where there is none.",
            "items": {"type": "array", "items": {"anyOf": [_INDEX, {"type": "null"}]}},
        },
    },
}


def fsm_to_plain(fsm: FSM) -> dict[str, Any]:
    """Plain data for an automaton: states are numbered in breadth-first order, unreachable ones left out.

    Costs one pass over states x groups. Raises `PolicyError` for symbols that are not single characters and
    for transitions to states that do not exist.
    """
    groups: dict[Any, tuple[list[str], bool]] = {}
    for symbol, key in fsm.alphabet.items():
        symbols, other = groups.get(key, ([], False))
        if symbol is anything_else:
            other = True
        elif isinstance(symbol, str) and len(symbol) == 1:
            symbols.append(check_text(symbol))
        else:
            raise PolicyError("the automaton's symbols must be single characters or anything_else")
        groups[key] = (symbols, other)
    # A group of nothing but `anything_else` comes last.
    order = sorted(groups, key=lambda key: min(groups[key][0], default="\U0010ffff\U0010ffff"))
    numbers = {fsm.initial: 0}
    queue = [fsm.initial]
    rows: list[list[int | None]] = []
    for state in queue:
        moves = fsm.map.get(state, {})
        row: list[int | None] = []
        for key in order:
            target = moves.get(key)
            if target is None:
                row.append(None)
                continue
            if target not in fsm.states:
                raise PolicyError("a transition of the automaton leads to a state that it does not have")
            if target not in numbers:
                numbers[target] = len(numbers)
                queue.append(target)
            row.append(numbers[target])
        rows.append(row)
    return {
        "alphabet": [
            {"anything_else": groups[key][1], "symbols": "".join(sorted(groups[key][0]))} for key in order
        ],
        "finals": sorted(numbers[state] for state in fsm.finals if state in numbers),
        "initial": 0,
        "map": rows,
        "states": len(numbers),
    }


def _index(value: Any, count: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise PolicyError(f"{what}: a state is a number from 0 to {count - 1}")
    return value


def _alphabet(value: Any) -> tuple[dict[Any, int], int]:
    if not isinstance(value, list | tuple) or not value:
        raise PolicyError("alphabet: a list of groups of characters is needed")
    mapping: dict[Any, int] = {}
    for index, group in enumerate(value):
        if (
            not isinstance(group, Mapping)
            or set(group) != {"anything_else", "symbols"}
            or not isinstance(group["anything_else"], bool)
            or not isinstance(group["symbols"], str)
        ):
            raise PolicyError(
                f"alphabet[{index}]: 'symbols' (text) and 'anything_else' (true or false) are needed"
            )
        members: list[Any] = [
            *check_text(group["symbols"]),
            *([anything_else] if group["anything_else"] else []),
        ]
        if not members:
            raise PolicyError(f"alphabet[{index}]: an empty group; remove it")
        for symbol in members:
            if symbol in mapping:
                raise PolicyError(f"alphabet[{index}]: a character is in two groups, or twice in one")
            mapping[symbol] = index
    return mapping, len(value)


def fsm_from_plain(data: Mapping[str, Any]) -> FSM:
    """The automaton that `fsm_to_plain` wrote. Raises `PolicyError` naming the part at fault."""
    if set(data) != set(_KEYS):
        raise PolicyError("an automaton has exactly these parts: " + ", ".join(_KEYS))
    mapping, groups = _alphabet(data["alphabet"])
    count, finals, table = data["states"], data["finals"], data["map"]
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise PolicyError("states: how many there are is needed, at least 1")
    if not isinstance(finals, list | tuple):
        raise PolicyError("finals: a list of states is needed")
    if not isinstance(table, list | tuple) or len(table) != count:
        raise PolicyError("map: a list with one row for each state is needed")
    moves: dict[int, dict[int, int]] = {}
    for state, row in enumerate(table):
        if not isinstance(row, list | tuple) or len(row) != groups:
            raise PolicyError(
                f"map[{state}]: one next state, or null, for each group of the alphabet is needed"
            )
        moves[state] = {
            key: _index(target, count, f"map[{state}]")
            for key, target in enumerate(row)
            if target is not None
        }
    return FSM(
        alphabet=Alphabet(mapping),
        states=set(range(count)),
        initial=_index(data["initial"], count, "initial"),
        finals={_index(state, count, "finals") for state in finals},
        map=moves,
    )


def read_fsm(value: Any) -> FSM:
    """An automaton from an `interegular.FSM` or plain data; refused if it would forbid all or nothing."""
    if isinstance(value, Mapping):
        value = fsm_from_plain(value)
    if not isinstance(value, FSM):
        raise PolicyError(
            f"an interegular.FSM is needed, not {type(value).__name__}; for a regex's text use a RegexRule"
        )
    if value.initial in value.finals:
        raise PolicyError(
            "the automaton accepts the empty text, which forbids all text; make it need a character"
        )
    if not fsm_to_plain(value)["finals"]:
        raise PolicyError("no final state of the automaton can be reached: it would never match")
    return value
