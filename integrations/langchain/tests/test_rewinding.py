"""Chat models and LLMs whose texts go back to where a match began: what they write is what the core writes so."""

from __future__ import annotations

from typing import Any

import pytest
from checks import check_stream, check_text

from langchain_nco_guard import ChatNCOGuard, GuardedPipeline
from nco_guard import Guard, Policy, Rewind
from nco_guard.audit import Intervention, MemorySink, RunFinished
from nco_guard.errors import UnsupportedError

ASK = "How can I reach Daniel Cohen?"
PROMPTS = ["Maria", "Elena Rossi"]
WAYS: list[tuple[dict[str, Any], str]] = [
    ({"when_blocked": "rewind"}, "match"),
    ({"rewind": {"back_to": "sentence"}}, "sentence"),
    ({"rewind": Rewind(back_to="text")}, "text"),
]


class Watched:
    """A guard, and what its log says since it was last asked."""

    def __init__(self, policy: Policy) -> None:
        self._sink = MemorySink()
        self._seen = 0
        self.guard = Guard(policy, audit=self._sink)

    def went_back_to(self) -> set[str | None]:
        """How far the texts could go back; that one did is held."""
        events = self._sink.events[self._seen :]
        self._seen += len(events)
        actions = [event.action for event in events if isinstance(event, Intervention)]
        assert "rewound" in actions
        return {event.back_to for event in events if isinstance(event, RunFinished)}


@pytest.fixture
def watched(policy: Policy) -> Watched:
    return Watched(policy)


@pytest.mark.parametrize(("options", "back_to"), WAYS)
def test_a_chat_model_goes_back_at_once_in_batches_and_in_streams(
    options: dict[str, Any], back_to: str, loaded: tuple[Any, Any], policy: Policy, watched: Watched
) -> None:
    guard = watched.guard
    asked = [{"role": "user", "content": ASK}]
    (text,) = guard.generate(*loaded, asked, max_new_tokens=24, do_sample=False, **options).texts
    (masked,) = guard.generate(*loaded, asked, max_new_tokens=24, do_sample=False).texts
    assert text != masked
    watched.went_back_to()
    chat = ChatNCOGuard(
        model=loaded[0],
        tokenizer=loaded[1],
        guard=guard,
        max_tokens=24,
        temperature=0,
        generation_kwargs=options,
    )
    assert chat.invoke(ASK).content == text
    assert watched.went_back_to() == {back_to}
    assert [answer.content for answer in chat.batch([ASK, ASK])] == [text, text]
    assert watched.went_back_to() == {back_to}
    if back_to == "text":
        with pytest.raises(UnsupportedError, match="cannot be streamed"):
            list(chat.stream(ASK))
    else:
        assert check_stream(policy, [chunk.text for chunk in chat.stream(ASK)]) == text
        assert watched.went_back_to() == {back_to}


@pytest.mark.parametrize(("options", "back_to"), WAYS)
def test_a_guarded_pipeline_goes_back_at_once_in_batches_and_in_streams(
    options: dict[str, Any], back_to: str, pipe: Any, policy: Policy, watched: Watched
) -> None:
    guard = watched.guard
    loaded, given = (pipe.model, pipe.tokenizer), {"max_new_tokens": 24, "do_sample": False}
    texts = [guard.generate(*loaded, prompt, **given, **options).texts[0] for prompt in PROMPTS]
    assert texts != [guard.generate(*loaded, prompt, **given).texts[0] for prompt in PROMPTS]
    watched.went_back_to()
    llm = GuardedPipeline(pipeline=pipe, guard=guard, pipeline_kwargs=options, batch_size=2)
    assert llm.invoke(PROMPTS[0]) == texts[0]
    assert watched.went_back_to() == {back_to}
    assert llm.batch(PROMPTS) == texts
    assert watched.went_back_to() == {back_to}
    plain = GuardedPipeline(pipeline=pipe, guard=guard)
    assert check_text(policy, plain.invoke(PROMPTS[0], pipeline_kwargs=options)) == texts[0]
    assert watched.went_back_to() == {back_to}
    if back_to == "text":
        with pytest.raises(UnsupportedError, match="cannot be streamed"):
            list(llm.stream(PROMPTS[0]))
    else:
        assert check_stream(policy, list(llm.stream(PROMPTS[0]))) == texts[0]
        assert watched.went_back_to() == {back_to}


def test_a_policy_says_it_for_a_chat_model(loaded: tuple[Any, Any], policy: Policy) -> None:
    watched = Watched(
        policy.model_copy(update={"when_blocked": "rewind", "rewind": Rewind(back_to="sentence")})
    )
    chat = ChatNCOGuard(
        model=loaded[0], tokenizer=loaded[1], guard=watched.guard, max_tokens=24, temperature=0
    )
    check_text(policy, chat.invoke(ASK).content)
    assert watched.went_back_to() == {"sentence"}
