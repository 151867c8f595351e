"""The numbers of docs/check-digits.md: what it declares is what their issuers define, in sums, texts and masks."""

from __future__ import annotations

import itertools
import random
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from nco_guard.automata.patterns.parsing import parse
from nco_guard.automata.patterns.sums import Checksum
from nco_guard.compiler import compile_policy
from nco_guard.compiler.checksums import checksum_of
from nco_guard.policy import Policy, RegexRule
from nco_guard.policy.files import read_yaml
from nco_guard.scan.definition import verify_by_definition
from tests.automata.checksum_reference import passes_check
from tests.binding import bind
from tests.check_digits_reference import STANDARDS

PAGE = (Path(__file__).parent.parent / "docs" / "check-digits.md").read_text(encoding="utf-8")
YAML = PAGE.partition("```yaml\nname: check-digits\n")[2].partition("```")[0]
RULES = {rule.id: rule for rule in Policy.from_yaml(f"name: check-digits\n{YAML}").rules}
WRITTEN = {rule["id"]: rule["checksum"] for rule in read_yaml(YAML).data["rules"]}
FULL_WIDTH = {ord(c): ord(c) + 0xFEE0 for c in string.digits + string.ascii_letters}
ARABIC = {ord(c): 0x660 + int(c) for c in string.digits}


class Row(NamedTuple):
    states: int
    specimen: str
    source: str


ROWS = {
    found["id"]: Row(int(found["states"].replace(",", "")), found["specimen"], found["source"])
    for found in re.finditer(
        r"^\| `(?P<id>[\w.]+)` \| [^|]+ \| `(?P<specimen>[^`]+)` \| (?P<states>[\d,]+) \| (?P<source>[^|]+) \|$",
        PAGE,
        re.M,
    )
}


def rule_of(number: str) -> RegexRule:
    rule = RULES[number]
    assert isinstance(rule, RegexRule)
    return rule


def sum_of(number: str) -> Checksum:
    rule = rule_of(number)
    return checksum_of(rule.checksum).narrowed(parse(rule.regex, 0))


def standard(number: str, text: str) -> bool:
    return STANDARDS[number]("".join(c for c in text if c.isalnum()))


def read(checksum: Checksum, text: str) -> bool:
    state = checksum.start
    known = {ord(str(symbol)) if symbol < 10 else symbol: symbol for symbol in checksum.symbols()}
    for c in text:
        if ord(c) in known:
            state = checksum.read(state, known[ord(c)])
    return checksum.valid(state)


def texts_of(number: str, bodies: int) -> Iterator[str]:
    """The specimen and random numbers of its shape; of each all with another character, and all other ends of two."""
    rng = random.Random(number)
    specimen, shape = ROWS[number].specimen, re.compile(rule_of(number).regex)

    def allowed(i: int, c: str) -> str:
        others = "-+" + string.digits + string.ascii_uppercase
        return "".join(one for one in others if shape.fullmatch(specimen[:i] + one + specimen[i + 1 :])) or c

    kinds = [allowed(i, c) for i, c in enumerate(specimen)]
    for body in range(bodies):
        text = specimen if body == 0 else "".join(map(rng.choice, kinds))
        ends = sorted(itertools.product(*kinds[-2:]))
        yield from (text[:-2] + "".join(end) for end in rng.sample(ends, min(100, len(ends))))
        for i, kind in enumerate(kinds):
            yield from (text[:i] + c + text[i + 1 :] for c in kind)


def test_each_number_of_the_page_has_a_definition_and_a_row() -> None:
    assert list(RULES) == list(ROWS)
    assert set(RULES) == set(STANDARDS)
    assert len(RULES) > 50


@pytest.mark.parametrize("number", RULES)
def test_sums_are_those_of_who_issues_the_number(number: str) -> None:
    agrees(number, 6)


@pytest.mark.slow
@pytest.mark.parametrize("number", RULES)
def test_sums_are_those_of_who_issues_the_number_at_length(number: str) -> None:
    agrees(number, 150)


