"""The paper's method, NCO, and its ablations: dense token tables, masks by look-up and by a matrix product.

Source: the paper, section 4 and appendix B, and "Ablation Implementation Details" of its appendix on experiments.
Strings are one Aho-Corasick automaton, patterns one DFA each (compiled by interegular), simulated in parallel.

The paper describes the ablation "without suffix map" twice: in its text on implementation the suffix-reachable states
are computed for each token by itself, which is `bpe=False` here; in its table set-up gets shorter and steps slower,
which is `suffix_map=False` here: nothing is kept, and the chosen token's suffixes are read at each step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from benchmarks.methods.baselines.automata import DFAs, aho_corasick, compile_dfas
from benchmarks.methods.baselines.base import (
    Baseline,
    Prepared,
    Stateful,
    Task,
)
from benchmarks.methods.baselines.matching import Matcher
from benchmarks.methods.baselines.nco_naive import naive_regex_tables, naive_string_tables
from benchmarks.methods.baselines.nco_tables import (
    TokenTables,
    bpe_merges,
    regex_rows,
    string_rows,
    token_tables,
)
from benchmarks.methods.baselines.reversed_trie import ReversedTrie
from nco_guard.tokens import Vocabulary

__all__ = ["NCO", "PreparedNCO"]

Setup = Literal["bpe", "per-token", "naive"]


@dataclass(frozen=True)
class NCO(Baseline):
    """Negative constrained decoding as in the paper; each switch takes one component away.

    Attributes:
        setup_by: "bpe" composes tables along the merges; "per-token" reads every token by itself (without BPE
            precomputation); "naive" is algorithms 1 and 3 in plain Python, for vocabularies of a few hundred tokens.
        failure_links: without them a reversed trie reads the end of the text anew at each step (strings only).
        suffix_map: without it the chosen token's suffixes are read at each step, in Python.
        matmul: without it the masks of active DFA states are joined one by one.

    All of them forbid the same tokens. Cost: tables of states x vocabulary; see `nco_tables`.
    """

    setup_by: Setup = "bpe"
    failure_links: bool = True
    suffix_map: bool = True
    matmul: bool = True

    not_enforced: ClassVar[tuple[str, ...]] = (
        "patterns over text that is not ASCII: each byte above 127 is one unknown character",
        "anchors, word boundaries and lookaround in patterns: interegular refuses some and misreads others",
        "well-formed UTF-8, unused columns of the logits and ways out of dead ends",
        "a first space that decoding drops: it is read as part of the text",
    )

    @property
    def name(self) -> str:  # type: ignore[override]
        """The paper's name of the variant."""
        parts = {
            "naive set-up": self.setup_by == "naive",
            "w/o BPE Precomp.": self.setup_by == "per-token",
            "w/o AC Trie": not self.failure_links,
            "w/o Suffix Map": not self.suffix_map,
            "w/o MatMul": not self.matmul,
        }
        return " ".join(["NCO", *(part for part, on in parts.items() if on)])

    def prepare(self, task: Task) -> Prepared:
        """See `Baseline.setup`."""
        strings, patterns, place = task.strings, task.patterns, task.device
        vocabulary = task.vocabulary(self.name)
        if not self.failure_links:
            return ReversedTrie(strings, patterns, vocabulary, place, self.name)
        merges = bpe_merges(task.tokenizer, vocabulary) if self.setup_by == "bpe" else None
        words = searches = dfas = None
        if strings and self.setup_by == "naive":
            words = naive_string_tables(strings, vocabulary, place)
        elif strings:
            words = token_tables(vocabulary, string_rows(*aho_corasick(strings), place), merges)
        if patterns:
            dfas = compile_dfas(patterns)
            if self.setup_by == "naive":
                searches = naive_regex_tables(dfas, vocabulary, place)
            else:
                rows, starts = regex_rows(dfas, place, reach=self.suffix_map)
                inside = None
                if not self.suffix_map:
                    search = Matcher((), patterns)
                    inside = np.array([search.read(search.start, token)[1] for token in vocabulary.tokens])
                searches = token_tables(vocabulary, rows, merges, starts, inside)
        suffixes = None if self.suffix_map or not patterns else Matcher((), patterns)
        return PreparedNCO(self.name, vocabulary, words, searches, dfas, suffixes, self.matmul)


