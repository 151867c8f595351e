"""Masks under a shape of tools, in fields: every reply of small shapes, cut, parsed and searched by `re`."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule
from nco_guard.errors import ContradictionError, ShapeError
from nco_guard.replies import ReplyFormat, ReplyReader, ToolCall, shipped_formats
from nco_guard.replies.enforcing import calls_shape
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.writing import written_calls
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary

# Of the others values are masked as a part of their call alone.
FORMS = [
    form
    for form in shipped_formats().values()
    if FormatFields.followed(form) and FormatFields(form).values({})
]
NOT_JSON = [form for form in FORMS if form.arguments != "json"]
PATTERNS = [
    *("^a", "b$", "^ab$", "^q$", "^name$", "^arguments$", "ab", r"^\d$", r"^1\b", "^-", "^true$", r"e\Z", "^find$"),
    *('^"', r"\}$", "^fi", "n$", "^[ab]$", "parameters"),
]  # fmt: skip
# Of text that is not listed nothing is taken out of the schema beforehand: masks alone see to it.
SPELLED = ["a", "b", "ab", "ba", "n", "1", "\n"]
WORD = {"type": "string", "pattern": r"^(?:a|b|ab|ba|n|1|\n)$"}
LIST = {"type": "array", "items": WORD, "minItems": 1, "maxItems": 1}
TOOLS: list[dict[str, Any]] = [
    {"name": "find", "parameters": {"properties": {"q": {"enum": ["a", "b", "ab", "name"]}}, "required": ["q"]}},
    {"name": "fin", "parameters": {"properties": {"n": {"enum": [1, -1, 12, 0.5]}, "a": {"type": "boolean"}}}},
    {"name": "fre", "parameters": {"properties": {"s": WORD, "l": LIST}}},
]  # fmt: skip


def arguments_of(parameters: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All arguments that a schema lets be."""
    fields = parameters["properties"]
    for keys in itertools.product(
        *([True] if key in parameters.get("required", ()) else [True, False] for key in fields)
    ):
        said = [key for key, kept in zip(fields, keys, strict=True) if kept]
        for values in itertools.product(*(values_of(fields[key]) for key in said)):
            yield dict(zip(said, values, strict=True))


def values_of(schema: dict[str, Any]) -> list[Any]:
    """All values of one of the schemas above."""
    if schema.get("type") == "array":
        return [[one] for one in SPELLED]
    return SPELLED if schema is WORD else schema.get("enum", [True, False])


def shown(value: Any) -> Iterator[str]:
    """What a value shows: strings, keys, numbers and words, each by itself."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from shown(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from shown(inner)
    else:
        yield str(value)
        if not isinstance(value, str):
            yield json.dumps(value)


def keeps(form: ReplyFormat, patterns: list[str], name: str, given: dict[str, Any], text: str) -> bool:
    """The definition, of one call: nothing of it matches as it is written, in its field, or as it is shown."""
    texts = ["".join(one.text for one in each) for each in FormatFields(form).texts(text)]
    return not any(re.search(one, said) for one in patterns for said in [*texts, name, *shown(given)])


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 120))]
)
def test_masks_let_those_replies_be_that_keep_the_policy_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    form, patterns = rng.choice(NOT_JSON if seed % 2 else FORMS), rng.sample(PATTERNS, rng.randint(1, 2))
    tools = rng.sample(TOOLS, rng.randint(1, 2))
    every = {
        (tool["name"], written_calls(form, [(tool["name"], given)])): given
        for tool in tools
        for given in arguments_of(tool["parameters"])
    }
    kept = [text for (name, text), given in every.items() if keeps(form, patterns, name, given, text)]
    texts = [text for _, text in every]
    letters = sorted({text[at : at + 1] for text in texts for at in range(len(text))})
    cuts = {
        text[at : at + rng.randint(2, 9)] for text in rng.sample(texts, 2) for at in range(0, len(text), 3)
    }
    letters += [] if " " in letters else [" "]  # may stand between what belongs together
    tokens = [*letters, *sorted(cuts - {*letters})]
    vocabulary = Vocabulary.build(
        [*(token.encode() for token in tokens), b"<end>"], eos_ids=[len(tokens)], skip_special_tokens=False
    )
    guard = Guard(
        Policy(name="p", rules=[RegexRule(id=f"r{n}", regex=one) for n, one in enumerate(patterns)])
    )
    try:
        shaped = guard.with_shape(calls_shape(form, tools, choice="required", parallel=False))
        bound = BoundGuard(
            shaped._compiled, vocabulary.with_regions(FormatFields(form)), shape=shaped._left_of_shape
        )
    except (ContradictionError, ShapeError):
        # Of several tools each has to be such that it can be called.
        assert len(kept) < len(texts) if len(tools) > 1 else not kept
        return
    tables = bound.answers

    def free(state: int) -> list[int]:
        return np.setdiff1d(np.arange(len(tokens) + 1), tables.forbidden(state)).tolist()

    # As the family writes them, all that keep the policy can be written, by any tokens.
    for text in rng.sample(kept, min(len(kept), 3)):
        state, at = tables.start, 0
        while at < len(text):
            wanted = [number for number, token in enumerate(tokens) if text.startswith(token, at)]
            assert {*wanted} <= {*free(state)}, (form.name, patterns, text[:at])
            step = rng.choice(wanted)
            state, at = tables.next(state, step), at + len(tokens[step])
        assert len(tokens) in free(state), (form.name, patterns, text)
    # Whatever is written comes to an end, and is read as a call that keeps it.
    for _ in range(4):
        state, text = tables.start, ""
        while (step := rng.choice(free(state))) != len(tokens):
            state, text = tables.next(state, step), text + tokens[step]
        reader = ReplyReader(guard, form=form, tools=tools)
        (call,) = [one for one in reader.feed(text) + reader.finish() if isinstance(one, ToolCall)]
        assert keeps(form, patterns, call.name, call.arguments, text), (form.name, patterns, text)
