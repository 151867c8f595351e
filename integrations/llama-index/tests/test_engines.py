"""Query engines and chat engines over an index full of personal data: what the user receives keeps the policy."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import Document, SummaryIndex, VectorStoreIndex
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.query_engine import (
    CitationQueryEngine,
    SubQuestionQueryEngine,
    TransformQueryEngine,
)
from llama_index.core.question_gen.types import BaseQuestionGenerator, SubQuestion
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.schema import MetadataMode
from llama_index.core.tools import QueryEngineTool
from llama_index.llms.nco_guard import NCOGuardLLM, NCOGuardPostprocessor

from nco_guard import Policy

pytestmark = pytest.mark.anyio
Keeps = Any
ASK = "What contact details do we have for Maria Lopez?"
DOCUMENTS = [
    Document(
        text="Maria Lopez can be reached at maria.lopez@example.com or 503-555-0123.",
        metadata={"file": "crm.txt", "owner": "jane.doe@example.com"},
        id_="one",
    ),
    Document(
        text="The card 4111 1111 1111 1111 was used by Daniel Cohen.", metadata={"file": "pay.txt"}, id_="two"
    ),
]


@pytest.fixture(scope="module")
def index() -> VectorStoreIndex:
    return VectorStoreIndex.from_documents(DOCUMENTS, embed_model=MockEmbedding(embed_dim=4))


@pytest.fixture
def postprocessor(policy: Policy) -> NCOGuardPostprocessor:
    return NCOGuardPostprocessor(policy)


@pytest.mark.parametrize("mode", [ResponseMode.COMPACT, ResponseMode.REFINE, ResponseMode.TREE_SUMMARIZE])
def test_a_query_engine_answers_within_the_policy(
    index: VectorStoreIndex,
    llm: NCOGuardLLM,
    postprocessor: NCOGuardPostprocessor,
    keeps: Keeps,
    mode: ResponseMode,
) -> None:
    engine = index.as_query_engine(llm=llm, node_postprocessors=[postprocessor], response_mode=mode)
    answer = engine.query(ASK)
    assert keeps([answer.response])
    assert len(answer.source_nodes) == 2
    for node in answer.source_nodes:
        related = [info.metadata for info in node.node.relationships.values()]
        keeps([node.get_content(MetadataMode.ALL), str(node.metadata), str(related)])


def test_a_streaming_query_engine_never_shows_a_match(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps
) -> None:
    engine = index.as_query_engine(llm=llm, node_postprocessors=[postprocessor], streaming=True)
    chunks = list(engine.query(ASK).response_gen)
    assert len(chunks) > 3
    assert keeps(chunks) == engine.query(ASK).get_response().response


async def test_the_async_query_engine_does_the_same(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps
) -> None:
    engine = index.as_query_engine(llm=llm, node_postprocessors=[postprocessor])
    assert keeps([(await engine.aquery(ASK)).response]) == engine.query(ASK).response
    streaming = index.as_query_engine(
        llm=llm, node_postprocessors=[postprocessor], streaming=True, use_async=True
    )
    answer = await streaming.aquery(ASK)
    assert keeps([chunk async for chunk in answer.async_response_gen()])


def test_the_answer_keeps_the_policy_even_where_nobody_redacts_what_was_retrieved(
    index: VectorStoreIndex, llm: NCOGuardLLM, keeps: Keeps
) -> None:
    """The model reads the address; it cannot write it. The source nodes then show it, as `docs/llama-index.md` says."""
    answer = index.as_query_engine(llm=llm).query("Repeat: maria.lopez@example.com")
    keeps([answer.response])
    assert any("@example.com" in node.text for node in answer.source_nodes)


def test_the_index_keeps_its_own_text(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor
) -> None:
    index.as_query_engine(llm=llm, node_postprocessors=[postprocessor]).query(ASK)
    kept = index.docstore.get_nodes([*index.docstore.docs])
    assert any("maria.lopez@example.com" in node.get_content() for node in kept)


CHAT_ENGINES = {
    "simple": lambda index, llm, post: SimpleChatEngine.from_defaults(llm=llm),
    "context": lambda index, llm, post: ContextChatEngine.from_defaults(
        retriever=index.as_retriever(), llm=llm, node_postprocessors=[post]
    ),
    "condense_plus_context": lambda index, llm, post: CondensePlusContextChatEngine.from_defaults(
        retriever=index.as_retriever(), llm=llm, node_postprocessors=[post]
    ),
    "condense_question": lambda index, llm, post: CondenseQuestionChatEngine.from_defaults(
        query_engine=index.as_query_engine(llm=llm, node_postprocessors=[post], streaming=False), llm=llm
    ),
}


@pytest.mark.parametrize("name", CHAT_ENGINES)
def test_chat_engines_keep_the_policy(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps, name: str
) -> None:
    engine = CHAT_ENGINES[name](index, llm, postprocessor)
    assert keeps([engine.chat(ASK).response])
    assert keeps([engine.chat("And for Daniel Cohen?").response])
    for message in engine.chat_history:
        if message.role.value == "assistant":
            keeps([message.content])


@pytest.mark.parametrize("name", ["simple", "context", "condense_plus_context"])
def test_chat_engines_stream_within_the_policy(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps, name: str
) -> None:
    engine = CHAT_ENGINES[name](index, llm, postprocessor)
    chunks = list(engine.stream_chat(ASK).response_gen)
    assert len(chunks) > 3
    assert keeps(chunks)


@pytest.mark.parametrize("name", ["simple", "context", "condense_plus_context"])
async def test_async_chat_engines_keep_the_policy(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps, name: str
) -> None:
    engine = CHAT_ENGINES[name](index, llm, postprocessor)
    assert keeps([(await engine.achat(ASK)).response])
    engine.reset()
    answer = await engine.astream_chat(ASK)
    assert keeps([chunk async for chunk in answer.async_response_gen()])


def test_an_error_of_the_model_reaches_who_asked(
    index: VectorStoreIndex, llm: NCOGuardLLM, pair: tuple[Any, Any]
) -> None:
    """At once; LlamaIndex's own HuggingFaceLLM leaves its reader waiting."""
    broken = llm.with_guard(llm.guard)
    broken.generate_kwargs = {"logits_processor": [_fails]}
    for streaming in (False, True):
        engine = index.as_query_engine(llm=broken, streaming=streaming)
        with pytest.raises(ZeroDivisionError):
            list(engine.query(ASK).response_gen) if streaming else engine.query(ASK)


