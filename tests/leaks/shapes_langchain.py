"""Shapes of what hosted models, retrievers and tools hand to LangChain."""

from __future__ import annotations

import datetime
import json
from typing import Any

import numpy as np
from langchain_core.agents import AgentAction, AgentFinish
from langchain_core.documents import Document
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.prompt_values import ChatPromptValue, StringPromptValue
from langchain_core.runnables.utils import AddableDict
from langchain_core.stores import InMemoryStore

from tests.leaks.canaries import Secret
from tests.leaks.hosts_langchain import Said
from tests.leaks.shapes import Shape, shapes
from tests.leaks.shapes_values import Model

__all__ = ["ANSWERS", "STEPS"]


def call(args: Any = None, name: str = "lookup", id: str = "call-1") -> dict[str, Any]:
    return {"name": name, "args": args or {}, "id": id, "type": "tool_call"}


def blocks(*parts: Any, **rest: Any) -> Said:
    """Content blocks, whole in a message; each a chunk in a stream."""
    content = [dict(part) if isinstance(part, dict) else part for part in parts]
    return Said(AIMessage(content=content, **rest))


def streamed(*chunks: Any, whole: AIMessage | None = None) -> Said:
    """Chunks as some provider sends them, and what they are together."""
    made = [chunk if isinstance(chunk, AIMessageChunk) else AIMessageChunk(content=chunk) for chunk in chunks]
    total = made[0].model_copy(deep=True)
    for chunk in made[1:]:
        total = total + chunk  # type: ignore[assignment]
    if whole is None:
        names = ("content", "additional_kwargs", "response_metadata", "tool_calls", "invalid_tool_calls")
        whole = AIMessage(**{name: getattr(total, name) for name in names})
    return Said(whole, made)


def tool_chunks(pieces: list[str], index: int | None = 0, ids: bool = True) -> list[AIMessageChunk]:
    made = []
    for place, piece in enumerate(pieces):
        part = {
            "name": None if place else "lookup",
            "args": piece,
            "id": None if place and ids else "call-1",
            "index": index,
            "type": "tool_call_chunk",
        }
        made.append(AIMessageChunk(content="", tool_call_chunks=[part]))
    return made


def cut(text: str, size: int = 4) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def tokens(s: Secret) -> list[dict[str, Any]]:
    return [{"token": p, "bytes": [*p.encode()], "logprob": -0.1, "top_logprobs": []} for p in cut(s.text)]


def kwargs(**additional: Any) -> Said:
    return Said(AIMessage("fine", additional_kwargs=additional))


def meta(**metadata: Any) -> Said:
    return Said(AIMessage("fine", response_metadata=metadata))


