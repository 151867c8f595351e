"""How LlamaIndex's types are read by `nco_guard.values`: messages, blocks, tools, nodes, answers.

Fields that are not named are read as any value. Importing this registers them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from llama_index.core.base.llms.types import (
    AudioBlock,
    BaseContentBlock,
    CachePoint,
    ChatMessage,
    ChatResponse,
    CitableBlock,
    CitationBlock,
    CompletionResponse,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    VideoBlock,
)
from llama_index.core.base.response.schema import AsyncStreamingResponse, Response, StreamingResponse
from llama_index.core.bridge.pydantic import BaseModel
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.schema import (
    BaseNode,
    Document,
    ImageDocument,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.tools.types import ToolOutput

from nco_guard.values import Role, register

__all__ = ["MEDIA", "UNSEARCHABLE"]

MEDIA = (ImageBlock, AudioBlock, VideoBlock, DocumentBlock)
"""Blocks that cannot be looked into."""
UNSEARCHABLE = (
    "image",
    "image_path",
    "image_url",
    "image_resource",
    "audio_resource",
    "video_resource",
    "obj",
)
"""Fields of nodes that cannot be looked into."""


def _anew(value: BaseModel, changed: Mapping[str, Any]) -> Any:
    """A copy with other fields; an embedding is that of the text before, and goes."""
    vectors = [
        name for name in ("embedding", "embeddings", "text_embedding") if name in type(value).model_fields
    ]
    return value.model_copy(update={**dict.fromkeys(vectors), **changed})


def _resource(value: MediaResource, changed: Mapping[str, Any]) -> MediaResource:
    """A copy of a resource with other fields, which keep their types: an address that matches goes, as may a path."""
    fitting = dict(changed)
    if isinstance(path := fitting.get("path"), str):
        fitting["path"] = Path(path)
    if "url" in fitting:
        fitting["url"] = None
    copy: MediaResource = _anew(value, fitting)
    return copy


_KEEP, _DROP = Role.KEEP, Role.DROP

register(BaseContentBlock, {"block_type": _KEEP})
register(TextBlock, {"text": Role.TEXT})
register(ThinkingBlock, {"content": Role.TEXT, "num_tokens": _KEEP})
register(ToolCallBlock, {"tool_call_id": Role.IDENTIFIER, "tool_name": Role.NAME, "tool_kwargs": Role.JSON})
register(CitableBlock, {"content": Role.BLOCKS})
register(CitationBlock, {"additional_location_info": Role.VALUE})
register(CachePoint, {"cache_control": _KEEP})
for _block in MEDIA:
    register(_block, dict.fromkeys(_block.model_fields, Role.MEDIA))
register(ChatMessage, {"role": _KEEP, "blocks": Role.BLOCKS})
register(ToolSelection, {"tool_id": Role.IDENTIFIER, "tool_name": Role.NAME, "tool_kwargs": Role.JSON})
register(ToolOutput, {"tool_name": Role.NAME, "blocks": Role.BLOCKS, "is_error": _KEEP})

_ANSWER = {"logprobs": _DROP, "raw": Role.METADATA, "additional_kwargs": Role.METADATA}
register(ChatResponse, {"delta": Role.TEXT, **_ANSWER})
register(CompletionResponse, {"text": Role.TEXT, "delta": Role.TEXT, **_ANSWER})
register(Response, {"response": Role.TEXT})
for _streaming in (StreamingResponse, AsyncStreamingResponse):
    register(_streaming, {"response_gen": _KEEP, "response_txt": Role.TEXT, "_lock": _KEEP})

register(BaseNode, {"id_": Role.IDENTIFIER, "embedding": _KEEP}, rebuild=_anew)
register(TextNode, {"text": Role.TEXT, "start_char_idx": _KEEP, "end_char_idx": _KEEP}, rebuild=_anew)
register(Node, {"image_resource": _DROP, "audio_resource": _DROP, "video_resource": _DROP}, rebuild=_anew)
register(
    ImageNode,
    {"image": _DROP, "image_path": _DROP, "image_url": _DROP, "text_embedding": _KEEP},
    rebuild=_anew,
)
for _document in (Document, ImageDocument):  # which print themselves in a way of their own
    register(_document, {})
register(IndexNode, {"index_id": Role.IDENTIFIER, "obj": _DROP}, rebuild=_anew)
register(MediaResource, {"text": Role.TEXT, "data": _DROP, "embeddings": _KEEP}, rebuild=_resource)
register(RelatedNodeInfo, {"node_id": Role.IDENTIFIER, "hash": Role.IDENTIFIER, "node_type": _KEEP})
register(NodeWithScore, {"score": _KEEP})
