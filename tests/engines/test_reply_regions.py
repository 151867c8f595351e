"""What is cut out of replies is masked, so that reading them has nothing left to refuse: any family, any policy."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest
import torch

from nco_guard import Guard, Policy, RegexRule, StringRule, demo
from nco_guard.engines.hf import generate
from nco_guard.engines.hf.inputs import encode_text
from nco_guard.engines.hf.reply_calls import ReplyCall
from nco_guard.errors import NCOGuardError, ViolationError
from nco_guard.guards import seeing_through_json
from nco_guard.policy import Rule
from nco_guard.replies import ReplyFormat, ReplyReader, as_reply_format
from nco_guard.replies.formats import shipped_formats
from tests.engines.wishing import Wishes
from tests.replies.families import FORMATS

WORDS = ["ass", "ume", "ab", "cd", " the", "a b", "\n", " ", "x", "1", "23", ". "]
RULES: dict[str, Rule] = {
    "whole": StringRule(id="whole", strings=["ass"], whole_word=True),
    "joined": StringRule(id="joined", strings=["assume", "abcd", "ab cd"], case="fold"),
    "digits": RegexRule(id="digits", regex=r"\d{4}"),
    "prompt": StringRule(id="prompt", strings=["?ab", "? the"], context="prompt"),
    "begins": RegexRule(id="begins", regex=r"^(?:ume|cd)"),
    "ends": RegexRule(id="ends", regex=r"(?:the|x)\Z"),
    "spaced": RegexRule(id="spaced", regex=r"a\s+b"),
}


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    torch.set_num_threads(1)
    return demo.load()


def wished(form: ReplyFormat, rng: random.Random) -> str:
    """Words, and the marks of the family's own examples around others."""
    said = "".join(rng.choice(WORDS) for _ in range(rng.randint(1, 4)))
    if form.reasoning is not None and rng.random() < 0.6:
        first, second = rng.choice([("ass", "ume"), ("ab", "cd"), ("12", "34"), ("a ", " b")])
        thought = f"{form.reasoning.open}{rng.choice(WORDS)}{form.reasoning.close}"
        return rng.choice([first + thought + second, thought + first + thought + second])
    if not form.examples:
        return said
    text = rng.choice(form.examples).text
    parts = re.split(r"(\w{3,}(?: \w+)*)", text)
    swapped = [rng.choice(WORDS) if at % 2 and rng.random() < 0.3 else part for at, part in enumerate(parts)]
    return (said + "".join(swapped) if rng.random() < 0.5 else "".join(swapped) + said)[:300]


def events(reader: ReplyReader, text: str) -> tuple[list[Any], bool]:
    """What is given of a text, without the ids of calls; and whether that ended in a refusal."""
    found: list[Any] = []
    try:
        for piece in (*re.findall(r"(?s).{1,5}", text), None):
            new = reader.finish() if piece is None else reader.feed(piece)
            found += [(type(one).__name__, getattr(one, "text", "")) for one in new]
    except ViolationError:
        return found, True
    return found, False


def joined(found: list[Any], kind: str) -> str:
    return "".join(text for name, text in found if name == kind)


def left_to_do(call: ReplyCall[Guard], rules: list[Rule]) -> tuple[bool, bool]:
    """Whether reading a reply refuses something of it, or takes something away; and whether calls were read."""
    torch.manual_seed(1)
    result = generate(
        call.guard,
        call.model,
        call.tokenizer,
        call.inputs,
        skip_special_tokens=call._skip,
        regions=call._regions,
        **call.options,
    )
    (text,) = result.texts
    given: dict[str, Any] = {
        "form": call.form,
        "tools": call.tools,
        "prefix": call._prefix,
        "hidden": call._hidden,
    }
    guarded, refused = events(ReplyReader(call.guard, context=call._context, **given), text)
    anything = Guard(Policy(name="anything", rules=[RegexRule(id="never", regex=r"\Z(?!x)x")]))
    free, _ = events(ReplyReader(anything, **given), text)
    called = any(name in ("ToolCall", "InvalidCall") for name, _ in free)
    same = all(joined(guarded, kind) == joined(free, kind) for kind in ("Text", "Reasoning"))
    return refused or not same, called


def test_reading_a_reply_has_nothing_left_to_do(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    rng = random.Random(3)
    left = {True: 0, False: 0}
    for form in rng.sample(FORMATS, 6):
        rules = [RULES[name] for name in ["joined", *rng.sample(sorted({*RULES} - {"joined"}), 2)]]
        # What begins or ends a value of a call is the reader's to look at.
        ends = {"begins", "ends"} & {rule.id for rule in rules}
        tools: Any = None if ends else []
        guard = seeing_through_json(Guard(Policy(name="p", rules=rules)))
        for _ in range(3):
            options = {
                "max_new_tokens": 90,
                "do_sample": False,
                "logits_processor": [Wishes(tokenizer, wished(form, rng))],
            }
            for masked in (True, False):
                options["logits_processor"][0]._start = -1
                inputs = encode_text(tokenizer, model, "Who?")
                try:
                    call = ReplyCall(guard, model, tokenizer, inputs, options, form=form, tools=tools)
                    if not masked:
                        call._regions = None
                    assert (call._regions is not None) == masked
                    found, _ = left_to_do(call, rules)
                except NCOGuardError as error:
                    raise AssertionError(form.name) from error
                assert not (found and masked), (form.name, [rule.id for rule in rules])
                left[masked] += found
    assert left[True] == 0 < left[False]


def test_calls_are_followed_whatever_their_marks_hold(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    inputs = encode_text(tokenizer, model, "Who?")
    guard = Guard(Policy(name="p", rules=[RULES["joined"]]))
    for form in FORMATS:
        call = ReplyCall(guard, model, tokenizer, inputs, {"max_new_tokens": 4}, form=form, tools=[])
        assert call._regions is not None
        assert call._regions.calls


def test_a_reply_that_goes_back_is_read_without_masks_in_its_fields(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    guard = Guard(Policy(name="p", rules=[RULES["joined"]], when_blocked="rewind"))
    inputs = encode_text(tokenizer, model, "Who?")
    call = ReplyCall(guard, model, tokenizer, inputs, {"max_new_tokens": 4}, form=shipped_formats()["hermes"])
    assert call._regions is None
    assert guard.verify(call.run().content).ok


def test_patterns_that_look_behind_are_not_followed() -> None:
    from nco_guard.replies.fields import FormatFields

    entry = shipped_formats()["hermes"].model_dump()
    fields = entry["response_template"]["fields"]
    fields["reasoning_content"]["open_pattern"] = r"\b<think>"
    assert not FormatFields.followed(as_reply_format({**entry, "name": "own"}))
    with pytest.raises(ValueError, match="look behind"):
        FormatFields(as_reply_format({**entry, "name": "own"}))
    fields["reasoning_content"]["open_pattern"] = r"(?<=a|b\n)<think>"
    assert FormatFields.followed(as_reply_format({**entry, "name": "own"}))
