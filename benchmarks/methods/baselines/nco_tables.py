"""The paper's dense tables, token x state: Delta, B and R of its appendix B, set up by composing BPE merges.

A row of a token holds, for every state, where reading the token leads (Delta) and whether a match is complete on the
way (B), packed into one integer: `2 * state + blocked`. So composing two rows is one gather, and a merge rule
(u, v) -> w costs one pass over the states, as in the paper. Rows are composed in chunks of some megabytes, all tokens
of one depth of the merge forest together, on the host or an accelerator.

Memory: for 2,401 states (the lexicon) and 128,256 tokens 616 MB for Delta (16 bits) and 308 MB for B.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.methods.baselines.automata import DFAs
from nco_guard.tokens import Vocabulary

__all__ = ["Merges", "Rows", "TokenTables", "bpe_merges", "regex_rows", "string_rows", "token_tables"]

# States of a chunk of rows: their 64-bit indices then take 5 MB on the host.
_CHUNK = {"cpu": 600_000, "cuda": 20_000_000}


@dataclass(frozen=True)
class Merges:
    """The merge forest: `levels[d]` is int64 [3, n], tokens w, u and v with w = u v, whose parts have lower levels.

    base: tokens that no merge makes (single bytes, added tokens).
    """

    levels: tuple[NDArray[np.int64], ...]
    base: tuple[int, ...]


def bpe_merges(tokenizer: Any, vocabulary: Vocabulary) -> Merges:
    """The merges of a fast tokenizer in BPE order, the first that makes a token from tokens already made.

    Without merges (Unigram) every token is a base token. Costs about a second for 280,000 merges.
    """
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    model = json.loads(backend.model.__getstate__())
    ids: dict[str, int] = model["vocab"] if isinstance(model["vocab"], dict) else {}
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model.get("merges") or []]
    tokens = vocabulary.tokens
    wholes = [ids.get(left + right) for left, right in merges]
    depth = dict.fromkeys(set(range(vocabulary.width)).difference(wholes), 0)
    levels: list[list[tuple[int, int, int]]] = []
    for whole, (left, right) in zip(wholes, merges, strict=True):
        if whole is None or whole in depth:
            continue
        u, v = ids[left], ids[right]
        # Some tokenizers list merges of tokens that decode otherwise than their parts do.
        if u not in depth or v not in depth or tokens[u] + tokens[v] != tokens[whole]:
            continue
        level = max(depth[u], depth[v])
        depth[whole] = level + 1
        if level == len(levels):
            levels.append([])
        levels[level].append((whole, u, v))
    base = tuple(t for t in range(vocabulary.width) if depth.get(t, 0) == 0)
    return Merges(tuple(np.array(level, np.int64).T for level in levels), base)


@dataclass(frozen=True)
class Rows:
    """Rows of some tokens. packed: [n, states], `2 * Delta + B`. reach: bool [n, states], the paper's R, or None."""

    packed: torch.Tensor
    reach: torch.Tensor | None = None

    def at(self, index: torch.Tensor | slice) -> Rows:
        """The rows of an index."""
        return Rows(self.packed[index], None if self.reach is None else self.reach[index])


@dataclass(frozen=True)
class _Patterns:
    """Where the DFAs' start states are, and whose each state is; on the device."""

    starts: torch.Tensor
    owner: torch.Tensor

    def mark(self, packed: torch.Tensor, hits: torch.Tensor) -> None:
        """Set B in all states of each pattern with a hit; hits bool [n, states], the sink left out."""
        rows = hits.any(1).nonzero()[:, 0]  # few tokens hold a whole match
        found = torch.zeros(len(rows), len(self.starts), dtype=torch.int8, device=packed.device)
        found.scatter_reduce_(1, self.owner.expand(len(rows), -1), hits[rows].to(torch.int8), "amax")
        marked = packed[rows]
        marked[:, :-1] |= found[:, self.owner].to(packed.dtype)
        packed[rows] = marked


def _join(left: Rows, right: Rows, patterns: _Patterns | None) -> Rows:
    """Rows of u v from those of u and v: the three recurrences of the paper's section "BPE Merging"."""
    middle = (left.packed >> 1).long()
    packed = right.packed.gather(1, middle) | (left.packed & 1)
    if left.reach is None or right.reach is None or patterns is None:
        return Rows(packed)
    # Matches that begin inside u and end inside v, and those inside v; those inside u are in B of u.
    hits = left.reach[:, :-1] & (right.packed[:, :-1] & 1).bool()
    hits[:, patterns.starts] |= (right.packed[:, patterns.starts] & 1).bool()
    patterns.mark(packed, hits)
    reach = right.reach.to(torch.int8)
    reach.scatter_reduce_(1, (right.packed >> 1).long(), left.reach.to(torch.int8), "amax")
    reach[:, -1] = 0
    return Rows(packed, reach.bool())


def _integer(states: int) -> torch.dtype:
    return torch.int16 if 2 * states < 2**15 else torch.int32


