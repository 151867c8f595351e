"""Keys and values in tags: what the reader reads of calls, cut byte by byte, and masks by `bruteforce` and `re`."""

from __future__ import annotations

import random
import re
from typing import Any

import numpy as np
import pytest

from nco_guard import Guard, Policy, RegexRule
from nco_guard.automata import ValuesIn
from nco_guard.compiler import compile_policy
from nco_guard.masking import bruteforce
from nco_guard.masking.joint import JointTables
from nco_guard.replies import ReplyReader, ToolCall, shipped_formats
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.tag_patterns import CAST, EITHER, KEY, VALUE, tag_patterns
from nco_guard.replies.value_fields import ValueFields
from nco_guard.replies.writing import written_calls
from nco_guard.tokens import PrefixTree, Vocabulary

FORMS = [
    form
    for form in shipped_formats().values()
    if form.arguments == "xml" and form.call is not None and not form.call.argument.nested  # type: ignore[union-attr]
]
TYPES = {"n": ("integer",), "ab": ("string", "null"), "list": ("array",)}
LETTERS = [*"aab\n <>=\"'[]{}1é", "</", "true", "parameter", "ab", "]]>", "<![CDATA["]
PATTERNS = ["^a$", r"a\Z", "^b", "ab", r"(?<!>)b", r"\n\Z", r"^\n", "b(?!<)"]


def places_of(form: ReplyFormat, **options: Any) -> tuple[ValuesIn, ...]:
    return FormatFields(form, **options).values(TYPES)


def regions_of(place: ValuesIn) -> ValueFields:
    assert isinstance(place.regions, ValueFields)
    return place.regions


def values(form: ReplyFormat, text: str) -> list[tuple[str, str]]:
    """What all tags say, by the definition."""
    fields = regions_of(places_of(form)[0])
    every = ValueFields(fields.form, fields.calls, fields.hidden, fields.tagged, [KEY, VALUE, CAST, EITHER])
    return [(each[0].name, each[0].text) for each in every.texts(text)]


def words(form: ReplyFormat) -> list[str]:
    """What calls are made of."""
    found = [*LETTERS]
    for example in form.examples:
        found += [part for part in re.split(r"(<[^<>]*>|\n+)", example.text) if part]
    written = written_calls(form, [("find", {"n": 1, "ab": "b", "q": "a"})])
    return [*found, *(part for part in re.split(r"(<[^<>]*>|\n)", written) if part)]


def replies(form: ReplyFormat, rng: random.Random, turns: int) -> list[str]:
    kinds, found = words(form), list[str]()
    for _ in range(turns):
        given = {
            key: "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, 3)))
            for key in rng.sample(["q", "n", "ab"], 2)
        }
        text = written_calls(form, [("find", given)])
        cut, end = sorted(rng.randint(0, len(text)) for _ in range(2))
        more = "".join(rng.choice(kinds) for _ in range(rng.randint(0, 3)))
        found += [text, text[:cut] + more + text[rng.choice([cut, end]) :]]
    return found


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_of_a_call_that_is_read_they_are_its_keys_and_values(form: ReplyFormat) -> None:
    rng, read = random.Random(form.name), 0
    anything = Guard(Policy(name="p", rules=[RegexRule(id="r", regex="\\Z(?!x)x")]))
    for text in replies(form, rng, 40):
        reader = ReplyReader(anything, form=form, tools=[])
        calls = [each for each in reader.feed(text) + reader.finish() if isinstance(each, ToolCall)]
        said = [one for call in calls for pair in call.arguments.items() for one in pair]
        if len(calls) == 1 and "CDATA" not in text:
            read += 1
            assert [one for _, one in values(form, text)] == said, text
    assert read > 20


def test_the_kind_of_a_value_is_told_by_its_key() -> None:
    form = shipped_formats()["qwen3-coder"]
    text = written_calls(form, [("find", {"n": 1, "ab": "x", "q": "y", "list": ["a"]})])
    assert values(form, text)[1::2] == [(CAST, "1"), (EITHER, "x"), (VALUE, "y"), (CAST, '["a"]')]


