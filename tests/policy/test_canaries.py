"""What a policy forbids is in no error about it, in nothing that led to the error, and in no `repr`."""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import interegular
import pydantic
import pytest
from rich.console import Console
from rich.pretty import pretty_repr

from nco_guard import Guard, Policy
from nco_guard.errors import NCOGuardError, PolicyError
from nco_guard.policy import AutomatonRule, CheckDigits, RegexRule, StringRule
from nco_guard.policy._errors import FIELDS
from nco_guard.testing import tiny_tokenizer
from tests.commands import call

C = "Quixotrope"
#: Pieces of it that no message holds by chance.
TRACES = ("quixo", "xotrop", "trope")
DEEP = "[" * 3000 + C + "]" * 3000


def rule(**fields: Any) -> Callable[[], Any]:
    """A policy of one rule, compiled."""
    return lambda: Guard(Policy(name="p", rules=({"id": "r", **fields},)))


def fsm(**parts: Any) -> Callable[[], Any]:
    plain = {
        "alphabet": [{"symbols": c, "anything_else": False} for c in "Quixotrpe"],
        "states": 2,
        "initial": 0,
        "finals": [1],
        "map": [[1] * 9, [None] * 9],
    }
    return rule(fsm={**plain, **parts})


PYTHON: dict[str, Callable[[], Any]] = {
    "stop_at that a match gets past": rule(regex=f"{C}|abc", stop_at="abc"),
    "stop_at that a match gets past, whole words": rule(
        regex=f"(?:{C} ){{3}}", stop_at=f"{C}x", whole_word=True
    ),
    "stop_at of strings": rule(strings=[C], stop_at=C),
    "stop_at with checksum": rule(regex=rf"{C}\d+", stop_at=f"{C}x", checksum="luhn"),
    "strings as text": rule(strings=C),
    "strings as mapping": rule(strings={C: 1}),
    "strings with a number": rule(strings=[C, 3]),
    "strings with an empty one": rule(strings=[C, ""]),
    "a surrogate beside": rule(strings=[f"{C}\ud800"]),
    "a list within": rule(strings=[[C]]),
    "a field of that name": rule(strings=["a"], **{C: 1}),
    "two kinds": rule(strings=[C], regex=C),
    "no kind": rule(**{C: 1}),
    "regex: unknown group": rule(regex=f"(?P={C})"),
    "regex: bad group name": rule(regex=f"(?P<{C} >a)"),
    "regex: group twice": rule(regex=f"(?P<{C}>a)(?P<{C}>b)"),
    "regex: reference by name": rule(regex=f"(a)(?({C})b|c)"),
    "regex: character name": rule(regex=f"\\N{{{C}}}"),
    "regex: unterminated": rule(regex=f"({C}"),
    "regex: unterminated set": rule(regex=f"[{C}"),
    "regex: bad escape": rule(regex=f"{C}\\y"),
    "regex: multiple repeat": rule(regex=f"{C}**"),
    "regex: bad range": rule(regex=f"[{C}z-a]"),
    "regex: lookbehind": rule(regex=f"(?<={C}+)a"),
    "regex: possible set operation": rule(regex=f"[[{C}]"),
    "regex: bytes": rule(regex=C.encode()),
    "regex: extension": rule(regex=f"(?{C})"),
    "regex: flags in the middle": rule(regex=f"{C}(?i)"),
    "regex: huge repeat": rule(regex=f"{C}{{99999999999999999999}}"),
    "regex: deep": rule(regex="(" * 2000 + C + ")" * 2000),
    "not enforceable: atomic": rule(regex=f"(?>{C})a"),
    "not enforceable: conditional": rule(regex=f"({C})?(?(1)a|b)"),
    "not enforceable: reference": rule(regex=f"(?P<{C}>.*)-(?P={C})"),
    "not enforceable: possessive": rule(regex=f"(?:{C})++a"),
    "matches the empty text": rule(regex=f"(?:{C})*"),
    "never occurs once folded": rule(regex=f"{C}-", ignore=["-"]),
    "ignored altogether": rule(strings=[C], ignore=list(dict.fromkeys(C))),
    "ignore as words": rule(strings=["a"], ignore=[C]),
    "penalty as text": rule(strings=["a"], penalty=C),
    "case": rule(strings=["a"], case=C),
    "whole_word as text": rule(strings=["a"], whole_word=C),
    "context": rule(strings=["a"], context=C),
    "checksum": rule(regex="a", checksum=C),
    "checksum: a list": rule(regex="a", checksum=["luhn", C]),
    "checksum: a field of that name": rule(regex="a", checksum={"modulus": 3, C: 1}),
    "checksum: weights": rule(regex="a", checksum={"modulus": 3, "weights": [1, C]}),
    "checksum: weights as text": rule(regex="a", checksum={"modulus": 3, "weights": C}),
    "checksum: check": rule(regex="a", checksum={"modulus": 3, "check": C}),
    "checksum: letters": rule(regex="a", checksum={"modulus": 3, "letters": {C: C}}),
    "checksum: letters twice": rule(regex="a", checksum={"modulus": 3, "letters": {C: 1, C[:1]: 2}}),
    "checksum: a table's name": rule(regex="a", checksum={"modulus": 3, "weights": [1], "tables": {C: {}}}),
    "checksum: a table": rule(regex="a", checksum={"modulus": 3, "weights": ["t"], "tables": {"t": {C: C}}}),
    "checksum: repeat": rule(regex="a", checksum={"modulus": 3, "weights": [1], "repeat": C}),
    "description of another type": rule(strings=["a"], description=[C]),
    "fsm as text": rule(fsm=C),
    "fsm: symbols": fsm(alphabet=[{"symbols": [C], "anything_else": False}]),
    "fsm: a symbol twice": fsm(alphabet=[{"symbols": C, "anything_else": False}]),
    "fsm: part of that name": fsm(**{C: 1}),
    "fsm: folded": lambda: AutomatonRule(id="r", fsm=interegular.parse_pattern(C).to_fsm(), case="fold"),
    "rules as text": lambda: Policy(name="p", rules=C),
    "a rule as text": lambda: Policy(name="p", rules=[C]),
    "a policy's field": lambda: Policy(name="p", rules=[{"id": "r", "strings": ["a"]}], **{C: 1}),
    "fallback without its setting": lambda: Policy(
        name="p", rules=[{"id": "r", "strings": ["a"]}], fallback=C
    ),
    "fallback that is no token": lambda: Guard(
        Policy(name="p", rules=[{"id": "r", "strings": ["a"]}], on_dead_end="fallback", fallback=C)
    ).bind(tiny_tokenizer("byte-level")),
    "preset": lambda: Policy.from_presets(C),
    "preset option": lambda: Policy(name="p", rules=[{"preset": "pii", C: 1}]),
    "preset rule": lambda: Policy(name="p", rules=[{"preset": "pii", "only": [C]}]),
    "preset language": lambda: Policy(name="p", rules=[{"preset": "ldnoobw", "languages": [C]}]),
    "copy": lambda: StringRule(id="r", strings=("a",)).model_copy(update={"strings": C}),
    "copy, other field": lambda: StringRule(id="r", strings=("a",)).model_copy(update={C: 1}),
    "set": lambda: setattr(StringRule(id="r", strings=(C,)), "strings", ("a",)),
    "validated": lambda: RegexRule.model_validate({"id": "r", "regex": f"({C}"}),
    "validated JSON": lambda: StringRule.model_validate_json(json.dumps({"id": "r", "strings": C})),
    "validated JSON that is broken": lambda: StringRule.model_validate_json(f'{{"id": "r", "strings": ["{C}'),
    "validated strictly": lambda: Policy.model_validate(C),
    "a replacement": lambda: Guard(Policy(name="p", rules=[{"id": "r", "strings": [C]}])).redact(
        "a", replacement=C
    ),
    "a path": lambda: Guard(C),  # type: ignore[arg-type]
    "without a rule that is not there": lambda: rule(strings=[C])().without(C),
    "the same id": lambda: Policy(name="p", rules=[{"id": "r", "strings": [C]}] * 2),
}
YAML = {
    "an alias": f"name: p\nrules: *{C}",
    "a tag": f"name: p\nrules: !{C} 3",
    "a tag of numbers": f"name: p\nrules: !!int {C}",
    "a tag of floats": f"name: p\nrules: !!float {C}",
    "a tag of times": f"name: p\nrules: !!timestamp {C}",
    "a tag of bytes": f"name: p\nrules: !!binary {C}é",
    "a tag handle": f"name: p\nrules: !{C}!x y",
    "an anchor twice": f"name: p\na: &{C} 1\nb: &{C} 2",
    "an open quote": f'name: p\nrules:\n  - id: r\n    strings: ["{C}',
    "an open list": f"name: p\nrules:\n  - id: r\n    strings: [{C}, b\n    case: fold",
    "a tab": f"name: p\nrules:\n\t- id: {C}",
    "a colon": f"name: p\nrules:\n  - id: r\n    regex: {C}: {C}",
    "a bad escape": f'name: p\nrules:\n  - {{id: r, regex: "{C}\\d"}}',
    "a directive": f"%{C} 1\n---\nname: p",
    "two documents": f"name: p\n---\nname: {C}",
    "a key twice": f"name: p\nrules:\n  - id: r\n    strings: [a]\n    {C}: 1\n    {C}: 2",
    "a key that is a list": f"name: p\n? [{C}]\n: 1",
    "a field outside": f"name: p\n{C}: 1\nrules: []",
    "a word as field": f"name: p\nrules:\n  - id: r\n    {C}:",
    "a list": f"- {C}",
    "a word": C,
    "nesting": DEEP,
    "a control character": f"name: {C}\x01",
    "a number": f"name: p\nrules: [{{id: r, strings: [{C}, 1]}}]",
    "a regex": f"name: p\nrules: [{{id: r, regex: '(?P={C})'}}]",
    "a stop point": f"name: p\nrules: [{{id: r, regex: '{C}|a', stop_at: a}}]",
    "a block": f"name: p\nrules: |{C}\n  x",
    "a preset": f"name: p\nrules: [{{preset: {C}}}]",
}
JSON = {
    "an open text": f'{{"name": "{C}',
    "a bad escape": f'{{"name": "{C}\\x"}}',
    "a constant": f'{{"name": "{C}", "penalty": NaN}}',
    "a key twice": f'{{"name": "p", "{C}": 1, "{C}": 2}}',
    "a key": f'{{"name": "p", "{C}": 1}}',
    "a rest": f'{{"name": "p"}} {C}',
    "a word": C,
    "nesting": DEEP,
    "a control character": f'{{"name": "{C}\x01"}}',
    "a long number": f'{{"name": "{C}", "rules": {"9" * 5000}}}',
    "strings as text": f'{{"name": "p", "rules": [{{"id": "r", "strings": "{C}"}}]}}',
    "a stop point": f'{{"name": "p", "rules": [{{"id": "r", "regex": "{C}|a", "stop_at": "a"}}]}}',
}


