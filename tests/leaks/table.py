"""The table of `docs/guarantees.md`: how many routes with how many shapes, how many places, how many leaks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tests.leaks.corpus import CORPUS, ROOMS, routes_of
from tests.leaks.routes import carried

__all__ = ["DOCS", "table", "written_counts", "written_table"]

DOCS = Path(__file__).parents[2] / "docs" / "guarantees.md"
_TITLES = {
    "core": "the core, and the command line",
    "values": "the room for values",
    "langchain": "LangChain: models, chains, audit",
    "agents": "LangChain: agents with the middleware",
    "llama_index": "LlamaIndex: LLMs, tools, retrievers, agents, audit",
}
_HEAD = "| what | routes | shapes | routes with shapes | places looked at | leaks |"


def table(found: Mapping[str, tuple[int, int]]) -> str:
    """One line for each room, without shapes for which a package may be missing.

    `found`: for rooms that were run how many places were looked at, and how many routes with shapes showed something or
    changed what held nothing. For others a dash stands there.
    """
    corpus = [shape for shape in CORPUS if not shape.optional]
    rows = []
    for room in ROOMS:
        routes = routes_of(room)
        kinds = frozenset(kind for one in routes for kind in one.carries)
        pairs = sum(len(carried(one, corpus)) for one in routes)
        shapes = sum(shape.kind in kinds for shape in corpus)
        rows.append((_TITLES[room], len(routes), shapes, pairs, *found.get(room, (None, None))))
    known = [row for row in rows if row[4] is not None]
    sums = [sum(row[at] or 0 for row in known) if known else None for at in (4, 5)]
    rows.append(("together", sum(row[1] for row in rows), len(corpus), sum(row[3] for row in rows), *sums))
    lines = [_HEAD, "|---|---|---|---|---|---|"]
    for title, *counts in rows:
        lines.append(f"| {' | '.join([title, *('-' if n is None else f'{n:,}' for n in counts)])} |")
    return "\n".join(lines)


def written_table() -> str:
    """The table as the documentation has it."""
    found = re.search(re.escape(_HEAD) + r"\n(?:\|.*\n)+", DOCS.read_text())
    return found[0].strip() if found else ""


def written_counts() -> dict[str, tuple[int, int]]:
    """What the documentation says of places and leaks, by room."""
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in written_table().splitlines()]
    named = {row[0]: row for row in rows}
    return {
        room: (int(row[4].replace(",", "")), int(row[5].replace(",", "")))
        for room, title in _TITLES.items()
        if (row := named.get(title)) is not None
    }