def _fails(input_ids: Any, scores: Any) -> Any:
    if input_ids.shape[1] % 3 == 0:
        raise ZeroDivisionError
    return scores


def test_a_summary_index_works_too(
    llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps
) -> None:
    index = SummaryIndex.from_documents(DOCUMENTS)
    assert keeps([index.as_query_engine(llm=llm, node_postprocessors=[postprocessor]).query(ASK).response])


class TwoQuestions(BaseQuestionGenerator):
    """Asks the same two things whatever is asked: to split a question takes more wit than the shipped model has."""

    def generate(self, tools: Any, query: Any) -> list[SubQuestion]:
        return [
            SubQuestion(sub_question=ask, tool_name=tools[0].name) for ask in (ASK, "Which card was used?")
        ]

    async def agenerate(self, tools: Any, query: Any) -> list[SubQuestion]:
        return self.generate(tools, query)

    def _get_prompts(self) -> dict[str, Any]:
        return {}

    def _update_prompts(self, prompts: Any) -> None:
        pass


@pytest.mark.parametrize("use_async", [False, True])
def test_an_engine_that_asks_several_questions_keeps_the_policy_in_each_answer(
    index: VectorStoreIndex,
    llm: NCOGuardLLM,
    postprocessor: NCOGuardPostprocessor,
    keeps: Keeps,
    use_async: bool,
) -> None:
    tool = QueryEngineTool.from_defaults(
        index.as_query_engine(llm=llm, node_postprocessors=[postprocessor]), name="crm", description="CRM."
    )
    engine = SubQuestionQueryEngine.from_defaults(
        [tool], llm=llm, question_gen=TwoQuestions(), use_async=use_async, verbose=False
    )
    answer = engine.query("Tell me all about Maria Lopez and the card.")
    assert keeps([answer.response])
    asked = [node.get_content() for node in answer.source_nodes if "Sub question" in node.get_content()]
    assert len(asked) == 2
    for node in answer.source_nodes:
        keeps([node.get_content(MetadataMode.ALL)])


def test_citations_and_hypothetical_answers_keep_the_policy(
    index: VectorStoreIndex, llm: NCOGuardLLM, postprocessor: NCOGuardPostprocessor, keeps: Keeps
) -> None:
    cited = CitationQueryEngine.from_args(index, llm=llm, node_postprocessors=[postprocessor]).query(ASK)
    assert keeps([cited.response])
    hypothesis = HyDEQueryTransform(llm=llm).run(ASK)
    assert keeps([hypothesis.embedding_strs[0]])
    engine = index.as_query_engine(llm=llm, node_postprocessors=[postprocessor])
    assert keeps([TransformQueryEngine(engine, HyDEQueryTransform(llm=llm)).query(ASK).response])
