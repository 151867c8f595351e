"""Other engines under the same constraints: llguidance and xgrammar, as baselines (`baselines.Baseline`).

Both are imported when they are set up; `benchmarks/requirements.txt` brings them. For a benchmark of masks alone,
`matcher()` follows one sequence without scores.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.errors import MissingPackageError
from benchmarks.methods.baselines.base import Baseline, Stateful, Task
from nco_guard.errors import ForbiddenTokenError, PatternError, UnsupportedError
from nco_guard.tokens import Vocabulary

__all__ = ["PEERS", "LLGuidance", "PeerMatcher", "PreparedPeer", "XGrammar"]

# llguidance's default limits refuse a lexicon of some hundred strings.
_LIMITS = {"initial_lexer_fuel": 2 * 10**9, "step_lexer_fuel": 2 * 10**9, "max_lexer_states": 2 * 10**6}


class PeerMatcher:
    """One sequence: its step mask, and the step. A wrapper without a cost of its own."""

    def __init__(self, engine: PreparedPeer, matcher: Any) -> None:
        self._engine = engine
        self.raw = matcher

    def forbidden(self) -> NDArray[np.bool_]:
        """The step mask: bool [width], True = forbidden."""
        return self._engine.mask_of(self.raw)

    def advance(self, token: int) -> None:
        """Read a token. Raises `ForbiddenTokenError` if the engine refuses it."""
        if not self._engine.consume(self.raw, token):
            raise ForbiddenTokenError(f"{self._engine.name} refuses token {token}")


class PreparedPeer(Stateful[list[Any]]):
    """An engine's compiled constraint. States are its matchers, one per row; None once a row has ended."""

    def __init__(self, name: str, vocabulary: Vocabulary, device: torch.device) -> None:
        self.name = name
        self.width = vocabulary.width
        self._eos = frozenset(vocabulary.eos_ids)
        self._device = device
        self._spare: list[Any] = []

    @abstractmethod
    def new(self) -> Any:
        """A matcher of the engine at the start of a text."""

    @abstractmethod
    def consume(self, matcher: Any, token: int) -> bool:
        """Let a matcher read a token; False if it refuses."""

    @abstractmethod
    def bits(self, matchers: Sequence[Any]) -> torch.Tensor:
        """What each matcher allows, as bits: int32 [n, ceil(width / 32)] on the host, all rows by one call."""

    def reserve(self, rows: int) -> None:
        """Make matchers in advance, so that the next generations need not: they are part of the set-up."""
        while len(self._spare) < rows:
            self._spare.append(self.new())

    def matcher(self) -> PeerMatcher:
        """A matcher for one sequence."""
        return PeerMatcher(self, self._spare.pop() if self._spare else self.new())

    def mask_of(self, matcher: Any) -> NDArray[np.bool_]:
        """The step mask of one matcher: bool [width], True = forbidden."""
        bits = self.bits([matcher]).numpy().view(np.uint8)[0]
        return ~np.unpackbits(bits, bitorder="little")[: self.width].astype(bool)

    @property
    def device(self) -> torch.device:
        """Where scores lie; the engines work on the host."""
        return self._device

    def start(self, batch: int) -> list[Any]:
        """See `Stateful.start`."""
        return [self.matcher().raw for _ in range(batch)]

    def advance(self, states: list[Any], tokens: torch.Tensor) -> list[Any]:
        """See `Stateful.advance`; the tokens come to the host. Raises `ForbiddenTokenError` for a refused one."""
        following: list[Any] = []
        for matcher, token in zip(states, tokens.tolist(), strict=True):
            if matcher is None or token in self._eos:
                following.append(None)
                continue
            if not self.consume(matcher, token):
                raise ForbiddenTokenError(f"{self.name} refuses token {token}")
            following.append(matcher)
        return following

    def apply(self, states: list[Any], scores: torch.Tensor) -> torch.Tensor:
        """See `Stateful.apply`; rows that have ended are left alone."""
        rows = [row for row, matcher in enumerate(states) if matcher is not None]
        if not rows:
            return scores
        bits = self.bits([states[row] for row in rows]).to(scores.device, non_blocking=True)
        shifts = torch.arange(32, dtype=torch.int32, device=scores.device)
        blocked = (bits[:, :, None] >> shifts & 1).flatten(1)[:, : scores.shape[1]] == 0
        if len(rows) == len(states):
            return scores.masked_fill(blocked, -math.inf)
        result = scores.clone()
        result[rows] = result[rows].masked_fill(blocked, -math.inf)
        return result

    def reorder(self, states: list[Any], rows: torch.Tensor) -> list[Any]:
        """Raises `UnsupportedError`: matchers would have to be copied at every step of a beam search."""
        raise UnsupportedError(f"{self.name} is compared in greedy decoding and sampling, not in beam search")


