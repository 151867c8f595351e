"""How formats cut replies, byte by byte: the parser on the finished reply, and `re` on each text that is shown."""

from __future__ import annotations

import pickle
import random
import re

import pytest

from nco_guard import Guard, Policy, RegexRule
from nco_guard.automata import RegionsAutomaton
from nco_guard.automata.combine.cutting import WHOLE
from nco_guard.compiler import compile_policy
from nco_guard.errors import PolicyError
from nco_guard.replies import Reasoning, ReplyReader, Text, as_reply_format
from nco_guard.replies import cutter as cutter_module
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.formats import ReplyFormat
from nco_guard.replies.parser import CALLS, CONTENT, REASONING, Regions
from tests.automata import patterns
from tests.replies.families import FORMATS

HIDDEN = ("<|x|>", "<|xy|>")
LETTERS = [*"aabbkKé1 -_\n\n", "  ", '"', "{", "}", "ass", "中", "[", "]", ",", ":"]


def words(form: ReplyFormat) -> list[str]:
    """What replies of a format are made of: its examples, cut at random places, its marks, and letters."""
    found = [*LETTERS, *HIDDEN[:1]]
    for example in form.examples:
        parts = re.split(r"(<[^<>]*>|\[[A-Z_/]+\]|\n+)", example.text)
        found += [part for part in parts if part]
    marks = re.findall(r"<[^<>()?*+\\]{2,30}>", form.marks().replace("\\", ""))
    return [*found, *marks, *(mark[:-1] for mark in marks[:4])]


def reply(form: ReplyFormat, rng: random.Random) -> str:
    kinds = words(form)
    made = "".join(rng.choice(kinds) for _ in range(rng.randint(0, 9)))
    if form.examples and rng.random() < 0.6:
        example = rng.choice(form.examples).text
        place = rng.randint(0, len(example))
        made = rng.choice(
            [example[:place] + made, made + example[place:], example[:place] + made + example[place:]]
        )
    return made


def prompt(form: ReplyFormat, rng: random.Random) -> str:
    marks = [example.prefix for example in form.examples if example.prefix]
    return rng.choice(["", "", "", "<think>\n", *(_behind_anchor(form, mark) for mark in marks)])


def _behind_anchor(form: ReplyFormat, prefix: str) -> str:
    regions = Regions(form, prefix=prefix)
    return regions._raw


def shown(form: ReplyFormat, text: str, calls: bool, begun: str) -> dict[str, list[str]]:
    """The texts that are shown, by the reader and its parser."""
    anything = Guard(Policy(name="p", rules=[RegexRule(id="r", regex="\\Z(?!x)x")]))
    reader = ReplyReader(
        anything, form=form, tools=[] if calls else None, begun=begun, hidden=HIDDEN, invalid_as_text=False
    )
    events = reader.feed(text) + reader.finish()
    left = re.sub("|".join(map(re.escape, HIDDEN)), "", text)
    regions, bodies = Regions(form, calls=calls, begun=begun), list[str]()
    inside = False
    for piece in [*regions.prompted, *regions.feed(left), *regions.finish()]:
        if piece.region != CALLS:
            continue
        if piece.kind == "open":
            bodies.append("")
            inside = True
        elif piece.kind == "text" and inside:
            bodies[-1] += piece.text
        else:
            inside = False
    return {
        CONTENT: ["".join(one.text for one in events if isinstance(one, Text))],
        REASONING: ["".join(one.text for one in events if isinstance(one, Reasoning))],
        CALLS: bodies,
        WHOLE: [text],
    }


