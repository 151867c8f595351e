"""The methods behind one interface, and the world that they run in: a tokenizer and everybody's view of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from nco_guard import demo
from nco_guard.bench.constraints import ConstraintSet
from nco_guard.bench.processes import timed
from nco_guard.compiler import compile_policy
from nco_guard.demo.corpus import documents
from nco_guard.errors import NCOGuardError
from nco_guard.evaluation.baselines import NCO, BadWords, Baseline, GuardTrie, Prepared, RejectionSampling
from nco_guard.evaluation.peers import LLGuidance, PreparedPeer, XGrammar
from nco_guard.session import BoundGuard
from nco_guard.tokens import Vocabulary, read_vocabulary

__all__ = [
    "METHODS",
    "Built",
    "Method",
    "World",
    "allowed_rows",
    "build",
    "cannot_express",
    "read_view",
    "read_world",
]

Ids = NDArray[np.int64]
PROSE = (
    "The assembly met again in the old town hall, and the secretary read the minutes of the last meeting. Questions "
    "about the budget were sent to mary.jones(at)example, not to the office; her number is 555-01, she said, and her "
    "account ends in 4411-22. Nobody asked why the analysis of the documents had taken so long. A class of students "
    "listened from the gallery: «C'est la vie», said one, 「本当に?」 another. At 10:45 the chair closed the session.\n"
)


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


def read_view(method: str, tokenizer: Any, width: int) -> Any:
    """llguidance's or xgrammar's own reading of a tokenizer."""
    reader = LLGuidance.read if method == "llguidance" else XGrammar.read
    return reader(tokenizer, width)


@dataclass(frozen=True)
class Built:
    """A method that is ready: `bound` if it is ours, else `prepared`. seconds: of the parts of its set-up."""

    method: Method
    seconds: dict[str, float]
    bound: BoundGuard | None = None
    prepared: Prepared | None = None

    @property
    def table_mib(self) -> float | None:
        """What the method says of its tables."""
        held = int(self.bound.stats["table_bytes"]) if self.bound else self.other().nbytes
        return None if held is None else held / 2**20

    def guard(self) -> BoundGuard:
        """Ours. Raises `TypeError` for another method."""
        if self.bound is None:
            raise TypeError(f"{self.method.key} is no guard")
        return self.bound

    def other(self) -> Prepared:
        """Another's. Raises `TypeError` for ours."""
        if self.prepared is None:
            raise TypeError("ours is no baseline")
        return self.prepared

    def first_mask(self) -> NDArray[np.bool_]:
        """The mask of the empty text: bool [width]."""
        return self.bound.session().mask() if self.bound else self.other().forbidden([])


def _baseline(method: Method, world: World, patterns: Sequence[str]) -> Baseline:
    threads = world.threads
    makers: dict[str, Callable[[], Baseline]] = {
        "rejection": RejectionSampling,
        "guard-trie": lambda: GuardTrie(corpus=world.corpus() if patterns else ()),
        "paper-nco": NCO,
        "bad-words": BadWords,
        "llguidance": lambda: LLGuidance(view=world.view("llguidance"), threads=threads),
        "xgrammar": lambda: XGrammar(view=world.view("xgrammar"), threads=threads),
    }
    return makers[method.key]()


def build(method: Method, constraint: ConstraintSet, world: World, *, batch: int = 1) -> Built:
    """Set a method up, the vocabulary read beforehand. Parts for ours: compile, and bind without the prefix tree.

    batch: for how many rows matchers are made beforehand. Raises what the method raises.
    """
    torch.set_num_threads(world.threads)
    if method.kind == "ours":
        policy = constraint.policy
        compiled, compiling = timed(lambda: compile_policy(policy))
        bound, binding = timed(lambda: BoundGuard(compiled, world.vocabulary))
        tree = float(bound.stats["tree_seconds"])
        parts = {"compile_s": compiling, "bind_s": binding - tree, "setup_s": compiling + binding - tree}
        return Built(method, parts, bound=bound)
    texts, patterns = constraint.plain
    baseline = _baseline(method, world, patterns)
    prepared, seconds = timed(
        lambda: baseline.setup(texts, patterns, world.tokenizer, vocabulary=world.vocabulary)
    )
    if isinstance(prepared, PreparedPeer):
        prepared.reserve(batch)
    return Built(method, {"setup_s": seconds}, prepared=prepared)


def allowed_rows(constraint: ConstraintSet, world: World, rows: int, steps: int) -> Ids:
    """int64 [rows, steps]: the text from different places, without the tokens that the constraint forbids there.

    The guard decides which those are; that it decides rightly is checked by `equality`.
    """
    bound = build(METHODS["ours"], constraint, world).guard()
    text = world.text(2 * steps + 64)
    stride = max(1, len(text) // rows)
    result = np.zeros((rows, steps), np.int64)
    for row in range(rows):
        session = bound.session()
        at, kept = row * stride, 0
        while kept < steps:
            token = text[at % len(text)]
            at += 1
            ids = session.forbidden_ids()
            place = int(np.searchsorted(ids, token))
            if place < len(ids) and ids[place] == token:
                if at > 50 * (steps + len(text)):
                    raise NCOGuardError(f"{constraint.name} forbids nearly all of the benchmark's text")
                continue
            session.advance(token)
            result[row, kept] = token
            kept += 1
    return result