ANSWERS: list[Shape] = shapes(
    "answer",
    {
        "text": lambda s: Said(AIMessage(f"Write to {s.text} today.")),
        "number in text": lambda s: Said(AIMessage(f"card {s.number}.")),
        "text block": lambda s: blocks({"type": "text", "text": f"to {s.text}.", "index": 0}),
        "text blocks side by side": lambda s: blocks(*({"type": "text", "text": p} for p in s.pieces())),
        "text blocks with indexes": lambda s: blocks(
            *({"type": "text", "text": p, "index": i} for i, p in enumerate(s.pieces()))
        ),
        "texts without blocks": lambda s: blocks(*s.pieces()),
        "texts and blocks": lambda s: blocks(
            s.pieces()[0], *({"type": "text", "text": p} for p in s.pieces()[1:])
        ),
        "text block with an id": lambda s: blocks({"type": "text", "text": s.text, "id": "msg_1"}),
        "annotations": lambda s: blocks(
            {
                "type": "text",
                "text": "see there",
                "annotations": [{"type": "citation", "title": s.text, "url": f"https://x/?q={s.text}"}],
            }
        ),
        "citations": lambda s: blocks(
            {"type": "text", "text": "see", "citations": [{"type": "char_location", "cited_text": s.text}]}
        ),
        "citations in pieces": lambda s: blocks(
            {
                "type": "text",
                "text": "see",
                "citations": [
                    {"type": "content", "source": [{"type": "text", "text": p} for p in s.pieces()]}
                ],
            }
        ),
        "text block's extras": lambda s: blocks({"type": "text", "text": "a", "extras": {"note": s.text}}),
        "reasoning block": lambda s: blocks(
            {"type": "reasoning", "reasoning": f"I write to {s.text}"}, {"type": "text", "text": "ok"}
        ),
        "reasoning blocks side by side": lambda s: blocks(
            *({"type": "reasoning", "reasoning": p} for p in s.pieces()), {"type": "text", "text": "ok"}
        ),
        "reasoning of one index in pieces": lambda s: streamed(
            *([{"type": "reasoning", "reasoning": p, "index": 0}] for p in cut(s.text)),
            [{"type": "text", "text": "ok", "index": 1}],
        ),
        "reasoning without index in pieces": lambda s: streamed(
            *([{"type": "reasoning", "reasoning": p}] for p in cut(s.text)), [{"type": "text", "text": "ok"}]
        ),
        "thinking block": lambda s: blocks(
            {"type": "thinking", "thinking": s.text, "signature": "sig"}, {"type": "text", "text": "ok"}
        ),
        "thinking in pieces": lambda s: streamed(
            *([{"type": "thinking", "thinking": p, "index": 0}] for p in cut(s.text)),
            [{"type": "thinking", "signature": "sig", "index": 0}],
            [{"type": "text", "text": "ok", "index": 1}],
        ),
        "thinking interleaved with text": lambda s: streamed(
            *(
                [{"type": "thinking", "thinking": p, "index": 0}, {"type": "text", "text": "x", "index": 1}]
                for p in cut(s.text)
            )
        ),
        "reasoning summary": lambda s: blocks(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": s.text}], "id": "rs_1"}
        ),
        "reasoning summaries side by side": lambda s: blocks(
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": p} for p in s.pieces()]}
        ),
        "reasoning summary in pieces": lambda s: streamed(
            *(
                [
                    {
                        "type": "reasoning",
                        "summary": [{"index": 0, "type": "summary_text", "text": p}],
                        "index": 0,
                    }
                ]
                for p in cut(s.text)
            )
        ),
        "reasoning_content": lambda s: kwargs(reasoning_content=s.text),
        "reasoning_content in pieces": lambda s: streamed(
            *(AIMessageChunk(content="", additional_kwargs={"reasoning_content": p}) for p in cut(s.text)),
            "ok",
        ),
        "reasoning details": lambda s: kwargs(
            reasoning_details=[{"type": "reasoning.text", "text": p} for p in s.pieces()]
        ),
        "refusal": lambda s: kwargs(refusal=f"I will not write to {s.text}"),
        "refusal in pieces": lambda s: streamed(
            *(AIMessageChunk(content="", additional_kwargs={"refusal": p}) for p in cut(s.text))
        ),
        "refusal block": lambda s: blocks({"type": "refusal", "refusal": s.text}),
        "refusal block in pieces": lambda s: streamed(
            *([{"type": "refusal", "refusal": p, "index": 0}] for p in cut(s.text))
        ),
        "transcript": lambda s: kwargs(audio={"id": "a", "transcript": s.text}),
        "transcript in pieces": lambda s: streamed(
            *(AIMessageChunk(content="", additional_kwargs={"audio": {"transcript": p}}) for p in cut(s.text))
        ),
        "parsed object": lambda s: kwargs(parsed=Model(mail=s.text, card=s.number)),
        "parsed number": lambda s: kwargs(parsed={"card": s.number}),
        "key in kwargs": lambda s: kwargs(**{s.text: True}),
        "date in kwargs": lambda s: kwargs(born=s.date),
        "bytes in kwargs": lambda s: kwargs(data=s.text.encode()),
        "tuple in kwargs": lambda s: kwargs(pair=(1, s.text)),
        "tool call of kwargs": lambda s: kwargs(
            tool_calls=[
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": json.dumps({"m": s.text})},
                }
            ]
        ),
        "tool call of kwargs with escapes": lambda s: kwargs(
            tool_calls=[
                {
                    "id": "1",
                    "type": "function",
                    "function": {"name": "f", "arguments": f'{{"m": "{s.escaped}"}}'},
                }
            ]
        ),
        "function_call": lambda s: kwargs(
            function_call={"name": "f", "arguments": json.dumps({"card": s.number})}
        ),
        "function_call in pieces": lambda s: streamed(
            *(
                AIMessageChunk(content="", additional_kwargs={"function_call": {"arguments": p}})
                for p in cut(f'{{"m": "{s.escaped}"}}')
            )
        ),
        "tool_use block": lambda s: blocks(
            {"type": "tool_use", "id": "t", "name": "f", "input": {"m": s.text}}
        ),
        "tool_use block's key": lambda s: blocks(
            {"type": "tool_use", "id": "t", "name": "f", "input": {s.text: 1}}
        ),
        "tool_use block's number": lambda s: blocks(
            {"type": "tool_use", "id": "t", "name": "f", "input": {"card": float(s.number)}}
        ),
        "tool_use input in pieces": lambda s: streamed(
            [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "index": 0}],
            *(
                [{"type": "input_json_delta", "partial_json": p, "index": 0}]
                for p in cut(f'{{"m": "{s.escaped}"}}')
            ),
        ),
        "partial JSON of a block": lambda s: blocks(
            {"type": "tool_use", "id": "t", "name": "f", "partial_json": f'{{"m": "{s.escaped}'}
        ),
        "function_call block": lambda s: blocks(
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": f'{{"m": "{s.escaped}"}}'}
        ),
        "server tool's call": lambda s: blocks(
            {"type": "server_tool_call", "id": "s", "name": "web_search", "args": {"query": s.text}}
        ),
        "server tool's result": lambda s: blocks(
            {
                "type": "server_tool_result",
                "tool_call_id": "s",
                "status": "success",
                "output": [{"title": s.text}],
            }
        ),
        "server tool's call in pieces": lambda s: streamed(
            *(
                [{"type": "server_tool_call_chunk", "args": p, "index": 0}]
                for p in cut(f'{{"query": "{s.escaped}"}}')
            )
        ),
        "web search result": lambda s: blocks(
            {"type": "web_search_tool_result", "content": [{"type": "web_search_result", "title": s.text}]}
        ),
        "code interpreter": lambda s: blocks(
            {
                "type": "code_interpreter_call",
                "code": f"print('{s.text}')",
                "outputs": [{"type": "logs", "logs": s.text}],
            }
        ),
        "MCP call": lambda s: blocks(
            {"type": "mcp_call", "name": "f", "arguments": json.dumps({"m": s.text}), "output": s.text}
        ),
        "MCP result in pieces": lambda s: blocks(
            {"type": "mcp_tool_result", "content": [{"type": "text", "text": p} for p in s.pieces()]}
        ),
        "unknown block": lambda s: blocks({"type": "vendor", "value": {"deep": [{"er": s.text}]}}),
        "unknown block's number": lambda s: blocks({"type": "vendor", "value": s.number}),
        "unknown block's key": lambda s: blocks({"type": "vendor", s.text: 1}),
        "unknown block's type": lambda s: blocks({"type": s.text}),
        "block without a type": lambda s: blocks({"text": s.text}),
        "unknown block in pieces": lambda s: streamed(
            *([{"type": "vendor", "v": p, "index": 0}] for p in cut(s.text))
        ),
        "non-standard block": lambda s: blocks({"type": "non_standard", "value": {"x": s.text}}),
        "plain text block": lambda s: blocks(
            {"type": "text-plain", "text": s.text, "mime_type": "text/plain"}
        ),
        "image's address": lambda s: blocks({"type": "image", "url": f"https://x/{s.text}.png"}),
        "image_url's address": lambda s: blocks(
            {"type": "image_url", "image_url": {"url": f"https://x/?q={s.text}"}}
        ),
        "file's name": lambda s: blocks(
            {"type": "file", "base64": "aGk=", "mime_type": "text/plain", "extras": {"filename": s.text}}
        ),
        "tool call": lambda s: Said(AIMessage("", tool_calls=[call({"m": s.text})])),
        "tool call's key": lambda s: Said(AIMessage("", tool_calls=[call({s.text: 1})])),
        "tool call's number": lambda s: Said(AIMessage("", tool_calls=[call({"card": s.number})])),
        "tool call's float": lambda s: Said(AIMessage("", tool_calls=[call({"card": float(s.number)})])),
        "tool call, nested": lambda s: Said(AIMessage("", tool_calls=[call({"a": [{"b": [s.text]}]})])),
        "tool call's JSON": lambda s: Said(
            AIMessage("", tool_calls=[call({"body": f'{{"m": "{s.escaped}"}}'})])
        ),
        "tool call's JSON in JSON": lambda s: Said(
            AIMessage("", tool_calls=[call({"body": json.dumps({"in": f'{{"m": "{s.escaped}"}}'})})])
        ),
        "tool call's MCP content": lambda s: Said(
            AIMessage("", tool_calls=[call({"content": [{"type": "text", "text": p} for p in s.pieces()]})])
        ),
        "tool call's id": lambda s: Said(AIMessage("", tool_calls=[call({"a": 1}, id=s.text)])),
        "tool call's name": lambda s: Said(AIMessage("", tool_calls=[call({"a": 1}, name=s.text)])),
        "tool call beside text": lambda s: Said(
            AIMessage(f"I ask {s.text}", tool_calls=[call({"m": s.text})])
        ),
        "tool call in pieces": lambda s: streamed(*tool_chunks(cut(json.dumps({"m": s.text})))),
        "tool call in pieces with escapes": lambda s: streamed(*tool_chunks(cut(f'{{"m": "{s.escaped}"}}'))),
        "tool call in pieces with surrogates": lambda s: streamed(
            *tool_chunks(cut(f'{{"m": "\\ud83d\\ude00{s.escaped}"}}'))
        ),
        "tool call in pieces without index": lambda s: streamed(
            *tool_chunks(cut(json.dumps({"m": s.text})), index=None, ids=True)
        ),
        "tool call that breaks off": lambda s: streamed(*tool_chunks(cut(f'{{"m": "{s.text}'))),
        "tool call that breaks off with escapes": lambda s: streamed(
            *tool_chunks(cut(f'{{"m": "{s.escaped}'))
        ),
        "two tool calls interleaved": lambda s: streamed(
            *(
                chunk
                for pair in zip(
                    tool_chunks(cut(json.dumps({"m": s.text})), 0),
                    tool_chunks(cut(json.dumps({"n": s.text})), 1),
                    strict=True,
                )
                for chunk in pair
            )
        ),
        "invalid tool call": lambda s: Said(
            AIMessage("", invalid_tool_calls=[_invalid(f'{{"m": "{s.text}', "lookup", "broken")])
        ),
        "invalid tool call with escapes": lambda s: Said(
            AIMessage("", invalid_tool_calls=[_invalid(f'{{"m": "{s.escaped}', "lookup", "broken")])
        ),
        "invalid tool call's error": lambda s: Said(
            AIMessage("", invalid_tool_calls=[_invalid("{", "lookup", f"cannot read {s.text}")])
        ),
        "invalid tool call's name": lambda s: Said(
            AIMessage("", invalid_tool_calls=[_invalid("{", s.text, "no")])
        ),
        "message's id": lambda s: Said(AIMessage("fine", id=f"run-{s.text}")),
        "message's name": lambda s: Said(AIMessage("fine", name=s.text)),
        "finish_reason": lambda s: meta(finish_reason=s.text),
        "finish_reason in info": lambda s: Said(AIMessage("fine"), info={"finish_reason": f"stop:{s.text}"}),
        "stop sequence": lambda s: meta(stop_reason="stop_sequence", stop_sequence=s.text),
        "number in metadata": lambda s: meta(card=s.number, at=float(s.number)),
        "date in metadata": lambda s: meta(created=s.date, key=s.uuid),
        "key in metadata": lambda s: meta(**{s.text: 1}),
        "whole message in metadata": lambda s: meta(message=AIMessage(s.text)),
        "object in metadata": lambda s: meta(raw=Model(mail=s.text)),
        "grounding": lambda s: meta(
            grounding_metadata={"grounding_chunks": [{"web": {"title": s.text}}], "queries": [s.text]}
        ),
        "llm_output": lambda s: Said(
            AIMessage("fine"), llm_output={"raw": {"text": s.text, "card": s.number}}
        ),
        "info": lambda s: Said(AIMessage("fine"), info={"raw": {"text": s.text, "born": s.date}}),
        "JSON answer": lambda s: Said(AIMessage(f'{{"mail": "{s.text}", "card": {s.number}}}')),
        "JSON answer, number with an exponent": lambda s: Said(
            AIMessage(f'{{"mail": "a", "card": {s.exponent}}}')
        ),
        "JSON within an answer, number with an exponent": lambda s: Said(
            AIMessage(f'So:\n```json\n{{"mail": "a", "card": {s.exponent}}}\n```')
        ),
    },
    same=True,
)