def shown(error: BaseException) -> list[str]:
    """All that a logger, a tracer or a debugger shows of an error: what led to it too, whoever hid it."""
    found: list[str] = []
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        found += [str(one), repr(one), repr(one.args), *map(repr, vars(one).values())]
        found += getattr(one, "__notes__", [])
        if isinstance(one, pydantic.ValidationError):
            found += [repr(one.errors()), one.json()]
        found += [repr(getattr(one, name, None)) for name in ("doc", "pattern", "object", "problem_mark")]
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    console = Console(width=500)
    with console.capture() as captured:
        console.print(pretty_repr(error))
    # Lines of this file stand in tracebacks; so only the last line counts.
    return [*found, captured.get(), traceback.format_exception_only(error)[-1]]


def assert_clean(texts: list[str]) -> None:
    for text in texts:
        for trace in TRACES:
            assert trace not in text.casefold(), text


@pytest.mark.parametrize("name", PYTHON)
def test_no_error_of_python_repeats_it(name: str) -> None:
    with pytest.raises((NCOGuardError, TypeError)) as caught:
        PYTHON[name]()
    assert_clean(shown(caught.value))
    assert len(str(caught.value)) > 20


@pytest.mark.parametrize("kind", ["yaml", "json"])
def test_no_error_of_a_file_repeats_it(kind: str, tmp_path: Path) -> None:
    for name, text in (YAML if kind == "yaml" else JSON).items():
        parse = Policy.from_yaml if kind == "yaml" else Policy.from_json
        with pytest.raises(PolicyError) as caught:
            Guard(parse(text))
        assert_clean(shown(caught.value))
        path = tmp_path / f"policy.{kind}"
        path.write_text(text, encoding="utf-8")
        with pytest.raises(PolicyError) as caught:
            Guard.from_file(path)
        assert_clean(shown(caught.value))
        assert "policy" in str(caught.value) or caught.value.field, name


