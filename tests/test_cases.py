"""One corpus of patterns and texts through everything that decides: `re`, automata, verifier, masks, generation."""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor

from nco_guard.automata import ClassAutomaton
from nco_guard.automata.spans.definition import matches
from nco_guard.compiler import CompiledPolicy, compile_policy
from nco_guard.guard import Guard
from nco_guard.masking import bruteforce
from nco_guard.policy import Policy, RegexRule, Rule, StringRule
from nco_guard.scan.definition import verify_by_definition
from nco_guard.session import BoundGuard
from nco_guard.testing import biased_model, tiny_tokenizer, toy_vocabulary
from nco_guard.tokens import Vocabulary

FOLDER = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Case:
    """One entry of the corpus."""

    id: str
    rule: Rule
    oracle: re.Pattern[str]
    stop: re.Pattern[str]
    match: tuple[str, ...]
    no_match: tuple[str, ...]
    spans: tuple[tuple[str, list[list[int]]], ...]


def read(path: Path) -> list[Case]:
    """The cases of one file."""
    return [case(path.stem, entry) for entry in tomllib.loads(path.read_text("utf-8"))["case"]]


def case(stem: str, entry: dict[str, Any]) -> Case:
    """A case from plain data; unknown fields are errors."""
    name, match, no_match = entry.pop("name"), entry.pop("match"), entry.pop("no_match")
    found = entry.pop("spans", [])
    spans = tuple((text, places) for text, places in found)
    inline = entry.pop("flags", "")
    pattern = entry.pop("pattern", None)
    flags = re.IGNORECASE if entry.get("case") == "fold" else 0
    if pattern is not None:
        pattern = f"(?{inline}){pattern}" if inline else pattern
        rule: Rule = RegexRule(id="case", regex=pattern, **entry)
        source = pattern
    else:
        rule = StringRule(id="case", **entry)
        source = "|".join(map(re.escape, sorted(rule.strings, key=len, reverse=True)))
    if rule.whole_word:
        source = rf"(?<!\w)(?:{source})(?!\w)"
    oracle = re.compile(source, flags)
    stop = re.compile(rule.stop_at, flags) if rule.stop_at else oracle
    return Case(f"{stem}: {name}", rule, oracle, stop, tuple(match), tuple(no_match), spans)


CASES = [case for path in sorted(FOLDER.glob("*.toml")) for case in read(path)]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)


def compiled(case: Case) -> CompiledPolicy:
    return compile_policy(Policy(name="case", rules=(case.rule,)))


def test_the_corpus_is_large_and_its_names_are_unique() -> None:
    assert len(CASES) >= 150
    assert len({case.id for case in CASES}) == len(CASES)
    assert all(case.match and case.no_match for case in CASES)


@every_case
def test_re_agrees(case: Case) -> None:
    for text in case.match:
        assert case.oracle.search(text), text
        assert case.stop.search(text), text
    for text in case.no_match:
        assert not case.oracle.search(text), text
    for text, spans in case.spans:
        # `re` takes the first alternative that fits; the corpus says the longest. Starts are the same.
        starts = [found.start() for found in case.oracle.finditer(text)]
        assert starts == [start for start, _ in spans]


@every_case
def test_automata_agree_over_characters_and_over_bytes(case: Case) -> None:
    (rule,) = compiled(case).rules
    for every_end in (False, True):
        machine = rule.machine(every_end=every_end)
        automaton = ClassAutomaton(rule.machine(every_end=every_end), absorbing=not every_end)
        for text in (*case.match, *case.no_match):
            assert matches(machine, text) == (text in case.match), text
            state, completed = automaton.start, False
            for byte in text.encode():
                state = automaton.step(state, byte)
                if state < 0:
                    state, completed = ~state, True
            assert (completed or not automaton.may_end(state)) == (text in case.match), text


@every_case
def test_the_verifier_agrees(case: Case) -> None:
    policy = compiled(case)
    for text in (*case.match, *case.no_match):
        report = verify_by_definition(policy, text)
        assert report.ok == (text not in case.match), text
        for found in report.findings:
            assert 0 <= found.start < found.end <= len(text) or found.start == found.end
    for text, spans in case.spans:
        assert [[found.start, found.end] for found in verify_by_definition(policy, text).findings] == spans