@dataclass
class States:
    """Of a batch. word: int64 [batch], the Aho-Corasick state. active: 0 or 1, [batch, DFA states and the sink]."""

    word: torch.Tensor
    active: torch.Tensor | None


class PreparedNCO(Stateful[States]):
    """Tables of one set of constraints; algorithms 2 and 6 decode with them."""

    def __init__(
        self,
        name: str,
        vocabulary: Vocabulary,
        words: TokenTables | None,
        searches: TokenTables | None,
        dfas: DFAs | None,
        suffixes: Matcher | None,
        matmul: bool,
    ) -> None:
        self.name = name
        self.width = vocabulary.width
        self._tokens = vocabulary.tokens
        self.words, self.searches = words, searches
        self._suffixes = suffixes
        self._matmul = matmul
        # Sums only need to tell 0 from more; half precision is the accelerator's fast one.
        self._dtype = torch.float16 if self.device.type == "cuda" else torch.float32
        if searches is not None and dfas is not None:
            self._starts = torch.from_numpy(dfas.starts).long().to(self.device)
            if matmul:
                self.searches = replace(searches, blocked=searches.blocked.to(self._dtype))

    @property
    def device(self) -> torch.device:
        """Where the tables lie."""
        tables = self.words or self.searches
        return torch.device("cpu") if tables is None else tables.blocked.device

    @property
    def nbytes(self) -> int:
        """Bytes of Delta, B (booleans, or the matrix that is multiplied) and R."""
        return sum(tables.nbytes for tables in (self.words, self.searches) if tables is not None)

    def start(self, batch: int) -> States:
        """See `Stateful.start`."""
        active = None
        if self.searches is not None:
            active = torch.zeros(batch, len(self.searches.blocked), dtype=self._dtype, device=self.device)
            active[:, self._starts] = 1
        return States(torch.zeros(batch, dtype=torch.int64, device=self.device), active)

    def advance(self, states: States, tokens: torch.Tensor) -> States:
        """See `Stateful.advance`: one look-up for strings; for patterns, R and the moves of what was active."""
        word, active = states.word, states.active
        if self.words is not None:
            word = (self.words.rows.packed[tokens, word] >> 1).long()
        if self.searches is not None and active is not None:
            following = self._suffix_states(self.searches, tokens)
            following.scatter_reduce_(1, self.searches.following(tokens), active, "amax")
            following[:, -1] = 0
            following[:, self._starts] = 1
            active = following
        return States(word, active)

    def _suffix_states(self, searches: TokenTables, tokens: torch.Tensor) -> torch.Tensor:
        """The states that suffixes of each token lead to: [batch, states], 0 or 1."""
        if searches.rows.reach is not None:
            return searches.rows.reach[tokens].to(self._dtype)
        result = torch.zeros(len(tokens), len(searches.blocked), dtype=self._dtype)
        if self._suffixes is not None:
            for row, token in enumerate(tokens.tolist()):
                (_, active), _ = self._suffixes.read(self._suffixes.start, self._tokens[token])
                result[row, list(active)] = 1
        return result.to(self.device)

    def apply(self, states: States, scores: torch.Tensor) -> torch.Tensor:
        """See `Stateful.apply`; dense, as in the paper."""
        blocked: torch.Tensor | None = None
        if self.words is not None:
            blocked = self.words.blocked[states.word]
        if self.searches is not None and states.active is not None:
            found = self._blocked_by_patterns(self.searches.blocked, states.active)
            blocked = found if blocked is None else blocked | found
        return scores if blocked is None else scores.masked_fill(blocked, -math.inf)

    def _blocked_by_patterns(self, blocking: torch.Tensor, active: torch.Tensor) -> torch.Tensor:
        if self._matmul:
            return active @ blocking > 0
        blocked = torch.zeros(len(active), self.width, dtype=torch.bool, device=active.device)
        for row, state in active.nonzero().tolist():
            blocked[row] |= blocking[state]
        return blocked

    def reorder(self, states: States, rows: torch.Tensor) -> States:
        """See `Stateful.reorder`."""
        return States(states.word[rows], None if states.active is None else states.active[rows])