def test_no_error_of_the_command_line_repeats_it(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    for text in YAML.values():
        path.write_text(text, encoding="utf-8")
        for command in (
            ["check", str(path)],
            ["check", "--json", str(path)],
            ["verify", str(path), str(path)],
        ):
            result = call(*command)
            assert result.exit_code == 2, result.output
            assert_clean([result.output, result.stdout, result.stderr])


def test_models_of_others_do_not_show_it_either() -> None:
    """pydantic's own errors repeat what they were given, `input_value=...`; FastAPI sends that to the client."""

    class Settings(pydantic.BaseModel):
        policy: Policy
        rules: tuple[StringRule | RegexRule, ...] = ()

    bad = [
        {"policy": {"name": "p", "rules": [{"id": "r", "strings": C}]}},
        {"policy": {"name": "p", "rules": [{"id": "r", "regex": f"({C}"}]}},
        {"policy": {"name": "p", "rules": [{"id": "r", "strings": ["a"], "case": C}]}},
        {"policy": {"name": "p", "rules": [{"id": "r", "strings": ["a"]}], "on_dead_end": C}},
        {"policy": {"name": "p", "fallback": C}},
        {"policy": C},
        {
            "policy": {"name": "p", "rules": [{"id": "r", "strings": ["a"]}]},
            "rules": [{"id": "r", "strings": C}],
        },
    ]
    for data in bad:
        with pytest.raises(pydantic.ValidationError) as caught:
            Settings.model_validate(data)
        assert_clean(shown(caught.value))
        assert all(one["loc"][0] in ("policy", "rules") for one in caught.value.errors())
        with pytest.raises(pydantic.ValidationError) as caught:
            Settings.model_validate_json(json.dumps(data))
        assert_clean(shown(caught.value))
    assert (
        Settings.model_validate({"policy": {"name": "p", "rules": [{"id": "r", "strings": [C]}]}}).policy.name
        == "p"
    )


def test_no_repr_shows_it(caplog: pytest.LogCaptureFixture) -> None:
    rules = (
        StringRule(id="s", strings=(C, "b"), description=C, case="fold"),
        RegexRule(id="r", regex=rf"{C}\d+", stop_at=C, penalty=math.inf),
        RegexRule(id="soft", regex=C, penalty=2.0, ignore=("-",)),
        AutomatonRule(id="f", fsm=interegular.parse_pattern(C).to_fsm()),
    )
    policy = Policy(name="p", description=C, rules=rules, on_dead_end="fallback", fallback=C)
    guard = Guard(policy.model_copy(update={"on_dead_end": "raise", "fallback": None}))
    values = [
        *rules,
        policy,
        rules,
        {"policy": policy},
        guard,
        guard.verifier.compiled,
        guard.verifier,
        *guard.verifier.compiled.rules,
    ]
    values += [
        guard.bind(tiny_tokenizer("byte-level")),
        guard.verifier.compiled.groups,
        guard.verifier.compiled.constraints(),
    ]
    console = Console(width=300)
    texts = []
    with caplog.at_level(logging.DEBUG):
        for value in values:
            logging.getLogger("app").info("using %s %r", value, value)
            with console.capture() as captured:
                console.print(value)
            texts += [repr(value), str(value), f"{value}", pretty_repr(value), captured.get()]
    assert_clean([*texts, caplog.text])
    assert repr(rules[0]) == "StringRule(id='s', case='fold', strings=<2 strings>)"
    assert repr(rules[2]) == "RegexRule(id='soft', penalty=2.0, regex=<10 characters>)"
    assert repr(rules[3]) == "AutomatonRule(id='f', fsm=<11 states>)"
    assert (
        repr(policy) == "Policy(name='p', rules=<4 rules>, on_dead_end='fallback', fallback=<10 characters>)"
    )


def test_names_that_messages_may_show_are_those_of_the_models() -> None:
    models = (Policy, StringRule, RegexRule, AutomatonRule, CheckDigits)
    assert set(FIELDS) >= {name for model in models for name in model.model_fields}
    assert len({*PYTHON, *YAML, *JSON}) > 90
