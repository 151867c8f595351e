"""JSON arguments in the calls of a reply: written as they are read, without what would end the call in a string.

The text before a call and what a model reasons are free. From a call's beginning on, what `json_text` asks of JSON
holds: numbers as they print, escapes only where they are needed. And no string holds a mark by which the call would
end, since whoever reads the reply looks for marks first.

Cost: 1 KiB for each of some hundred states, found when it is made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nco_guard.automata.automaton import TableAutomaton
from nco_guard.automata.json_text import JSON_START, OPEN_NUMBERS, json_step

__all__ = ["CallTextAutomaton"]

Table = NDArray[np.int32]
_WITHIN = ("string", "escape", "hex")
# ("text", s), ("thought", s), ("name", 0): in a call, where digits are no number; (where, n, mark): as in `json_text`.
_State = tuple[str, int, int]
_NAME: _State = ("name", 0, 0)


class CallTextAutomaton(TableAutomaton):
    """Completes a "match" wherever the arguments of a call say what they are not written as; see the module.

    Args:
        text: states of free text; `~0` where a call begins, `~1` where reasoning does. None: it begins within a call.
        thought: states of reasoning; `~0` where it ends.
        marks: states of a string; negative where it holds a mark.
        reasoning: the text begins within reasoning. before: bytes behind which values stand.
    """

    def __init__(
        self,
        text: Table | None,
        thought: Table | None,
        marks: Table | None,
        *,
        reasoning: bool = False,
        before: bytes = b" \n:,[",
    ) -> None:
        super().__init__()
        self._before = before
        self._text, self._thought, self._marks = text, thought, marks
        first: _State = ("thought", 0, 0) if reasoning else self._free()
        numbers: dict[_State, int] = {first: 1}
        rows = [np.zeros(256, np.int32)]
        waiting = [first]
        for state in waiting:
            row = np.zeros(256, np.int32)
            for byte in range(256):
                reached = self._after(state, byte)
                # Past what may not stand there the text is read as if it stood outside of strings.
                after = _NAME if reached is None else reached
                if after not in numbers:
                    numbers[after] = len(numbers) + 1
                    waiting.append(after)
                row[byte] = ~numbers[after] if reached is None else numbers[after]
            rows.append(row)
        self._table = np.stack(rows)
        self._count = len(rows)
        self._open = [False, *(where in OPEN_NUMBERS for where, *_ in numbers)]
        self.start = self.spaceless_start = 1

    def _free(self) -> _State:
        return _NAME if self._text is None else ("text", 0, 0)

    def _after(self, state: _State, byte: int) -> _State | None:
        where, number, mark = state
        if where == "text" and self._text is not None:
            after = int(self._text[number, byte])
            if after >= 0:
                return where, after, 0
            return _NAME if after == -1 else ("thought", 0, 0) if after == -2 else state
        if where == "thought" and self._thought is not None:
            after = int(self._thought[number, byte])
            return (where, after, 0) if after >= 0 else self._free()
        if where == "name":
            return self._outside(byte)
        reached = json_step((where, number), byte)
        if reached is None:
            return None
        if not reached[0].startswith(_WITHIN):
            if where == "string":
                return _NAME
            return self._outside(byte) if reached == JSON_START else (*reached, 0)
        if self._marks is not None:
            mark = int(self._marks[mark, byte])
        return None if mark < 0 else (*reached, mark)

    def _outside(self, byte: int) -> _State:
        if byte == 0x22:
            return "string", 0, 0
        return (*JSON_START, 0) if byte in self._before else _NAME

    @property
    def byte_classes(self) -> NDArray[np.uint8]:
        """See `Automaton.byte_classes`."""
        numbers: dict[bytes, int] = {}
        return np.array([numbers.setdefault(c.tobytes(), len(numbers)) for c in self._table.T], np.uint8)

    def may_end(self, state: int) -> bool:
        """Whether the text may end in this state: not where a number would have to go on."""
        return not self._open[state]