@dataclass(frozen=True)
class LLGuidance(Baseline):
    """llguidance: all constraints as one lexeme, "any text" without "any text with a match in it".

    view: its own view of the tokenizer from `read`, if that is to stay out of the set-up time. Exact for what it has;
    it forbids more, too: every special token, and tokens that would make the text ill-formed UTF-8.
    """

    view: Any = None
    threads: int | None = None

    name = "llguidance"
    not_enforced: ClassVar[tuple[str, ...]] = (
        "word boundaries and lookaround: refused",
        "a first space that decoding drops: it is read as part of the text",
    )

    @staticmethod
    def read(tokenizer: Any, width: int) -> Any:
        """Its view of a tokenizer of transformers, for `width` columns of logits; about a second for 128,000."""
        return _llguidance().hf.from_tokenizer(tokenizer, n_vocab=width)

    def prepare(self, task: Task) -> PreparedLLGuidance:
        """See `Baseline.setup`. Raises `PatternError` where it refuses the grammar."""
        _llguidance()
        vocabulary = task.vocabulary(self.name)
        view = self.read(task.tokenizer, vocabulary.width) if self.view is None else self.view
        grammar = _exclusion([*map(_escaped, task.strings), *task.patterns])
        return PreparedLLGuidance(vocabulary, task.device, view, grammar, self.threads)


