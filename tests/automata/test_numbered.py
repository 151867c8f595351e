"""Things known by numbers: each once, in order, and no more states than a limit allows."""

from __future__ import annotations

import interegular
import pytest

from nco_guard.automata import AlternatingMachine, FsmMachine
from nco_guard.automata.folding import FoldSpec
from nco_guard.automata.numbered import Numbered
from nco_guard.automata.patterns.folded_text import FoldedMachine
from nco_guard.automata.patterns.parsing import parse
from nco_guard.errors import StateLimitError


def test_what_is_known_keeps_its_number_at_the_limit() -> None:
    numbered: Numbered[str] = Numbered()
    assert [numbered.state(thing, 2, "this", "mend it") for thing in "abab"] == [0, 1, 0, 1]
    with pytest.raises(StateLimitError, match=r"^this passed its limit of 2 states; mend it$"):
        numbered.state("c", 2, "this", "mend it")
    assert list(numbered) == ["a", "b"]


@pytest.mark.parametrize("limit", [2, 3])
@pytest.mark.parametrize("kind", ["pattern", "folded", "words"])
def test_every_machine_is_refused_past_its_limit(kind: str, limit: int) -> None:
    node = parse("abcdefgh")

    def run() -> None:
        machine = (
            AlternatingMachine(node, state_limit=limit)
            if kind == "pattern"
            else FoldedMachine(AlternatingMachine(node), FoldSpec(ignore=("-",)), state_limit=limit)
            if kind == "folded"
            else FsmMachine(interegular.parse_pattern("abcdefgh").to_fsm(), state_limit=limit)
        )
        state = machine.start
        for cls in machine.classes.of_text("abcdefgh"):
            state = machine.step(state, cls)

    with pytest.raises(StateLimitError, match=f"passed its limit of {limit} states; "):
        run()