def string_rows(table: NDArray[np.int32], forbidden: NDArray[np.bool_], device: torch.device) -> Rows:
    """Rows of the 256 bytes and, last, of the empty token, for an Aho-Corasick automaton."""
    states = len(table)
    packed = np.concatenate([2 * table.T + forbidden[table.T], 2 * np.arange(states)[None]])
    return Rows(torch.from_numpy(packed).to(device, _integer(states)))


def regex_rows(dfas: DFAs, device: torch.device, *, reach: bool) -> tuple[Rows, _Patterns]:
    """Rows as `string_rows` has them, of DFAs side by side; `reach`: with R.

    In an accepting state every token is blocked (algorithm 3).
    """
    states = dfas.sink + 1
    to = dfas.table.T
    packed = 2 * to + (dfas.accepting[to] | dfas.accepting)
    packed = np.concatenate([packed, (2 * np.arange(states) + dfas.accepting)[None]])
    patterns = _Patterns(
        torch.from_numpy(dfas.starts).long().to(device), torch.from_numpy(dfas.owner).long().to(device)
    )
    suffixes = np.zeros((257, states), bool)
    suffixes[np.arange(256)[:, None], to[:, dfas.starts]] = True
    suffixes[:, -1] = False
    # A match of one byte: of a token's suffixes, the byte itself.
    hits = suffixes & dfas.accepting
    rows = torch.from_numpy(packed).to(device, _integer(states))
    if reach:
        patterns.mark(rows, torch.from_numpy(hits[:, :-1]).to(device))
    return Rows(rows, torch.from_numpy(suffixes).to(device) if reach else None), patterns


@dataclass(frozen=True)
class TokenTables:
    """What decoding looks up. rows: over all tokens of the logits; blocked: bool [states, width], the paper's B."""

    rows: Rows
    blocked: torch.Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of Delta, B and R."""
        tensors = (self.rows.packed, self.rows.reach, self.blocked)
        return sum(t.nbytes for t in tensors if t is not None)

    def following(self, tokens: torch.Tensor) -> torch.Tensor:
        """Delta of some tokens: int64 [n, states]."""
        return (self.rows.packed[tokens] >> 1).long()


def token_tables(
    vocabulary: Vocabulary,
    byte_rows: Rows,
    merges: Merges | None,
    patterns: _Patterns | None = None,
    inside: NDArray[np.bool_] | None = None,
) -> TokenTables:
    """Algorithms 4 and 5 ("BPE-Aware Precomputation"); without `merges` every token is read by itself.

    inside: bool [width], tokens with a match inside them, where no R is kept to find that out.
    """
    device, states = byte_rows.packed.device, byte_rows.packed.shape[1]
    shape = (vocabulary.width, states)
    packed = torch.empty(shape, dtype=byte_rows.packed.dtype, device=device)
    reach = None if byte_rows.reach is None else torch.empty(shape, dtype=torch.bool, device=device)
    whole = Rows(packed, reach)
    step = max(1, _CHUNK.get(device.type, _CHUNK["cuda"]) // states)

    def put(ids: torch.Tensor, rows: Rows) -> None:
        packed[ids] = rows.packed
        if reach is not None and rows.reach is not None:
            reach[ids] = rows.reach

    alone = range(vocabulary.width) if merges is None else merges.base
    for ids, data in _by_length(alone, vocabulary.tokens, step):
        rows = byte_rows.at(torch.full((len(ids),), 256, device=device))
        for column in torch.from_numpy(data).to(device).T:
            rows = _join(rows, byte_rows.at(column), patterns)
        put(torch.from_numpy(ids).to(device), rows)
    for level in () if merges is None else merges.levels:
        triples = torch.from_numpy(np.ascontiguousarray(level)).to(device)
        for first in range(0, triples.shape[1], step):
            w, u, v = triples[:, first : first + step]
            put(w, _join(whole.at(u), whole.at(v), patterns))
    if inside is not None:
        packed[torch.from_numpy(np.flatnonzero(inside)).to(device), : states - 1] |= 1
    packed[list(vocabulary.eos_ids)] &= -2
    blocked = torch.empty((states, vocabulary.width), dtype=torch.bool, device=device)
    # By blocks: a transposition of the whole would walk over memory in strides.
    for first in range(0, vocabulary.width, 256):
        part = (packed[first : first + 256] & 1).to(torch.uint8)
        blocked[:, first : first + 256] = part.t().contiguous().bool()
    return TokenTables(whole, blocked)


def _by_length(
    ids: Sequence[int], tokens: Sequence[bytes], step: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Ids of tokens of equal length, some at a time, and their bytes: int64 [n, length]."""
    groups: dict[int, list[int]] = {}
    for token in ids:
        groups.setdefault(len(tokens[token]), []).append(token)
    for length, members in groups.items():
        for first in range(0, len(members), step):
            part = members[first : first + step]
            data = np.frombuffer(b"".join(tokens[token] for token in part), np.uint8)
            yield np.array(part, np.int64), data.reshape(len(part), length).astype(np.int64)
