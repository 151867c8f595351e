"""An LLM whose texts go back to where a match began: what it writes is what the core writes so."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.llms.nco_guard import NCOGuardLLM

from nco_guard import Guard, Policy, Rewind
from nco_guard.audit import Intervention, MemorySink, RunFinished
from nco_guard.errors import UnsupportedError

ASK = "How can I reach Daniel Cohen?"


def went_back_to(sink: MemorySink, seen: int) -> set[str | None]:
    """How far texts could go back, of the events after the first so many; that one did is held."""
    events = sink.events[seen:]
    assert "rewound" in [event.action for event in events if isinstance(event, Intervention)]
    return {event.back_to for event in events if isinstance(event, RunFinished)}


@pytest.mark.parametrize(
    ("options", "back_to"),
    [
        ({"when_blocked": "rewind"}, "match"),
        ({"rewind": {"back_to": "sentence"}}, "sentence"),
        ({"rewind": Rewind(back_to="text")}, "text"),
    ],
)
def test_completions_and_chats_go_back_at_once_and_in_streams(
    options: dict[str, Any], back_to: str, pair: tuple[Any, Any], policy: Policy, keeps: Any
) -> None:
    sink = MemorySink()
    guard, given = Guard(policy, audit=sink), {"max_new_tokens": 32, "do_sample": False}
    asked = [{"role": "user", "content": ASK}]
    (text,) = guard.generate(*pair, asked, **given, **options).texts
    (masked,) = guard.generate(*pair, asked, **given).texts
    assert text != masked
    llm = NCOGuardLLM(*pair, guard=guard, max_new_tokens=32, generate_kwargs=options)
    message = ChatMessage(role="user", content=ASK)

    seen = len(sink.events)
    assert keeps([llm.chat([message]).message.content]) == text
    assert went_back_to(sink, seen) == {back_to}
    seen = len(sink.events)
    completed = keeps([llm.complete(ASK).text])
    assert went_back_to(sink, seen) == {back_to}

    for stream, whole in (
        (lambda: llm.stream_chat([message]), text),
        (lambda: llm.stream_complete(ASK), completed),
    ):
        if back_to == "text":
            with pytest.raises(UnsupportedError, match="cannot be streamed"):
                list(stream())
            continue
        seen = len(sink.events)
        assert keeps(piece.delta for piece in stream()) == whole
        assert went_back_to(sink, seen) == {back_to}


def test_a_policy_says_it_for_an_llm(pair: tuple[Any, Any], policy: Policy, keeps: Any) -> None:
    sink = MemorySink()
    far = policy.model_copy(update={"when_blocked": "rewind", "rewind": Rewind(back_to="sentence")})
    llm = NCOGuardLLM(*pair, guard=Guard(far, audit=sink), max_new_tokens=32)
    keeps([llm.complete(ASK).text])
    assert went_back_to(sink, 0) == {"sentence"}