#: Dropped whatever the policy is: they repeat the text in pieces.
ANSWERS += shapes(
    "answer",
    {
        "log probabilities": lambda s: meta(logprobs={"content": tokens(s)}),
        "log probabilities deep down": lambda s: meta(
            choice={"detail": {"logprobs": {"content": tokens(s)}}}
        ),
        "log probabilities in camel case": lambda s: meta(
            logprobsResult={"chosenCandidates": [{"token": t["token"]} for t in tokens(s)]}
        ),
        "log probabilities of Gemini": lambda s: meta(
            logprobs_result={"chosen_candidates": [{"token": t["token"]} for t in tokens(s)]}
        ),
        "log probabilities of prompts": lambda s: meta(
            prompt_logprobs=[{"1": {"decoded_token": t["token"]}} for t in tokens(s)]
        ),
        "token_logprobs": lambda s: meta(tokens=cut(s.text), token_logprobs=[-0.1] * len(cut(s.text))),
        "token likelihoods": lambda s: meta(
            token_likelihoods=[{"token": t["token"], "likelihood": -0.1} for t in tokens(s)]
        ),
        "log probabilities as bytes": lambda s: meta(logprobs={"content": [{"bytes": [*s.text.encode()]}]}),
        "log probabilities in a block": lambda s: blocks(
            {"type": "text", "text": "ok", "logprobs": tokens(s)}
        ),
        "log probabilities in kwargs": lambda s: kwargs(logprobs={"content": tokens(s)}),
        "log probabilities in pieces": lambda s: streamed(
            *(
                AIMessageChunk(content="", response_metadata={"logprobs": {"content": [one]}})
                for one in tokens(s)
            )
        ),
        "log probabilities in info": lambda s: Said(
            AIMessage("fine"), info={"logprobs": {"content": tokens(s)}}
        ),
    },
    opaque=True,
)


