"""What the guard adds to a call through LlamaIndex: `HuggingFaceLLM`, bare, and `NCOGuardLLM`, on the model that ships.

    python benchmarks/llama_index_overhead.py

The model has two million parameters, so this is the worst case: a real one spends a hundred times longer on each token.
Both write the same number of tokens (end-of-sequence is suppressed); times are processor time, threads included,
the best of several rounds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import torch
from llama_index.core.llms import LLM
from llama_index.llms.huggingface import HuggingFaceLLM
from llama_index.llms.nco_guard import NCOGuardLLM

from nco_guard import Policy
from nco_guard.demo import load

TOKENS = 64
ROUNDS = 15
PROMPT = "Dear team,\n\nI am writing about order"


def complete(llm: LLM) -> None:
    llm.complete(PROMPT, formatted=True)


def stream(llm: LLM) -> None:
    for _ in llm.stream_complete(PROMPT, formatted=True):
        pass


def milliseconds(route: Callable[[LLM], None], llms: Iterable[LLM]) -> list[float]:
    """The best round of each, the rounds of all taken in turn: what else the machine does falls on all alike."""
    llms = list(llms)
    best = [float("inf")] * len(llms)
    for _ in range(ROUNDS + 1):  # in the first, tables and caches fill up
        for place, llm in enumerate(llms):
            begun = time.process_time()
            route(llm)
            best[place] = min(best[place], time.process_time() - begun)
    return [1000 * seconds for seconds in best]


def main() -> None:
    torch.set_num_threads(1)
    model, tokenizer = load()
    bare = HuggingFaceLLM(
        model=model,
        tokenizer=tokenizer,
        context_window=1024,
        max_new_tokens=TOKENS,
        generate_kwargs={"suppress_tokens": [tokenizer.eos_token_id], "do_sample": False},
    )
    llms: dict[str, LLM] = {"HuggingFaceLLM": bare}
    for name, presets in {"pii": ["pii"], "pii, secrets, ldnoobw": ["pii", "secrets", "ldnoobw"]}.items():
        policy = Policy.from_presets(*presets)
        llms[f"NCOGuardLLM, {name}"] = NCOGuardLLM.from_huggingface_llm(bare, policy=policy)
    print(f"{TOKENS} tokens, one thread, best of {ROUNDS}")
    whole, streamed = milliseconds(complete, llms.values()), milliseconds(stream, llms.values())
    for name, at_once, piecewise in zip(llms, whole, streamed, strict=True):
        print(
            f"{name:36} complete {at_once:7.1f} ms   stream {piecewise:7.1f} ms   per token {at_once / TOKENS:5.2f} ms"
        )


if __name__ == "__main__":
    main()
