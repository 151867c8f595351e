"""The table of `docs/guarantees.md`: how many routes with how many shapes, how many places, how many leaks."""

from __future__ import annotations

import re
from pathlib import Path

from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import carried

__all__ = ["DOCS", "table", "written_table"]

DOCS = Path(__file__).parents[2] / "docs" / "guarantees.md"
_TITLES = {
    "core": "the core, and the command line",
    "values": "the room for values",
    "langchain": "LangChain: models, chains, audit",
    "agents": "LangChain: agents with the middleware",
    "llama_index": "LlamaIndex: LLMs, tools, retrievers, agents, audit",
}
_HEAD = "| what | routes | shapes | routes with shapes |"


def table() -> str:
    """One line for each room; counted, not run, and without shapes for which a package may be missing."""
    corpus = [shape for shape in CORPUS if not shape.optional]
    lines = [_HEAD, "|---|---|---|---|"]
    sums = [0, 0, 0]
    for room in ROOMS:
        routes = routes_of(room)
        kinds = frozenset(kind for one in routes for kind in one.carries)
        pairs = sum(len(carried(one, corpus)) for one in routes)
        shapes = sum(shape.kind in kinds for shape in corpus)
        lines.append(f"| {_TITLES[room]} | {len(routes):,} | {shapes:,} | {pairs:,} |")
        sums = [sums[0] + len(routes), len(corpus), sums[2] + pairs]
    lines.append(f"| together | {sums[0]:,} | {sums[1]:,} | {sums[2]:,} |")
    return "\n".join(lines)


def written_table() -> str:
    """The table as the documentation has it."""
    found = re.search(re.escape(_HEAD) + r"\n(?:\|.*\n)+", DOCS.read_text())
    return found[0].strip() if found else ""
