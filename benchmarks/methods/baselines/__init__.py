"""The methods that the paper compares, and its own, behind one interface (`base.Baseline`).

`BASELINES` names all of them. They are for measuring beside nco-guard, not for use: read their `not_enforced`.
Importing this imports torch and transformers.
"""

from __future__ import annotations

from nco_guard.errors import MissingExtraError

try:
    from benchmarks.methods.baselines.bad_words import BadWords
except ImportError as error:
    raise MissingExtraError("the baselines", "hf") from error
from benchmarks.methods.baselines.base import Baseline, Prepared, Processor, Stateful, Task
from benchmarks.methods.baselines.guard_trie import GuardTrie
from benchmarks.methods.baselines.nco import NCO
from benchmarks.methods.baselines.rejection import RejectionSampling

__all__ = [
    "ABLATIONS",
    "BASELINES",
    "NCO",
    "BadWords",
    "Baseline",
    "GuardTrie",
    "Prepared",
    "Processor",
    "RejectionSampling",
    "Stateful",
    "Task",
]

BASELINES: dict[str, Baseline] = {
    "rejection": RejectionSampling(),
    "guard": GuardTrie(),
    "nco": NCO(),
    "bad-words": BadWords(),
}
"""The paper's baselines and transformers' own, by short names."""

ABLATIONS: dict[str, Baseline] = {
    "no-failure-links": NCO(failure_links=False),
    "no-bpe": NCO(setup_by="per-token"),
    "no-suffix-map": NCO(suffix_map=False),
    "no-matmul": NCO(matmul=False),
    "naive": NCO(setup_by="naive"),
}
"""The paper's method without one of its components each; "naive" is for vocabularies of a few hundred tokens."""
