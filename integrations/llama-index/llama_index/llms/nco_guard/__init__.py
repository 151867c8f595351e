"""LlamaIndex and nco-guard: local models that cannot write what a policy forbids, and checks for everything else.

    from llama_index.llms.nco_guard import NCOGuardLLM

    llm = NCOGuardLLM("my-model", guard=["pii", "ldnoobw"])

`NCOGuardLLM` enforces while the model writes. `VerifiedLLM` (any other LLM, streams included), `NCOGuardPostprocessor`
(retrieved text), `verified_tool` (results of tools) and `NCOGuardOutputParser` (finished output) verify and redact;
`NCOGuardAuditHandler` records.
"""

from llama_index.llms.nco_guard.base import NCOGuardLLM
from llama_index.llms.nco_guard.instrumentation import NCOGuardAuditHandler
from llama_index.llms.nco_guard.output_parser import NCOGuardOutputParser
from llama_index.llms.nco_guard.postprocessor import NCOGuardPostprocessor
from llama_index.llms.nco_guard.tools import verified_tool
from llama_index.llms.nco_guard.verified import VerifiedLLM

__all__ = [
    "NCOGuardAuditHandler",
    "NCOGuardLLM",
    "NCOGuardOutputParser",
    "NCOGuardPostprocessor",
    "VerifiedLLM",
    "verified_tool",
]
