"""`NCOGuardLLM`: reasoning as a block of its own on every route, guarded, streamed, and given back to the template."""

from __future__ import annotations

import re
from typing import Any

import pytest
from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock, ThinkingBlock, ToolCallBlock
from llama_index.core.tools import FunctionTool
from llama_index.llms.nco_guard import NCOGuardLLM, VerifiedLLM
from llama_index.llms.nco_guard.messages import plain_messages

from nco_guard import Guard, Policy, StringRule
from nco_guard.errors import UnsupportedError
from nco_guard.policy import AppliesTo

pytestmark = pytest.mark.anyio

GUARD = Guard(Policy(name="word", rules=[StringRule(id="word", strings=["Bluebird"])]))
CALL = '<tool_call>{"name": "lookup_order", "arguments": {"order_id": "K-1"}}</tool_call>'
SAID = f"<think>Hm. An order.</think>Let me see.{CALL}"
ASK = [ChatMessage(role=MessageRole.USER, content="Hello")]


class Writes:
    """A processor of the user's that leaves one text to write."""

    def __init__(self, tokenizer: Any, text: str) -> None:
        self._ids = [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]
        self._start = -1

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self._start < 0:
            self._start = input_ids.shape[1]
        scores[:, self._ids[min(input_ids.shape[1] - self._start, len(self._ids) - 1)]] += 1e4
        return scores


@pytest.fixture(scope="module")
def plain(pair: tuple[Any, Any]) -> NCOGuardLLM:
    return NCOGuardLLM(*pair, guard=GUARD, max_new_tokens=120)


def written(llm: NCOGuardLLM, text: str) -> dict[str, Any]:
    return {"logits_processor": [Writes(llm._tokenizer, text)]}


async def test_reasoning_is_a_block_of_its_own_on_every_route(
    plain: NCOGuardLLM, tools: list[FunctionTool]
) -> None:
    whole = plain.chat_with_tools(tools, user_msg="Hello", **written(plain, SAID))
    awaited = await plain.achat_with_tools(tools, user_msg="Hello", **written(plain, SAID))
    chunks = [*plain.stream_chat_with_tools(tools, user_msg="Hello", **written(plain, SAID))]
    for answer in (whole, awaited, chunks[-1]):
        thinking, text, call = answer.message.blocks
        assert isinstance(thinking, ThinkingBlock)
        assert thinking.content == "Hm. An order."
        assert isinstance(text, TextBlock)
        assert answer.message.content == text.text == "Let me see."
        assert call.tool_name == "lookup_order"  # type: ignore[union-attr]
        assert answer.additional_kwargs["thinking"] == thinking.content
    deltas = [chunk.additional_kwargs.get("thinking_delta", "") for chunk in chunks]
    assert "".join(deltas) == "Hm. An order."
    assert sum(map(bool, deltas)) > 2
    assert "".join(chunk.delta or "" for chunk in chunks) == "Let me see."


BROKEN = '<tool_call>{"name": "lookup_order", "argument": {"order_id": "K-1"}}</tool_call>'


@pytest.mark.parametrize(
    "said",
    [
        f"A.{CALL}B.{CALL}C.",
        f"{CALL}{BROKEN}B.",
        f"A{BROKEN}B{CALL}C",
        f"{CALL}B{BROKEN[:-20]}",
        BROKEN,
        CALL,
    ],
)
def test_nothing_behind_a_call_is_lost(plain: NCOGuardLLM, tools: list[FunctionTool], said: str) -> None:
    asked: dict[str, Any] = {"user_msg": "Hello", "allow_parallel_tool_calls": True}
    whole = plain.chat_with_tools(tools, **asked, **written(plain, said))
    chunks = [*plain.stream_chat_with_tools(tools, **asked, **written(plain, said))]
    for answer in (whole, chunks[-1]):
        assert answer.message.content or said == CALL
        assert (answer.message.content or "") == said.replace(CALL, "")
        calls = [block.tool_name for block in answer.message.blocks if isinstance(block, ToolCallBlock)]
        assert calls == ["lookup_order"] * said.count(CALL)
        invalid = answer.message.additional_kwargs.get("invalid_tool_calls", [])
        assert [call["args"] for call in invalid] == re.findall(
            r"<tool_call>(?:(?!<).)*argument\".*?(?:</tool_call>|$)", said
        )
    assert "".join(chunk.delta or "" for chunk in chunks) == said.replace(CALL, "")
    kinds = [[type(block) for block in answer.message.blocks] for answer in (whole, chunks[-1])]
    assert kinds[0] == kinds[1]


