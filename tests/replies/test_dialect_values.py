"""Values of calls in a dialect of JSON, each as a text of its own: what the reader reads, searched by `re`."""

from __future__ import annotations

import random
import re

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule
from nco_guard.automata import DialectValuesAutomaton, JsonValuesAutomaton, StringMarks
from nco_guard.compiler import compile_policy
from nco_guard.replies import ReplyReader, ToolCall, shipped_formats
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.parser import CALLS
from nco_guard.replies.writing import written_calls
from tests.replies.test_python_values import STRINGS, shown, value

PATTERNS = [
    "^v",
    r"\d$",
    "^cat$",
    r"(?<!\")a",
    "b(?!\\s)",
    "^4$",
    "^[Tt]rue$",
    "e$",
    r"^\W+$",
    "^f$",
    r"\)\Z",
    "^<",
    r"<\Z",
]
MORE = ["<", "<esc", "<|", '<<|"', "a<", "<b", "}", ",a:", '<|"|', "\\n"]


@pytest.mark.parametrize("name", ["gemma-4", "functiongemma"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_value_is_read_as_a_text_of_its_own(name: str, pattern: str) -> None:
    form, rng, told, read = shipped_formats()[name], random.Random(pattern + name), 0, 0
    compiled = compile_policy(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)]))
    (constraint,) = compiled.value_constraints()
    assert isinstance(constraint.automaton, JsonValuesAutomaton)
    fields = FormatFields(form)
    (place,) = fields.values({})
    assert isinstance(place.call, StringMarks)
    automaton = DialectValuesAutomaton(constraint.automaton, place.call)
    anything = Guard(Policy(name="p", rules=[RegexRule(id="r", regex="\\Z(?!x)x")]))
    for _ in range(60):
        given = {
            key: rng.choice([value(rng), rng.choice(MORE), rng.choice(STRINGS)])
            for key in rng.sample(["a", "cat", "v", "f"], 2)
        }
        text = written_calls(form, [("find", given)])
        reader = ReplyReader(anything, form=form, tools=[])
        calls = [each for each in reader.feed(text) + reader.finish() if isinstance(each, ToolCall)]
        bodies = ["".join(one.text for one in each) for each in fields.texts(text) if each[0].name == CALLS]
        if len(calls) != 1 or len(bodies) != 1:
            continue
        read += 1
        state, matched = automaton.start, False
        for byte in bodies[0].encode():
            near = int(automaton.distances(np.array([state], np.int32))[0])
            state = automaton.step(state, byte)
            assert state >= 0 or near <= 1
            matched |= state < 0
            state = ~state if state < 0 else state
        found = matched or not automaton.may_end(state)
        assert found == any(re.search(pattern, one) for one in shown(calls[0].arguments)), text
        told += found
    assert read > 15
    assert told or pattern == r"^\W+$"
