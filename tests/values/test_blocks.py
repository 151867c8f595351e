"""`Cleaner` on dictionaries that look like blocks, calls and log probabilities, and on those that only seem to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nco_guard.errors import ViolationError
from nco_guard.values import Cleaner
from nco_guard.values.jsontext import json_parts
from nco_guard.values.readings import readings
from tests.values.examples import CARD, OUT, cleaner


@pytest.mark.parametrize("clean", [
    {"type": "risk", "likelihood": "high"},
    {"type": "risk", "likelihoods": {"fire": 0.1, "flood": 0.9}},
    {"type": "risk", "likelihood": ["high", 3]},
    {"type": "form", "prefill": {"name": "x", "count": 3}},
    {"type": "oauth", "tokens": ["read", "write"]},
    {"type": "oauth", "grants": [{"token": "a", "expires": 3}, {"token": "b", "expires": 4}]},
    {"type": "index", "tokens": [{"token": "quick", "start_offset": 0, "end_offset": 5, "position": 0}]},
    {"type": "index", "tokens": [[{"token": "quick", "position": 0}]], "words": [{"word": "a", "start": 0.5}]},
    {"type": "scan", "logits": 3},
    {"type": "scan", "logits": [{"cat": 0.5}]},
    {"type": "model", "logprobs": None, "avg_logprobs": -0.5, "token_ids": [1, 2]},
], ids=repr)  # fmt: skip
def test_entries_that_are_no_log_probabilities_stay(clean: Any) -> None:
    untyped = {name: part for name, part in clean.items() if name != "type"}
    for action in ("redact", "raise", "report"):
        given = Cleaner(cleaner().finder.compiled, action)  # type: ignore[arg-type]
        assert given.value(clean) is clean
        assert given.value(untyped) is untyped
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


ALTERNATIVES = [{"token": "x", "logprob": -2.0}]


@pytest.mark.parametrize("given", [
    {"logprobs": {"content": [
        {"token": part, "logprob": -0.1, "bytes": [*part.encode()], "top_logprobs": ALTERNATIVES}
        for part in ("can", "ary")
    ]}},
    {"logprobs": {"tokens": ["can", "ary"], "token_logprobs": [-1, -2], "top_logprobs": [{"can": -1}, {"ary": -2}]}},
    {"top_logprobs": [{"can": -1.0, "x": -2.0}, {"ary": -1.0}]},
    {"token_likelihoods": [{"token": "can", "likelihood": -1, "alternatives": ALTERNATIVES}, {"token": "ary"}]},
    {"completion_probabilities": [
        {"content": part, "probs": [{"tok_str": part, "prob": 0.9}, {"tok_str": "x", "prob": 0.1}]}
        for part in ("can", "ary")
    ]},
    {"prompt_logprobs": [None, {"1": {"logprob": -1.0, "decoded_token": "can"}}, {"2": {"decoded_token": "ary"}}]},
    {"output_top_logprobs": [[[-1.0, 5, "can"], [-2.0, 6, "x"]], [[-1.0, 7, "ary"]]]},
], ids=repr)  # fmt: skip
def test_log_probabilities_are_left_out_of_any_dictionary(given: Any) -> None:
    # As a tool returns it that hands on the answer of a provider.
    answer = {"choices": [{"text": "fine", **given}]}
    for action in ("redact", "raise"):
        found = Cleaner(cleaner().finder.compiled, action).value(answer)  # type: ignore[arg-type]
        assert found == {"choices": [{"text": "fine"}]}


@pytest.mark.parametrize("name", [
    "tokens", "completion_tokens", "promptTokens", "generated_tokens", "input_tokens", "token_strs", "decoded_tokens",
    "text_tokens",
])  # fmt: skip
def test_tokens_without_numbers_are_read_as_one_text_and_left_out_of_metadata(name: str) -> None:
    assert cleaner().value({name: ["can", "ary"], "n": 1}) == {name: OUT, "n": 1}
    assert cleaner().metadata({"a": [{name: ["can", "ary"], "n": 1}]}) == {"a": [{"n": 1}]}
    assert cleaner().metadata({name: 7}) == {name: 7}
    clean = {name: ["a", "b"]}
    assert cleaner().value(clean) is clean


@pytest.mark.parametrize("given", [
    {"probs": [{"tok_str": "can"}, {"tok_str": "ary"}]},
    {"alternatives": [[{"token": "can"}], [{"token": "ary"}]]},
    {"token_probs": {"can": 0.1, "ary": 0.2}},
    {"token_scores": [["can", 0.1], ["ary", 0.2]]},
], ids=repr)  # fmt: skip
def test_tokens_under_any_name_are_left_out_of_metadata(given: Any) -> None:
    assert cleaner().metadata({"a": given, "n": 1}) == {"a": {}, "n": 1}


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
        assert [one.text[:9] for one in readings(text)] == [text[:9]]
    broken = 'x {"a": 1.0, "b": {"c": 1.0}, "d": 2e1'
    assert json_parts(broken) == [(18, 28, {"c": 1.0})]
    assert [one.text for one in readings(broken)] == [broken, 'x {"a": 1, "b": {"c": 1}, "d": 20']
    assert str(CARD) in [*readings("{" * 9 + "4.111111111111111e15")][1].text
    found = cleaner().value([{"type": "tool_call", "name": "f", "args": '{"card": 4.111111111111111e15'}])
    assert found[0]["args"] == f'{{"card": {OUT}'
