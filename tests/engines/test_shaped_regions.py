"""Calls of tools that are enforced, with fields that are masked alone: reading them has nothing left to refuse."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, RegexRule, StringRule, demo
from nco_guard.engines.hf.inputs import encode_text
from nco_guard.engines.hf.reply_calls import ReplyCall
from nco_guard.errors import ViolationError
from nco_guard.guards import seeing_through_json
from nco_guard.policy import Rule
from nco_guard.replies import ReplyFormat, shipped_formats
from nco_guard.replies.enforcing import calls_shape
from nco_guard.replies.fields import FormatFields
from nco_guard.replies.writing import written_reply
from tests.engines.wishing import Wishes

# Of the others values are masked as a part of their call alone.
FORMS = [
    form
    for form in shipped_formats().values()
    if FormatFields.followed(form) and FormatFields(form).values({})
]
NOT_JSON = [form for form in FORMS if form.arguments != "json"]
RULES: dict[str, Rule] = {
    "whole": StringRule(id="whole", strings=["ass"], whole_word=True),
    "joined": StringRule(id="joined", strings=["assume", "abcd"], case="fold"),
    "begins": RegexRule(id="begins", regex=r"^(?:ume|cd|arguments|name)"),
    "ends": RegexRule(id="ends", regex=r"(?:the|x)\Z"),
    "alone": RegexRule(id="alone", regex=r"^(?:ab|12|4\.5|true)$"),
    "digits": RegexRule(id="digits", regex=r"^\d{3}"),
}
WORDS = ["ass", "ume", "ab", "cd", " the", "the", "x", "12", "a b", "arguments", "say"]
FIND = {
    "name": "find",
    "parameters": {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            "n": {"type": "integer"},
            "f": {"type": "number"},
            "ok": {"type": "boolean"},
            "more": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    },
}


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return demo.load()


def said(rng: random.Random) -> str:
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(1, 2)))


def wanted(form: ReplyFormat, rng: random.Random) -> str:
    """A reply that holds forbidden values here and there."""
    given = {
        "q": said(rng),
        "n": rng.choice([12, 123, 7]),
        "f": rng.choice([4.5, 0.25]),
        "ok": rng.random() < 0.5,
        "more": {said(rng): said(rng)},
    }
    chosen: Mapping[str, Any] = {key: value for key, value in given.items() if rng.random() < 0.5}
    content = said(rng) if rng.random() < 0.5 and "\\A" not in str(form.response_template) else ""
    reasoning = said(rng) if form.reasoning is not None and rng.random() < 0.5 else ""
    calls = [("find", chosen)] if rng.random() < 0.8 else []
    return written_reply(form, content or ("" if calls else said(rng)), reasoning=reasoning, calls=calls)


def call_of(loaded: tuple[Any, Any], form: ReplyFormat, rules: list[Rule], text: str, **options: Any) -> Any:
    model, tokenizer = loaded
    guard = seeing_through_json(Guard(Policy(name="p", rules=rules)))
    shape = calls_shape(form, [FIND], choice=options.pop("choice", None), parallel=False)
    given = {"max_new_tokens": 120, "do_sample": False, "logits_processor": [Wishes(tokenizer, text)]}
    inputs = encode_text(tokenizer, model, "Who?")
    return ReplyCall(guard, model, tokenizer, inputs, given, form=form, tools=[FIND], shape=shape)


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 40))]
)
def test_what_is_enforced_is_never_refused_when_it_is_read(loaded: tuple[Any, Any], seed: int) -> None:
    rng = random.Random(seed)
    form = rng.choice(NOT_JSON if seed % 2 else FORMS)
    rules = [RULES[name] for name in rng.sample(sorted(RULES), 3)]
    choice = rng.choice([None, "required"])
    for _ in range(3):
        text = wanted(form, rng)
        call = call_of(loaded, form, rules, text, choice=choice)
        assert call._regions is not None
        try:
            reply = call.run()
        except ViolationError as error:
            raise AssertionError((form.name, [rule.id for rule in rules], text)) from error
        assert not reply.invalid_calls
        assert reply.outcome in ("ended", "length")
        assert reply.calls or choice is None


def test_without_fields_there_would_be_something_to_refuse(loaded: tuple[Any, Any]) -> None:
    form = shipped_formats()["hermes-line"]
    text = written_reply(form, calls=[("find", {"q": "ab"})])
    for rule, masked in ((RULES["alone"], True), (RULES["alone"], False)):
        call = call_of(loaded, form, [rule], text)
        if masked:
            (made,) = call.run().calls
            assert made.arguments.get("q") != "ab"
        else:
            call._regions = None
            with pytest.raises(ViolationError, match="tool call"):
                call.run()


def test_keys_of_the_form_are_no_values(loaded: tuple[Any, Any]) -> None:
    form = shipped_formats()["hermes-line"]
    rules: list[Rule] = [RegexRule(id="keys", regex="^(?:arguments|name)$")]
    text = written_reply(form, calls=[("find", {"more": {"name": "arguments"}})])
    (made,) = call_of(loaded, form, rules, text, choice="required").run().calls
    assert made.name == "find"
    assert "name" not in made.arguments.get("more", {})
    assert "arguments" not in made.arguments.get("more", {}).values()
