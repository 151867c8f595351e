"""Query engines and retrievers whose answers are verified: what `verified_tool` puts in the place of a tool's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.response.schema import AsyncStreamingResponse, StreamingResponse
from llama_index.core.prompts.mixin import PromptDictType, PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.llms.nco_guard.cleaning import ResponseCleaner
from llama_index.llms.nco_guard.nodes import clean_node

from nco_guard.values import Role

__all__ = ["VerifiedQueryEngine", "VerifiedRetriever", "clean_answer"]


def clean_answer(answer: Any, cleaner: ResponseCleaner) -> Any:
    """What an engine answered: its text, now or as it streams, its metadata and its sources."""
    if isinstance(answer, StreamingResponse | AsyncStreamingResponse):
        inside, now = cleaner.inside, isinstance(answer, StreamingResponse)
        kind: Any = StreamingResponse if now else AsyncStreamingResponse
        through: Any = inside.through if now else inside.athrough
        clean = kind(
            response_gen=through(answer.response_gen, cleaner.values.stream(Role.TEXT)),
            source_nodes=answer.source_nodes,
            metadata=cleaner.values.value(answer.metadata),
            response_txt=cleaner.values.value(answer.response_txt),
        )
    else:
        clean = cleaner.values.value(answer)
    if nodes := getattr(clean, "source_nodes", None):
        clean.source_nodes = clean_nodes(nodes, cleaner)
    return clean


def clean_nodes(nodes: Sequence[NodeWithScore], cleaner: ResponseCleaner) -> list[NodeWithScore]:
    """Retrieved nodes, and what LlamaIndex renders of them."""
    return [NodeWithScore(node=clean_node(one.node, cleaner.values), score=one.score) for one in nodes]


class _Prompts:
    """Prompts are those of what is inside."""

    _inner: Any

    def _get_prompts(self) -> PromptDictType:
        found: PromptDictType = self._inner.get_prompts()
        return found

    def _get_prompt_modules(self) -> PromptMixinType:
        return {}

    def _update_prompts(self, prompts: PromptDictType) -> None:
        self._inner.update_prompts(prompts)


class VerifiedQueryEngine(_Prompts, BaseQueryEngine):
    """An engine whose answers, sources and errors are verified, and whose doings nobody observes before."""

    def __init__(self, engine: BaseQueryEngine, cleaner: ResponseCleaner) -> None:
        super().__init__(callback_manager=engine.callback_manager)
        self._inner, self._cleaner = engine, cleaner

    def _answer(self, answer: Any) -> Any:
        return clean_answer(answer, self._cleaner)

    def _query(self, query_bundle: QueryBundle) -> Any:
        return self._answer(self._cleaner.inside.call(self._inner.query, query_bundle))

    async def _aquery(self, query_bundle: QueryBundle) -> Any:
        return self._answer(await self._cleaner.inside.acall(self._inner.aquery, query_bundle))

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """The nodes that an answer would be made of."""
        return clean_nodes(self._cleaner.inside.call(self._inner.retrieve, query_bundle), self._cleaner)

    async def aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """The nodes that an answer would be made of, for an event loop."""
        found = await self._cleaner.inside.acall(self._inner.aretrieve, query_bundle)
        return clean_nodes(found, self._cleaner)

    def synthesize(self, *args: Any, **kwargs: Any) -> Any:
        """An answer made of nodes."""
        return self._answer(self._cleaner.inside.call(self._inner.synthesize, *args, **kwargs))

    async def asynthesize(self, *args: Any, **kwargs: Any) -> Any:
        """An answer made of nodes, for an event loop."""
        return self._answer(await self._cleaner.inside.acall(self._inner.asynthesize, *args, **kwargs))


class VerifiedRetriever(_Prompts, BaseRetriever):
    """A retriever whose nodes and errors are verified, and whose doings nobody observes before."""

    def __init__(self, retriever: BaseRetriever, cleaner: ResponseCleaner) -> None:
        super().__init__(callback_manager=retriever.callback_manager)
        self._inner, self._cleaner = retriever, cleaner

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return clean_nodes(self._cleaner.inside.call(self._inner.retrieve, query_bundle), self._cleaner)

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        found = await self._cleaner.inside.acall(self._inner.aretrieve, query_bundle)
        return clean_nodes(found, self._cleaner)