class PreparedLLGuidance(PreparedPeer):
    """llguidance's grammar of one set of constraints; the masks of a batch are computed in parallel."""

    def __init__(
        self, vocabulary: Vocabulary, device: torch.device, view: Any, grammar: str, threads: int | None
    ) -> None:
        super().__init__(LLGuidance.name, vocabulary, device)
        self._library = _llguidance()
        self._view, self._grammar = view, grammar
        self._executor = self._library.LLExecutor(num_threads=threads)
        self.reserve(1)

    @property
    def nbytes(self) -> None:
        """Not told by the library: measure the process."""
        return

    def new(self) -> Any:
        """A matcher of its own: copies of one would wait for each other."""
        limits = self._library.LLParserLimits(**_LIMITS)
        # Its warnings quote the text.
        matcher = self._library.LLMatcher(self._view, self._grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise PatternError("llguidance refuses the grammar", construct="a string or pattern")
        return matcher

    def consume(self, matcher: Any, token: int) -> bool:
        """See `PreparedPeer.consume`."""
        return bool(matcher.consume_token(token))

    def bits(self, matchers: Sequence[Any]) -> torch.Tensor:
        """See `PreparedPeer.bits`."""
        words = -(-self.width // 32)
        bits = torch.empty(len(matchers), words, dtype=torch.int32)
        if len(matchers) == 1:
            matchers[0].unsafe_compute_mask_ptr(bits.data_ptr(), 4 * words)
        else:
            rows = [(matcher, row) for row, matcher in enumerate(matchers)]
            self._executor.unsafe_compute_mask_ptr(rows, bits.data_ptr(), 4 * words, len(rows))
        return bits


@dataclass(frozen=True)
class XGrammar(Baseline):
    """xgrammar: a structural tag of any text that excludes strings.

    view: its own view of the tokenizer from `read`, if that is to stay out of the set-up time. Exact for strings.
    """

    view: Any = None
    threads: int = 1

    name = "xgrammar"
    not_enforced: ClassVar[tuple[str, ...]] = (
        "patterns",
        "a first space that decoding drops: it is read as part of the text",
    )

    @staticmethod
    def read(tokenizer: Any, width: int) -> Any:
        """Its view of a tokenizer of transformers, for `width` columns of logits."""
        eos = tokenizer.eos_token_id
        return _xgrammar().TokenizerInfo.from_huggingface(tokenizer, vocab_size=width, stop_token_ids=[eos])

    def prepare(self, task: Task) -> PreparedXGrammar:
        """See `Baseline.setup`."""
        library = _xgrammar()
        if task.patterns:
            raise UnsupportedError("xgrammar excludes strings only: there are no patterns")
        vocabulary = task.vocabulary(self.name)
        view = self.read(task.tokenizer, vocabulary.width) if self.view is None else self.view
        compiler = library.GrammarCompiler(view, max_threads=self.threads)
        tag = {"type": "structural_tag", "format": {"type": "any_text", "excludes": list(task.strings)}}
        compiled = compiler.compile_structural_tag(json.dumps(tag))
        return PreparedXGrammar(vocabulary, task.device, compiled, self.threads)


class PreparedXGrammar(PreparedPeer):
    """xgrammar's compiled tag."""

    def __init__(self, vocabulary: Vocabulary, device: torch.device, compiled: Any, threads: int) -> None:
        super().__init__(XGrammar.name, vocabulary, device)
        self._library = _xgrammar()
        self._compiled = compiled
        self._batch = self._library.BatchGrammarMatcher(max_threads=threads)

    @property
    def nbytes(self) -> int:
        """What the library says of the compiled grammar."""
        return int(self._compiled.memory_size_bytes)

    def new(self) -> Any:
        """A matcher of the shared compiled grammar."""
        return self._library.GrammarMatcher(self._compiled)

    def consume(self, matcher: Any, token: int) -> bool:
        """See `PreparedPeer.consume`."""
        return bool(matcher.accept_token(token))

    def bits(self, matchers: Sequence[Any]) -> torch.Tensor:
        """See `PreparedPeer.bits`."""
        bits: torch.Tensor = self._library.allocate_token_bitmask(len(matchers), self.width)
        if len(matchers) == 1:
            matchers[0].fill_next_token_bitmask(bits)
        else:
            self._batch.batch_fill_next_token_bitmask(list(matchers), bits)
        return bits


PEERS: dict[str, Baseline] = {"llguidance": LLGuidance(), "xgrammar": XGrammar()}
"""The peers by name."""


def _llguidance() -> Any:
    try:
        import llguidance
        import llguidance.hf
    except ImportError as error:
        raise MissingPackageError("llguidance as a peer", "llguidance") from error
    return llguidance


def _xgrammar() -> Any:
    try:
        import xgrammar
    except ImportError as error:
        raise MissingPackageError("xgrammar as a peer", "xgrammar") from error
    return xgrammar


def _escaped(text: str) -> str:
    """A literal in llguidance's dialect, inside a `/.../` terminal."""
    return "".join(c if c.isalnum() or ord(c) > 127 else rf"\x{{{ord(c):02X}}}" for c in text)


def _exclusion(patterns: Iterable[str]) -> str:
    """llguidance's grammar for texts without a match. One alternation: a complement of each is far slower."""
    bodies = "|".join(f"({pattern.replace('/', chr(92) + '/')})" for pattern in patterns)
    return f"start: TEXT\nTEXT: /(?s:.*)/ & ~/(?s:.*)({bodies})(?s:.*)/\n"
