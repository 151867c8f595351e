"""What the guard adds to a call through LangChain: `HuggingFacePipeline`, bare, and `GuardedPipeline`, on the shipped
model; and what `VerifiedChatModel` adds to a hosted model's stream.

    python benchmarks/langchain_overhead.py

The model has two million parameters, so this is the worst case: a real one spends a hundred times longer on each token.
Both write the same number of tokens (end-of-sequence is suppressed); times are processor time, threads included,
the best of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from langchain_core.language_models import BaseChatModel, BaseLLM
from langchain_core.messages import AIMessage
from langchain_huggingface import HuggingFacePipeline
from transformers import pipeline

from langchain_nco_guard import GuardedPipeline, VerifiedChatModel
from langchain_nco_guard.testing import ScriptedChatModel
from nco_guard import Policy
from nco_guard.demo import load

TOKENS = 64
ROUNDS = 15
PROMPT = "Dear team,\n\nI am writing about order"
POLICIES = {"pii": ["pii"], "pii, secrets, ldnoobw": ["pii", "secrets", "ldnoobw"]}
ANSWER = "We have shipped your order, and it will arrive on Tuesday at the address that you gave us. " * 10


def invoke(llm: BaseLLM) -> None:
    llm.invoke(PROMPT)


def stream(llm: BaseLLM) -> None:
    for _ in llm.stream(PROMPT):
        pass


def chat(model: BaseChatModel) -> None:
    for _ in model.stream(PROMPT):
        pass


def milliseconds(route: Callable[[Any], None], models: Iterable[Any]) -> list[float]:
    """The best round of each, the rounds of all taken in turn: what else the machine does falls on all alike."""
    models = list(models)
    best = [float("inf")] * len(models)
    for _ in range(ROUNDS + 1):  # in the first, tables and caches fill up
        for place, model in enumerate(models):
            begun = time.process_time()
            route(model)
            best[place] = min(best[place], time.process_time() - begun)
    return [1000 * seconds for seconds in best]


def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = load()
    pipe = pipeline(
        "text-generation",
        model=model,
        tokenizer=tokenizer,
        max_new_tokens=TOKENS,
        do_sample=False,
        suppress_tokens=[tokenizer.eos_token_id],
    )
    llms: dict[str, BaseLLM] = {"HuggingFacePipeline": HuggingFacePipeline(pipeline=pipe)}
    for name, presets in POLICIES.items():
        llms[f"GuardedPipeline, {name}"] = GuardedPipeline(pipeline=pipe, guard=Policy.from_presets(*presets))
    print(f"{TOKENS} tokens, one thread, best of {ROUNDS}")
    whole, streamed = milliseconds(invoke, llms.values()), milliseconds(stream, llms.values())
    for name, at_once, piecewise in zip(llms, whole, streamed, strict=True):
        print(
            f"{name:40} invoke {at_once:7.1f} ms   stream {piecewise:7.1f} ms   per token {at_once / TOKENS:5.2f} ms"
        )
    hosted = ScriptedChatModel(script=[AIMessage(ANSWER)], size=4)
    models: dict[str, BaseChatModel] = {"a hosted model's stream": hosted}
    for name, presets in POLICIES.items():
        models[f"VerifiedChatModel, {name}"] = VerifiedChatModel.over(hosted, Policy.from_presets(*presets))
    pieces = len(ANSWER) / 4
    for name, took in zip(models, milliseconds(chat, models.values()), strict=True):
        print(f"{name:40} stream {took:7.1f} ms   per piece of 4 characters {took / pieces:5.2f} ms")


if __name__ == "__main__":
    main()
