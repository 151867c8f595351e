"""`Cleaner` on dictionaries that look like blocks, calls and log probabilities, and on those that only seem to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nco_guard.errors import ViolationError
from nco_guard.values import Cleaner
from nco_guard.values.jsontext import json_parts
from tests.values.examples import CARD, OUT, cleaner


@pytest.mark.parametrize("clean", [
    {"type": "risk", "likelihood": "high"},
    {"type": "risk", "likelihoods": {"fire": 0.1, "flood": 0.9}},
    {"type": "risk", "likelihood": ["high", 3]},
    {"type": "form", "prefill": {"name": "x", "count": 3}},
    {"type": "oauth", "tokens": ["read", "write"]},
    {"type": "oauth", "grants": [{"token": "a", "expires": 3}, {"token": "b", "expires": 4}]},
    {"type": "scan", "logits": 3},
    {"type": "scan", "logits": [{"cat": 0.5}]},
    {"type": "model", "logprobs": None, "avg_logprobs": -0.5, "token_ids": [1, 2]},
], ids=repr)  # fmt: skip
def test_entries_that_are_no_log_probabilities_stay(clean: Any) -> None:
    for action in ("redact", "raise", "report"):
        given = Cleaner(cleaner().finder.compiled, action)  # type: ignore[arg-type]
        assert given.value(clean) is clean
        assert given.value([clean])[0] is clean


@pytest.mark.parametrize("given", [
    {"tokens": ["can", "ary"]},
    {"likelihood": ["can", "ary"]},
    {"prefill": {"a": "can", "b": "ary"}},
    {"grants": [{"token": "can"}, {"token": "ary"}]},
    {"logprobs": [{"token": "can", "top_logprobs": [{"token": "x", "logprob": -2}]}, {"token": "ary"}]},
    {"logprobs": {"tokens": ["can", "x", "ary"], "token_logprobs": [-1, -2, -3]}},
    {"top_logprobs": [{"can": -1.0, "x": -2.0}, {"ary": -1.0}]},
    {"input_token_logprobs": [[-1.0, 5, "can"], [-2.0, 6, "x"], [-1.0, 7, "ary"]]},
    {"prompt_logprobs": [None, {"1": {"logprob": -1.0, "decoded_token": "can"}}, {"2": {"decoded_token": "ary"}}]},
    {"prefill": [{"id": 1, "text": "can", "logprob": -1.0}, {"id": 2, "text": "ary", "logprob": -1.0}]},
    {"details": {"logprobsResult": {"chosenCandidates": [{"token": "can", "logProbability": -1.0}]}}},
], ids=repr)  # fmt: skip
def test_a_text_token_by_token_does_not_get_out(given: Any) -> None:
    found = cleaner().value({"type": "text", "text": "fine", **given})
    assert found["text"] == "fine"
    left = json.dumps(found)
    assert not ("can" in left and "ary" in left)


@pytest.mark.parametrize("given", [
    {"type": "function", "name": "canary"},
    {"type": "function", "name": "canary", "parameters": {"type": "object"}},
    {"name": "canary", "arguments": "a pizza"},
    {"name": "canary", "arguments": 3},
    {"name": "canary", "arguments": ["a", "b"]},
], ids=repr)  # fmt: skip
def test_a_name_that_nobody_calls_is_redacted(given: Any) -> None:
    assert cleaner().value(given) == {**given, "name": OUT}


@pytest.mark.parametrize("given", [
    {"type": "tool_call", "name": "canary"},
    {"type": "tool_use", "name": "canary", "input": {}},
    {"type": "function", "name": "canary", "arguments": "{"},
    {"type": "function", "function": {"name": "canary", "arguments": "{}"}},
    {"name": "canary", "arguments": ""},
    {"name": "canary", "arguments": {"a": 1}},
], ids=repr)  # fmt: skip
def test_the_name_of_a_call_is_refused(given: Any) -> None:
    with pytest.raises(ViolationError, match="tool"):
        cleaner().value(given)


@pytest.mark.parametrize("brackets", [0, 1, 7, 8, 9, 500, 100_000])
@pytest.mark.parametrize("end", ["}", "", "]}", '} and "more'])
def test_numbers_after_any_beginnings_that_break_off(brackets: int, end: str) -> None:
    def call(key: str, number: str) -> Any:
        args = "[" * brackets + f' {{"{key}": {number}{end}'
        return [{"type": "tool_call", "name": "f", "args": args}]

    clean = call("card", "5.5e15")
    assert cleaner().value(clean) is clean
    for key, number in (
        ("card", "4.111111111111111e15"),
        ("card", "4.111111111111111E+15"),
        ("ssn", "1.234e3"),
    ):
        found = cleaner().value(call(key, number))
        assert number not in found[0]["args"]
        with pytest.raises(ViolationError):
            cleaner(action="raise").value(call(key, number))


def test_the_rest_of_a_broken_text_is_read_in_time_that_grows_with_it() -> None:
    for text in ("[" * 9 + "1" * 100_000, "[" * 9 + "1." * 100_000, "[{" * 100_000):
        assert json_parts(text) == []
    assert json_parts("[" * 9 + "4e3 -2.50") == [(0, 18, "[" * 9 + "4000 -2.50")]
    assert json_parts('x {"a": 1.0, "b": {"c": 1.0}, "d": 2e1') == [
        (2, 18, '{"a": 1, "b": '), (18, 28, {"c": 1.0}), (28, 38, ', "d": 20'),
    ]  # fmt: skip
    assert str(CARD) in json_parts("{" * 9 + "4.111111111111111e15")[0][2]
    found = cleaner().value([{"type": "tool_call", "name": "f", "args": '{"card": 4.111111111111111e15'}])
    assert found[0]["args"] == f'{{"card": {OUT}'