def test_completions_are_text_without_what_was_reasoned(plain: NCOGuardLLM) -> None:
    said = "<think>Hm.</think>Yes."
    whole = plain.complete("Hello", **written(plain, said))
    assert (whole.text, whole.additional_kwargs["thinking"]) == ("Yes.", "Hm.")
    *_, last = plain.stream_complete("Hello", **written(plain, said))
    assert (last.text, last.additional_kwargs["thinking"]) == ("Yes.", "Hm.")


def test_reasoning_is_guarded(plain: NCOGuardLLM) -> None:
    answer = plain.chat(ASK, **written(plain, "<think>Bluebird</think>Yes."))
    assert all(GUARD.verify(getattr(block, "content", None) or "").ok for block in answer.message.blocks)
    # What is put together of its pieces is masked.
    answer = plain.chat(ASK, **written(plain, "<think>Blue</think>x<think>bird</think>"))
    assert "Bluebird" not in "".join(getattr(block, "content", None) or "" for block in answer.message.blocks)


@pytest.mark.parametrize("kind", ["free", "hidden"])
def test_a_policy_says_whether_reasoning_is_looked_at_and_shown(pair: tuple[Any, Any], kind: Any) -> None:
    guard = Guard(GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning=kind)}))
    llm = NCOGuardLLM(*pair, guard=guard, max_new_tokens=120)
    said = "<think>Bluebird.</think>Yes."
    *_, last = llm.stream_chat(ASK, **written(llm, said))
    for answer in (llm.chat(ASK, **written(llm, said)), last):
        assert answer.message.content == "Yes."
        assert ("Bluebird." in repr(answer)) == (kind == "free")
        thoughts = [block.content for block in answer.message.blocks if isinstance(block, ThinkingBlock)]
        assert thoughts == (["Bluebird."] if kind == "free" else [])
    apart = llm.chat(ASK, **written(llm, "Blue<think>x</think>bird"))
    assert "Bluebird" not in (apart.message.content or "")


def test_reasoning_that_cannot_be_told_apart_is_not_said_to_be_hidden(
    pair: tuple[Any, Any], plain: NCOGuardLLM
) -> None:
    hides = Guard(GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning="hidden")}))
    said = r"applies_to\.reasoning: 'hidden' of the policy 'word': .*"
    with pytest.raises(UnsupportedError, match=said + "say is_chat_model=True"):
        NCOGuardLLM(*pair, guard=hides, is_chat_model=False)
    with pytest.raises(UnsupportedError, match=said + "the format smollm2 has none; pass a format"):
        NCOGuardLLM(*pair, guard=hides, reply_format="smollm2")
    text = NCOGuardLLM(*pair, guard=GUARD, is_chat_model=False, max_new_tokens=8)
    with pytest.raises(UnsupportedError, match=said + "say is_chat_model=True"):
        text.with_guard(hides)
    with pytest.raises(UnsupportedError, match=said):
        text.complete("Hello", guard=hides)
    with pytest.raises(UnsupportedError, match=said + "use NCOGuardLLM"):
        VerifiedLLM(plain, guard=hides)
    with pytest.raises(UnsupportedError, match=said + "use NCOGuardLLM"):
        VerifiedLLM(plain, guard=GUARD).complete("Hello", guard=hides)
    free = GUARD.policy.model_copy(update={"applies_to": AppliesTo(reasoning="free")})
    answer = text.complete("Hello", guard=free, **written(text, "<think>Bluebird.</think>Yes."))
    assert "Bluebird" not in answer.text
    shaped = NCOGuardLLM(*pair, guard=hides, max_new_tokens=20)
    assert shaped.chat(ASK, shape={"type": "boolean"}).message.content in ("true", "false")


def test_what_was_reasoned_goes_back_to_the_template() -> None:
    blocks = [ThinkingBlock(content="Hm."), TextBlock(text="Yes.")]
    (message,) = plain_messages([ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks)])
    assert message == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
