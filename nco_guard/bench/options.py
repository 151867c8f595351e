"""What a run is asked to do."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["SUITES", "BenchOptions", "Suite"]

Suite = Literal[
    "setup", "steps", "equality", "throughput", "strings", "regexes", "vocabularies", "revise", "memory"
]
#: What each suite measures, in the order in which they run.
SUITES: dict[Suite, str] = {
    "setup": "set-up time and memory, and reading the vocabulary",
    "steps": "the time of one step by batch size, for known and for new states",
    "equality": "masks beside the definition and beside exact peers",
    "throughput": "guarded / unguarded tokens per second of whole generations",
    "strings": "scaling in the number of strings",
    "regexes": "scaling in the number of regular expressions",
    "vocabularies": "scaling in the vocabulary",
    "revise": "one string more on a guard of 10,000",
    "memory": "memory over a long run of random text",
}


class BenchOptions(BaseModel):
    """Options of a run. The defaults are the full run: an hour or more with a vocabulary of 128,000 tokens.

    tokenizers: folders; the first is measured throughout, the others in `vocabularies`. None: the shipped one.
    quick: small sizes; about two minutes with the shipped tokenizer on two idle cores.
    only: these suites. models: in `throughput`, these models alone; all where there are none.
    rounds: how often everything takes turns. threads: of torch and of the peers; None: all cores.
    steps: tokens of the long run. regexpspace: RegexPSPACE's own file, to be used in place of generated patterns.
    seconds, mib: bounds of one case.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokenizers: tuple[Path, ...] = ()
    quick: bool = False
    only: tuple[Suite, ...] = ()
    models: tuple[str, ...] = ()
    rounds: int | None = Field(default=None, ge=1, le=1000)
    threads: int | None = Field(default=None, ge=1, le=1024)
    steps: int | None = Field(default=None, ge=100)
    regexpspace: Path | None = None
    seconds: float | None = Field(default=None, gt=0)
    mib: float | None = Field(default=None, gt=0)

    @property
    def suites(self) -> tuple[Suite, ...]:
        """What runs, in order."""
        return tuple(name for name in SUITES if not self.only or name in self.only)

    @property
    def repeats(self) -> int:
        """Rounds."""
        return self.rounds or (1 if self.quick else 5)

    @property
    def text_steps(self) -> int:
        """Tokens of text per row in which steps are timed."""
        return 60 if self.quick else 500

    @property
    def batches(self) -> tuple[int, ...]:
        """Batch sizes."""
        return (1, 64) if self.quick else (1, 8, 64)

    @property
    def generation_batches(self) -> tuple[int, ...]:
        """Batch sizes of whole generations."""
        return (1, 8) if self.quick else self.batches

    @property
    def new_tokens(self) -> int:
        """Tokens of a generation."""
        return 16 if self.quick else 32

    @property
    def random_steps(self) -> int:
        """Tokens of the long run."""
        return self.steps or (4_000 if self.quick else 1_000_000)

    @property
    def case_seconds(self) -> float:
        """Time bound of one case."""
        return self.seconds or (20.0 if self.quick else 600.0)

    @property
    def case_mib(self) -> float:
        """Memory bound of one case's process, what it shares with this one included."""
        return self.mib or (4096.0 if self.quick else 12288.0)
