"""`Cleaner` on what models and providers write: blocks, JSON in strings, tool calls, ids, metadata, images."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from nco_guard import Policy, RegexRule, StringRule
from nco_guard.audit import MemorySink, RunRecorder
from nco_guard.errors import ViolationError
from nco_guard.values import Cleaner, Role, texts_of
from tests.values.examples import (
    CARD,
    GUARD,
    OUT,
    POLICY,
    cleaner,
)


def test_text_that_is_read_joined() -> None:
    blocks = [
        {"type": "text", "text": "write to john"},
        {"type": "image", "url": "u"},
        {"type": "text", "text": "@doe.com", "index": 3},
        "soon",
    ]
    assert cleaner().value(blocks) == [
        {"type": "text", "text": f"write to {OUT}"},
        {"type": "image", "url": "u"},
        {"type": "text", "text": "", "index": 3},
        "soon",
    ]
    thoughts = [{"type": "thinking", "thinking": "cana"}, {"type": "thinking", "thinking": "ry"}]
    assert cleaner().value(thoughts)[0]["thinking"] == OUT
    summaries = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": part}]} for part in ("can", "ary!")
    ]
    assert [block["summary"][0]["text"] for block in cleaner().value(summaries)] == [OUT, "!"]
    cited = [{"type": "text", "text": "", "citations": [{"cited_text": "can"}, {"cited_text": "ary"}]}]
    assert not cleaner().rules(cleaner().value(cited))
    assert "".join(part["cited_text"] for part in cleaner().value(cited)[0]["citations"]) == OUT
    assert cleaner().texts(["can", "ary", ""]) == [OUT, "", ""]
    # Rows of a table are not read joined, and neither are messages.
    rows = [{"word": "can"}, {"word": "ary"}]
    assert cleaner().value(rows) is rows


def test_what_several_values_make_together_is_replaced() -> None:
    assert cleaner().value({"ssn": 1234}) == {"ssn": OUT}
    assert cleaner().value({"ssn": "no 1234", "b": 5678}) == {"ssn": OUT, "b": 5678}
    assert cleaner().value(["ssn", 1234]) == [OUT, OUT]
    assert cleaner().rules({"ssn": 1234}) == ("ssn",)
    printed = Cleaner(Policy(name="printed", rules=(RegexRule(id="key", regex='"a": "b"'),)))
    assert printed.value({"a": "b", "c": "b"}) == {"a": OUT, "c": "b"}


def test_json_in_strings() -> None:
    assert cleaner().json_text('{"a": "john\\u0040doe.com"}') == f'{{"a": "{OUT}"}}'
    assert cleaner().json_text('{"a": 4.111111111111111e15}') == f'{{"a": "{OUT}"}}'
    assert cleaner().json_text('{"a": "x"}\n{"a": "\\u0063anary"}') == f'{{"a": "x"}}\n{{"a": "{OUT}"}}'
    assert cleaner().json_text('{"a": "\\u0063anar\\u0079') == f'{{"a": "{OUT}'
    within = json.dumps({"a": '{"b": [4.111111111111111e15]}', "c": "[1, 2]", "d": "7"})
    assert json.loads(cleaner().json_text(within)) == {"a": f'{{"b": ["{OUT}"]}}', "c": "[1, 2]", "d": "7"}
    call = {"type": "tool_call", "name": "look", "args": {"q": 'x {"b": 4.111111111111111e15}'}, "id": "1"}
    assert cleaner().value(call)["args"] == {"q": f'x {{"b": "{OUT}"}}'}
    twice = json.dumps(json.dumps({"a": "john\\u0040doe.com"}))
    assert not cleaner().rules(cleaner().json_text(twice))
    assert cleaner().text("Action Input: \\u0063anary") == f"Action Input: {OUT}"
    fine = '{"a":   "caf\\u00e9"}'
    assert cleaner().json_text(fine) == fine
    pair = Cleaner(Policy(name="bird", rules=(StringRule(id="bird", strings=("\U0001f426",)),)))
    assert pair.json_text('"\\ud83d\\udc26"') == f'"{OUT}"'


def test_blocks_may_hold_what_holds_itself_and_what_is_reached_in_many_ways() -> None:
    around: list[Any] = ["canary"]
    around.append(around)
    (block,) = cleaner().value([{"type": "vendor", "value": around}])
    assert block["value"][0] == OUT
    woven: list[dict[str, Any]] = [{"text": "a canary"} for _ in range(12)]
    for part in woven:
        part.update({f"to {place}": other for place, other in enumerate(woven)})
    (block,) = cleaner().value([{"type": "vendor", "value": woven[0]}])
    assert block["value"]["text"] == f"a {OUT}"
    assert not cleaner().rules(block)


def test_tool_calls_as_providers_write_them() -> None:
    call = {"type": "tool_call", "name": "f", "args": {"q": "canary"}, "id": "canary-7"}
    first, second = cleaner().value(
        [call, {"type": "tool_result", "tool_use_id": "canary-7", "content": "canary"}]
    )
    assert first["args"] == {"q": OUT}
    assert first["id"] == second["tool_use_id"] == cleaner().identifier("canary-7")
    assert second["content"] == OUT
    function = {
        "id": "1",
        "type": "function",
        "function": {"name": "f", "arguments": '{"q": "\\u0063anary"}'},
    }
    assert (
        cleaner().value({"tool_calls": [function]})["tool_calls"][0]["function"]["arguments"]
        == f'{{"q": "{OUT}"}}'
    )
    with pytest.raises(ViolationError):
        cleaner().value([{**call, "name": "canary"}])
    with pytest.raises(ViolationError):
        cleaner().name("canary")
    assert cleaner().name("fine") == "fine"


def test_identifiers_are_the_same_everywhere() -> None:
    new = cleaner().identifier("id canary")
    assert new == Cleaner(POLICY).identifier("id canary") != cleaner().identifier("canary id")
    assert cleaner().identifier("fine") == "fine"
    assert not cleaner().rules(new)
    picky = Cleaner(
        Policy(name="id", rules=(StringRule(id="id", strings=("id-", "canary")),)), replacement="x"
    )
    assert not picky.rules(picky.identifier("canary"))


def test_metadata_is_redacted_whatever_the_action() -> None:
    given = {
        "finish_reason": "canary",
        "logprobs": {"content": [{"token": "can"}]},
        "choices": [{"topLogprobs": [1], "text": "fine", "tokens": 3}],
        "logprobs_result": None,
        "usage": {"prompt_tokens": CARD},
        "created": CARD,
        "other": CARD,
    }
    expected = {
        "finish_reason": OUT,
        "choices": [{"text": "fine", "tokens": 3}],
        "logprobs_result": None,
        "usage": {"prompt_tokens": CARD},
        "created": CARD,
        "other": OUT,
    }
    for action in ("redact", "raise"):
        assert Cleaner(GUARD, action).metadata(given) == expected  # type: ignore[arg-type]


def test_a_text_in_pieces_under_another_name() -> None:
    assert cleaner().value({"logprobs": [{"token": "can"}, {"token": "ary"}], "a": 1}) == {
        "logprobs": OUT,
        "a": 1,
    }


@pytest.mark.parametrize(
    "given",
    [
        {"token_logprobs": [-1.0], "tokens": ["can", "ary"]},
        {"token_likelihoods": [{"token": "can"}, {"token": "ary"}]},
        {"details": {"tokens": [{"text": "can"}, {"text": "ary"}], "prefill": [{"text": "x"}]}},
        {"logprobsResult": {"chosenCandidates": [{"token": "can"}]}},
        {"pieces": [{"token": "can"}, {"token": "ary"}]},
        {"completion_probabilities": [{"content": "can"}]},
    ],
)
def test_log_probabilities_under_the_names_of_providers(given: dict[str, Any]) -> None:
    assert "can" not in repr(cleaner().metadata({"a": [{"tokens": 3, **given}]})["a"][0].values())
    assert cleaner().metadata({"total_tokens": 3, "tokens": 7}) == {"total_tokens": 3, "tokens": 7}


def test_blocks_within_arguments_are_read_together() -> None:
    blocks = [{"type": "text", "text": "can"}, {"type": "text", "text": "ary"}]
    call = {"type": "tool_call", "name": "f", "args": {"content": blocks}, "id": "1"}
    for value in (call, [call], [call, call], {"x": {"content": blocks}}):
        assert cleaner().rules(value)
        assert "canary" not in "".join(texts_of(cleaner().value(value)))
        assert not cleaner().rules(cleaner().value(value))
    text = json.dumps({"content": blocks})
    assert json.loads(cleaner().json_text(text))["content"][0]["text"] == OUT
    # Pieces of one call that nobody numbered, each a call that breaks off.
    for kind in ("invalid_tool_call", "tool_call_chunk"):
        loose = [{"type": kind, "args": part, "id": None} for part in ('{"m": "can', 'ary"}')]
        assert "canary" not in "".join(call["args"] for call in cleaner().value(loose))
    # Arguments of several calls are not one text.
    calls = [{"type": "tool_call", "name": "f", "args": {"text": part}, "id": "1"} for part in ("can", "ary")]
    assert cleaner().value(calls) is calls


def test_images_are_not_text() -> None:
    short = Cleaner(Policy(name="short", rules=(RegexRule(id="word", regex="(?i)ab"),)))
    picture = b"\x89PNG\r\n\x1a\n" + random.Random(3).randbytes(60_000)
    encoded = base64.b64encode(picture).decode()
    assert short.rules([encoded]) == ("word",)
    for value in (
        picture,
        {"type": "image", "source": {"type": "base64", "media_type": "x", "data": encoded}},
        [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}],
        {"type": "input_audio", "data": encoded.replace("+", "-").replace("/", "_")},
    ):
        assert short.value(value) is value
    # Where text is given out as an image, it is read as it is written.
    for value in (
        {"type": "image", "data": "a canary"},
        {"type": "image", "data": "canary" * 40},
        {"type": "image", "data": encoded, "title": "canary"},
        {"url": f"data:image/png;base64,{encoded} canary"},
        b"\xff" * 20 + b"a canary among readable text, with some bytes of another encoding",
    ):
        assert cleaner().rules(cleaner().value(value)) == () != cleaner().rules(value)


def test_an_identifier_is_acted_on_and_recorded_as_one_in_a_value_is() -> None:
    for action in ("redact", "report", "raise"):
        events = []
        for way in (
            lambda cleaner: cleaner.identifier("id canary"),
            lambda cleaner: cleaner.field("id canary", Role.IDENTIFIER),
        ):
            sink = MemorySink()
            recording = Cleaner(POLICY, action, record=RunRecorder(sink))
            assert recording.identifier("fine") == "fine"
            assert not sink.events
            if action == "raise":
                with pytest.raises(ViolationError):
                    way(recording)
            else:
                assert (way(recording) == "id canary") == (action == "report")
            assert len(sink.events) == 1
            events.append(sink.events[0].model_dump(include={"kind", "ok", "length", "findings"}))
        assert events[0] == events[1]
        assert (events[0]["kind"], events[0]["ok"]) == ("verification", False)