def test_marks_of_their_own_around_a_value_are_no_part_of_it() -> None:
    form = shipped_formats()["minicpm-5"]
    text = '<function name="find"><param name="q"><![CDATA[a</param>b]]></param></function>'
    assert values(form, text) == [(KEY, "q"), (VALUE, "a</param>b")]


@pytest.mark.parametrize(
    "pattern", ["<a>(?P<value>.*?)</a>", "(?P<key>a)(?P<value>.*?)b", "(?P<key>.+?)(?P<value>.*)b"]
)
def test_other_patterns_are_not_taken_apart(pattern: str) -> None:
    assert tag_patterns(pattern) is None


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_cutter_cuts_values_as_the_definition_does(form: ReplyFormat) -> None:
    rng = random.Random(form.name)
    cutter = regions_of(places_of(form)[0]).cutter()
    for text in replies(form, rng, 40):
        place, readings = cutter.start, [list[tuple[str, str, bytes]]()]
        for byte in text.encode():
            place, moves = cutter.step(place, byte)
            readings = [[*readings[at], *(tuple(cut) for cut in cuts)] for at, cuts in moves]
        at, cuts, _ = cutter.end(place)
        found = list[tuple[str, str]]()
        for kind, name, data in [*readings[at], *(tuple(cut) for cut in cuts)]:
            if kind == "begin":
                found.append((name, ""))
            elif kind == "text" and found:
                found[-1] = (name, found[-1][1] + data.decode("latin-1"))
        said = [(name, one.encode("latin-1").decode()) for name, one in found]
        assert [one for one in said if one[0] in (KEY, VALUE, CAST, EITHER)] == values(form, text), text


@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 60))]
)
def test_masks_are_the_definition_in_values(seed: int) -> None:
    rng = random.Random(seed)
    form, pattern = rng.choice(FORMS), rng.choice(PATTERNS)
    text = written_calls(form, [("find", {"q": rng.choice(["a", "b\na", "ba", "xab"]), "b": "b"})])
    cuts = sorted(rng.sample(range(1, len(text)), 8))
    pieces = [text[one:other] for one, other in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    tokens = sorted({*pieces, "a", "b", "\n", "ab", rng.choice(words(form))})
    vocabulary = Vocabulary.build([*(token.encode() for token in tokens), b""], eos_ids=[len(tokens)])
    compiled = compile_policy(Policy(name="p", rules=[RegexRule(id="r", regex=pattern)]))
    place = places_of(form)[0]
    constraints = (*compiled.constraints()[:1], *compiled.value_constraints((), [place]))
    assert len(constraints) == 1 + (pattern != "ab")
    tables = JointTables(constraints, vocabulary, PrefixTree(vocabulary.tokens[:-1]))

    def keeps(said: str) -> bool:
        texts = [each[0].text for each in regions_of(place).texts(said)]
        return len(constraints) == 1 or not any(re.search(pattern, each) for each in texts)

    def leads(said: str, further: int) -> bool:
        return keeps(said) or (further > 0 and any(leads(said + token, further - 1) for token in tokens))

    state, written = tables.start, ""
    for piece in pieces:
        mask = np.zeros(len(tokens) + 1, bool)
        mask[tables.forbidden(state)] = True
        slow = bruteforce.forbidden(constraints, tables.components(state), vocabulary)
        assert mask.tolist() == slow.tolist(), written
        assert mask[len(tokens)] != keeps(written), (form.name, pattern, written)
        for number, token in enumerate(tokens):
            assert mask[number] != leads(written + token, 1 if mask[number] else 3), (
                form.name,
                pattern,
                written,
                token,
            )
        free = np.setdiff1d(np.arange(len(tokens)), np.flatnonzero(mask)).tolist()
        step = tokens.index(piece) if tokens.index(piece) in free else rng.choice(free)
        state, written = tables.next(state, step), written + tokens[step]