def joined(fields: FormatFields, text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {CONTENT: [""], REASONING: [""], CALLS: [], WHOLE: []}
    for each in fields.texts(text):
        name, said = each[0].name, "".join(one.text for one in each)
        if name in fields.together:
            found[name] = [said]
        else:
            found[name].append(said)
        for one in each:
            assert text[max(0, one.start) :].startswith(one.text) or one.start < 0
    return found


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_texts_are_those_that_the_reader_gives(form: ReplyFormat) -> None:
    rng = random.Random(form.name)
    for _ in range(60):
        text, calls, begun = reply(form, rng), rng.random() < 0.8, prompt(form, rng)
        fields = FormatFields(form, calls=calls, hidden=HIDDEN, begun=begun)
        assert joined(fields, text) == shown(form, text, calls, begun), (text, calls, begun)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_an_automaton_finds_what_re_finds_in_the_texts_that_are_shown(form: ReplyFormat) -> None:
    rng = random.Random(form.name)
    for turn in range(16):
        pattern, _ = patterns.valid_pattern(rng, 3)
        if turn % 2:
            pattern = rng.choice(
                [r"\bass\b", "a\\Z", "^b", r"\n\Z", "a ?b", "ab", r"(?<=<)t", "as[sk]", "1a"]
            )
        try:
            compiled = compile_policy(
                Policy(name="p", rules=(RegexRule(id="r", regex=pattern, monitor=True),))
            )
        except PolicyError:
            continue
        free = rng.choice([(), (), (REASONING,)])
        calls, begun = rng.random() < 0.8, prompt(form, rng)
        fields = FormatFields(form, calls=calls, hidden=HIDDEN, free=free, begun=begun)
        automaton = RegionsAutomaton(compiled.constraints()[1].automaton, fields, fields.cutter())
        for _ in range(12):
            text = reply(form, rng)
            state, matched = automaton.begin(begun), False
            for byte in text.encode():
                near = automaton.distance(state)
                state = automaton.step(state, byte)
                assert state >= 0 or near <= 1
                matched |= state < 0
                state = ~state if state < 0 else state
            texts = ["".join(one.text for one in each) for each in fields.texts(text) if each[0].start >= 0]
            begun_calls = [each for each in fields.texts(text) if each[0].start < 0]
            found = any(re.search(pattern, each) for each in texts)
            if begun_calls:
                continue
            assert (matched or not automaton.may_end(state)) == found, (pattern, text, free, begun)


def cut_apart(fields: FormatFields, text: str) -> dict[str, list[str]]:
    """The texts that the cutter makes of a reply, each reading with what it has read."""
    cutter = fields.cutter()
    place, begun = cutter.begun(fields.begun)
    readings: list[list[tuple[str, str, bytes]]] = [
        [("begin", name, b""), ("text", name, data)] for name, data in begun
    ]
    data = text.encode()
    for byte in data:
        place, moves = cutter.step(place, byte)
        readings = [[*readings[at], *(tuple(cut) for cut in cuts)] for at, cuts in moves]
    at, cuts, field = cutter.end(place)
    found: dict[str, list[str]] = {CONTENT: [""], REASONING: [""], CALLS: [], WHOLE: [text]}
    whole, name = b"", ""
    for kind, of, said in [*readings[at], *(tuple(cut) for cut in cuts)]:
        if kind in ("text", "mark") and of not in fields.free:
            whole += said
        if kind == "begin":
            name = of
            if of == CALLS:
                found[CALLS].append("")
        elif kind == "text":
            assert of == name
            if of in found:
                found[of][-1] += said.decode("latin-1")
    assert field == name
    if fields.free:
        found[WHOLE] = [whole.decode("latin-1")]
    return {
        each: [one if each == WHOLE and not fields.free else one.encode("latin-1").decode() for one in texts]
        for each, texts in found.items()
    }


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_cutter_cuts_as_the_definition_does(form: ReplyFormat) -> None:
    rng = random.Random(form.name)
    for _ in range(50):
        free = rng.choice([(), (REASONING,)]) if form.reasons else ()
        fields = FormatFields(
            form, calls=rng.random() < 0.9, hidden=HIDDEN, free=free, begun=prompt(form, rng)
        )
        if fields.begun and CALLS in fields.cutter().begun(fields.begun)[1][0]:
            continue
        for _ in range(5):
            text = reply(form, rng)
            expected, found = joined(fields, text), cut_apart(fields, text)
            for name in free:
                del expected[name], found[name]
            assert found == expected, (text, fields.begun)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_a_place_remembers_nothing_of_a_name(form: ReplyFormat) -> None:
    rng = random.Random(form.name)
    fields = FormatFields(form, hidden=HIDDEN)
    cutter = fields.cutter()

    def after(text: str) -> int:
        place = cutter.start
        for byte in text.encode():
            place, _ = cutter.step(place, byte)
        return place

    for example in form.examples:
        for word in re.finditer(r"\w{3,}|\s+", example.text):
            if rng.random() < 0.7:
                continue
            before, more = example.text[: word.start() + 1], example.text[word.start() + 1 :]
            kind = " " if word[0].isspace() else "q"
            cut = rng.randint(0, len(more))
            ends = {after(before + times * kind + more[:cut]) for times in (40, 41, 130)}
            assert len(ends) == 1, before
    assert len(cutter._found) < 1_500  # type: ignore[attr-defined]


def test_what_is_kept_of_cutters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    form = as_reply_format("hermes")
    monkeypatch.setattr("nco_guard.replies.cutter._CUTTERS", 3)
    first = FormatFields(form, hidden=("<a>",))
    kept = first.cutter()
    assert first.begun_by("<think>").cutter() is kept
    for number in range(3):
        FormatFields(form, hidden=(f"<{number}>",)).cutter()
    assert len(cutter_module._cutters) == 3
    assert first.cutter() is not kept
    kept = first.cutter()
    for number in range(1_000):
        kept.begun("<think>" + number * "a")
    assert len(kept._prompts) <= 256  # type: ignore[attr-defined]
    monkeypatch.setattr("nco_guard.replies.cutter._PLACES", 1)
    kept.begun("<think>\n\n</think>")
    assert first.cutter() is not kept


def test_equal_ones_are_equal_and_come_back_from_a_pickle() -> None:
    form = as_reply_format("hermes")
    one, other = FormatFields(form, hidden=("b", "a")), FormatFields(form, hidden=("a", "b"))
    assert one == other
    assert hash(one) == hash(other)
    assert repr(one) == repr(other) != repr(one.freed("reasoning"))
    assert pickle.loads(pickle.dumps(one)) == one
