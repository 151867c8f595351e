"""Suite `overhead`: what the guard adds to a call through LangChain or LlamaIndex, on the model that ships.

LangChain: `HuggingFacePipeline`, bare, beside `GuardedPipeline`; a hosted model's stream beside `VerifiedChatModel`'s.
LlamaIndex: `HuggingFaceLLM`, bare, beside `NCOGuardLLM`.

The model has two million parameters, so this is the worst case: a real one spends a hundred times longer on each token.
All write the same number of tokens (end-of-sequence is suppressed); times are processor time, threads included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from benchmarks.errors import MissingPackageError
from benchmarks.harness.plan import Plan, Samples, case_of
from benchmarks.harness.record import Record
from benchmarks.harness.render import figure, first, ratio, section
from benchmarks.harness.timing import in_turns
from benchmarks.inputs.constraints import PII, PRESETS, ConstraintSet
from benchmarks.methods.world import BASE
from nco_guard.demo import load

__all__ = ["FRAMEWORKS", "langchain", "llama_index", "measure", "show"]

TOKENS = 64
PROMPT = "Dear team,\n\nI am writing about order"
GUARDS: dict[str, ConstraintSet] = {each.name: each for each in (PII, PRESETS)}
NAMES = (BASE, *GUARDS)
ANSWER = "We have shipped your order, and it will arrive on Tuesday at the address that you gave us. " * 10
PIECE = 4
LLAMA_INDEX = "-e 'integrations/llama-index[huggingface]'"

Calls = Mapping[str, Callable[[Any], object]]


def measure(plan: Plan) -> None:
    """All frameworks that are installed."""
    for name, work in FRAMEWORKS.items():
        plan.say(f"overhead: {name}")
        cases = {
            key: case_of("overhead", key if key == BASE else "ours", GUARDS.get(key), plan.world, model=name)
            for key in NAMES
        }
        plan.together(cases, plan.bounds(5.0), work, 3 * plan.options.repeats)


def _times(models: Mapping[str, Any], calls: Calls, rounds: int) -> dict[str, Samples]:
    """Each call of each model; all in turn, so what else the machine does falls on all alike."""
    torch.set_num_threads(1)
    found: dict[str, Samples] = {name: {} for name in models}
    for figure_of, call in calls.items():
        turns = {name: partial(call, model) for name, model in models.items()}
        for name, seconds in in_turns(turns, rounds).items():
            found[name][figure_of] = seconds
    return found


def langchain(rounds: int) -> dict[str, Samples]:
    """Models in this process. Raises `MissingPackageError` without the packages."""
    try:
        from langchain_huggingface import HuggingFacePipeline
        from transformers import pipeline

        from langchain_nco_guard import GuardedPipeline
    except ImportError as error:
        raise MissingPackageError("this", "langchain-nco-guard", "-e integrations/langchain") from error
    model, tokenizer = load()
    pipe = pipeline(
        "text-generation",
        model=model,
        tokenizer=tokenizer,
        max_new_tokens=TOKENS,
        do_sample=False,
        suppress_tokens=[tokenizer.eos_token_id],
    )
    guarded = {name: GuardedPipeline(pipeline=pipe, guard=each.policy) for name, each in GUARDS.items()}
    calls: Calls = {
        "whole_s": lambda llm: llm.invoke(PROMPT),
        "streamed_s": lambda llm: list(llm.stream(PROMPT)),
    }
    return _times({BASE: HuggingFacePipeline(pipeline=pipe), **guarded}, calls, rounds)


def hosted(rounds: int) -> dict[str, Samples]:
    """A hosted model's stream in pieces of four characters. Raises `MissingPackageError` without the packages."""
    try:
        from langchain_core.messages import AIMessage

        from langchain_nco_guard import VerifiedChatModel
        from langchain_nco_guard.testing import ScriptedChatModel
    except ImportError as error:
        raise MissingPackageError("this", "langchain-nco-guard", "-e integrations/langchain") from error
    bare = ScriptedChatModel(script=[AIMessage(ANSWER)], size=PIECE)
    models: dict[str, Any] = {BASE: bare}
    models |= {name: VerifiedChatModel.over(bare, each.policy) for name, each in GUARDS.items()}
    return _times(models, {"streamed_s": lambda chat: list(chat.stream(PROMPT))}, rounds)


def llama_index(rounds: int) -> dict[str, Samples]:
    """Models in this process. Raises `MissingPackageError` without the packages."""
    try:
        from llama_index.llms.huggingface import HuggingFaceLLM
        from llama_index.llms.nco_guard import NCOGuardLLM
    except ImportError as error:
        raise MissingPackageError("this", "llama-index-llms-nco-guard", LLAMA_INDEX) from error
    model, tokenizer = load()
    bare = HuggingFaceLLM(
        model=model,
        tokenizer=tokenizer,
        context_window=1024,
        max_new_tokens=TOKENS,
        generate_kwargs={"suppress_tokens": [tokenizer.eos_token_id], "do_sample": False},
    )
    guarded = {
        name: NCOGuardLLM.from_huggingface_llm(bare, guard=each.policy) for name, each in GUARDS.items()
    }
    calls: Calls = {
        "whole_s": lambda llm: llm.complete(PROMPT, formatted=True),
        "streamed_s": lambda llm: list(llm.stream_complete(PROMPT, formatted=True)),
    }
    return _times({BASE: bare, **guarded}, calls, rounds)


FRAMEWORKS: dict[str, Callable[[int], dict[str, Samples]]] = {
    "LangChain": langchain,
    "LangChain, hosted": hosted,
    "LlamaIndex": llama_index,
}


def show(record: Record) -> str:
    """A row for each framework and policy."""
    found = record.find("overhead")
    rows = []
    for m in found:
        base = first(found, model=m.case.model, method=BASE)
        cells = [m.case.model, m.case.constraint or BASE]
        for name in ("whole_s", "streamed_s"):
            cells += [figure(m, name, best=True), ratio(m, base, name)]
        rows.append(cells)
    header = ("framework", "policy", "whole", "x unguarded", "streamed", "x unguarded")
    told = f"{TOKENS} tokens ({len(ANSWER):,} characters of a hosted model), one thread, the least of all rounds."
    return section("## Through a framework", told, header, rows, found)
