"""LlamaIndex and nco-guard: local models that cannot write what a policy forbids, and checks for everything else.

    from llama_index.llms.nco_guard import NCOGuardLLM
    llm = NCOGuardLLM("my-model", policy=Policy.from_presets("pii", "ldnoobw"))
"""

from llama_index.llms.nco_guard.base import NCOGuardLLM

__all__ = ["NCOGuardLLM"]
