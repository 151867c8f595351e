"""Shapes of what hosted LLMs and retrievers hand to LlamaIndex."""

from __future__ import annotations

import json
from typing import Any

from llama_index.core.base.llms.types import (
    CitableBlock,
    CitationBlock,
    LogProb,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.schema import (
    Document,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)

from tests.leaks.canaries import Secret
from tests.leaks.hosts_llama_index import Reply
from tests.leaks.shapes import Shape, shapes
from tests.leaks.shapes_values import Model

__all__ = ["NODES", "REPLIES"]


def said(*blocks: Any, **options: Any) -> Reply:
    return Reply([TextBlock(text=block) if isinstance(block, str) else block for block in blocks], **options)


def call(arguments: Any, name: str = "lookup", id: str | None = "call-1") -> ToolCallBlock:
    return ToolCallBlock(tool_call_id=id, tool_name=name, tool_kwargs=arguments)


def cut(text: str, size: int = 4) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def tokens(s: Secret) -> list[dict[str, Any]]:
    return [{"token": piece, "logprob": -0.1} for piece in cut(s.text)]


REPLIES: list[Shape] = shapes(
    "reply",
    {
        "text": lambda s: said(f"Write to {s.text} today."),
        "number in text": lambda s: said(f"card {s.number}."),
        "thinking": lambda s: said(ThinkingBlock(content=s.text), "ok"),
        "thinking side by side": lambda s: said(*(ThinkingBlock(content=p) for p in s.pieces()), "ok"),
        "thinking's additions": lambda s: said(
            ThinkingBlock(content="a", additional_information={"signature": s.text, "n": s.number}), "ok"
        ),
        "thinking's summary": lambda s: said(
            ThinkingBlock(content="a", additional_information={"summary": [{"text": p} for p in s.pieces()]}),
            "ok",
        ),
        "tool call": lambda s: said("I look.", call({"m": s.text})),
        "tool call's key": lambda s: said(call({s.text: 1})),
        "tool call's number": lambda s: said(call({"card": s.number})),
        "tool call's nested number": lambda s: said(call({"a": [{"b": float(s.number)}]})),
        "tool call's JSON": lambda s: said(call({"body": f'{{"m": "{s.escaped}"}}'})),
        "tool call's text": lambda s: said(call(f'{{"m": "{s.escaped}"}}')),
        "tool call's broken text": lambda s: said(call(f'{{"m": "{s.escaped}')),
        "tool call's id": lambda s: said(call({"a": 1}, id=s.text)),
        "tool call's name": lambda s: said(call({"a": 1}, name=s.text)),
        "citable block": lambda s: said(
            CitableBlock(title=s.text, source=s.text, content=[TextBlock(text=p) for p in s.pieces()]), "ok"
        ),
        "citable block's texts": lambda s: said(
            CitableBlock(title="a", source="b", content=[TextBlock(text=p) for p in s.pieces()]), "ok"
        ),
        "citation block": lambda s: said(
            CitationBlock(
                cited_content=TextBlock(text=s.text),
                source="a",
                title="b",
                additional_location_info={"start": 1},
            ),
            "ok",
        ),
        "citation's title": lambda s: said(
            CitationBlock(
                cited_content=TextBlock(text="x"),
                source=s.text,
                title=s.text,
                additional_location_info={s.text: 1},
            ),
            "ok",
        ),
        "kwargs": lambda s: said("fine", kwargs={"refusal": s.text}),
        "kwargs' key": lambda s: said("fine", kwargs={s.text: 1}),
        "kwargs' number": lambda s: said("fine", kwargs={"card": s.number, "list": [float(s.number)]}),
        "kwargs' bytes": lambda s: said("fine", kwargs={"data": s.text.encode()}),
        "kwargs' date": lambda s: said("fine", kwargs={"born": s.date, "key": s.uuid}),
        "kwargs' object": lambda s: said("fine", kwargs={"parsed": Model(mail=s.text)}),
        "kwargs' tool calls": lambda s: said(
            "fine",
            kwargs={
                "tool_calls": [{"function": {"name": "f", "arguments": f'{{"m": "{s.escaped}"}}'}, "id": "1"}]
            },
        ),
        "kwargs' annotations": lambda s: said(
            "fine", kwargs={"annotations": [{"type": "text", "text": p} for p in s.pieces()]}
        ),
        "kwargs' built-in tools": lambda s: said(
            "fine", kwargs={"built_in_tool_calls": [{"type": "web_search_call", "query": s.text}]}
        ),
        "response's additions": lambda s: said("fine", extra={"finish_reason": s.text, "prompt_tokens": 1}),
        "JSON answer": lambda s: said(f'{{"mail": "{s.text}", "card": {s.number}}}'),
        "escaped JSON answer": lambda s: said(f'{{"mail": "{s.escaped}", "card": 1}}'),
        "ReAct": lambda s: said(
            f"Thought: I look.\nAction: lookup\nAction Input: {json.dumps({'name': s.text})}\n"
        ),
        "ReAct with escapes": lambda s: said(
            f'Thought: I look.\nAction: lookup\nAction Input: {{"name": "{s.escaped}"}}\n'
        ),
        "JSON answer, number with an exponent": lambda s: said(f'{{"mail": "a", "card": {s.exponent}}}'),
        "JSON within an answer, number with an exponent": lambda s: said(
            f'So:\n```\n{{"mail": "a", "card": {s.exponent}}}\n```'
        ),
        "ReAct, number with an exponent": lambda s: said(
            f'Thought: I look.\nAction: lookup\nAction Input: {{"name": "x", "n": {s.exponent}}}\n'
        ),
    },
)

#: Dropped whatever the policy is, since they repeat the text; or shown with a line break in a stream.
REPLIES += shapes(
    "reply",
    {
        "text blocks side by side": lambda s: said(*s.pieces()),
        "text blocks around a call": lambda s: said(s.pieces(2)[0], call({"a": 1}), s.pieces(2)[1]),
        "kwargs' log probabilities": lambda s: said("fine", kwargs={"logprobs": {"content": tokens(s)}}),
        "kwargs' thinking in pieces": lambda s: said("fine", kwargs={"thinking_delta": s.text}),
        "log probabilities": lambda s: said(
            "fine", logprobs=[[LogProb(token=p, logprob=-0.1, bytes=[*p.encode()])] for p in cut(s.text)]
        ),
        "raw": lambda s: said("fine", raw={"choices": [{"text": s.text}], "usage": {"total_tokens": 3}}),
        "raw's usage": lambda s: said("fine", raw={"usage": {"prompt_tokens": 3, s.text: 1, "note": s.text}}),
        "raw object": lambda s: said("fine", raw=Model(mail=s.text)),
        "raw text": lambda s: said("fine", raw=s.text),
        "response's log probabilities": lambda s: said(
            "fine", extra={"likelihoods": {"logprobs": tokens(s)}}
        ),
    },
    opaque=True,
)

#: Nodes as retrievers give them.
NODES: list[Shape] = shapes(
    "node",
    {
        "text": lambda s: TextNode(text=f"Write to {s.text}.", id_="1"),
        "metadata": lambda s: TextNode(text="a", id_="1", metadata={"author": s.text, "n": 1}),
        "metadata key": lambda s: TextNode(text="a", id_="1", metadata={s.text: 1}),
        "metadata number": lambda s: TextNode(text="a", id_="1", metadata={"card": s.number}),
        "metadata float": lambda s: TextNode(text="a", id_="1", metadata={"card": float(s.number)}),
        "metadata date": lambda s: TextNode(text="a", id_="1", metadata={"born": s.date, "key": s.uuid}),
        "metadata nested": lambda s: TextNode(text="a", id_="1", metadata={"a": [{"b": (s.text,)}]}),
        "metadata bytes": lambda s: TextNode(text="a", id_="1", metadata={"data": s.text.encode()}),
        "metadata JSON": lambda s: TextNode(
            text="a", id_="1", metadata={"_node_content": json.dumps({"text": s.text})}
        ),
        "metadata that is joined": lambda s: TextNode(
            text="a",
            id_="1",
            metadata={"nora": "@" + s.text.partition("@")[2] if "@" in s.text else "no"},
            metadata_template="{key}{value}",
        ),
        "template": lambda s: TextNode(
            text="a", id_="1", metadata={"a": 1}, text_template=s.text + "{content}"
        ),
        "metadata template": lambda s: TextNode(
            text="a", id_="1", metadata={"a": 1}, metadata_template=s.text
        ),
        "separator": lambda s: TextNode(
            text="a", id_="1", metadata={"a": 1, "b": 2}, metadata_separator=s.text
        ),
        "excluded keys": lambda s: TextNode(text="a", id_="1", excluded_llm_metadata_keys=[s.text]),
        "excluded metadata": lambda s: TextNode(
            text="a", id_="1", metadata={"m": s.text}, excluded_llm_metadata_keys=["m"]
        ),
        "id": lambda s: TextNode(text="a", id_=f"node-{s.text}"),
        "mimetype": lambda s: TextNode(text="a", id_="1", mimetype=s.text),
        "neighbour's metadata": lambda s: TextNode(
            text="a",
            id_="1",
            relationships={NodeRelationship.NEXT: RelatedNodeInfo(node_id="2", metadata={"m": s.text})},
        ),
        "source's id": lambda s: TextNode(
            text="a",
            id_="1",
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{s.text}")},
        ),
        "children": lambda s: TextNode(
            text="a",
            id_="1",
            relationships={
                NodeRelationship.CHILD: [RelatedNodeInfo(node_id="2", metadata={"card": s.number})]
            },
        ),
        "document": lambda s: Document(text=s.text, id_="1"),
        "document's path": lambda s: Document(
            text_resource=MediaResource(text="a", path=f"/home/{s.text}/x.txt"), id_="1"
        ),
        "document's address": lambda s: Document(
            text_resource=MediaResource(text="a", url=f"https://x/?q={s.text}"), id_="1"
        ),
        "document's kind": lambda s: Document(
            text_resource=MediaResource(text="a", mimetype=s.text), id_="1"
        ),
        "node": lambda s: Node(text_resource=MediaResource(text=s.text), id_="1"),
        "index node's id": lambda s: IndexNode(text="a", index_id=s.text, id_="1"),
        "index node": lambda s: IndexNode(text=s.text, index_id="x", id_="1"),
        "fields of its own": lambda s: _extended(s),
    },
)


class OwnNode(TextNode):
    """A node with a field of a program's own."""

    owner: str = ""


def _extended(secret: Secret) -> Any:
    return OwnNode(text="a", id_="1", owner=secret.text)


NODES += shapes(
    "nodes",
    {
        "scored": lambda s: [NodeWithScore(node=TextNode(text=s.text, id_="1"), score=0.5)],
        "two, one clean": lambda s: [
            NodeWithScore(node=TextNode(text="a", id_="1"), score=0.5),
            NodeWithScore(node=TextNode(text=s.text, id_="2"), score=0.25),
        ],
    },
)
