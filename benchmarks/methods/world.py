"""The methods behind one interface, and the world that they run in: a tokenizer and everybody's view of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs.constraints import ConstraintSet
from benchmarks.inputs.texts import PROSE
from benchmarks.methods.peers import LLGuidance, XGrammar
from nco_guard import demo
from nco_guard.errors import NCOGuardError
from nco_guard.tokens import Vocabulary, read_vocabulary
from tools.demo_model.corpus import documents

__all__ = [
    "BASE",
    "METHODS",
    "READERS",
    "Method",
    "World",
    "cannot_express",
    "read_view",
    "read_world",
]

#: The model alone, in records.
BASE = "unguarded"


@dataclass(frozen=True)
class Method:
    """key: as in records. title: as in reports. exact: its masks can be compared with ours."""

    key: str
    title: str
    kind: Literal["ours", "baseline", "peer"]
    exact: bool


METHODS: dict[str, Method] = {
    method.key: method
    for method in (
        Method("ours", "nco-guard", "ours", True),
        Method("rejection", "rejection sampling", "baseline", False),
        Method("guard-trie", "GUARD trie", "baseline", True),
        Method("paper-nco", "the paper's NCO", "baseline", True),
        Method("bad-words", "bad_words_ids", "baseline", False),
        Method("llguidance", "llguidance", "peer", True),
        Method("xgrammar", "xgrammar", "peer", True),
    )
}


def cannot_express(method: Method, constraint: ConstraintSet) -> str:
    """Why a method does not have a constraint; empty if it does."""
    if method.kind == "ours":
        return ""
    if constraint.beyond:
        return constraint.beyond
    _, patterns = constraint.plain
    if patterns and method.key in ("bad-words", "xgrammar"):
        return "patterns: it has strings only"
    return ""


@dataclass
class World:
    """A tokenizer, its vocabulary, and text; the peers' views of the tokenizer are read when first asked for."""

    name: str
    folder: Path
    tokenizer: Any
    vocabulary: Vocabulary
    threads: int
    _views: dict[str, Any] = field(default_factory=dict)

    def view(self, method: str) -> Any:
        """The tokenizer as llguidance or xgrammar sees it."""
        if method not in self._views:
            self._views[method] = read_view(method, self.tokenizer, self.vocabulary.width)
        return self._views[method]

    def special(self) -> NDArray[np.bool_]:
        """Columns that peers forbid by rules of their own: special and added tokens, and columns without a token."""
        special = np.array([not token for token in self.vocabulary.tokens])
        special[[*self.tokenizer.get_added_vocab().values(), *self.vocabulary.unusable_ids]] = True
        return special

    def text(self, tokens: int) -> list[int]:
        """At least that many tokens of English prose and of fictional letters full of personal data."""
        ids: list[int] = []
        for number, document in enumerate(documents(4 * tokens, seed=1)):
            if len(ids) >= tokens:
                break
            body = document.text or "\n".join(str(m.get("content") or "") for m in document.messages)
            ids += self.tokenizer(
                PROSE if number % 4 == 0 else body + "\n", add_special_tokens=False
            ).input_ids
        return ids

    def text_near(self, pieces: Sequence[str], tokens: int) -> list[int]:
        """At least that many tokens of prose with the pieces strewn in, so that long lists are not walked past."""
        words = PROSE.split()
        mixed: list[str] = []
        ids: list[int] = []
        while len(ids) < tokens:
            start = len(mixed)
            for number, piece in enumerate(pieces or ("",)):
                mixed += [words[(start + number) % len(words)], piece]
            ids = self.tokenizer(" ".join(mixed), add_special_tokens=False).input_ids
        return ids[:tokens]

    def corpus(self) -> tuple[str, ...]:
        """Texts in which GUARD looks for what patterns match."""
        found = (
            d.text or "\n".join(str(m.get("content") or "") for m in d.messages) for d in documents(300, 1)
        )
        return tuple(text for text in found if text)


def read_world(folder: Path | None, threads: int) -> World:
    """The tokenizer of a folder, or the shipped one. Raises `NCOGuardError` for a folder without a readable one."""
    from transformers import AutoTokenizer

    path = demo.model_path() if folder is None else folder
    if not path.is_dir():
        raise NCOGuardError(f"{path}: no such folder")
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise NCOGuardError(f"{path}: no tokenizer that transformers can read") from error
    if tokenizer.eos_token_id is None:
        raise NCOGuardError(f"{path}: the tokenizer has no end-of-sequence token, which the peers need")
    vocabulary = read_vocabulary(tokenizer)
    name = "shipped" if folder is None else path.resolve().name
    return World(f"{name} ({vocabulary.width:,})", path, tokenizer, vocabulary, threads)


#: Of each peer, its own reading of a tokenizer.
READERS: dict[str, Callable[[Any, int], Any]] = {"llguidance": LLGuidance.read, "xgrammar": XGrammar.read}


def read_view(method: str, tokenizer: Any, width: int) -> Any:
    """llguidance's or xgrammar's own reading of a tokenizer."""
    return READERS[method](tokenizer, width)
