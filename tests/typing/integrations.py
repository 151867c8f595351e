"""The ways that the pages of LangChain and LlamaIndex show, as a user's type checker sees them; see `api.py`.

Only pyright reads this one: mypy is told to pass over transformers, on which the integrations' classes stand.
"""

from __future__ import annotations

from typing import Any, assert_type

from langchain.agents import create_agent  # pyright: ignore[reportUnknownVariableType]
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableLambda
from llama_index.core.base.llms.types import ChatMessage, ChatResponse, CompletionResponse
from llama_index.core.llms import LLM
from llama_index.core.tools import AsyncBaseTool
from llama_index.llms import nco_guard as llama

from langchain_nco_guard import (
    ChatNCOGuard,
    GuardedPipeline,
    NCOGuardAuditHandler,
    NCOGuardMiddleware,
    VerifiedChatModel,
    guard_runnable,
    report_runnable,
)
from langchain_nco_guard.runnables import GuardRunnable, ReportRunnable
from nco_guard import Guard, Policy
from nco_guard.audit import MemorySink


def chat_models(model: Any, tokenizer: Any, guard: Guard, policy: Policy, pipe: Any) -> None:
    chat = ChatNCOGuard(
        model=model, tokenizer=tokenizer, guard=policy, max_tokens=40, temperature=0, stop=["END"]
    )
    assert_type(chat.invoke("Hello"), AIMessage)
    assert_type(chat.invoke("Hello", guard=policy), AIMessage)
    for chunk in chat.stream("Hello"):
        assert_type(chunk.content, str | list[str | dict[Any, Any]])
    assert_type(ChatNCOGuard.from_pipeline(pipe, guard, max_tokens=24, tags=["a"]), ChatNCOGuard)
    ChatNCOGuard.from_pipeline(pipe, guard, max_new_tokens=24)  # pyright: ignore[reportCallIssue]
    ChatNCOGuard(model=model, guard=policy, max_new_tokens=24)  # pyright: ignore[reportCallIssue]
    llm = GuardedPipeline(pipeline=pipe, guard=policy)
    assert_type(llm.invoke("Hello"), str)
    loaded = GuardedPipeline.from_model_id("path", guard=policy, pipeline_kwargs={"max_new_tokens": 24})
    assert_type(loaded, GuardedPipeline)
    GuardedPipeline.from_model_id("path")  # pyright: ignore[reportCallIssue]


def chains(
    hosted: BaseChatModel, guard: Guard, policy: Policy, retriever: RunnableLambda[str, list[Document]]
) -> None:
    verified = VerifiedChatModel.over(hosted, policy, action="redact", max_retries=1)
    assert_type(verified, VerifiedChatModel)
    VerifiedChatModel.over(hosted, policy, action="hide")  # pyright: ignore[reportArgumentType]
    VerifiedChatModel.over(hosted, policy, on_match="raise")  # pyright: ignore[reportCallIssue]
    step = guard_runnable(guard, action="redact", replacement="***")
    assert_type(step, GuardRunnable)
    assert_type(report_runnable(guard), ReportRunnable)
    safe: Runnable[str, Any] = retriever | step
    safe.invoke("Maria?")
    guard_runnable(guard, replace="***")  # pyright: ignore[reportCallIssue]
    create_agent(hosted, middleware=[NCOGuardMiddleware(policy)])
    hosted.invoke("Hello", config={"callbacks": [NCOGuardAuditHandler(guard, MemorySink())]})


def llms(policy: Policy, inner: LLM, tool: AsyncBaseTool, local: Any) -> None:
    llm = llama.NCOGuardLLM("my-model", guard=policy, max_new_tokens=48, system_prompt="Be brief.")
    assert_type(llm.complete("Hello"), CompletionResponse)
    assert_type(llm.chat([ChatMessage(role="user", content="Hello")], guard=policy), ChatResponse)
    assert_type(llm.with_guard(policy), llama.NCOGuardLLM)
    guarded = llama.NCOGuardLLM.from_huggingface_llm(local, guard=policy, context_window=512)
    assert_type(guarded, llama.NCOGuardLLM)
    llama.NCOGuardLLM("my-model", guard=policy, max_tokens=48)  # pyright: ignore[reportCallIssue]
    llama.NCOGuardLLM("my-model")  # pyright: ignore[reportCallIssue]
    assert_type(llama.VerifiedLLM(inner, guard=policy, action="redact"), llama.VerifiedLLM)
    llama.VerifiedLLM(inner, guard=policy, action="hide")  # pyright: ignore[reportArgumentType]
    assert_type(llama.verified_tool(tool, policy), AsyncBaseTool)
    llama.NCOGuardPostprocessor(policy)
    llama.NCOGuardAuditHandler(policy, MemorySink())
    assert_type(llama.NCOGuardOutputParser(policy, action="redact").parse("text"), Any)
