"""What the experiments are asked to do; the command line is made of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from benchmarks.experiments.architectures import ARCHITECTURES
from benchmarks.harness.options import Batches, Names, known

__all__ = ["BARE", "COMPARED", "TABLES", "ExperimentOptions"]

#: The model alone, in records of experiments.
BARE = "base"
COMPARED = (BARE, "rejection", "guard-trie", "paper-nco", "ours")
TABLES = {"1": "1: profanity", "2": "2: PII"}


def _of_known_models(texts: Names) -> Names:
    for name in {text.rpartition("=")[0] for text in texts} - {"", *ARCHITECTURES}:
        raise ValueError(f"{name}: there is {', '.join(ARCHITECTURES)}")
    return texts


class ExperimentOptions(BaseModel):
    """Options of a run; what is left out is the paper's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    models: Annotated[Names, known(ARCHITECTURES)] = Field(
        (), description=f"Of {', '.join(ARCHITECTURES)}; all."
    )
    tables: Annotated[Names, known(TABLES)] = Field((), description=f"Of {', '.join(TABLES)}; both.")
    methods: Annotated[Names, known(COMPARED)] = Field((), description=f"Of {', '.join(COMPARED)}; all.")
    batches: Batches = Field((), description="1 2 4 ... 64; small: 1 4.")
    new_tokens: int | None = Field(None, ge=1, description="256; small: 16.")
    repeats: int = Field(3, ge=1, description="How often each method generates; 3.")
    tokenizer: Annotated[Names, AfterValidator(_of_known_models)] = Field(
        (), description="FOLDER of all models, or MODEL=FOLDER of one."
    )
    device: str | None = Field(None, description="cuda; small: cpu.")
    cpu_small: bool = Field(False, description="Small shapes, on the CPU: a minute or two.")

    @property
    def chosen_models(self) -> tuple[str, ...]:
        """In the order in which they were named."""
        return self.models or tuple(ARCHITECTURES)

    @property
    def chosen_tables(self) -> list[str]:
        """As records call them."""
        return [name for number, name in TABLES.items() if number in (self.tables or TABLES)]

    @property
    def chosen_methods(self) -> tuple[str, ...]:
        """The model alone among them, to which all others are relative."""
        return tuple(dict.fromkeys((BARE, *(self.methods or COMPARED))))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Batch sizes."""
        return self.batches or ((1, 4) if self.cpu_small else (1, 2, 4, 8, 16, 32, 64))

    @property
    def tokens(self) -> int:
        """New tokens of each sequence."""
        return self.new_tokens or (16 if self.cpu_small else 256)

    @property
    def where(self) -> str:
        """The device."""
        return self.device or ("cpu" if self.cpu_small else "cuda")

    @property
    def folders(self) -> dict[str, Path]:
        """Of tokenizers, by model."""
        found: dict[str, Path] = {}
        for text in self.tokenizer:
            name, _, folder = text.rpartition("=")
            found |= dict.fromkeys([name] if name else ARCHITECTURES, Path(folder))
        return found
