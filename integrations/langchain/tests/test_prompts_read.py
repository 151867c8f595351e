"""Rules that read the prompt, where something is cut out of an answer: they read all turns of it.

The chat template of the model that ships ends every turn with the end-of-sequence token.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LogitsProcessor

from langchain_nco_guard import ChatNCOGuard, GuardedPipeline
from nco_guard import Guard, Policy
from nco_guard.demo import TOOLS
from nco_guard.errors import DeadEndError

TURNS = [("human", "Hello"), ("ai", "Hi."), ("human", "How can I reach Daniel Cohen?")]
PROMPT = "Hello there.<|end|>To reach Daniel write to"
CALL = '<tool_call>{"name": "lookup_order", "arguments": {"order_id": "A-1042"}}</tool_call>'


class Writes(LogitsProcessor):  # type: ignore[misc]
    """A processor of the user's that leaves one text to write."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        self._ids = [*ids, tokenizer.eos_token_id]
        self._start: int | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if self._start is None:
            self._start = input_ids.shape[1]
        token = self._ids[input_ids.shape[1] - self._start]
        only = torch.full_like(scores, -torch.inf)
        only[:, token] = 0
        return only


def reading(*rules: dict[str, Any]) -> Guard:
    return Guard(Policy(name="read", rules=tuple({**rule, "context": "prompt"} for rule in rules)))


def answers(model: Any, given: Any, **options: Any) -> list[str]:
    """What each of two routes gives for the prompt."""
    whole = model.invoke(given, **options)
    streamed = model.stream(given, **options)
    return [
        getattr(whole, "text", whole),
        "".join(getattr(piece, "text", piece) for piece in streamed),
    ]


def written(loaded: tuple[Any, Any], text: str, guard: Guard) -> ChatNCOGuard:
    """A model whose user leaves it one answer; tools are on offer."""
    processors = [Writes(loaded[1], text)]
    return ChatNCOGuard(
        model=loaded[0],
        tokenizer=loaded[1],
        guard=guard,
        max_tokens=64,
        generation_kwargs={"logits_processor": processors, "do_sample": False},
    )


def test_an_answer_that_a_stop_string_cuts_ends_where_it_may_after_the_last_turn(local: Any) -> None:
    assert answers(local(), TURNS, stop=[" to"]) == ["Write", "Write"]
    guard = reading({"id": "end", "regex": r"Cohen\?Write$"})
    for text in answers(local(guard), TURNS, stop=[" to"]):
        assert "Write".startswith(text)
        assert text != "Write"


def test_an_answer_does_not_continue_the_first_turn(local: Any) -> None:
    guard = reading({"id": "first", "strings": ["HelloWrite"]})
    assert answers(local(guard), TURNS, stop=[" to"]) == ["Write", "Write"]


@pytest.mark.parametrize("route", ["invoke", "stream"])
def test_text_around_a_tool_call_is_checked_after_the_last_turn(loaded: tuple[Any, Any], route: str) -> None:
    text = f"Write{CALL}."
    free = written(loaded, text, reading({"id": "s", "strings": ["Hello there"]})).bind_tools(TOOLS)
    bound = written(loaded, text, reading({"id": "s", "strings": ["Cohen?Write."]})).bind_tools(TOOLS)
    if route == "invoke":
        answer = free.invoke(TURNS)
        assert (answer.text, len(answer.tool_calls)) == ("Write.", 1)
        with pytest.raises(DeadEndError):  # the mask forbids the one token that is left to write
            bound.invoke(TURNS)
    else:
        assert "".join(piece.text for piece in free.stream(TURNS)) == "Write."
        shown: list[Any] = []
        with pytest.raises(DeadEndError):
            shown.extend(bound.stream(TURNS))
        assert "".join(piece.text for piece in shown) in ("", "Write")


def test_the_opening_of_a_chosen_tool_is_part_of_the_prompt(loaded: tuple[Any, Any]) -> None:
    rest = 'A-1042"}}</tool_call>'
    free = written(loaded, rest, reading({"id": "s", "strings": ["HelloA"]}))
    answer = free.bind_tools(TOOLS, tool_choice="lookup_order").invoke(TURNS)
    assert answer.tool_calls[0]["args"] == {"order_id": "A-1042"}
    cut = written(loaded, rest, reading({"id": "opening", "regex": r'order_id": "A-1042'}))
    with pytest.raises(DeadEndError):
        cut.bind_tools(TOOLS, tool_choice="lookup_order").invoke(TURNS)


def test_a_text_that_a_stop_string_cuts_ends_where_it_may_after_the_whole_prompt(pipe: Any) -> None:
    def llm(*rules: dict[str, Any]) -> GuardedPipeline:
        return GuardedPipeline(pipeline=pipe, guard=reading(*rules))

    after_the_end = llm({"id": "end", "regex": r"write to 37$"})
    of_the_first_part = llm({"id": "first", "strings": ["there. 37"]})
    for text in answers(after_the_end, PROMPT, stop=[" Mill"]):
        assert " 37".startswith(text)
        assert text != " 37"
    assert answers(of_the_first_part, PROMPT, stop=[" Mill"]) == [" 37", " 37"]