def agrees(number: str, bodies: int) -> None:
    checksum, shape = sum_of(number), re.compile(rule_of(number).regex)
    seen = {True: 0, False: 0}
    for text in dict.fromkeys(texts_of(number, bodies)):
        if shape.fullmatch(text) is None:
            continue
        expected = standard(number, text)
        assert read(checksum, text) == expected, text
        assert passes_check(WRITTEN[number], text) == expected, text
        seen[expected] += 1
    assert seen[True] > 1
    assert seen[False] > seen[True]


@pytest.mark.parametrize("number", RULES)
def test_there_are_as_many_states_as_the_page_says(number: str) -> None:
    checksum = sum_of(number)
    found, ahead = {checksum.start}, [checksum.start]
    while ahead:
        state = ahead.pop()
        for symbol in checksum.symbols():
            reached = checksum.read(state, symbol)
            if reached not in found:
                found.add(reached)
                ahead.append(reached)
    assert len(found) == ROWS[number].states


def typos(number: str) -> list[str]:
    """The specimen with one digit that is another, where its issuer does not take it."""
    specimen, shape = ROWS[number].specimen, re.compile(rule_of(number).regex)
    found = []
    for i, c in enumerate(specimen):
        for other in string.digits if c.isdigit() else "":
            text = specimen[:i] + other + specimen[i + 1 :]
            if shape.fullmatch(text) and not standard(number, text):
                found.append(text)
    return found


@pytest.mark.parametrize("number", RULES)
def test_the_verifier_finds_specimens_and_not_their_typos(number: str) -> None:
    specimen = ROWS[number].specimen
    compiled = compile_policy(Policy(name="p", rules=(rule_of(number),)))
    (found,) = verify_by_definition(compiled, f"No. {specimen}.").findings
    assert (found.start, found.end) == (4, 4 + len(specimen))
    wrong = typos(number)
    assert len(wrong) > 5
    for text in wrong[:: len(wrong) // 5]:
        assert verify_by_definition(compiled, f"No. {text}.").ok, text


@pytest.mark.parametrize("number", RULES)
def test_digits_of_other_scripts_and_folded_ones_count_by_their_value(number: str) -> None:
    rule, specimen = rule_of(number), ROWS[number].specimen
    folded = Policy(name="p", rules=(rule.model_copy(update={"normalize": "nfkc", "case": "fold"}),))
    wrong = typos(number)[0]
    for disguised in (specimen.translate(FULL_WIDTH), specimen.lower().translate(FULL_WIDTH)):
        assert not verify_by_definition(folded, f"({disguised})").ok
    assert verify_by_definition(folded, f"({wrong.translate(FULL_WIDTH)})").ok
    if re.fullmatch(rule.regex, specimen.translate(ARABIC)):
        plain = Policy(name="p", rules=(rule,))
        assert not verify_by_definition(plain, f"({specimen.translate(ARABIC)})").ok
        assert verify_by_definition(plain, f"({wrong.translate(ARABIC)})").ok


def writes(rule: RegexRule, text: str) -> bool:
    """Whether the masks let a model write the text and end there."""
    session = bind(rule).session()
    for byte in text.encode():
        if session.mask()[byte]:
            return False
        session.advance(byte)
    return session.may_end


QUICK = ("gb.nhs", "es.nie", "br.cpf", "in.aadhaar", "de.rvnr", "vin", "isin", "kr.brn")


@pytest.mark.parametrize(
    "number", [*QUICK, *(pytest.param(one, marks=pytest.mark.slow) for one in RULES if one not in QUICK)]
)
def test_masks_let_typos_be_written_and_no_specimen(number: str) -> None:
    assert not writes(rule_of(number), f"No. {ROWS[number].specimen}.")
    assert writes(rule_of(number), f"No. {typos(number)[0]}.")


def test_several_checks_all_have_to_pass() -> None:
    siret: Any = WRITTEN["fr.siret"]
    good, siren_fails, luhn_fails = "73282932000074", "73282932100007", "73282932000075"
    assert [passes_check(siret, text) for text in (good, siren_fails, luhn_fails)] == [True, False, False]
    compiled = compile_policy(Policy(name="p", rules=(rule_of("fr.siret"),)))
    assert [verify_by_definition(compiled, text).ok for text in (good, siren_fails, luhn_fails)] == [
        False,
        True,
        True,
    ]
    assert passes_check("luhn", siren_fails)