def split(text: str, vocabulary: Vocabulary, rng: random.Random) -> list[int]:
    """Some way to write the text with the vocabulary: at each place a random token that fits."""
    data, ids = text.encode(), []
    by_bytes = {token: index for index, token in enumerate(vocabulary.tokens) if token}
    position = 0
    while position < len(data):
        fitting = [n for n in range(1, 9) if data[position : position + n] in by_bytes]
        length = min(rng.choice(fitting), len(data) - position)
        ids.append(by_bytes[data[position : position + length]])
        position += length
    return ids


def toy(texts: tuple[str, ...], rng: random.Random) -> Vocabulary:
    """All bytes, and pieces of the texts, some of which cut characters in two."""
    pieces: dict[bytes, None] = {}
    for text in texts:
        data = text.encode()
        for _ in range(6 if data else 0):
            at = rng.randrange(len(data))
            pieces[data[at : at + rng.randint(2, 6)]] = None
    return toy_vocabulary([piece for piece in pieces if len(piece) > 1])


@every_case
def test_masks_let_through_what_has_no_match_and_nothing_else(case: Case) -> None:
    rng = random.Random(case.id)
    vocabulary = toy((*case.match, *case.no_match), rng)
    bound = BoundGuard(compiled(case), vocabulary)
    (eos,) = vocabulary.eos_ids
    for text in (*case.match, *case.no_match):
        # Text that passes a stop point is blocked there, matched or not.
        blocked = case.stop.search(text) is not None
        for _ in range(2):
            session = bound.session()
            for token in split(text, vocabulary, rng):
                mask = session.mask()
                states = bound.tables.components(session._text.state(bound.tables))
                assert np.array_equal(
                    mask, bruteforce.forbidden(bound.tables.constraints, states, vocabulary)
                )
                if mask[token]:
                    assert blocked, text
                    break
                session.advance(token)
            else:
                assert session.may_end == (not session.mask()[eos])
                assert session.may_end == (not blocked), text


class Longing(LogitsProcessor):
    """Makes a model want one text per row, exactly, token by token."""

    def __init__(self, wanted: list[list[int]], prompt_length: int) -> None:
        self.wanted, self.prompt_length = wanted, prompt_length

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        step = input_ids.shape[1] - self.prompt_length
        for row, wanted in enumerate(self.wanted):
            if step < len(wanted):
                scores[row, wanted[step]] += 1e4
        return scores


@pytest.fixture(scope="module")
def speaker() -> tuple[Any, Any]:
    """A tokenizer, and a real model that longs for what the corpus forbids."""
    torch.set_num_threads(1)
    tokenizer = tiny_tokenizer("byte-level")
    return tokenizer, biased_model(tokenizer, {case.match[0] for case in CASES if len(case.match[0]) < 12})


def write(speaker: tuple[Any, Any], case: Case, guard: Guard | None) -> list[str]:
    """What the model writes greedily that wants all matching texts and then its end, one a row."""
    tokenizer, model = speaker
    end = tokenizer.eos_token_id
    wanted = [
        [*tokenizer(text, add_special_tokens=False).input_ids, *[end] * (i % 2)]
        for i, text in enumerate(case.match)
    ]
    prompt = torch.tensor([tokenizer("the").input_ids] * len(wanted))
    options = {
        "logits_processor": [Longing(wanted, prompt.shape[1])],
        # An odd row ends by itself, an even one is cut.
        "max_new_tokens": max(map(len, wanted)),
        "attention_mask": torch.ones_like(prompt),
    }
    if guard is None:
        output = model.generate(prompt, **options)
    else:
        output = guard.generate(model, tokenizer, {"input_ids": prompt}, **options).output
    return [tokenizer.decode(row[prompt.shape[1] :], skip_special_tokens=True) for row in output]


@every_case
def test_a_real_model_that_wants_a_match_never_writes_one(case: Case, speaker: tuple[Any, Any]) -> None:
    guard = Guard(Policy(name="case", rules=(case.rule,)))
    for text in write(speaker, case, guard):
        assert not case.oracle.search(text), text
        assert not case.stop.search(text), text


def test_the_same_model_unguarded_writes_them_all(speaker: tuple[Any, Any]) -> None:
    """Else the test before would prove nothing."""
    for case in CASES[::9]:
        texts = write(speaker, case, None)
        assert all(text.startswith(wanted) for text, wanted in zip(texts, case.match, strict=True)), case.id
