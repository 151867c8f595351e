"""What the guard adds to a call through LangChain or LlamaIndex, on the model that ships.

    python benchmarks/overhead.py langchain
    python benchmarks/overhead.py llama-index

LangChain: `HuggingFacePipeline`, bare, beside `GuardedPipeline`; a hosted model's stream beside `VerifiedChatModel`'s.
LlamaIndex: `HuggingFaceLLM`, bare, beside `NCOGuardLLM`.

The model has two million parameters, so this is the worst case: a real one spends a hundred times longer on each token.
All write the same number of tokens (end-of-sequence is suppressed); times are processor time, threads included, the
best of several rounds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from nco_guard import Policy
from nco_guard.demo import load

TOKENS = 64
ROUNDS = 15
PROMPT = "Dear team,\n\nI am writing about order"
POLICIES = {
    "pii": Policy.from_presets("pii"),
    "pii, secrets, ldnoobw": Policy.from_presets("pii", "secrets", "ldnoobw"),
}
ANSWER = "We have shipped your order, and it will arrive on Tuesday at the address that you gave us. " * 10
PIECE = 4


def milliseconds(models: Mapping[str, Any], *calls: Callable[[Any], object]) -> list[list[float]]:
    """The best round of each call of each model; all in turn, so what else the machine does falls on all alike."""
    best = [[float("inf")] * len(calls) for _ in models]
    for _ in range(ROUNDS + 1):  # in the first, tables and caches fill up
        for place, model in enumerate(models.values()):
            for way, call in enumerate(calls):
                begun = time.process_time()
                call(model)
                best[place][way] = min(best[place][way], 1000 * (time.process_time() - begun))
    return best


def show(llms: Mapping[str, Any], whole: Callable[[Any], object], streamed: Callable[[Any], object]) -> None:
    """Measure models that write, by both of their ways."""
    print(f"{TOKENS} tokens, one thread, best of {ROUNDS}")
    for name, (at_once, in_pieces) in zip(llms, milliseconds(llms, whole, streamed), strict=True):
        print(
            f"{name:40} whole {at_once:7.1f} ms   streamed {in_pieces:7.1f} ms   {at_once / TOKENS:5.2f} ms a token"
        )


def langchain() -> None:
    """Models in this process, and a hosted one."""
    from langchain_core.messages import AIMessage
    from langchain_huggingface import HuggingFacePipeline
    from transformers import pipeline

    from langchain_nco_guard import GuardedPipeline, VerifiedChatModel
    from langchain_nco_guard.testing import ScriptedChatModel

    model, tokenizer = load()
    pipe = pipeline(
        "text-generation",
        model=model,
        tokenizer=tokenizer,
        max_new_tokens=TOKENS,
        do_sample=False,
        suppress_tokens=[tokenizer.eos_token_id],
    )
    guarded = {f"GuardedPipeline, {n}": GuardedPipeline(pipeline=pipe, guard=p) for n, p in POLICIES.items()}
    show(
        {"HuggingFacePipeline": HuggingFacePipeline(pipeline=pipe), **guarded},
        lambda llm: llm.invoke(PROMPT),
        lambda llm: list(llm.stream(PROMPT)),
    )
    hosted = ScriptedChatModel(script=[AIMessage(ANSWER)], size=PIECE)
    chats: dict[str, Any] = {"a hosted model": hosted}
    chats |= {f"VerifiedChatModel, {n}": VerifiedChatModel.over(hosted, p) for n, p in POLICIES.items()}
    for name, (took,) in zip(chats, milliseconds(chats, lambda chat: list(chat.stream(PROMPT))), strict=True):
        each = took * PIECE / len(ANSWER)
        print(f"{name:40} streamed {took:7.1f} ms   {each:5.2f} ms a piece of {PIECE} characters")


def llama_index() -> None:
    """Models in this process."""
    from llama_index.llms.huggingface import HuggingFaceLLM
    from llama_index.llms.nco_guard import NCOGuardLLM

    model, tokenizer = load()
    bare = HuggingFaceLLM(
        model=model,
        tokenizer=tokenizer,
        context_window=1024,
        max_new_tokens=TOKENS,
        generate_kwargs={"suppress_tokens": [tokenizer.eos_token_id], "do_sample": False},
    )
    guarded = {
        f"NCOGuardLLM, {n}": NCOGuardLLM.from_huggingface_llm(bare, guard=p) for n, p in POLICIES.items()
    }
    show(
        {"HuggingFaceLLM": bare, **guarded},
        lambda llm: llm.complete(PROMPT, formatted=True),
        lambda llm: list(llm.stream_complete(PROMPT, formatted=True)),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    ways = {"langchain": langchain, "llama-index": llama_index}
    if sys.argv[1:] not in [[name] for name in ways]:
        raise SystemExit(f"usage: python benchmarks/overhead.py {'|'.join(ways)}")
    ways[sys.argv[1]]()