def _invalid(args: str, name: str, error: str) -> Any:
    return {"type": "invalid_tool_call", "name": name, "args": args, "id": "call-1", "error": error}


#: Values of LangChain's own that a step of a chain hands on.
STEPS: list[Shape] = shapes(
    "step",
    {
        "Document": lambda s: Document(f"Write to {s.text}."),
        "Document's metadata": lambda s: Document("a", metadata={"author": s.text, "n": 1}),
        "Document's metadata key": lambda s: Document("a", metadata={s.text: 1}),
        "Document's date": lambda s: Document("a", metadata={"born": s.date, "key": s.uuid}),
        "Document's numpy number": lambda s: Document("a", metadata={"card": np.int64(s.number)}),
        "Document's datetime": lambda s: Document(
            "a", metadata={"at": datetime.datetime.combine(s.date, datetime.time(3))}
        ),
        "Document's id": lambda s: Document("a", id=s.text),
        "documents": lambda s: [Document("a"), Document(s.text)],
        "documents and scores": lambda s: [(Document(s.text), 0.5), (Document("a"), np.float32(0.25))],
        "Document in a dict": lambda s: {"context": [Document(s.text)], "question": "who?"},
        "HumanMessage": lambda s: HumanMessage(s.text),
        "SystemMessage": lambda s: SystemMessage([{"type": "text", "text": p} for p in s.pieces()]),
        "ToolMessage": lambda s: ToolMessage(s.text, tool_call_id="1"),
        "ToolMessage's artifact": lambda s: ToolMessage("a", tool_call_id="1", artifact={"rows": [s.text]}),
        "ToolMessage's artifact object": lambda s: ToolMessage(
            "a", tool_call_id="1", artifact=Model(mail=s.text)
        ),
        "ToolMessage's artifact, any object": lambda s: ToolMessage(
            "a", tool_call_id="1", artifact=InMemory(s.text)
        ),
        "ToolMessage's id": lambda s: ToolMessage("a", tool_call_id=s.text),
        "ChatMessage's role": lambda s: ChatMessage("a", role=s.text),
        "FunctionMessage": lambda s: FunctionMessage(s.text, name="f"),
        "AIMessage": lambda s: AIMessage(s.text, response_metadata={"raw": s.text}),
        "messages": lambda s: [HumanMessage("a"), AIMessage(s.text)],
        "message as a tuple": lambda s: ("human", s.text),
        "StringPromptValue": lambda s: StringPromptValue(text=s.text),
        "ChatPromptValue": lambda s: ChatPromptValue(messages=[HumanMessage(s.text)]),
        "Generation": lambda s: Generation(text=s.text),
        "LLMResult": lambda s: LLMResult(generations=[[ChatGeneration(message=AIMessage(s.text))]]),
        "AgentAction": lambda s: AgentAction("f", {"m": s.text}, "log"),
        "AgentFinish": lambda s: AgentFinish({"output": s.text}, "log"),
        "AddableDict": lambda s: AddableDict(answer=s.text, n=1),
    },
)


class InMemory(InMemoryStore):
    """An object of a program's own that holds the secret."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.mset([("a", text)])
