"""Shapes where texts come from: `generate`, `stream`, the logits processor, batches and beams."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
from pydantic import BaseModel

from nco_guard import Guard, Policy, RegexRule, Shape, demo
from nco_guard.audit import MemorySink
from nco_guard.errors import DeadEndError, ShapeError, UnsupportedError

SCHEMA = {
    "type": "object",
    "properties": {
        "subject": {"type": "string"},
        "priority": {"enum": ["low", "high"]},
        "mail": {"type": "string"},
        "days": {"type": "integer", "minimum": 0},
    },
    "required": ["subject", "priority", "mail"],
}
POLICY = Policy(
    name="p",
    rules=[RegexRule(id="mail", regex=r"[a-z0-9.]+@[a-z]"), RegexRule(id="digits", regex=r"\d{2}"),
           RegexRule(id="low", regex=r"\blow\b")],
)  # fmt: skip


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    return demo.load()


def good(text: str) -> bool:
    value = json.loads(text)
    jsonschema.validate(value, SCHEMA)
    said = [str(leaf) for leaf in value.values()]
    return not any(re.search(rule.regex, leaf) for rule in POLICY.rules for leaf in (text, *said))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "options", [{}, {"do_sample": True, "num_return_sequences": 3}, {"num_beams": 3}], ids=str
)
def test_what_a_model_writes_is_of_the_shape_and_holds_no_match(model: Any, options: dict[str, Any]) -> None:
    import torch

    torch.manual_seed(0)
    prompts = ["Write a mail to jane.doe@example.com as JSON: ", "Ticket: "]
    result = Guard(POLICY).generate(*model, prompts, shape=SCHEMA, max_new_tokens=48, **options)
    assert len(result.texts) == 2 * options.get("num_return_sequences", 1)
    assert all(good(text) for text in result.texts)
    assert set(result.outcomes) <= {"ended", "length"}
    assert all(json.loads(text)["priority"] == "high" for text in result.texts)


def test_a_stream_shows_text_before_its_shape_is_closed(model: Any) -> None:
    guard = Guard(POLICY)
    pieces = list(guard.stream(*model, "Ticket: ", shape=SCHEMA, max_new_tokens=48))
    assert len(pieces) > 8
    assert good("".join(pieces))
    assert "".join(pieces) == guard.generate(*model, "Ticket: ", shape=SCHEMA, max_new_tokens=48).texts[0]


def test_the_processor_does_the_same_in_a_generation_of_ones_own(model: Any) -> None:
    network, tokenizer = model
    ids = tokenizer("Ticket: ", return_tensors="pt").input_ids
    processor = Guard(POLICY).logits_processor(tokenizer, shape=SCHEMA, max_new_tokens=40)
    written = network.generate(ids, logits_processor=[processor], max_new_tokens=40, do_sample=False)
    text = tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
    assert good(text)
    assert text == Guard(POLICY).generate(*model, "Ticket: ", shape=SCHEMA, max_new_tokens=40).texts[0]


class Answer(BaseModel):
    ok: bool
    why: str = ""


def test_classes_patterns_and_grammars(model: Any) -> None:
    guard = Guard(POLICY)
    text = guard.generate(*model, "Say: ", shape=Answer, max_new_tokens=24).texts[0]
    assert isinstance(Answer.model_validate_json(text).ok, bool)
    text = guard.generate(*model, "Say: ", shape=Shape.regex(r"[A-Z]{2}-\d{1,4}!"), max_new_tokens=24).texts[
        0
    ]
    assert re.fullmatch(r"[A-Z]{2}-\d!", text)  # two digits are forbidden
    text = guard.generate(
        *model, "Say: ", shape=Shape.lark('start: "low" | "slow" | "10"'), max_new_tokens=8
    ).texts[0]
    assert text == "slow"


def test_guards_of_single_prompts_share_the_shape(model: Any) -> None:
    other = Guard(Policy(name="o", rules=[RegexRule(id="high", regex="high")]))
    result = Guard(POLICY).generate(
        *model, ["One: ", "Two: "], guards=[None, other], shape=SCHEMA, max_new_tokens=40
    )
    assert [json.loads(text)["priority"] for text in result.texts] == ["high", "low"]


def test_a_budget_too_small_for_the_shape_is_an_error_and_half_an_object_none(model: Any) -> None:
    with pytest.raises(DeadEndError, match=r"^row 0: 3 more tokens are too few .* allow more max_new_tokens"):
        Guard(POLICY).generate(*model, "Ticket: ", shape=SCHEMA, max_new_tokens=3)
    with pytest.raises(DeadEndError, match="before its shape was closed"):
        Guard(POLICY).generate(*model, "Ticket: ", shape=SCHEMA, max_new_tokens=40, stop_strings=['"sub'])


def test_what_goes_back_and_tables_of_a_device_are_refused(model: Any) -> None:
    with pytest.raises(UnsupportedError, match="shape"):
        Guard(POLICY).generate(*model, "a", shape=SCHEMA, max_new_tokens=9, when_blocked="rewind")
    with pytest.raises(UnsupportedError, match="shape"):
        Guard(POLICY).generate(*model, "a", shape=SCHEMA, max_new_tokens=9, tables="device")


def test_what_is_recorded_names_the_shape_in_place_of_a_rule(model: Any) -> None:
    sink, steps = MemorySink(), []
    Guard(POLICY, audit=sink).generate(
        *model, "Ticket: ", shape=SCHEMA, max_new_tokens=40, on_step=steps.append
    )
    assert ("shape",) in {rules for report in steps for rules in report.rule_ids}
    assert [event.kind for event in sink.events][-1] == "run_finished"


def test_a_guard_with_a_shape_is_kept_and_can_be_taken_back() -> None:
    guard = Guard(POLICY)
    shaped = guard.with_shape(SCHEMA)
    assert guard.with_shape(dict(SCHEMA)) is shaped
    assert shaped.with_shape(Shape.json(SCHEMA)) is shaped
    assert not shaped.verify('"l\\u006fw"').ok
    assert guard.verify('"l\\u006fw"').findings[0].rule_id == "digits"
    assert "low:json" in {found.rule_id for found in shaped.verify('"l\\u006fw"').findings}
    assert guard.with_shape(Shape.regex("a")).policy == POLICY


@pytest.mark.parametrize("shape", [SCHEMA, Shape.regex("[A-Z]{3}"), Shape.lark('start: "a" | "b"')], ids=str)
def test_ends_that_are_shown_are_no_part_of_shapes_that_do_not_say_so(model: Any, shape: Any) -> None:
    for call in (Guard(POLICY).generate, Guard(POLICY).stream):
        with pytest.raises(ShapeError, match=r"skip_special_tokens=False: .*<\|end\|>"):
            [*call(*model, "x", shape=shape, max_new_tokens=8, skip_special_tokens=False)]


def test_a_shape_may_end_with_what_ends_a_text(model: Any) -> None:
    shape = Shape.regex(r"[A-Z]{3}<\|end\|>")
    made = Guard(POLICY).generate(*model, "x", shape=shape, max_new_tokens=8, skip_special_tokens=False)
    assert re.fullmatch(r"[A-Z]{3}<\|end\|>", made.texts[0])
