"""Replies as LlamaIndex's responses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    ContentBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from nco_guard import Guard
from nco_guard.engines.hf.reply_calls import Reply, ReplyCall

__all__ = ["Request"]


@dataclass(frozen=True, slots=True)
class Request:
    """One call, and how its replies look in LlamaIndex."""

    call: ReplyCall[Guard]

    def completion(self, reply: Reply) -> CompletionResponse:
        """A reply's text; what was reasoned before is among the further arguments."""
        raw = self._raw(reply)
        return CompletionResponse(
            text=reply.content, delta=reply.delta, raw=raw, additional_kwargs=self._further(reply)
        )

    def message(self, reply: Reply) -> ChatResponse:
        """An assistant's message: reasoning, content and tool calls.

        What stands where a call stands and is none is content, and among the further arguments.
        """
        blocks: list[ContentBlock] = [ThinkingBlock(content=reply.reasoning)] if reply.reasoning else []
        if reply.content or not reply.calls:
            blocks.append(TextBlock(text=reply.content))
        blocks += [
            ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
            for call in reply.calls
        ]
        extra: dict[str, Any] = {}
        if reply.calls:
            # LlamaIndex's structured programs look for calls here.
            extra["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": call.name,
                        "arguments": json.dumps(call.arguments, ensure_ascii=False),
                    },
                }
                for call in reply.calls
            ]
        if reply.invalid_calls:
            extra["invalid_tool_calls"] = [
                {
                    "id": call.id,
                    "type": "invalid_tool_call",
                    "name": None,
                    "args": call.text,
                    "error": call.problem,
                }
                for call in reply.invalid_calls
            ]
        return ChatResponse(
            message=ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=extra),
            delta=reply.delta,
            raw=self._raw(reply),
            additional_kwargs=self._further(reply),
        )

    def _raw(self, reply: Reply) -> dict[str, Any]:
        raw: dict[str, Any] = {"policy_digest": self.call.guard.log.digest, "outcome": reply.outcome}
        if reply.usage is not None:
            raw["usage"] = self._numbers(reply)
        return raw

    def _further(self, reply: Reply) -> dict[str, Any]:
        """As LlamaIndex's other LLMs have it; agents hand on what is said of reasoning."""
        reasoning = {"thinking": reply.reasoning} if reply.reasoning else {}
        if reply.reasoning_delta:
            reasoning["thinking_delta"] = reply.reasoning_delta
        return {**self._numbers(reply), **reasoning}

    @staticmethod
    def _numbers(reply: Reply) -> dict[str, Any]:
        if reply.usage is None:
            return {}
        names = "prompt_tokens", "completion_tokens", "total_tokens"
        return {name: getattr(reply.usage, name) for name in names}
